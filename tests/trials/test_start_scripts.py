"""What seldom happens to logs from which records were deleted, scripted on brokers of the explorer
(V17, S5, D10). Each script breaks without its rule."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from support import start_mutants as starts
from tidelog.base.errors import ErrorCode
from tidelog.trials.history import create_topic
from tidelog.trials.leading import Produce, Produced
from tidelog.trials.log_starts import DeleteRecords
from tidelog.trials.options import draw_options
from tidelog.trials.violation import Violation
from tidelog.trials.world import World

CALM = replace(
    draw_options(Random(1)),
    brokers=3,
    partitions=1,
    replication_factor=2,
    min_isr=2,
    members=0,
    transactors=0,
    move_gap_ms=0,
    delete_gap_ms=100,
    unclean="never",
    recreate_gap_ms=0,
    delay_ms_max=2,
    request_timeout_ms=2_000,
    fetch_wait_ms=100,
    session_timeout_ms=200,
    # Nothing becomes durable by itself.
    sync_gap_ms=10_000_000,
)
RECORDS = 3


class Scene:
    """Partition 0 is led by broker 1 and followed by broker 2; both have three records."""

    def __init__(self) -> None:
        self.world = world = World(1, options=CALM)
        for number in world.numbers:
            world.start(number)
        self.run(2_000)
        create_topic(world)
        self.run()
        for value in range(RECORDS):
            assert self.ask(1, Produce(0, value, -1)).offset == value

    def run(self, duration_ms: int = 500) -> None:
        self.world.loop.run_for(duration_ms)

    def ask(self, number: int, request: Any) -> Produced:
        answers: list[Produced] = []
        self.world.processes[number].receive(request, answers.append)
        self.run()
        (answer,) = answers
        return answer

    def starts(self) -> list[int]:
        return [self.world.oracles[0].logs[number].log_start_offset for number in (1, 2)]


def one_that_lost_records_and_one_from_which_all_were_deleted() -> Scene:
    """Broker 1 has saved that its log starts at its end; broker 2 has not, and loses power."""
    scene = Scene()
    assert scene.ask(1, DeleteRecords(0, -1)).offset == RECORDS
    scene.world.kill(2, machine=True)
    scene.world.kill(1, machine=False)
    assert scene.world.counts.power_losses == 1
    for number in (1, 2):
        scene.world.start(number)
    scene.run(8_000)
    return scene


def test_log_from_which_everything_was_deleted_is_further_than_one_that_lost_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = one_that_lost_records_and_one_from_which_all_were_deleted()
    state = scene.world.oracles[0].state
    assert state is not None
    assert (state.leader, sorted(state.isr)) == (1, [1, 2])
    assert scene.starts() == [RECORDS, RECORDS]
    assert scene.ask(1, Produce(0, 9, -1)).offset == RECORDS
    starts.trust_any_epoch_over_an_empty_log(monkeypatch)
    with pytest.raises(Violation, match="V3"):
        one_that_lost_records_and_one_from_which_all_were_deleted()


def test_deletion_is_answered_when_all_replicas_have_it() -> None:
    scene = Scene()
    answer = scene.ask(1, DeleteRecords(0, 2))
    assert (answer.error, answer.offset) == (0, 2)
    assert scene.starts() == [2, 2]
    assert scene.ask(1, DeleteRecords(0, 4)).error == ErrorCode.offset_out_of_range
    assert scene.ask(2, DeleteRecords(0, 3)).error == ErrorCode.not_leader_or_follower
    assert scene.starts() == [2, 2]


def test_deletion_is_not_answered_as_done_by_who_leads_no_more_when_it_is_saved() -> None:
    """S5: the one that leads next has not heard of it."""
    scene = Scene()
    answers: list[Produced] = []
    leader = scene.world.processes[1]
    leader.receive(DeleteRecords(0, 2), answers.append)
    leader.copies[0].replica.resign()
    leader.leading.changed(0)
    scene.run()
    assert [answer.error for answer in answers] == [ErrorCode.not_leader_or_follower]
