"""A wall clock that leaps ahead does not make everything old at once (F13)."""

from tidelog.log.retention_clock import RetentionClock
from tidelog.world.sim.clock import SimClock

HOUR_MS = 3_600_000
START_MS = 1_800_000_000_000


def clocks() -> tuple[SimClock, RetentionClock]:
    wall = SimClock(START_MS)
    return wall, RetentionClock(wall)


def test_time_passes_as_on_the_wall() -> None:
    wall, retention = clocks()
    for delay_ms in (0, 1, HOUR_MS, 7):
        wall.advance(delay_ms)
        assert retention.now_ms() == wall.now_ms()


def test_a_leap_ahead_is_caught_up_with_in_as_much_time_as_it_skipped() -> None:
    wall, retention = clocks()
    wall.set_wall(START_MS + 2 * HOUR_MS)
    assert retention.now_ms() == START_MS
    wall.advance(HOUR_MS)
    assert retention.now_ms() == START_MS + 2 * HOUR_MS
    wall.advance(HOUR_MS)
    assert retention.now_ms() == wall.now_ms() == START_MS + 4 * HOUR_MS


def test_a_leap_that_was_taken_back_has_changed_nothing() -> None:
    wall, retention = clocks()
    wall.set_wall(START_MS + 2 * HOUR_MS)
    wall.advance(1000)
    assert retention.now_ms() == START_MS + 2000
    wall.set_wall(START_MS + 1000)
    assert retention.now_ms() == START_MS + 1000


def test_the_wall_clock_is_followed_back_at_once() -> None:
    wall, retention = clocks()
    wall.set_wall(START_MS - 2 * HOUR_MS)
    assert retention.now_ms() == START_MS - 2 * HOUR_MS
