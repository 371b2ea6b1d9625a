"""Settings changed after data was written under others: what is in a log stays good (R6, S6)."""

from dataclasses import replace

import pytest

from support.cleaner_world import World, fill, settings
from support.logs import NOW, PARTITION, Simulated, batch, check_everything, contents
from tidelog.base.log_settings import LogSettings
from tidelog.log.files import OFFSET_INDEX
from tidelog.log.index import OFFSET_ENTRY
from tidelog.log.partition_log import PartitionLog
from tidelog.log.pending_append import PendingAppend, begin_append, end_append
from tidelog.log.pending_follow import begin_follow, end_follow


def test_a_follower_takes_the_gaps_of_a_log_that_was_compacted_once() -> None:
    """S6: cleanup.policy went from compact to delete."""
    world = World()
    assert world.cleaner.run_once() is not None
    delete = settings(cleanup_compact=False, cleanup_delete=True)
    world.log.configure(delete)
    data = b"".join(item.data for item in contents(world.log))
    follower = Simulated(delete).log
    end = world.log.log_end_offset
    assert follower.append_as_follower(data, 0, end) == end
    check_everything(follower)


def leader_with_a_large_batch() -> bytes:
    log = Simulated(LogSettings()).log
    for size in (1, 2000, 1):
        log.append_as_leader(batch(1, value=b"v" * size), 1, NOW)
    return b"".join(held.data for held in contents(log))


def test_a_follower_takes_a_batch_that_is_larger_than_its_segments() -> None:
    """R6: segment.bytes was made smaller than a batch of the leader's."""
    follower = Simulated(LogSettings(segment_bytes=500)).log
    assert follower.append_as_follower(leader_with_a_large_batch(), 1) == 3
    assert [segment.base_offset for segment in follower.segments.all] == [0, 1, 2]
    check_everything(follower)


def test_a_follower_takes_a_large_batch_beside_the_loop() -> None:
    data = memoryview(leader_with_a_large_batch())
    follower = Simulated(LogSettings(segment_bytes=500)).log
    while data:
        pending = begin_follow(follower, data, 1)
        assert pending is not None
        pending.run()
        end_follow(follower, pending, None)
        data = data[len(pending.data) :]
    assert follower.log_end_offset == 3
    check_everything(follower)


def test_a_segment_that_is_being_made_gets_settings_that_change_meanwhile() -> None:
    """O2: it need not be the next one that ends in time."""
    log = Simulated(LogSettings(segment_bytes=300)).log
    log.append_as_leader(batch(1, value=b"v" * 200), 0, NOW)
    pending = begin_append(log, batch(1, value=b"v" * 200), 0, NOW)
    assert isinstance(pending, PendingAppend)
    log.configure(LogSettings(segment_bytes=1 << 20, segment_ms=1_000))
    finish(log, pending)
    active = log.segments.active
    assert (active.base_offset, active.roll_bytes, active.roll_ms) == (1, 1 << 20, 1_000)
    log.append_as_leader(batch(1, value=b"v" * 200, at=NOW + 1_000), 0, NOW)
    log.append_as_leader(batch(1, at=NOW + 1_001), 0, NOW)
    assert [segment.base_offset for segment in log.segments.all] == [0, 1, 3]
    check_everything(log)


@pytest.mark.parametrize("segment_bytes", [1 << 20, 2_500], ids=["goes on", "rolls"])
def test_an_index_that_is_made_anew_while_a_part_of_it_is_written_ends_well(
    segment_bytes: int,
) -> None:
    """F12, O2: its entries are farther apart then than those of before, and fewer."""
    settings = LogSettings(index_interval_bytes=0, segment_bytes=segment_bytes)
    sim = Simulated(settings)
    for _ in range(10):
        sim.log.append_as_leader(batch(), 0, NOW)
    path = sim.log.segments.active.path(OFFSET_INDEX)
    sim.log_dir.close()
    sim.disk.flip_bit(path, 4 * OFFSET_ENTRY.size + 6)
    sim.open()
    log = sim.log
    while not (pending := begun(log)).lots and pending.roll is None:
        finish(log, pending)
    log.configure(replace(settings, index_interval_bytes=1_000))
    end = log.log_end_offset
    assert log.read(6, 1, end).size, "what its entry leads to is another batch: it is made anew"
    assert len(log.segments.first.offset_index.entries()) < end // 10
    finish(log, pending)
    log.append_as_leader(batch(), 0, NOW)
    log.roll()
    assert log.log_end_offset == end + 2
    check_everything(log)
    check_everything(sim.stop_and_start())


def begun(log: PartitionLog) -> PendingAppend:
    pending = begin_append(log, batch(), 0, NOW)
    assert isinstance(pending, PendingAppend)
    return pending


def finish(log: PartitionLog, pending: PendingAppend) -> None:
    pending.run()
    end_append(log, pending, None)


def test_batches_from_before_a_smaller_limit_are_compacted() -> None:
    """S6: max.message.bytes was lowered."""
    world = World(0)
    for number in range(12):
        key = b"k%d" % (number % 2)
        data = batch(1, key=key, value=b"v" * 40_000, compression=1)
        world.log.append_as_leader(data, 0, NOW)
    world.commit()
    world.log.configure(settings(max_message_bytes=1_000))
    assert len(world.log.segments.all) > 2
    assert world.cleaner.run_once() is not None, world.cleaner.uncleanable
    check_everything(world.log)


def test_a_log_made_again_is_compacted_though_its_namesake_could_not_be() -> None:
    """S6: a topic that is deleted and made again is another one."""
    world = World()
    world.sim.disk.flip_bit(world.log.segments.first.path(".log"), 80, 1)
    assert world.cleaner.run_once() is None
    assert list(world.cleaner.uncleanable) == [PARTITION]
    world.log_dir.delete_log(PARTITION)
    fill(world.log_dir.create_log(PARTITION, settings()), 40)
    world.commit()
    assert world.cleaner.run_once() is not None
