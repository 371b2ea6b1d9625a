"""What seldom happens to a topic that is deleted and made again under its name, scripted on brokers
of the explorer (T6): requests of the one before that come late, and brokers that were away."""

from collections.abc import Callable
from typing import Any

import pytest

from support import topic_mutants as topics
from support.scripted_world import Mutant, Scene
from tidelog.base.control import LeaderAndIsrRequest, StopReplicaRequest
from tidelog.base.errors import ErrorCode
from tidelog.cluster.requests import NewTopic
from tidelog.trials.exchange import Answer, Ask
from tidelog.trials.leading import TOPIC, Produce, Produced
from tidelog.trials.violation import Violation


class Making(Scene):
    """Partition 0 is led by broker 1 and followed by broker 2, and has a record."""

    def __init__(self) -> None:
        super().__init__()
        assert self.produce(1, 1) == (0, 0)

    def produce(self, number: int, value: int) -> tuple[int, int]:
        answer = self.ask(number, Produce(0, value, -1))
        assert isinstance(answer, Produced)
        if answer.oracle is not None:
            answer.oracle.acked(answer.offset, value, 0)
        return answer.error, answer.offset

    def make_again(self, *replicas: int) -> None:
        results: list[Any] = []
        controller = self.world.controller()
        assert controller is not None
        controller.metadata.delete_topics([TOPIC], results.append)
        self.run()
        new = NewTopic(name=TOPIC, assignment={0: list(replicas)})
        controller.metadata.create_topics([new], False, results.append)
        self.run()
        assert [isinstance(each, Exception) for (each,) in results] == [False, False]

    def holders(self) -> list[int]:
        """Of the topic as it is now; nobody holds another."""
        topic_id = self.world.topic.topic_id
        disks = self.world.disks.items()
        assert {each for _, disk in disks for each in disk.topic_ids.values()} == {topic_id}
        return [number for number, disk in disks if 0 in disk.logs]


def test_topic_that_is_made_again_is_another_and_begins_empty() -> None:
    scene = Making()
    before = scene.world.topic
    scene.make_again(2, 3)
    assert scene.world.topic is not before
    assert scene.holders() == [2, 3]
    assert not before.oracles[0].logs
    assert scene.produce(2, 2) == (0, 0)
    assert scene.world.counts.topics_made_again == 1


def test_broker_that_was_away_holds_nothing_of_the_topic_that_was_deleted() -> None:
    scene = Making()
    scene.world.kill(2, machine=False)
    scene.run(1_000)
    scene.make_again(1, 3)
    assert sorted(scene.world.disks[2].logs) == [0]
    scene.world.start(2)
    scene.run(3_000)
    assert scene.holders() == [1, 3]


def test_broker_that_was_away_takes_no_old_records_for_those_of_the_new_topic() -> None:
    scene = Making()
    scene.world.kill(2, machine=False)
    scene.run(1_000)
    scene.make_again(1, 3)
    assert scene.produce(1, 2) == (0, 0)
    scene.world.kill(3, machine=False)
    scene.world.start(2)
    scene.run(3_000)
    scene.world.start(3)
    scene.run(3_000)
    assert scene.holders() == [1, 3]
    assert [value for _, value in scene.world.oracles[0].committed] == [2]


def test_follower_of_the_topic_that_was_deleted_is_told_so() -> None:
    scene = Making()
    follower = scene.world.processes[2]
    late = Ask(follower.copies[0].replica, follower.metadata.broker_epoch, b"another topic id")
    leader = scene.world.processes[1].copies[0].replica
    before = leader.remotes[2].log_end_offset
    (answer,) = scene.ask(1, [(0, late)])
    assert isinstance(answer, Answer)
    assert answer.error == ErrorCode.unknown_topic_id
    assert leader.remotes[2].log_end_offset == before


def late_requests(is_late: Callable[[Any], bool]) -> None:
    """Of the topic before, in the order in which they came."""
    scene = Making()
    told = {number: list(filter(is_late, requests)) for number, requests in scene.heard.items()}
    scene.make_again(1, 2)
    assert scene.produce(1, 2) == (0, 0)
    for number, requests in told.items():
        for request in requests:
            scene.ask(number, request)
    assert scene.holders() == [1, 2]
    assert scene.produce(1, 3) == (0, 1)


def is_told_to_lead(request: Any) -> bool:
    return isinstance(request, LeaderAndIsrRequest) and not request.is_full


def is_full(request: Any) -> bool:
    return isinstance(request, LeaderAndIsrRequest) and request.is_full


@pytest.mark.parametrize(
    ("is_late", "mutant"),
    [
        pytest.param(is_told_to_lead, topics.hear_what_comes_late, id="T6-late"),
        pytest.param(is_full, topics.believe_full_requests_whenever_they_come, id="T6-full"),
    ],
)
def test_what_was_said_of_the_topic_before_does_the_new_one_no_harm(
    is_late: Callable[[Any], bool], mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    late_requests(is_late)
    mutant(monkeypatch)
    with pytest.raises(Violation, match="V11"):
        late_requests(is_late)


def test_stop_of_a_replica_of_the_topic_before_does_the_new_one_no_harm() -> None:
    scene = Making()
    scene.make_again(1, 2)
    assert scene.produce(1, 2) == (0, 0)
    stops = [
        (number, request)
        for number, requests in scene.heard.items()
        for request in requests
        if isinstance(request, StopReplicaRequest)
    ]
    assert {number for number, _ in stops} == {1, 2}
    for number, request in stops:
        scene.ask(number, request)
    assert scene.holders() == [1, 2]
    assert scene.produce(1, 3) == (0, 1)
