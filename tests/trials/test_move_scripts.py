"""What seldom happens to replicas that move, scripted on brokers of the explorer (T3): control
requests that come late."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from support import move_mutants as moves
from tidelog.base.control import LeaderAndIsrRequest
from tidelog.cluster.requests import Reassignment
from tidelog.replication.replica import Role
from tidelog.trials.history import create_topic
from tidelog.trials.leading import TOPIC, Produce, Produced
from tidelog.trials.options import draw_options
from tidelog.trials.process import Process
from tidelog.trials.violation import Violation
from tidelog.trials.world import World

CALM = replace(
    draw_options(Random(1)),
    brokers=4,
    partitions=1,
    replication_factor=2,
    min_isr=1,
    members=0,
    transactors=0,
    move_gap_ms=0,
    delete_gap_ms=0,
    unclean="never",
    recreate_gap_ms=0,
    delay_ms_max=2,
    request_timeout_ms=2_000,
    fetch_wait_ms=100,
)


class Scene:
    """Partition 0 is led by broker 1, and followed by broker 2."""

    def __init__(self) -> None:
        self.world = world = World(1, options=CALM)
        self.heard: dict[int, list[LeaderAndIsrRequest]] = {}
        """What each broker was told to lead and to follow."""
        for number in world.numbers:
            world.start(number)
            self._listen(world.processes[number])
        self.run(2_000)
        create_topic(world)
        self.run()

    def _listen(self, process: Process) -> None:
        heard = self.heard.setdefault(process.number, [])
        receive = process.receive

        def listening(request: Any, reply: Callable[[Any], None]) -> bool:
            if isinstance(request, LeaderAndIsrRequest):
                heard.append(request)
            return receive(request, reply)

        process.receive = listening  # type: ignore[method-assign]

    def run(self, duration_ms: int = 500) -> None:
        self.world.loop.run_for(duration_ms)

    def move(self, *replicas: int) -> None:
        results: list[Any] = []
        controller = self.world.controller()
        assert controller is not None
        wanted = [Reassignment(topic=TOPIC, partition=0, replicas=replicas)]
        controller.metadata.alter_reassignments(wanted, results.append)
        self.run()
        assert results == [[None]]
        oracle = self.world.oracles[0]
        for _ in range(40):
            if oracle.settled == replicas:
                break
            self.run()
        assert oracle.settled == replicas
        self.run()

    def tell_again(self, number: int, request: LeaderAndIsrRequest) -> None:
        self.world.processes[number].receive(request, lambda _answer: None)
        self.run()

    def holders(self) -> list[int]:
        return [number for number, process in self.world.processes.items() if 0 in process.copies]


def test_replicas_are_where_they_were_moved_and_nowhere_else() -> None:
    scene = Scene()
    scene.move(3, 4)
    assert scene.holders() == [3, 4]
    assert sorted(scene.world.oracles[0].logs) == [3, 4]
    assert scene.world.counts.reassignments_finished == 1


def test_leader_that_was_moved_away_does_not_lead_again_because_it_hears_so_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would lead an empty log in an epoch of its own: what it takes there is lost."""
    late_news_of_a_leader()
    moves.hear_what_comes_late(monkeypatch)
    with pytest.raises(Violation, match="V9"):
        late_news_of_a_leader()


def late_news_of_a_leader() -> None:
    scene = Scene()
    told = [request for request in scene.heard[1] if request.topics]
    scene.move(3, 4)
    for request in told:
        scene.tell_again(1, request)
    assert scene.holders() == [3, 4]
    answers: list[Produced] = []
    scene.world.processes[1].receive(Produce(0, 7, -1), answers.append)
    scene.run()
    assert [answer.error == 0 for answer in answers] == [False]


def test_replica_that_comes_back_to_a_broker_is_held_there() -> None:
    scene = Scene()
    scene.move(3, 4)
    scene.move(3, 1)
    scene.move(1, 2)
    assert scene.holders() == [1, 2]
    roles = [scene.world.processes[number].copies[0].replica.role for number in (1, 2)]
    assert roles == [Role.leader, Role.follower]
