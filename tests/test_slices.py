"""Long work in slices: others come in between, and whatever happens it ends once."""

from collections.abc import Callable

import pytest

from tidelog.slices import SLICE_STEPS, Sliced, Slices
from tidelog.world.real.clock import RealClock
from tidelog.world.sim.loop import SimLoop


def unexpected() -> None:
    raise AssertionError("it has not failed")


def test_others_come_in_between_the_slices() -> None:
    loop = SimLoop()
    slices = Slices(loop, loop.clock)
    seen: list[str] = []

    def work() -> Sliced:
        for number in range(3 * SLICE_STEPS):
            if number % SLICE_STEPS == 0:
                seen.append("work")
                loop.after(0, lambda: seen.append("other"))
            yield None

    slices.run(work(), unexpected)
    assert not slices.is_idle
    assert loop.run_until(lambda: slices.is_idle)
    assert seen[:4] == ["work", "other", "work", "other"]


def test_a_slice_ends_after_a_few_milliseconds() -> None:
    loop, clock = SimLoop(), RealClock()
    slices = Slices(loop, clock)
    steps: list[None] = []

    def work() -> Sliced:
        while len(steps) < SLICE_STEPS // 2:
            began_us = clock.monotonic_us()
            while clock.monotonic_us() < began_us + 1_000:
                pass
            steps.append(None)
            yield None

    slices.run(work(), unexpected)
    assert 1 <= len(steps) <= 6


def test_a_turn_goes_on_with_one_slice_however_much_work_there_is() -> None:
    loop = SimLoop()
    slices = Slices(loop, loop.clock)
    seen: list[str] = []

    def work(name: str) -> Sliced:
        for number in range(3 * SLICE_STEPS):
            if number % SLICE_STEPS == 0:
                seen.append(name)
            yield None

    for name in "abc":
        slices.run(work(name), unexpected)
    assert seen == ["a", "b", "c"], "each begins at once"
    for turn in range(1, 7):
        loop.turn()
        assert len(seen) == 3 + turn
    assert seen == ["a", "b", "c"] * 3


@pytest.mark.parametrize("at_once", [True, False])
def test_work_goes_on_when_what_it_asked_for_is_done(at_once: bool) -> None:
    loop = SimLoop()
    slices = Slices(loop, loop.clock)
    seen: list[int] = []

    def ask(then: Callable[[], None]) -> None:
        if at_once:
            then()
        else:
            loop.after(50, then)

    def work() -> Sliced:
        for number in range(3):
            yield ask
            seen.append(number)

    slices.run(work(), unexpected)
    loop.run_until(lambda: slices.is_idle)
    assert seen == [0, 1, 2]


def test_an_error_that_escapes_ends_the_work_and_is_told() -> None:
    loop = SimLoop()
    slices = Slices(loop, loop.clock)
    failed: list[None] = []

    def work() -> Sliced:
        yield None
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        slices.run(work(), lambda: failed.append(None))
    assert failed == [None]
    assert slices.is_idle


def test_very_many_things_that_are_there_at_once_are_asked_for_in_slices_too() -> None:
    loop = SimLoop()
    slices = Slices(loop, loop.clock)
    answered: list[int] = []

    def work() -> Sliced:
        for number in range(10_000):
            yield lambda then: then()
            answered.append(number)

    slices.run(work(), unexpected)
    assert 0 < len(answered) < 10_000, "others come in between"
    assert loop.run_until(lambda: slices.is_idle)
    assert answered == list(range(10_000))
