"""A recovery point, and where compaction got to, never lie above what they speak of (V18, X27):
not after a cut while a checkpoint is written, nor after a start that found less than there was."""

from functools import partial

import pytest

from support.logs import NOW, PARTITION, Simulated, batch, check_everything
from support.stepping import run_with
from tidelog.base.ids import TopicPartition
from tidelog.base.log_settings import LogSettings
from tidelog.log.checkpointing import checkpointing
from tidelog.log.checkpoints import CLEANER_OFFSETS, LOG_STARTS, RECOVERY_POINTS, read_offsets
from tidelog.log.files import LOG
from tidelog.log.retention import advance_log_start
from tidelog.log.truncation import restart_at, truncate_suffix

SETTINGS = LogSettings(segment_bytes=400, index_interval_bytes=100)
LENGTH, RECORDS = 8, 61
"""Where in a batch they begin."""


def flushed(seed: int = 0) -> Simulated:
    """Twelve batches of two records, in several segments; no checkpoint says that they are
    durable."""
    world = Simulated(SETTINGS, seed)
    for _ in range(12):
        world.log.append_as_leader(batch(2), 0, NOW)
    world.log.flush(NOW)
    assert (world.log.recovery_point, world.log.durable_recovery_point) == (24, 0)
    return world


def noted(world: Simulated, name: str) -> int:
    return read_offsets(world.disk, f"/data/{name}").get(PARTITION, 0)


@pytest.mark.parametrize("at", range(4))
def test_a_checkpoint_under_way_does_not_vouch_for_what_comes_behind_a_cut(at: int) -> None:
    for seed in range(20):
        world = flushed(seed)
        run_with(checkpointing(world.log_dir), at, partial(truncate_suffix, world.log, 8, NOW))
        assert world.log_dir.failure is None
        assert noted(world, RECOVERY_POINTS) <= 8
        for _ in range(8):
            world.log.append_as_leader(batch(2, value=b"w" * 30), 1, NOW)
        check_everything(world.lose_power("some"))


@pytest.mark.parametrize("at", range(4))
def test_a_checkpoint_under_way_does_not_bring_a_start_back_that_a_cut_has_lowered(at: int) -> None:
    world = flushed()
    advance_log_start(world.log, 20)
    run_with(checkpointing(world.log_dir), at, lambda: restart_at(world.log, 0, NOW))
    assert world.log_dir.failure is None
    assert noted(world, LOG_STARTS) == world.log.durable_log_start == 0


@pytest.mark.parametrize("stop", ["clean", "kill"])
def test_a_start_that_finds_less_lowers_what_checkpoints_say(stop: str) -> None:
    """A length and a record of its batch have rotted below the recovery point: what comes behind
    them cannot be found."""
    world = flushed()
    world.log_dir.cleaner_offsets[PARTITION] = 24
    world.log_dir.checkpoint()
    path = world.log.segments.active.path(LOG)
    if stop == "clean":
        world.log_dir.close()
    else:
        world.disk.process_dies()
    for position in (LENGTH, RECORDS):
        world.disk.flip_bit(path, position, 6)
    world.open()
    end = world.log.log_end_offset
    assert end < 24
    assert noted(world, RECOVERY_POINTS) == world.log.durable_recovery_point == end
    assert noted(world, CLEANER_OFFSETS) == end


def test_what_is_flushed_after_a_kill_is_durable_by_name_too() -> None:
    """S9: the process that made the segment died before it had synced the folder."""
    world = Simulated(LogSettings())
    world.log.append_as_leader(batch(), 0, NOW)
    world.stop_and_start()
    world.log.append_as_leader(batch(), 0, NOW)
    world.log.roll()
    world.log.append_as_leader(batch(), 0, NOW)
    world.kill()
    world.log.flush(NOW)
    world.log_dir.checkpoint()
    log = world.lose_power()
    assert log.log_end_offset == 3
    check_everything(log)


@pytest.mark.parametrize("stop", ["clean", "kill"])
def test_whose_a_log_is_is_durable_with_its_first_records(stop: str) -> None:
    """T6: a log of which nobody knows that would pass for that of the next topic of its name."""
    world = Simulated(LogSettings())
    partition, topic_id = TopicPartition("other", 0), b"0123456789abcdef"
    world.log_dir.create_log(partition, world.settings, topic_id)
    if stop == "clean":
        world.stop_and_start()
    else:
        world.kill()
    log = world.log_dir.logs[partition]
    log.append_as_leader(batch(), 0, NOW)
    log.flush(NOW)
    world.log_dir.checkpoint()
    world.lose_power()
    assert world.log_dir.topic_id(partition) == topic_id


def test_epochs_of_before_a_flush_do_not_count_after_a_kill() -> None:
    """L1: the note of the last one waits behind the flush that makes it durable."""
    world = Simulated(LogSettings())
    world.log.append_as_leader(batch(2), 1, NOW)
    world.log_dir.note_epochs = lambda: None
    world.log.append_as_leader(batch(), 3, NOW)
    world.log.roll()
    world.log.flush(NOW)
    world.log_dir.checkpoint()
    log = world.kill()
    assert log.epochs.entries == [(1, 0), (3, 2)]
    check_everything(log)
