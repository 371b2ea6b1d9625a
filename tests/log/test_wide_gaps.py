"""Gaps that are wider than a segment can span: what Kafka's compaction leaves of a log whose first
segments have nothing in them any more (S1, S6, R6)."""

from collections.abc import Callable

import pytest

from support.logs import NOW, Simulated, batch, check_everything
from tidelog.base.log_settings import LogSettings
from tidelog.log.partition_log import PartitionLog
from tidelog.log.pending_follow import begin_follow, end_follow
from tidelog.log.scan import RELATIVE_OFFSET_MAX
from tidelog.log.truncation import truncate_suffix
from tidelog.records.batch import stamp

FAR = 3_000_000_000
SETTINGS = LogSettings(cleanup_compact=True, cleanup_delete=False)

Append = Callable[[PartitionLog, int], None]


def followed(base: int) -> bytearray:
    data = batch(2)
    stamp(data, base, 0)
    return data


def in_the_loop(log: PartitionLog, base: int) -> None:
    log.append_as_follower(followed(base), 0)


def beside_the_loop(log: PartitionLog, base: int) -> None:
    pending = begin_follow(log, memoryview(followed(base)), 0)
    assert pending is not None
    pending.run()
    end_follow(log, pending, None)


def followed_past_a_gap(append: Append, first: list[int]) -> Simulated:
    world = Simulated(SETTINGS)
    for base in (*first, FAR, FAR + 2):
        append(world.log, base)
    return world


@pytest.mark.parametrize("append", [in_the_loop, beside_the_loop])
@pytest.mark.parametrize("first", [[], [0]])
def test_a_follower_goes_on_behind_a_gap_that_no_segment_spans(
    append: Append, first: list[int]
) -> None:
    world = followed_past_a_gap(append, first)
    assert [segment.base_offset for segment in world.log.segments.all] == [0, FAR]
    assert world.log.log_end_offset == FAR + 4
    world.log.roll()
    append(world.log, FAR + 4)
    held = check_everything(world.log)
    assert [item.header.base_offset for item in held] == [*first, FAR, FAR + 2, FAR + 4]
    found = world.log.read(RELATIVE_OFFSET_MAX, 1, world.log.log_end_offset)
    assert found.file.pread(found.size, found.position) == held[len(first)].data


@pytest.mark.parametrize("end", ["stop", "kill", "power"])
@pytest.mark.parametrize("first", [[], [0]])
def test_what_is_behind_a_wide_gap_is_there_after_a_start(end: str, first: list[int]) -> None:
    """S9."""
    world = followed_past_a_gap(in_the_loop, first)
    world.log.roll()
    before = check_everything(world.log)
    if end == "stop":
        world.stop_and_start()
    elif end == "kill":
        world.kill()
    else:
        world.log.flush(NOW)
        world.log_dir.checkpoint()
        world.lose_power()
    assert world.log.log_end_offset == FAR + 4
    assert check_everything(world.log) == before


def test_who_leads_from_the_middle_of_a_wide_gap_on_begins_a_segment() -> None:
    world = followed_past_a_gap(in_the_loop, [])
    truncate_suffix(world.log, FAR - 7, NOW)
    assert world.log.append_as_leader(batch(), 1, NOW) == FAR - 7
    world.log.roll()
    assert world.log.append_as_leader(batch(), 1, NOW) == FAR - 6
    check_everything(world.log)
    check_everything(world.kill())
    assert world.log.log_end_offset == FAR - 5
