"""What every clock does: one body for the real and the simulated one."""

import pytest

from tidelog.base.ports import Clock
from tidelog.world.real.clock import RealClock
from tidelog.world.sim.clock import SimClock


@pytest.fixture(params=[RealClock, SimClock], ids=["real", "simulated"])
def clock(request: pytest.FixtureRequest) -> Clock:
    made: Clock = request.param()
    return made


def test_the_wall_shows_milliseconds_since_1970(clock: Clock) -> None:
    year_2020, year_2100 = 1_577_836_800_000, 4_102_444_800_000
    assert isinstance(clock.now_ms(), int)
    assert year_2020 < clock.now_ms() < year_2100


def test_monotonic_time_is_whole_and_never_goes_back(clock: Clock) -> None:
    times = [clock.monotonic_ms() for _ in range(1000)]
    assert all(isinstance(time, int) for time in times)
    assert times == sorted(times)


def test_the_boot_id_stays_while_the_machine_runs(clock: Clock) -> None:
    assert clock.boot_id()
    assert clock.boot_id() == clock.boot_id()


def test_the_boot_id_is_the_same_for_every_process_of_one_boot() -> None:
    assert RealClock().boot_id() == RealClock().boot_id()


def test_simulated_time_moves_only_when_told() -> None:
    clock = SimClock(now_ms=1000)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1000, 0)
    clock.advance(5)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1005, 5)


def test_a_simulated_wall_can_jump_back_while_monotonic_time_stands() -> None:
    clock = SimClock(now_ms=1000)
    clock.advance(5)
    clock.set_wall(10)
    assert (clock.now_ms(), clock.monotonic_ms()) == (10, 5)
    with pytest.raises(AssertionError, match="cannot go back"):
        clock.advance(-1)


def test_a_simulated_reboot_gives_a_new_boot_id_and_keeps_the_wall() -> None:
    clock = SimClock()
    clock.advance(100)
    before = clock.boot_id(), clock.now_ms()
    clock.reboot()
    assert clock.boot_id() != before[0]
    assert clock.now_ms() == before[1]
    assert clock.monotonic_ms() == 0
