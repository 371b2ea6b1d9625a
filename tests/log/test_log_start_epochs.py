"""Leader epochs of a log whose start moved and was not durable when its process died (V6): what
comes back, comes back with the epochs that it was written in."""

import pytest

from support.logs import NOW, Simulated, batch, check_everything
from tidelog.base.log_settings import LogSettings
from tidelog.log.retention import advance_log_start


def written() -> Simulated:
    """Four records in each of the epochs 1, 2 and 3, in segments of two; all is durable, and that
    it is so too."""
    world = Simulated(LogSettings(segment_bytes=200))
    for epoch in (1, 2, 3):
        for _ in range(4):
            world.log.append_as_leader(batch(value=b"x" * 20), epoch, NOW)
    world.log.flush(NOW)
    world.log_dir.persist_recovery_points()
    assert len(world.log.segments.all) == 6
    return world


@pytest.mark.parametrize("start", [2, 4, 6, 10, 12])
@pytest.mark.parametrize("end", ["kill", "lose_power"])
def test_epochs_are_those_of_what_is_left_when_a_start_was_not_saved(start: int, end: str) -> None:
    world = written()
    advance_log_start(world.log, start)
    world.log.append_as_leader(batch(), 4, NOW)
    world.log.flush(NOW)
    log = world.kill() if end == "kill" else world.lose_power()
    assert (log.log_start_offset, log.log_end_offset) == (0, 13)
    assert log.epochs.entries == [(1, 0), (2, 4), (3, 8), (4, 12)]
    check_everything(log)


@pytest.mark.parametrize("start", [2, 4, 6, 10, 12])
def test_epochs_below_a_start_that_is_saved_are_forgotten(start: int) -> None:
    world = written()
    advance_log_start(world.log, start)
    world.log_dir.persist_log_starts()
    ends = ((1, 0, 4), (2, 4, 8), (3, 8, 13))
    known = [(epoch, max(begun, start)) for epoch, begun, end in ends if end > start]
    assert world.log.epochs.entries == known
