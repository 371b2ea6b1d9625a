"""What brokers tell one another: one at a time, in order, and answered once (V20 rests on it)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.answering import AnsweringBroker, Asked
from tidelog.base.control import (
    UPDATE_METADATA,
    VERSIONS,
    ControlledShutdownRequest,
    ControlRequest,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.peers import Peers
from tidelog.peers.link import Address, Wiring
from tidelog.peers.peers import BrokerPeers
from tidelog.wire.codec import entity_type, read_request, write_response
from tidelog.wire.frames import ReceiveBuffers
from tidelog.world.sim.loop import SimLoop
from tidelog.world.sim.network import SimNetwork

PORT = 9092
HERE, THERE, OTHER = 1, 2, 3
TIMEOUT_MS = 2_000
API_VERSIONS = 18


def numbered(number: int, broker_epoch: int = 100) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=number,
        controller_epoch=1,
        broker_epoch=broker_epoch,
        is_full=False,
        deleted_topic_ids=(),
        unreadable=(),
    )


def answer_of(number: int) -> UpdateMetadataResponse:
    return UpdateMetadataResponse(error_code=number)


@dataclass
class Stage:
    seed: int
    received: dict[int, list[int]] = field(default_factory=lambda: {HERE: [], THERE: [], OTHER: []})
    outcomes: dict[int, list[Any]] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    unanswered: list[Asked] = field(default_factory=list)
    answers: bool = True

    def __post_init__(self) -> None:
        self.loop = SimLoop(seed=self.seed)
        self.network = SimNetwork(self.loop)
        self.addresses: dict[int, Address] = {THERE: ("there", PORT), OTHER: ("other", PORT)}
        self.brokers = {broker_id: self.start(broker_id) for broker_id in (THERE, OTHER)}
        self.peers = BrokerPeers(
            Wiring(
                network=self.network.host("here"),
                loop=self.loop,
                clock=self.loop.clock,
                buffers=ReceiveBuffers(),
                client_id="broker-1",
            ),
            HERE,
            self.addresses.get,
            self.serve_here,
            TIMEOUT_MS,
        )

    def start(self, broker_id: int) -> AnsweringBroker:
        host = self.network.host(self.addresses[broker_id][0])
        broker = AnsweringBroker(network=host)
        broker.on_request = lambda asked: self.serve(broker_id, asked)
        broker.listen(PORT)
        return broker

    def serve(self, broker_id: int, asked: Asked) -> None:
        header = asked.header
        if header.api_key != UPDATE_METADATA:
            self.unanswered.append(asked)
            return
        request = read_request(header.api_key, header.version, asked.frame, asked.body_at)
        self.received[broker_id].append(request.controller_id)
        self.unanswered.append(asked)
        if self.answers:
            self.answer(asked)

    def answer(self, asked: Asked) -> None:
        self.unanswered.remove(asked)
        header = asked.header
        request = read_request(header.api_key, header.version, asked.frame, asked.body_at)
        asked.connection.send(
            write_response(
                header.api_key,
                header.version,
                header.correlation_id,
                answer_of(request.controller_id),
            )
        )

    def serve_here(self, request: ControlRequest, done: Callable[[Any], None]) -> None:
        assert isinstance(request, UpdateMetadataRequest)
        self.received[HERE].append(request.controller_id)
        done(answer_of(request.controller_id))

    def send(self, broker_id: int, number: int) -> None:
        peers: Peers = self.peers
        self.outcomes[number] = []
        peers.send(broker_id, numbered(number), lambda outcome: self.note(number, outcome))
        assert self.outcomes[number] == [], "nobody is answered while still asking"

    def note(self, number: int, outcome: Any) -> None:
        self.outcomes[number].append(outcome)
        self.order.append(number)

    def outcome(self, number: int) -> Any:
        self.loop.run_until(lambda: bool(self.outcomes[number]))
        (outcome,) = self.outcomes[number]
        return outcome.code if isinstance(outcome, KafkaError) else outcome


@pytest.fixture(params=range(4))
def stage(request: pytest.FixtureRequest) -> Stage:
    return Stage(request.param)


@pytest.mark.parametrize("broker_id", [HERE, THERE])
def test_requests_to_a_broker_are_delivered_and_answered_in_order(
    stage: Stage, broker_id: int
) -> None:
    for number in range(10):
        stage.send(broker_id, number)
    assert [stage.outcome(number) for number in range(10)] == [answer_of(n) for n in range(10)]
    assert stage.order == stage.received[broker_id] == list(range(10))


def test_a_request_waits_until_the_one_before_was_answered(stage: Stage) -> None:
    stage.answers = False
    for number in range(3):
        stage.send(THERE, number)
    stage.loop.run_for(100)
    assert stage.received[THERE] == [0]
    stage.answer(stage.unanswered[0])
    stage.loop.run_for(100)
    assert stage.received[THERE] == [0, 1]
    assert stage.order == [0]


def test_a_broker_that_does_not_answer_holds_up_no_other(stage: Stage) -> None:
    stage.answers = False
    stage.send(THERE, 1)
    stage.loop.run_for(50)
    stage.answers = True
    stage.send(OTHER, 2)
    stage.send(HERE, 3)
    assert stage.outcome(2) == answer_of(2)
    assert stage.outcome(3) == answer_of(3)
    assert stage.outcomes[1] == []


def test_a_request_without_an_answer_fails_and_the_next_is_sent(stage: Stage) -> None:
    stage.answers = False
    stage.send(THERE, 1)
    stage.send(THERE, 2)
    assert stage.outcome(1) == ErrorCode.request_timed_out
    stage.answers = True
    assert stage.outcome(2) == answer_of(2)
    assert stage.received[THERE] == [1, 2]


def test_a_broker_that_died_is_told_after_it_came_back(stage: Stage) -> None:
    stage.send(THERE, 1)
    stage.outcome(1)
    stage.network.host("there").die()
    stage.loop.run_for(10)
    stage.send(THERE, 2)
    assert stage.outcome(2) == ErrorCode.network_exception
    stage.start(THERE)
    stage.send(THERE, 3)
    assert stage.outcome(3) == answer_of(3)


def test_an_unknown_broker_cannot_be_told(stage: Stage) -> None:
    stage.send(77, 1)
    assert stage.outcome(1) == ErrorCode.network_exception


def test_an_answer_that_cannot_be_read_is_an_error_and_ends_the_connection(stage: Stage) -> None:
    stage.brokers[THERE].on_request = lambda asked: asked.answer(b"\x00\xff\xff")
    stage.send(THERE, 1)
    stage.send(THERE, 2)
    assert stage.outcome(1) == ErrorCode.invalid_request
    stage.brokers[THERE].on_request = lambda asked: stage.serve(THERE, asked)
    assert stage.outcome(2) == answer_of(2)
    assert len(stage.brokers[THERE].connections) == 2


def test_what_waits_for_a_broker_that_is_gone_fails_at_once(stage: Stage) -> None:
    stage.answers = False
    for number in range(5):
        stage.send(THERE, number)
    stage.loop.run_for(50)
    began_ms = stage.loop.clock.monotonic_ms()
    stage.peers.forget(THERE)
    assert [stage.outcome(number) for number in range(5)] == [ErrorCode.network_exception] * 5
    assert stage.loop.clock.monotonic_ms() - began_ms < 50
    assert stage.received[THERE] == [0]
    stage.answers = True
    stage.send(THERE, 5)
    assert stage.outcome(5) == answer_of(5)


def test_after_the_end_everything_fails_but_what_is_local(stage: Stage) -> None:
    stage.answers = False
    stage.send(THERE, 1)
    stage.send(OTHER, 2)
    stage.peers.close()
    assert stage.outcome(1) == stage.outcome(2) == ErrorCode.network_exception


def test_a_broker_that_fails_on_its_own_request_says_so_and_goes_on(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    serve_here, stage.peers._local = stage.peers._local, fail
    stage.send(HERE, 1)
    assert stage.outcome(1) == ErrorCode.unknown_server_error
    assert "a bug for the test" in caplog.text
    stage.peers._local = serve_here
    stage.send(HERE, 2)
    assert stage.outcome(2) == answer_of(2)


def fail(_request: ControlRequest, _done: Callable[[Any], None]) -> None:
    raise RuntimeError("a bug for the test")


def test_whoever_fails_on_an_answer_does_not_hold_up_the_next(stage: Stage) -> None:
    def fail_on_it(_outcome: Any) -> None:
        raise RuntimeError("a bug for the test")

    errors: list[Exception] = []
    stage.loop.on_error = lambda _what, error: errors.append(error)
    stage.peers.send(THERE, numbered(1), fail_on_it)
    stage.send(THERE, 2)
    stage.loop.run_until(lambda: bool(stage.outcomes[2]), 10_000)
    assert stage.received[THERE][0] == 1
    assert len(stage.outcomes[2]) == 1
    assert errors


def test_a_forwarded_request_does_not_hold_up_what_the_controller_says(stage: Stage) -> None:
    outcomes: list[Any] = []
    request = entity_type(API_VERSIONS, 0, "request")()
    stage.peers.forward(THERE, API_VERSIONS, 0, request, outcomes.append)
    stage.loop.run_for(50)
    stage.send(THERE, 1)
    assert stage.outcome(1) == answer_of(1)
    (asked,) = stage.unanswered
    response = entity_type(API_VERSIONS, 0, "response")
    answer = response(error_code=ErrorCode.none, api_keys=())
    asked.connection.send(write_response(API_VERSIONS, 0, asked.header.correlation_id, answer))
    stage.loop.run_until(lambda: bool(outcomes))
    assert outcomes == [answer]
    assert asked.header.client_id == "broker-1"


def test_control_requests_have_the_one_version_there_is(stage: Stage) -> None:
    stage.send(THERE, 1)
    stage.outcome(1)
    header = stage.brokers[THERE].requests[0].header
    assert header.version == VERSIONS[UPDATE_METADATA]


EVENTS = st.sampled_from(("send", "send", "send", "here", "cut", "mend", "reset", "die", "start"))


@given(st.integers(0, 1 << 30), st.lists(EVENTS, min_size=5, max_size=40))
@settings(max_examples=100, deadline=None)
def test_in_order_and_once_whatever_the_network_does(seed: int, events: list[str]) -> None:
    stage = Stage(seed)
    for number, event in enumerate(events):
        host = stage.network.host("there")
        if event == "send":
            stage.send(THERE, number)
        elif event == "here":
            stage.send(HERE, number)
        elif event == "cut":
            stage.network.cut("here", "there")
        elif event == "mend":
            stage.network.mend()
        elif event == "reset":
            host.reset()
        elif event == "die":
            host.die()
        elif host.find_listener(PORT) is None:
            stage.start(THERE)
        stage.loop.run_for(seed * (number + 1) % 60)
    stage.network.mend()
    if stage.network.host("there").find_listener(PORT) is None:
        stage.start(THERE)
    stage.loop.run_for(len(events) * (TIMEOUT_MS + 1_000) + 20_000)
    for number, outcomes in stage.outcomes.items():
        (outcome,) = outcomes
        assert isinstance(outcome, KafkaError) or outcome == answer_of(number)
    assert stage.received[HERE] == sorted(stage.received[HERE])
    answered = [
        n for n, (outcome,) in stage.outcomes.items() if not isinstance(outcome, KafkaError)
    ]
    assert set(answered) <= {*stage.received[THERE], *stage.received[HERE]}
    for broker_id in (HERE, THERE):
        received = stage.received[broker_id]
        assert len(received) == len(set(received)), "nothing is delivered twice"


def test_a_new_incarnation_does_not_wait_for_what_was_meant_for_the_one_before() -> None:
    stage = Stage(seed=0)
    stage.answers = False
    stage.send(THERE, 1)
    stage.loop.run_for(100)
    assert stage.received[THERE] == [1]
    stage.answers = True
    later: list[Any] = []
    stage.peers.send(THERE, numbered(2, broker_epoch=200), later.append)
    stage.loop.run_for(TIMEOUT_MS // 2)
    assert isinstance(stage.outcomes[1][0], KafkaError)
    assert later == [answer_of(2)]


def test_who_asks_to_be_shut_down_does_not_stand_in_his_own_way() -> None:
    """E2: a controller that stops is told what it leads no more before it is answered."""
    stage = Stage(seed=0)
    answers: list[Any] = []
    held: list[Callable[[Any], None]] = []

    def serve(request: ControlRequest, done: Callable[[Any], None]) -> None:
        if isinstance(request, ControlledShutdownRequest):
            held.append(done)
        else:
            stage.serve_here(request, done)

    stage.peers._local = serve
    stage.peers.send(
        HERE, ControlledShutdownRequest(broker_id=HERE, broker_epoch=100), answers.append
    )
    stage.send(HERE, 1)
    stage.loop.run_for(100)
    assert stage.received[HERE] == [1]
    assert answers == []
    held[0]("done")
    stage.loop.run_for(100)
    assert answers == ["done"]
