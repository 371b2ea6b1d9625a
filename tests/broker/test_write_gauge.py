"""Large batches are written in the loop only while the disk keeps up, and none at the limit."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from tidelog.base.ports import Level
from tidelog.world.real import pressure
from tidelog.world.sim.loop import SimLoop
from tidelog.write_gauge import (
    BELIEVED_MS,
    LOOK_AGAIN_MS,
    LOOK_IN_MS,
    SLOW_FOR_MS,
    SLOW_WRITE_US,
    WriteGauge,
)

SLOW_WRITE_MS = SLOW_WRITE_US // 1000


class Given:
    def __init__(self) -> None:
        self.given = Level.low
        self.looks = 0
        self.waited = 0

    def level(self) -> Level:
        self.looks += 1
        return self.given

    def waits(self) -> int:
        return self.waited

    def favour(self) -> None:
        raise AssertionError("a gauge only looks")


def new_gauge(given: Given) -> tuple[WriteGauge, SimLoop]:
    loop = SimLoop()
    return WriteGauge(given, loop.clock, loop), loop


def test_pressure_is_looked_for_now_and_then_and_whoever_writes_is_served_first() -> None:
    given = Given()
    gauge, loop = new_gauge(given)
    assert [gauge.is_high() for _ in range(100)] == [False] * 100
    assert given.looks == 1
    for level, found in (
        (Level.high, (True, False)),
        (Level.limit, (True, True)),
        (Level.low, (False, False)),
    ):
        before, looks = (gauge.is_high(), gauge.is_at_limit()), given.looks
        given.given = level
        loop.clock.advance(LOOK_AGAIN_MS)
        assert (gauge.is_high(), gauge.is_at_limit()) == before
        assert given.looks == looks
        loop.run_for(LOOK_IN_MS + 1)
        assert given.looks == looks + 1
        assert (gauge.is_high(), gauge.is_at_limit()) == found
        assert given.looks == looks + 1


def test_what_was_seen_too_long_ago_is_not_believed() -> None:
    given = Given()
    gauge, loop = new_gauge(given)
    assert not gauge.is_at_limit()
    given.given = Level.limit
    loop.clock.advance(BELIEVED_MS)
    assert gauge.is_at_limit()
    loop.run_for(LOOK_AGAIN_MS)
    assert given.looks == 2


@pytest.mark.parametrize(
    ("took_ms", "waits", "is_pressure"),
    [
        (SLOW_WRITE_MS, 1, False),
        (SLOW_WRITE_MS + 1, 1, True),
        (100 * SLOW_WRITE_MS, 0, False),
    ],
)
def test_a_write_that_waited_long_counts_as_pressure_for_a_while(
    took_ms: int, waits: int, is_pressure: bool
) -> None:
    """One that was long because others had the core does not: another thread would fare no better,
    and each megabyte that is handed over costs a third more."""
    given = Given()
    gauge, loop = new_gauge(given)
    clock = loop.clock
    assert not gauge.is_high()
    gauge.begins()
    given.waited += waits
    clock.advance(took_ms)
    gauge.ends()
    clock.advance(SLOW_FOR_MS - 1)
    assert gauge.is_high() is is_pressure
    assert not gauge.is_at_limit()
    clock.advance(LOOK_AGAIN_MS)
    assert not gauge.is_high()


def test_a_thread_that_sleeps_waits_and_one_that_computes_does_not() -> None:
    """Another thread of this process may want its lock meanwhile, but not every time."""
    given = pressure.RealPressure()
    before = given.waits()
    time.sleep(0.001)
    assert given.waits() > before
    computed = []
    for _ in range(20):
        before = given.waits()
        sum(range(100_000))
        computed.append(given.waits() - before)
    assert 0 in computed


def in_a_thread(action: Callable[[], None]) -> int:
    """The class that the system schedules it in afterwards."""
    found: list[int] = []

    def run() -> None:
        action()
        found.append(os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK)

    thread = Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def may_be_favoured() -> bool:
    def become() -> None:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))

    try:
        in_a_thread(become)
    except (IndexError, PermissionError):
        return False
    return True


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_is_favoured_where_the_system_grants_it_and_no_other() -> None:
    """Threads of that class are made to wait later than others when the page cache is full."""
    given = pressure.RealPressure()
    expected = os.SCHED_RR if may_be_favoured() else os.SCHED_OTHER
    for _ in range(2):
        assert in_a_thread(given.favour) == expected
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
    assert in_a_thread(lambda: None) == os.SCHED_OTHER


def test_who_may_not_be_favoured_asks_once_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refuse(_: int, policy: int, __: os.sched_param) -> None:
        asked.append(policy)
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    given = pressure.RealPressure()
    for _ in range(3):
        assert in_a_thread(given.favour) == os.SCHED_OTHER
    assert asked == [os.SCHED_RR | os.SCHED_RESET_ON_FORK]


@pytest.mark.parametrize(
    ("counters", "expected"),
    [
        ("nr_dirty 10\nnr_writeback 5", Level.low),
        ("nr_dirty 90\nnr_writeback 20", Level.high),
        ("nr_dirty 90\nnr_writeback 55", Level.limit),
        ("nr_dirty 5", Level.high),
        ("rubbish", Level.high),
    ],
)
def test_the_kernels_counters_tell_before_it_makes_writers_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counters: str, expected: Level
) -> None:
    """It does so from 150 pages on here, half way between its two limits."""
    limits = "nr_dirty_threshold 200\nnr_dirty_background_threshold 100\n"
    (tmp_path / "vmstat").write_text(f"{limits}{counters}\n")
    monkeypatch.setattr(pressure, "_COUNTERS", tmp_path / "vmstat")
    assert pressure.RealPressure().level() is expected


def test_a_system_that_does_not_tell_counts_as_pressed_but_not_at_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pressure, "_COUNTERS", tmp_path / "nothing")
    assert pressure.RealPressure().level() is Level.high
