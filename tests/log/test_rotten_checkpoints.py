"""Checkpoints of a log dir in which a byte has changed: they count as lost, and that is said
(S8, F12).

A digit that has become another one is the worst of it: the file reads as well as before. A log
start that is too high would have records removed that are there, one that is too low brings back
what was deleted; a high watermark that is too high shows what may be taken back, a recovery point
hides what was never looked at.
"""

import logging

import pytest

from support.logs import NOW, PARTITION, Simulated, contents
from support.stopped import filled, open_dir, stop, stops
from tidelog.log.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    LOG_STARTS_COPY,
    RECOVERY_POINTS,
    format_entries,
)
from tidelog.log.log_dir import LogDir
from tidelog.log.retention import advance_log_start
from tidelog.world.sim.disk import SimDisk

FOUR = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANER_OFFSETS)
START, WATERMARK, COMPACTED = 16, 30, 9
"""The start is in the middle of a segment, the watermark before the end."""
BITS = (0, 3, 6)
"""The first makes another digit of any, the second of some."""


def trimmed() -> Simulated:
    world = filled(5)
    advance_log_start(world.log, START)
    world.log_dir.high_watermarks[PARTITION] = WATERMARK
    world.log_dir.cleaner_offsets[PARTITION] = COMPACTED
    world.log.flush(NOW)
    world.log_dir.checkpoint()
    assert world.log.segments.first.base_offset < START < WATERMARK < world.log.log_end_offset
    return world


def offsets(log_dir: LogDir) -> dict[str, int]:
    return {
        name: known[PARTITION]
        for name, known in log_dir.all_offsets().items()
        if PARTITION in known
    }


def check_lost(disk: SimDisk, name: str, intact: LogDir) -> None:
    """That the dir opens with all records, and without the file, but for log starts: of them there
    is a copy."""
    log_dir = open_dir(disk)
    assert log_dir.unreadable == [name]
    expected = offsets(intact)
    if name != LOG_STARTS:
        del expected[name]
    assert offsets(log_dir) == expected
    found, log = log_dir.logs[PARTITION], intact.logs[PARTITION]
    assert found.log_start_offset == START
    assert found.log_end_offset == log.log_end_offset
    assert contents(found) == contents(log)


@stops
@pytest.mark.parametrize("name", FOUR)
def test_any_flipped_bit_makes_a_checkpoint_a_lost_one(name: str, how: str) -> None:
    disk = stop(trimmed(), how)
    intact = open_dir(disk.fork())
    assert intact.unreadable == []
    for position in range(len(disk.view()[f"/data/{name}"])):
        for bit in BITS:
            twin = disk.fork()
            twin.flip_bit(f"/data/{name}", position, bit)
            check_lost(twin, name, intact)


@stops
@pytest.mark.parametrize("name", FOUR)
def test_any_end_that_is_cut_off_makes_a_checkpoint_a_lost_one(name: str, how: str) -> None:
    disk = stop(trimmed(), how)
    intact = open_dir(disk.fork())
    for size in range(len(disk.view()[f"/data/{name}"])):
        twin = disk.fork()
        twin.open(f"/data/{name}", "write").truncate(size)
        check_lost(twin, name, intact)


def test_a_lost_checkpoint_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    disk = stop(trimmed(), "stop")
    disk.flip_bit(f"/data/{HIGH_WATERMARKS}", 13)
    with caplog.at_level(logging.ERROR):
        open_dir(disk)
    assert [HIGH_WATERMARKS in line for line in caplog.messages] == [True]


def test_a_lost_checkpoint_is_written_again_with_what_is_known() -> None:
    disk = stop(trimmed(), "kill")
    disk.flip_bit(f"/data/{LOG_STARTS}", 13)
    log_dir = open_dir(disk)
    log_dir.checkpoint()
    disk.flip_bit(f"/data/{LOG_STARTS_COPY}", 13)
    disk.process_dies()
    log_dir = open_dir(disk)
    assert log_dir.unreadable == []
    assert log_dir.logs[PARTITION].log_start_offset == START


@stops
def test_checkpoints_without_a_checksum_count_as_they_are(how: str) -> None:
    """S8: Kafka writes them so, and has no copy of log starts."""
    disk = stop(trimmed(), how)
    intact = open_dir(disk.fork())
    disk.remove(f"/data/{LOG_STARTS_COPY}")
    for name, offset in offsets(intact).items():
        file = disk.open(f"/data/{name}", "write")
        file.truncate(0)
        file.pwrite(format_entries([f"{PARTITION.topic} {PARTITION.partition} {offset}"]), 0)
    log_dir = open_dir(disk)
    assert log_dir.unreadable == []
    assert offsets(log_dir) == offsets(intact)
    assert contents(log_dir.logs[PARTITION]) == contents(intact.logs[PARTITION])
