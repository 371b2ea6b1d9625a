"""What a flush makes durable, and what it takes of the process (S9, D10)."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.logs import IDENTITY, NOW, PARTITION, Simulated, batch, check_everything
from tidelog.base.log_settings import LogSettings
from tidelog.log.log_dir import LogDir
from tidelog.log.truncation import truncate_suffix
from tidelog.records.batch import stamp
from tidelog.world.real.clock import RealClock
from tidelog.world.real.descriptors import descriptors
from tidelog.world.real.disk import RealDisk

COMPACTED = LogSettings(cleanup_compact=True, cleanup_delete=False)
FAR = 3_000_000_000
CLOSED = 40


def follow(world: Simulated, base: int) -> None:
    data = batch(2)
    stamp(data, base, 0)
    world.log.append_as_follower(data, 0)


def past_a_wide_gap() -> Simulated:
    """No segment spans it."""
    world = Simulated(COMPACTED)
    for base in (0, FAR):
        follow(world, base)
    return world


def cut_in_a_gap() -> Simulated:
    """It led from there on, and began a segment."""
    world = Simulated(COMPACTED)
    for base in (0, 8):
        follow(world, base)
    truncate_suffix(world.log, 8, NOW)
    world.log.roll()
    world.log.append_as_leader(batch(2), 1, NOW)
    return world


@pytest.mark.parametrize("make", [past_a_wide_gap, cut_in_a_gap])
@pytest.mark.parametrize("killed_before", [False, True])
def test_what_was_flushed_behind_a_gap_is_there_after_a_power_loss(
    make: Callable[[], Simulated], *, killed_before: bool
) -> None:
    """However soon it comes: no checkpoint has been written since."""
    world = make()
    if killed_before:
        world.kill()
    world.log.flush(NOW)
    before = check_everything(world.log)
    assert len(before) == 2
    world.lose_power()
    assert check_everything(world.log) == before


@contextmanager
def few_files(more: int) -> Iterator[None]:
    """This process may open so many more, at most."""
    lowest, _ = descriptors()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_flush_of_many_segments_has_few_files_open_at_a_time(tmp_path: Path) -> None:
    """F17."""
    log_dir = LogDir(str(tmp_path), RealDisk(), RealClock(), open_files_max=4)
    log_dir.open(IDENTITY, lambda _: LogSettings())
    log = log_dir.create_log(PARTITION, LogSettings())
    for _ in range(CLOSED):
        log.append_as_leader(batch(), 0, NOW)
        log.roll()
    with few_files(more=8):
        log.flush(NOW)
    assert log.recovery_point == CLOSED
    log_dir.close()
