"""A link to another broker: every request is answered once, by its own answer or by an error.

On the simulated network, which splits what is sent and delays it by the seed; once on real
sockets.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.answering import AnsweringBroker, Asked, echo
from support.peers import LOCAL, World, worlds
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.limits import RECEIVED_BYTES_MAX
from tidelog.peers.link import PAUSE_MS_MAX, Address, Link, Wiring
from tidelog.wire.frames import ReceiveBuffers, Span
from tidelog.wire.header import request_header
from tidelog.wire.values import INT32
from tidelog.world.sim.loop import SimLoop
from tidelog.world.sim.network import CONNECT_TIMEOUT_MS, SimHost, SimNetwork

PORT = 9092
TIMEOUT_MS = 5_000
ECHO = 2
"""A key whose answers have header 0 in version 0."""


@dataclass
class Stage:
    """One link on host `here` to a broker on host `there`."""

    seed: int
    address: Address | None = ("there", PORT)
    outcomes: dict[int, list[bytes | ErrorCode]] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.loop = SimLoop(seed=self.seed)
        self.network = SimNetwork(self.loop)
        self.broker = self.new_broker()
        self.link = Link(
            Wiring(
                network=self.network.host("here"),
                loop=self.loop,
                clock=self.loop.clock,
                buffers=ReceiveBuffers(),
                client_id="link",
                frame_bytes_max=1 << 20,
            ),
            lambda: self.address,
        )

    def new_broker(self, host: str = "there", port: int = PORT) -> AnsweringBroker:
        broker = AnsweringBroker(network=self.network.host(host))
        broker.listen(port)
        return broker

    @property
    def there(self) -> SimHost:
        return self.network.host("there")

    def ask(
        self, body: bytes, timeout_ms: int = TIMEOUT_MS, then: Callable[[], None] | None = None
    ) -> int:
        number = self.link.next_correlation_id()
        self.outcomes[number] = []
        is_asking = True

        def expects(answer: memoryview | KafkaError) -> None:
            assert not is_asking, "nobody is answered while still asking"
            told = answer.code if isinstance(answer, KafkaError) else bytes(answer[4:])
            self.outcomes[number].append(told)
            self.order.append(number)
            if then is not None:
                then()

        self.link.send(frame_of(number, body), expects, timeout_ms)
        is_asking = False
        return number

    def outcome(self, number: int) -> bytes | ErrorCode | None:
        outcomes = self.outcomes[number]
        assert len(outcomes) <= 1, f"{number} was answered more than once"
        return outcomes[0] if outcomes else None

    def wait_for(self, number: int) -> bytes | ErrorCode:
        assert self.loop.run_until(lambda: bool(self.outcomes[number])), "it is never answered"
        outcome = self.outcome(number)
        assert outcome is not None
        return outcome


def frame_of(number: int, body: bytes) -> bytes:
    header = request_header(ECHO, 0, number, "link")
    return INT32.pack(len(header) + len(body)) + header + body


def answer_after(loop: SimLoop, delay_ms: int, asked: Asked) -> None:
    loop.after(delay_ms, lambda: asked.answer(b"old"))


def swallow(_asked: Asked) -> None:
    """Takes a request, and never answers."""


@pytest.fixture(params=range(5))
def stage(request: pytest.FixtureRequest) -> Stage:
    return Stage(request.param)


def test_requests_are_answered_in_order_over_one_connection(stage: Stage) -> None:
    numbers = [stage.ask(b"%d" % number * number) for number in range(100)]
    stage.wait_for(numbers[-1])
    assert [stage.outcome(number) for number in numbers] == [
        b"%d" % number * number for number in range(100)
    ]
    assert stage.order == numbers
    assert len(stage.broker.connections) == 1


def test_a_request_in_parts_arrives_as_one(stage: Stage) -> None:
    frame = frame_of(stage.link.next_correlation_id(), b"abcdef")
    heard: list[bytes] = []
    stage.link.send(
        [frame[:-4], frame[-4:]],
        lambda answer: heard.append(bytes(answer) if isinstance(answer, memoryview) else b""),
        TIMEOUT_MS,
    )
    stage.loop.run_until(lambda: bool(heard))
    assert heard == [INT32.pack(0) + b"abcdef"]


def test_a_large_answer_comes_whole(stage: Stage) -> None:
    body = bytes(range(256)) * 3_000
    assert stage.wait_for(stage.ask(body)) == body


def test_a_large_answer_can_be_seen_to_come(stage: Stage) -> None:
    body = bytes(range(256)) * 3_000
    stage.broker.on_request = lambda asked: asked.answer(body)
    first, second = stage.link.next_correlation_id(), stage.link.next_correlation_id()
    parts: list[bytes] = []
    heard: list[bytes] = []

    def expects(answer: memoryview | KafkaError) -> None:
        assert isinstance(answer, memoryview)
        heard.append(bytes(answer))

    def in_parts(coming: memoryview) -> list[Span]:
        parts.append(bytes(coming))
        return []

    for number in (first, second):
        stage.link.send(
            frame_of(number, b""), expects, TIMEOUT_MS, in_parts if number == second else None
        )
    assert stage.loop.run_until(lambda: len(heard) == 2)
    assert parts, "the second is told of, and only that"
    assert all(heard[1].startswith(part) and len(part) < len(heard[1]) for part in parts)


def test_what_is_used_of_an_answer_as_it_comes_does_not_come_again(stage: Stage) -> None:
    body = bytes(range(256)) * 3_000
    stage.broker.on_request = lambda asked: asked.answer(body)
    used = bytearray()
    heard: list[bytes] = []

    def in_parts(coming: memoryview) -> list[Span]:
        used.extend(coming[4:])
        return [(4, len(coming) - 4)]

    def expects(answer: memoryview | KafkaError) -> None:
        assert isinstance(answer, memoryview)
        heard.append(bytes(answer[4:]))

    number = stage.link.next_correlation_id()
    stage.link.send(frame_of(number, b""), expects, TIMEOUT_MS, in_parts)
    behind = stage.ask(b"")
    assert stage.wait_for(behind) == body
    assert used
    assert bytes(used) + heard[0] == body


def test_a_link_that_is_closed_while_it_tells_of_an_answer_is_closed(stage: Stage) -> None:
    stage.broker.on_request = lambda asked: asked.answer(bytes(500_000))
    heard: list[memoryview | KafkaError] = []
    parts: list[int] = []

    def in_parts(coming: memoryview) -> list[Span]:
        parts.append(len(coming))
        stage.link.close()
        return [(4, len(coming) - 4)]

    number = stage.link.next_correlation_id()
    stage.link.send(frame_of(number, b""), heard.append, TIMEOUT_MS, in_parts)
    assert stage.loop.run_until(lambda: bool(heard))
    assert isinstance(heard[0], KafkaError)
    assert len(parts) == 1


def test_what_comes_and_is_not_the_answer_is_not_told_in_part(stage: Stage) -> None:
    body = bytes(500_000)
    stage.broker.on_request = lambda asked: asked.answer(body, correlation_id=77)
    parts: list[int] = []
    heard: list[memoryview | KafkaError] = []

    def in_parts(coming: memoryview) -> list[Span]:
        parts.append(len(coming))
        return []

    number = stage.link.next_correlation_id()
    stage.link.send(frame_of(number, b""), heard.append, TIMEOUT_MS, in_parts)
    assert stage.loop.run_until(lambda: bool(heard))
    assert isinstance(heard[0], KafkaError)
    assert parts == []


def test_an_answer_that_is_kept_waiting_ends_the_connection_and_not_the_link(stage: Stage) -> None:
    stage.broker.on_request = swallow
    late, behind = stage.ask(b"late", 1_000), stage.ask(b"behind", 3_000)
    assert stage.wait_for(late) == ErrorCode.request_timed_out
    assert stage.wait_for(behind) == ErrorCode.network_exception
    assert 1_000 <= stage.loop.clock.monotonic_ms() < 1_100
    stage.broker.on_request = echo
    assert stage.wait_for(stage.ask(b"again")) == b"again"
    assert len(stage.broker.connections) == 2


def test_each_request_has_its_own_time(stage: Stage) -> None:
    stage.broker.on_request = swallow
    for timeout_ms in (3_000, 1_000, 2_000):
        stage.ask(b"%d" % timeout_ms, timeout_ms)
    began_ms = stage.loop.clock.monotonic_ms()
    assert stage.wait_for(1) == ErrorCode.request_timed_out
    assert stage.loop.clock.monotonic_ms() - began_ms < 1_100


def test_a_late_answer_of_an_old_connection_is_dropped_d6_x12(stage: Stage) -> None:
    held: list[Asked] = []
    stage.broker.on_request = held.append
    first = stage.ask(b"first", 1_000)
    assert stage.wait_for(first) == ErrorCode.request_timed_out
    second = stage.ask(b"second")
    stage.loop.run_until(lambda: len(held) == 2)
    held[0].answer(b"first, late")
    held[0].answer(b"and as if it were the second", correlation_id=second)
    stage.loop.run_for(100)
    assert stage.outcome(second) is None
    held[1].answer(b"second")
    assert stage.wait_for(second) == b"second"
    assert stage.outcome(first) == ErrorCode.request_timed_out


def test_an_answer_that_is_on_its_way_when_the_link_gives_up_is_dropped_x12(stage: Stage) -> None:
    """The two cross on the way, with every delay there is."""
    for delay_ms in range(12):
        stage.broker.on_request = partial(answer_after, stage.loop, delay_ms)
        first = stage.ask(b"first", 6)
        outcome = stage.wait_for(first)
        assert outcome in (b"old", ErrorCode.request_timed_out)
        stage.broker.on_request = echo
        assert stage.wait_for(stage.ask(b"new")) == b"new"


def test_an_answer_to_another_request_than_the_next_ends_the_connection(stage: Stage) -> None:
    stage.broker.on_request = lambda asked: asked.answer(b"", correlation_id=77)
    assert stage.wait_for(stage.ask(b"question")) == ErrorCode.network_exception
    assert len(stage.broker.connections) == 1


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x02ab",
        INT32.pack((1 << 20) + 1),
        b"\x00\x00\x00\x04\x00\x00\x00\x63",
    ],
)
def test_garbage_ends_the_connection_and_not_the_link(stage: Stage, garbage: bytes) -> None:
    stage.broker.on_request = lambda asked: asked.connection.send(garbage)
    question = stage.ask(b"question")
    assert stage.wait_for(question) == ErrorCode.network_exception
    assert stage.loop.clock.monotonic_ms() < TIMEOUT_MS, "it did not have to wait for the timeout"
    stage.broker.on_request = echo
    assert stage.wait_for(stage.ask(b"again")) == b"again"


def test_what_nobody_asked_for_ends_the_connection(stage: Stage) -> None:
    stage.wait_for(stage.ask(b"question"))
    stage.broker.connections[0].send(INT32.pack(4) + INT32.pack(1))
    stage.loop.run_for(100)
    assert len(stage.broker.closings) == 1
    assert stage.wait_for(stage.ask(b"again")) == b"again"


def test_good_answers_before_garbage_count(stage: Stage) -> None:
    def answer(asked: Asked) -> None:
        asked.answer(b"good")
        asked.connection.send(b"\xff\xff\xff\xff")

    stage.broker.on_request = answer
    assert stage.wait_for(stage.ask(b"question")) == b"good"


def test_whoever_cannot_read_an_answer_drops_the_connection(stage: Stage) -> None:
    asked = stage.ask(b"strange", then=lambda: stage.link.drop("it cannot be read"))
    behind = stage.ask(b"behind")
    assert stage.wait_for(asked) == b"strange"
    assert stage.wait_for(behind) == ErrorCode.network_exception
    assert stage.wait_for(stage.ask(b"again")) == b"again"
    assert len(stage.broker.connections) == 2


def test_what_was_under_way_fails_when_the_broker_dies_and_the_next_finds_its_successor(
    stage: Stage,
) -> None:
    stage.broker.on_request = swallow
    numbers = [stage.ask(b"lost") for _ in range(3)]
    stage.loop.run_until(lambda: len(stage.broker.requests) == 3)
    stage.there.die()
    assert [stage.wait_for(number) for number in numbers] == [ErrorCode.network_exception] * 3
    assert stage.wait_for(stage.ask(b"too early")) == ErrorCode.network_exception
    stage.new_broker()
    assert stage.wait_for(stage.ask(b"back")) == b"back"


def test_a_broker_that_came_back_elsewhere_is_found_at_once(stage: Stage) -> None:
    stage.wait_for(stage.ask(b"here"))
    stage.there.vanish()
    lost = stage.ask(b"lost")
    stage.loop.run_for(1_000)
    stage.new_broker("elsewhere", 9093)
    stage.address = ("elsewhere", 9093)
    began_ms = stage.loop.clock.monotonic_ms()
    assert stage.wait_for(stage.ask(b"found")) == b"found"
    assert stage.loop.clock.monotonic_ms() - began_ms < 100
    assert stage.outcome(lost) == ErrorCode.network_exception


def test_another_address_is_tried_without_the_pause_of_the_old_one(stage: Stage) -> None:
    stage.broker.stop_listening()
    for _ in range(6):
        assert stage.wait_for(stage.ask(b"refused")) == ErrorCode.network_exception
    waiting = stage.ask(b"waiting")
    stage.new_broker("elsewhere", 9093)
    stage.address = ("elsewhere", 9093)
    began_ms = stage.loop.clock.monotonic_ms()
    assert stage.wait_for(stage.ask(b"found")) == b"found"
    assert stage.loop.clock.monotonic_ms() - began_ms < 100
    assert stage.outcome(waiting) == b"waiting"


def test_an_attempt_at_an_old_address_is_given_up_for_the_new_one(stage: Stage) -> None:
    stage.there.vanish()
    early = stage.ask(b"early", 2 * CONNECT_TIMEOUT_MS)
    stage.loop.run_for(100)
    stage.new_broker("elsewhere", 9093)
    stage.address = ("elsewhere", 9093)
    found = stage.ask(b"found")
    assert stage.wait_for(found) == b"found"
    assert stage.outcome(early) == b"early"
    assert stage.loop.clock.monotonic_ms() < CONNECT_TIMEOUT_MS


def test_a_connection_that_was_given_up_while_it_was_opened_is_not_used(stage: Stage) -> None:
    stage.network.cut("here", "there")
    stage.ask(b"early", 50)
    stage.loop.run_for(100)
    stage.new_broker("elsewhere", 9093)
    stage.address = ("elsewhere", 9093)
    assert stage.wait_for(stage.ask(b"found")) == b"found"
    stage.network.mend()
    stage.loop.run_for(1_000)
    assert stage.broker.requests == []
    assert len(stage.broker.closings) == len(stage.broker.connections)


def test_attempts_are_made_after_growing_pauses(stage: Stage) -> None:
    """Whoever asks again as soon as it is told of a failure makes no storm of attempts."""
    stage.broker.stop_listening()
    failures: list[int] = []

    def ask_again() -> None:
        failures.append(stage.loop.clock.monotonic_ms())
        if len(failures) < 9:
            stage.ask(b"again", then=ask_again)

    stage.ask(b"first", then=ask_again)
    assert stage.loop.run_until(lambda: len(failures) == 9)
    waits = [later - earlier for earlier, later in pairwise(failures)]
    for waited_ms, pause_ms in zip(waits, (50, 100, 200, 400, 800, 1_000, 1_000), strict=False):
        assert pause_ms <= waited_ms <= pause_ms + 20
    assert waits[-1] < PAUSE_MS_MAX + 20


def test_the_pause_is_short_again_after_an_answer(stage: Stage) -> None:
    stage.broker.stop_listening()
    for _ in range(6):
        assert stage.wait_for(stage.ask(b"refused")) == ErrorCode.network_exception
    stage.new_broker()
    assert stage.wait_for(stage.ask(b"back")) == b"back"
    stage.there.reset()
    stage.loop.run_for(50)
    began_ms = stage.loop.clock.monotonic_ms()
    assert stage.wait_for(stage.ask(b"at once")) == b"at once"
    assert stage.loop.clock.monotonic_ms() - began_ms < 50


def test_a_broker_that_accepts_and_hangs_up_makes_no_storm_either(stage: Stage) -> None:
    stage.broker.on_request = lambda asked: asked.connection.close()
    began_ms = stage.loop.clock.monotonic_ms()
    for _ in range(5):
        assert stage.wait_for(stage.ask(b"question")) == ErrorCode.network_exception
    assert stage.loop.clock.monotonic_ms() - began_ms >= 50 + 100 + 200 + 400
    stage.broker.on_request = echo
    assert stage.wait_for(stage.ask(b"question")) == b"question"
    stage.broker.on_request = lambda asked: asked.connection.close()
    began_ms = stage.loop.clock.monotonic_ms()
    for _ in range(5):
        assert stage.wait_for(stage.ask(b"question")) == ErrorCode.network_exception
    assert stage.loop.clock.monotonic_ms() - began_ms >= 50 + 100 + 200


def test_a_broker_whose_address_is_not_known_is_looked_for_again(stage: Stage) -> None:
    stage.address = None
    for _ in range(3):
        assert stage.wait_for(stage.ask(b"where")) == ErrorCode.network_exception
    waiting = stage.ask(b"there")
    stage.address = ("there", PORT)
    assert stage.wait_for(waiting) == b"there"


def test_a_request_times_out_while_the_connection_is_still_being_opened(stage: Stage) -> None:
    stage.network.cut("here", "there")
    hasty, patient = stage.ask(b"hasty", 300), stage.ask(b"patient", 8_000)
    assert stage.wait_for(hasty) == ErrorCode.request_timed_out
    stage.network.mend()
    assert stage.wait_for(patient) == b"patient"
    assert [request.frame[-7:] for request in stage.broker.requests] == [b"patient"]


def test_a_cut_that_ends_in_time_is_waited_out(stage: Stage) -> None:
    stage.wait_for(stage.ask(b"before"))
    stage.network.cut("there", "here", one_way=True)
    waiting = stage.ask(b"during")
    stage.loop.run_for(TIMEOUT_MS - 100)
    assert stage.outcome(waiting) is None
    stage.network.mend()
    assert stage.wait_for(waiting) == b"during"


def test_a_closed_link_fails_what_was_asked_and_whatever_is_asked(stage: Stage) -> None:
    stage.broker.on_request = swallow
    under_way = stage.ask(b"under way")
    stage.loop.run_until(lambda: bool(stage.broker.requests))
    stage.link.close()
    assert stage.wait_for(under_way) == ErrorCode.network_exception
    assert stage.wait_for(stage.ask(b"afterwards")) == ErrorCode.network_exception
    stage.loop.run_for(100)
    assert len(stage.broker.closings) == 1


def test_a_link_that_is_closed_while_it_opens_leaves_no_connection(stage: Stage) -> None:
    asked = stage.ask(b"question")
    stage.link.close()
    assert stage.wait_for(asked) == ErrorCode.network_exception
    stage.loop.run_for(20_000)
    assert stage.broker.requests == []
    assert len(stage.broker.closings) == len(stage.broker.connections)


def test_correlation_ids_start_again_after_the_last(stage: Stage) -> None:
    for _ in range(3):
        stage.link._correlation_id = (1 << 31) - 2
        numbers = [stage.ask(b"around") for _ in range(4)]
        assert numbers == [(1 << 31) - 2, (1 << 31) - 1, 0, 1]
        assert stage.wait_for(numbers[-1]) == b"around"


def test_no_more_is_received_at_once_than_a_turn_may_serve(stage: Stage) -> None:
    stage.wait_for(stage.ask(b"question"))
    incoming = stage.link._incoming
    assert incoming is not None
    assert len(incoming.buffer()) <= RECEIVED_BYTES_MAX


FAULTS = st.sampled_from(
    ("ask", "ask", "ask", "hasty", "cut", "one way", "mend", "reset", "die", "start", "wait")
)


@given(st.integers(0, 1 << 30), st.lists(FAULTS, min_size=5, max_size=60))
@settings(max_examples=150, deadline=None)
def test_every_request_is_answered_once_and_rightly_whatever_happens(
    seed: int, events: list[str]
) -> None:
    stage = Stage(seed)
    bodies: dict[int, bytes] = {}
    for place, event in enumerate(events):
        if event in ("ask", "hasty"):
            body = b"request %d" % place
            bodies[stage.ask(body, 30 if event == "hasty" else TIMEOUT_MS)] = body
        elif event == "cut":
            stage.network.cut("here", "there")
        elif event == "one way":
            stage.network.cut("there", "here", one_way=True)
        elif event == "mend":
            stage.network.mend()
        elif event == "reset":
            stage.there.reset()
        elif event == "die" and stage.there.find_listener(PORT) is not None:
            stage.there.die()
        elif event == "start" and stage.there.find_listener(PORT) is None:
            stage.new_broker()
        stage.loop.run_for(seed * (place + 1) % 40)
    stage.network.mend()
    stage.loop.run_for(TIMEOUT_MS + CONNECT_TIMEOUT_MS)
    for number, body in bodies.items():
        expected = (body, ErrorCode.request_timed_out, ErrorCode.network_exception)
        assert stage.outcome(number) in expected, f"{number}: {stage.outcomes[number]}"
    if stage.there.find_listener(PORT) is None:
        stage.new_broker()
    if stage.wait_for(stage.ask(b"well again")) != b"well again":
        # A connection that only this side took for open has cost a question, and is gone.
        assert stage.wait_for(stage.ask(b"well again")) == b"well again"


@pytest.fixture
def real_world(tmp_path: Path) -> Iterator[World]:
    yield from worlds("real", tmp_path)


def test_it_works_on_real_sockets(real_world: World) -> None:
    world = real_world
    broker = AnsweringBroker(network=world.network, host=LOCAL)
    port = broker.listen()
    heard: list[bytes | ErrorCode] = []
    wiring = Wiring(
        network=world.network,
        loop=world.loop,
        clock=world.clock,
        buffers=ReceiveBuffers(),
        client_id="link",
    )
    link = Link(wiring, lambda: (LOCAL, port))

    def ask(body: bytes) -> None:
        link.send(frame_of(link.next_correlation_id(), body), expects, TIMEOUT_MS)

    def expects(answer: memoryview | KafkaError) -> None:
        heard.append(answer.code if isinstance(answer, KafkaError) else bytes(answer[4:]))

    bodies = [b"one", bytes(1_000_000), b"three"]
    for body in bodies:
        ask(body)
    world.until(lambda: len(heard) == 3)
    assert heard == bodies
    broker.connections[0].close()
    broker.stop_listening()
    ask(b"lost")
    world.until(lambda: len(heard) == 4)
    ask(b"refused")
    world.until(lambda: len(heard) == 5)
    assert heard[3:] == [ErrorCode.network_exception] * 2
    broker.listen(port)
    ask(b"back")
    world.until(lambda: len(heard) == 6)
    assert heard[5] == b"back"
    link.close()
    broker.stop_listening()
    assert world.errors == []
