"""What seldom happens to logs from which records were deleted, scripted on brokers of the explorer
(V17, S5, D10). Each script breaks without its rule."""

from dataclasses import replace

import pytest

from support import start_mutants as starts
from support.scripted_world import CALM, Scene
from tidelog.base.errors import ErrorCode
from tidelog.trials.leading import Produce, Produced
from tidelog.trials.log_starts import DeleteRecords
from tidelog.trials.violation import Violation

UNSYNCED = replace(CALM, delete_gap_ms=100, sync_gap_ms=10_000_000)
"""Nothing becomes durable by itself."""
RECORDS = 3


class Deleting(Scene):
    """Partition 0 is led by broker 1 and followed by broker 2; both have three records."""

    def __init__(self) -> None:
        super().__init__(UNSYNCED)
        for value in range(RECORDS):
            assert self.ask(1, Produce(0, value, -1)).offset == value

    def starts(self) -> list[int]:
        return [self.world.oracles[0].logs[number].log_start_offset for number in (1, 2)]


def one_that_lost_records_and_one_from_which_all_were_deleted() -> Deleting:
    """Broker 1 has saved that its log starts at its end; broker 2 has not, and loses power."""
    scene = Deleting()
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
    scene = Deleting()
    answer = scene.ask(1, DeleteRecords(0, 2))
    assert (answer.error, answer.offset) == (0, 2)
    assert scene.starts() == [2, 2]
    assert scene.ask(1, DeleteRecords(0, 4)).error == ErrorCode.offset_out_of_range
    assert scene.ask(2, DeleteRecords(0, 3)).error == ErrorCode.not_leader_or_follower
    assert scene.starts() == [2, 2]


def test_deletion_is_not_answered_as_done_by_who_leads_no_more_when_it_is_saved() -> None:
    """S5: the one that leads next has not heard of it."""
    scene = Deleting()
    answers: list[Produced] = []
    leader = scene.world.processes[1]
    leader.receive(DeleteRecords(0, 2), answers.append)
    leader.copies[0].replica.resign()
    leader.leading.changed(0)
    scene.run()
    assert [answer.error for answer in answers] == [ErrorCode.not_leader_or_follower]
