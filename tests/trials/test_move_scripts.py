"""What seldom happens to replicas that move, scripted on brokers of the explorer (T3): control
requests that come late."""

from dataclasses import replace
from typing import Any

import pytest

from support import move_mutants as moves
from support.scripted_world import CALM, Scene
from tidelog.base.control import LeaderAndIsrRequest
from tidelog.cluster.requests import Reassignment
from tidelog.replication.replica import Role
from tidelog.trials.leading import TOPIC, Produce
from tidelog.trials.violation import Violation


class Moving(Scene):
    """Partition 0 is led by broker 1, and followed by broker 2."""

    def __init__(self) -> None:
        super().__init__(replace(CALM, brokers=4, min_isr=1))

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

    def holders(self) -> list[int]:
        return [number for number, process in self.world.processes.items() if 0 in process.copies]


def test_replicas_are_where_they_were_moved_and_nowhere_else() -> None:
    scene = Moving()
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
    scene = Moving()
    told = [
        request
        for request in scene.heard[1]
        if isinstance(request, LeaderAndIsrRequest) and request.topics
    ]
    scene.move(3, 4)
    for request in told:
        scene.ask(1, request)
    assert scene.holders() == [3, 4]
    assert scene.ask(1, Produce(0, 7, -1)).error


def test_replica_that_comes_back_to_a_broker_is_held_there() -> None:
    scene = Moving()
    scene.move(3, 4)
    scene.move(3, 1)
    scene.move(1, 2)
    assert scene.holders() == [1, 2]
    roles = [scene.world.processes[number].copies[0].replica.role for number in (1, 2)]
    assert roles == [Role.leader, Role.follower]
