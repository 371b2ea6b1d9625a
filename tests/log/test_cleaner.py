"""Compaction as the broker runs it: which log is worth it, what the child is given, and how its
result takes the place of what it was made from (S6, V16)."""

import errno
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from support.cleaner_world import MAP_BYTES, World, fill, keyed, last_values, settings
from support.logs import (
    IDENTITY,
    NOW,
    PARTITION,
    batch,
    check_everything,
    contents,
    summary,
)
from tidelog.base.errors import ChildDied, ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.base.ports import Job, Workers
from tidelog.log.checkpoints import CLEANER_OFFSETS, read_offsets
from tidelog.log.cleaned_segment import CleanedSegment
from tidelog.log.cleaner import Cleaner
from tidelog.log.log_dir import LogDir
from tidelog.log.logs import Logs
from tidelog.log.partition_log import PartitionLog
from tidelog.log.retention import delete_records
from tidelog.log.truncation import truncate_suffix
from tidelog.records.control import EndTransaction, encode_end_transaction
from tidelog.records.key_table import SLOT_BYTES
from tidelog.world.real.clock import RealClock
from tidelog.world.real.disk import RealDisk
from tidelog.world.real.entropy import RealEntropy
from tidelog.world.real.workers import RealWorkers
from tidelog.world.sim.disk import SimDisk
from tidelog.world.sim.entropy import SimEntropy
from tidelog.world.sim.workers import SimWorkers

DAY = 86_400_000

# -- what is worth it


def test_all_closed_segments_of_a_log_never_compacted_are_dirty() -> None:
    world = World()
    found = world.look()
    assert found is not None
    assert (found.first_dirty, found.upper) == (0, world.log.segments.active.base_offset)
    assert found.segments == world.log.segments.closed
    assert found.dirty_ratio == 1.0
    assert found.is_worth_it


def test_log_that_is_not_compacted_is_no_candidate() -> None:
    assert World(cleanup_compact=False).look() is None


def test_only_a_log_with_enough_dirty_bytes_is_worth_it() -> None:
    """S6: min.cleanable.dirty.ratio."""
    world = World(min_cleanable_ratio=0.5)
    bases = [segment.base_offset for segment in world.log.segments.all]
    ratios = []
    for base in bases[:-1]:
        world.log_dir.cleaner_offsets[PARTITION] = base
        found = world.look()
        assert found is not None
        ratios.append(found.dirty_ratio)
        assert found.is_worth_it == (found.dirty_ratio > 0.5)
    assert ratios[0] == 1.0
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[-1] < 0.5
    world.log_dir.cleaner_offsets[PARTITION] = bases[-1]
    assert world.look() is None


def test_nothing_at_or_above_the_high_watermark_is_compacted() -> None:
    """V16."""
    world = World()
    bases = [segment.base_offset for segment in world.log.segments.all]
    for high_watermark in range(world.log.log_end_offset + 1):
        world.log_dir.high_watermarks[PARTITION] = high_watermark
        found = world.look()
        wanted = max(base for base in bases if base <= high_watermark)
        assert (0 if found is None else found.upper) == wanted


def test_what_is_not_durable_is_not_compacted() -> None:
    """Compaction moves records to other files: what a power loss may still take stays where
    recovery looks for it."""
    world = World()
    bases = [segment.base_offset for segment in world.log.segments.all]
    world.log.recovery_point = bases[2] + 1
    found = world.look()
    assert found is not None
    assert found.upper == bases[2]


def test_nothing_behind_an_open_transaction_is_compacted() -> None:
    world = World(10)
    data = batch(1, key=b"t", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    offset = world.log.append_as_leader(data, 0, NOW)
    fill(world.log, 20)
    world.commit()
    found = world.look()
    assert found is not None
    assert found.upper <= offset
    end = EndTransaction(producer_id=7, producer_epoch=0, committed=True, coordinator_epoch=0)
    world.log.append_own(encode_end_transaction(end, timestamp=NOW), 0)
    found = world.look()
    assert found is not None
    assert found.upper <= offset, "its marker is not on all replicas yet"
    world.commit()
    found = world.look()
    assert found is not None
    assert found.upper > offset


def test_young_records_wait_for_min_compaction_lag() -> None:
    """S6."""
    world = World(0, min_compaction_lag_ms=DAY)
    for day in range(3):
        world.log.append_as_leader(keyed(day, at=NOW + day * DAY), 0, NOW)
        world.log.roll()
    world.commit()
    assert world.look(at=NOW + DAY - 1) is None
    uppers = [world.look(at=NOW + day * DAY) for day in (1, 2, 3, 9)]
    assert [found.upper for found in uppers if found] == [1, 2, 3, 3]


def test_records_without_timestamps_wait_by_the_age_of_their_file() -> None:
    world = World(0, min_compaction_lag_ms=DAY)
    world.log.append_as_leader(batch(1, at=-1), 0, NOW)
    world.log.roll()
    world.commit()
    written = world.sim.clock.now_ms()
    assert world.look(at=written + DAY - 1) is None
    assert world.look(at=written + DAY) is not None


def test_record_that_waited_for_max_compaction_lag_makes_its_log_worth_it() -> None:
    """S6: whatever the ratio says."""
    world = World(min_cleanable_ratio=0.99, max_compaction_lag_ms=DAY)
    world.log_dir.cleaner_offsets[PARTITION] = world.log.segments.all[1].base_offset
    for at, worth_it in ((NOW + DAY, False), (NOW + DAY + 100, True)):
        found = world.look(at=at)
        assert found is not None
        assert found.is_overdue == found.is_worth_it == worth_it


def test_looking_for_work_reads_next_to_nothing() -> None:
    world = World(max_compaction_lag_ms=DAY)
    trace = world.sim.disk.trace()
    operations = world.sim.disk.operations
    assert world.look() is not None
    assert world.sim.disk.operations == operations
    assert trace == []


def test_log_that_gains_most_is_taken_first_and_an_overdue_one_before_it() -> None:
    world = World()
    other = TopicPartition("other", 0)
    log = world.log_dir.create_log(other, settings(max_compaction_lag_ms=DAY))
    fill(log, 40)
    log.flush(NOW)
    world.log_dir.high_watermarks[other] = log.log_end_offset
    world.log_dir.cleaner_offsets[other] = log.segments.all[1].base_offset
    first = world.cleaner.pick()
    assert first is not None
    assert first.log is world.log
    world.sim.clock.advance(2 * DAY)
    first = world.cleaner.pick()
    assert first is not None
    assert first.log is log


def test_checkpoint_beyond_the_log_is_not_believed() -> None:
    world = World()
    world.log_dir.cleaner_offsets[PARTITION] = 10_000
    found = world.look()
    assert found is not None
    assert found.first_dirty == 0


def test_dir_that_fails_while_looking_for_work_is_passed_over() -> None:
    """S10."""
    disk = SimDisk()
    logs = Logs([LogDir(path, disk, disk.clock) for path in ("/disk0", "/disk1")])
    logs.open(IDENTITY, lambda _: settings())
    for number in range(2):
        log = logs.create(TopicPartition("orders", number), settings(min_compaction_lag_ms=1))
        fill(log, 40)
        log.flush(NOW)
        logs.dirs[number].high_watermarks[log.partition] = log.log_end_offset
    logs.close()
    logs = Logs([LogDir(path, disk, disk.clock) for path in ("/disk0", "/disk1")])
    logs.open(IDENTITY, lambda _: settings(min_compaction_lag_ms=1))
    disk.clock.advance(DAY)
    disk.fail(errno.EIO, operations=["pread"], path="/disk0/*", times=None)
    found = Cleaner(logs, SimWorkers(disk), SimEntropy(), MAP_BYTES).pick()
    assert found is not None
    assert found.log.folder == "/disk1/orders-1"
    assert logs.online == logs.dirs[1:]


# -- a whole run


def run_and_check(logs: Logs, log: PartitionLog, workers: Workers) -> None:
    before = contents(log)
    values = last_values(log)
    stats = Cleaner(logs, workers, RealEntropy(), MAP_BYTES).run_once()
    assert stats is not None
    assert stats["records_kept"] < stats["records_read"]
    after = check_everything(log)
    assert last_values(log) == values
    offsets = {r.offset: r for item in before for r in item.records}
    for item in after:
        for record in item.records:
            assert offsets[record.offset] == record, "offsets are never renumbered"
    assert len(after) < len(before)
    active = log.segments.active.base_offset
    log_dir = logs.dir_of(log.partition)
    assert log_dir.cleaner_offsets[log.partition] == active
    path = f"{log_dir.path}/{CLEANER_OFFSETS}"
    assert read_offsets(log_dir.disk, path) == {log.partition: active}, "S6, S8"


def test_compaction_keeps_the_last_value_of_each_key() -> None:
    """S6, V16."""
    world = World()
    run_and_check(world.logs, world.log, SimWorkers(world.sim.disk))
    assert world.cleaner.run_once() is None, "nothing is dirty any more"
    for restart in ("stop_and_start", "kill", "lose_power"):
        values = last_values(world.log)
        getattr(world.sim, restart)()
        assert last_values(world.log) == values
        check_everything(world.log)


@pytest.fixture
def workers() -> Iterator[RealWorkers]:
    real = RealWorkers()
    yield real
    real.close()


def test_compaction_in_a_real_child_process_on_a_real_disk(
    tmp_path: Path, workers: RealWorkers
) -> None:
    """S6; and a log that the child cannot read is named and left alone, then topics that are
    deleted under its hands do no harm."""
    log_dir = LogDir(str(tmp_path / "data"), RealDisk(), RealClock())
    logs = Logs([log_dir])
    logs.open(IDENTITY, lambda _: settings())
    for number in range(3):
        log = logs.create(TopicPartition("orders", number), settings())
        fill(log, 40)
        log.flush(NOW)
        log_dir.high_watermarks[log.partition] = log.log_end_offset
    first, second, third = log_dir.logs.values()
    log_dir.high_watermarks[second.partition] = log_dir.high_watermarks[third.partition] = 0
    run_and_check(logs, first, workers)

    log_dir.high_watermarks[second.partition] = second.log_end_offset
    (tmp_path / "data/orders-1" / f"{0:020d}.log").write_bytes(b"\xff" * second.segments.first.size)
    cleaner = Cleaner(logs, workers, RealEntropy(), MAP_BYTES)
    assert cleaner.run_once() is None
    assert list(cleaner.uncleanable) == [second.partition]
    assert f"orders-1/{0:020d}.log" in cleaner.uncleanable[second.partition]

    log_dir.high_watermarks[third.partition] = third.log_end_offset
    found = cleaner.pick()
    assert found is not None
    cleaning = cleaner.begin(found)
    logs.delete(third.partition)
    assert cleaner.end(cleaning) is None
    assert log_dir.failure is None
    logs.close()

    again = LogDir(str(tmp_path / "data"), RealDisk(), RealClock())
    again.open(IDENTITY, lambda _: settings())
    check_everything(again.logs[first.partition])
    again.close()


def test_keys_that_do_not_fit_are_compacted_in_several_passes() -> None:
    """S6: memory is bounded by its setting; each pass goes on where the last one ended."""
    world = World(0, min_cleanable_ratio=0.0)
    for number in range(200):
        data = batch(1, key=b"key %d" % (number % 90), value=b"v%d" % number)
        world.log.append_as_leader(data, 0, NOW)
    world.commit()
    values = last_values(world.log)
    cleaner = world.new_cleaner(SLOT_BYTES * 32)
    ends = []
    while cleaner.run_once() is not None:
        ends.append(world.log_dir.cleaner_offsets[PARTITION])
        assert last_values(world.log) == values
        check_everything(world.log)
    assert len(ends) > 2
    assert ends == sorted(set(ends))
    assert ends[-1] == world.log.segments.active.base_offset


def test_tombstone_goes_after_its_retention_and_its_key_stays_deleted() -> None:
    """S6, V16."""
    world = World(20, delete_retention_ms=DAY, min_cleanable_ratio=0.0)
    world.log.append_as_leader(batch(1, key=b"k1", value=None), 0, NOW)
    world.log.roll()
    world.commit()
    world.cleaner.run_once()
    assert last_values(world.log)[b"k1"] is None
    for later in (DAY - 1, 1):
        world.sim.clock.advance(later)
        fill(world.log, 5, first=0 if later == 1 else 2)
        world.log.append_as_leader(batch(1, key=b"other"), 0, NOW)
        world.log.append_as_leader(batch(1, key=b"k1", value=None), 0, NOW)
        world.log.roll()
        world.commit()
        world.cleaner.run_once()
        assert last_values(world.log).get(b"k1") is None
        check_everything(world.log)


def test_a_replica_made_from_a_compacted_log_knows_what_epoch_a_marker_has_raised() -> None:
    """A3, V13: whoever was fenced with it stays fenced."""
    world = World(0, delete_retention_ms=DAY, min_cleanable_ratio=0.0)
    data = batch(key=b"k1", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    world.log.append_as_leader(data, 0, NOW)
    marker = EndTransaction(producer_id=7, producer_epoch=5, committed=False, coordinator_epoch=3)
    world.log.append_own(encode_end_transaction(marker, timestamp=NOW), 0)
    for _ in range(4):
        fill(world.log, 10)
        world.log.roll()
        world.commit()
        assert world.cleaner.run_once() is not None
        world.sim.clock.advance(2 * DAY)
        world.log_dir.remove_doomed()
    known = summary(world.log.producers)
    for name in world.names(".snapshot"):
        world.sim.disk.remove(f"{world.log.folder}/{name}")
    log = world.sim.kill()
    assert summary(log.producers) == known
    with pytest.raises(KafkaError, match="epoch 0 of producer 7 is older than 5"):
        log.producers.check_epoch(7, 0)


def test_compact_and_delete_does_both() -> None:
    """S6."""
    world = World(cleanup_delete=True, retention_ms=-1, retention_bytes=400)
    values = last_values(world.log)
    size = world.log.segments.size
    assert world.cleaner.run_once() is not None
    assert last_values(world.log) == values
    assert world.log.segments.size < size
    fill(world.log, 40)
    world.commit()
    assert world.logs.retain() > 0
    assert world.log.log_start_offset > 0
    assert world.cleaner.run_once() is not None
    check_everything(world.log)
    check_everything(world.sim.kill())


# -- when something comes in between


@pytest.mark.parametrize("child_was_quicker", [True, False])
def test_result_is_dropped_when_retention_was_quicker(child_was_quicker: bool) -> None:
    """And a file that the child misses for that reason is no failure of the disk."""
    world = World(cleanup_delete=True, retention_ms=-1, retention_bytes=0, file_delete_delay_ms=0)
    found = world.cleaner.pick()
    assert found is not None
    cleaning = world.cleaner.begin(found)
    if child_was_quicker:
        cleaning.job.result()
    end = world.log.log_end_offset
    assert world.logs.retain() > 0
    assert world.cleaner.end(cleaning) is None
    assert world.log_dir.failure is None
    assert world.cleaner.uncleanable == {}
    assert world.names(".cleaned") == []
    assert (world.log.log_start_offset, world.log.log_end_offset) == (end, end)
    check_everything(world.log)


def test_result_is_dropped_when_the_log_was_truncated_and_written_again() -> None:
    """V16: also when the segments look the same again, with the same sizes."""
    world = World()
    found = world.cleaner.pick()
    assert found is not None
    cleaning = world.cleaner.begin(found)
    cleaning.job.result()
    sizes = {s.base_offset: s.size for s in world.log.segments.closed}
    truncate_suffix(world.log, 10, NOW)
    for number in range(10, 40):
        world.log.append_as_leader(keyed(number, value=b"w%d" % number), 1, NOW)
    world.commit()
    assert {s.base_offset: s.size for s in world.log.segments.closed} == sizes
    values = last_values(world.log)
    assert world.cleaner.end(cleaning) is None
    assert last_values(world.log) == values
    assert world.names(".cleaned") == []
    assert world.log_dir.cleaner_offsets.get(PARTITION, 0) == 0
    assert world.cleaner.run_once() is not None
    assert last_values(world.log) == values


@pytest.mark.parametrize("is_made_again", [True, False])
def test_what_the_child_leaves_in_the_folder_of_another_topic_is_removed(
    is_made_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start would take what that topic is being swapped for later for undecided."""
    world = World()
    finish = CleanedSegment.finish

    def meanwhile(cleaned: CleanedSegment) -> None:
        monkeypatch.undo()
        world.log_dir.delete_log(PARTITION)
        if is_made_again:
            fill(world.log_dir.create_log(PARTITION, settings()), 40)
        finish(cleaned)

    monkeypatch.setattr(CleanedSegment, "finish", meanwhile)
    assert world.cleaner.run_once() is None
    assert world.log_dir.failure is None
    assert world.cleaner.uncleanable == {}
    if is_made_again:
        assert world.names(".cleaned") == []
        check_everything(world.log)


@pytest.mark.parametrize("to", [0, 3, 17])
def test_what_is_cut_off_while_segments_are_swapped_does_not_come_back(to: int) -> None:
    """As after an unclean election: between any two steps, with and without a restart."""
    steps_seen = 0
    for cut_after in range(100):
        world = World()
        found = world.cleaner.pick()
        assert found is not None
        cleaning = world.cleaner.begin(found)
        result = world.cleaner.result(cleaning)
        assert result is not None
        log = world.log
        for step, _ in enumerate(world.cleaner.put_in_place(cleaning, result)):
            log.disk.sync_folder(log.folder)
            if step == cut_after:
                steps_seen += 1
                truncate_suffix(log, to, NOW)
                fill(log, 9, first=1_000)
        if steps_seen <= cut_after:
            break
        expected = last_values(log)
        assert {b"v%d" % number for number in range(1_004, 1_009)} <= set(expected.values())
        assert world.log_dir.failure is None
        assert log.log_end_offset <= to + 9
        assert world.log_dir.cleaner_offsets.get(PARTITION, 0) <= to
        assert not world.names(".cleaned") + world.names(".swap")
        end = log.log_end_offset
        world.sim.kill()
        assert (last_values(world.log), world.log.log_end_offset) == (expected, end)
        check_everything(world.log)
    assert steps_seen > 1


def test_truncation_lowers_the_cleaner_checkpoint() -> None:
    """S6: what comes after it has not been compacted."""
    world = World()
    world.cleaner.run_once()
    assert world.log_dir.cleaner_offsets[PARTITION] > 10
    truncate_suffix(world.log, 10, NOW)
    path = f"/data/{CLEANER_OFFSETS}"
    assert world.log_dir.cleaner_offsets[PARTITION] <= 10
    assert read_offsets(world.sim.disk, path) == world.log_dir.cleaner_offsets
    check_everything(world.log)


def test_appends_and_reads_go_on_while_the_child_works() -> None:
    world = World()
    found = world.cleaner.pick()
    assert found is not None
    cleaning = world.cleaner.begin(found)
    piece = world.log.read(0, 200, 40)
    data = piece.file.pread(piece.size, piece.position)
    fill(world.log, 30, first=40)
    values = last_values(world.log)
    delete_records(world.log, 3, 40)
    assert world.cleaner.end(cleaning) is not None
    assert last_values(world.log) == values
    assert piece.file.pread(piece.size, piece.position) == data, "a slice outlives its segment"
    check_everything(world.log)


def test_log_that_cannot_be_compacted_is_named_and_left_alone() -> None:
    """S6: a damaged batch stays for a person to see; other logs go on."""
    world = World()
    before = {name: data for name, data in world.sim.disk.view().items() if "orders-0" in name}
    segment = world.log.segments.all[1]
    world.sim.disk.flip_bit(segment.path(".log"), 70)
    assert world.cleaner.run_once() is None
    assert list(world.cleaner.uncleanable) == [PARTITION]
    assert segment.path(".log") in world.cleaner.uncleanable[PARTITION]
    assert world.log_dir.failure is None
    assert world.cleaner.pick() is None
    assert world.cleaner.run_once() is None
    after = {name for name in world.sim.disk.view() if "orders-0" in name}
    assert after == set(before), "nothing is left behind"
    other = TopicPartition("other", 0)
    log = world.log_dir.create_log(other, settings())
    fill(log, 40)
    log.flush(NOW)
    world.log_dir.high_watermarks[other] = 40
    assert world.cleaner.run_once() is not None


class MortalWorkers:
    """The first child dies of its task."""

    def __init__(self, disk: SimDisk) -> None:
        self._next = SimWorkers(disk)
        self._has_died = False

    def start(self, task: str, argument: Mapping[str, Any]) -> Job:
        if self._has_died:
            return self._next.start(task, argument)
        self._has_died = True
        return Dead()


class Dead:
    def result(self) -> dict[str, Any]:
        raise ChildDied("clean: the worker process was killed by signal 9")


def test_child_that_dies_is_no_failure_of_the_disk() -> None:
    world = World()
    cleaner = Cleaner(world.logs, MortalWorkers(world.sim.disk), SimEntropy(), MAP_BYTES)
    assert cleaner.run_once() is None
    assert world.log_dir.failure is None
    assert "signal 9" in cleaner.uncleanable[PARTITION]
    check_everything(world.log)


def test_log_whose_child_has_died_is_tried_again_when_it_has_another_segment() -> None:
    """S6: it may have died for want of memory; and the log must not grow for ever."""
    world = World()
    cleaner = Cleaner(world.logs, MortalWorkers(world.sim.disk), SimEntropy(), MAP_BYTES)
    assert cleaner.run_once() is None
    assert cleaner.pick() is None, "not at once"
    world.log.roll()
    world.log.flush(NOW)
    values = last_values(world.log)
    assert cleaner.run_once() is not None
    assert not cleaner.uncleanable
    assert last_values(world.log) == values


@pytest.mark.parametrize("operation", ["pwrite", "rename", "sync_folder", "sync", "create"])
def test_disk_error_during_compaction_takes_the_dir_offline_and_loses_nothing(
    operation: str,
) -> None:
    """V16, V19: whichever disk operation fails."""
    failures = 0
    for skip in range(0, 60, 3):
        world = World()
        values = last_values(world.log)
        world.sim.disk.fail(errno.EIO, operations=[operation], path="/data/*", skip=skip)
        try:
            world.cleaner.run_once()
            failed = False
        except KafkaError as error:
            failed = error.code == ErrorCode.kafka_storage_error
            failures += 1
        assert failed == (world.log_dir.failure is not None)
        world.sim.disk.heal()
        world.sim.kill()
        assert last_values(world.log) == values
        check_everything(world.log)
        assert not world.names(".cleaned") + world.names(".swap")
    assert failures > 0


def test_result_that_was_never_put_in_place_is_removed_at_the_next_start() -> None:
    """X27: see also the crashes at every disk operation in test_log_model."""
    world = World()
    values = last_values(world.log)
    found = world.cleaner.pick()
    assert found is not None
    world.cleaner.begin(found).job.result()
    assert world.names(".log.cleaned")
    undone = world.sim.kill()
    assert last_values(undone) == values
    assert not world.names(".cleaned")
