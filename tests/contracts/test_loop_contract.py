"""What every loop does, the real one and the one on virtual time: one body for both."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from support.peers import KINDS, World, worlds

TRIES_MAX = 50


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    yield from worlds(request.param, tmp_path)


# Timers.


def test_a_timer_is_never_early_and_hardly_late(world: World) -> None:
    """A machine that is busy elsewhere may be late a few times."""
    late_ms = (late_by_ms(world) for _ in range(TRIES_MAX))
    assert any(least_ms <= 2 for least_ms in late_ms)


def late_by_ms(world: World) -> int:
    """The least by which one of 13 timers was late."""
    seen: list[tuple[int, int]] = []

    def fire(due_ms: int) -> None:
        seen.append((due_ms, world.clock.monotonic_ms()))

    start_ms = world.clock.monotonic_ms()
    for delay_ms in range(1, 40, 3):
        world.loop.call_at(start_ms + delay_ms, partial(fire, start_ms + delay_ms))
    world.until(lambda: len(seen) == 13)
    assert all(fired_ms >= due_ms for due_ms, fired_ms in seen)
    return min(fired_ms - due_ms for due_ms, fired_ms in seen)


def test_timers_fire_in_the_order_of_their_times(world: World) -> None:
    seen: list[int] = []
    start_ms = world.clock.monotonic_ms()
    for delay_ms in (9, 3, 7, 1, 5, 2, 8, 4, 6):
        world.loop.call_at(start_ms + delay_ms, partial(seen.append, delay_ms))
    world.until(lambda: len(seen) == 9)
    assert seen == sorted(seen)


def test_timers_of_one_time_fire_in_the_order_they_were_set(world: World) -> None:
    seen: list[int] = []
    due_ms = world.clock.monotonic_ms() + 5
    for number in range(20):
        world.loop.call_at(due_ms, partial(seen.append, number))
    world.until(lambda: len(seen) == 20)
    assert seen == list(range(20))


def test_a_time_that_has_passed_is_now(world: World) -> None:
    seen: list[int] = []
    world.loop.call_at(world.clock.monotonic_ms() - 1_000, lambda: seen.append(1))
    world.until(lambda: bool(seen))


def test_a_cancelled_timer_does_not_fire(world: World) -> None:
    seen: list[str] = []
    now_ms = world.clock.monotonic_ms()
    timer = world.loop.call_at(now_ms + 2, lambda: seen.append("cancelled"))
    world.loop.call_at(now_ms + 4, lambda: seen.append("kept"))
    timer.cancel()
    timer.cancel()
    world.pass_ms(8)
    assert seen == ["kept"]


def test_a_timer_can_cancel_another_of_the_same_time(world: World) -> None:
    seen: list[str] = []
    due_ms = world.clock.monotonic_ms() + 2
    world.loop.call_at(due_ms, lambda: second.cancel())
    second = world.loop.call_at(due_ms, lambda: seen.append("second"))
    world.pass_ms(6)
    assert seen == []


def test_cancelling_after_the_callback_ran_does_nothing(world: World) -> None:
    seen: list[int] = []
    timer = world.loop.call_at(world.clock.monotonic_ms(), lambda: seen.append(1))
    world.until(lambda: bool(seen))
    timer.cancel()
    world.pass_ms(3)
    assert seen == [1]


def test_many_cancelled_timers_do_not_hide_the_others(world: World) -> None:
    seen: list[int] = []
    now_ms = world.clock.monotonic_ms()
    for number in range(2_000):
        timer = world.loop.call_at(now_ms + 1 + number % 7, partial(seen.append, number))
        if number % 10:
            timer.cancel()
    world.pass_ms(12)
    assert sorted(seen) == list(range(0, 2_000, 10))


def test_a_timer_that_renews_itself_for_now_does_not_keep_the_loop(world: World) -> None:
    """A connection is still served while it does."""
    asking, answering = world.meet()

    def again() -> None:
        if not answering.heard:
            world.loop.call_at(world.clock.monotonic_ms(), again)

    again()
    asking.connection.send(b"hello")
    world.until(lambda: answering.heard == b"hello")


# Soon.


def test_what_is_called_soon_runs_in_order_after_the_callback_that_asked(world: World) -> None:
    seen: list[str] = []

    def first() -> None:
        world.loop.call_soon(lambda: seen.append("second"))
        world.loop.call_soon(third)
        seen.append("first")

    def third() -> None:
        seen.append("third")
        world.loop.call_soon(lambda: seen.append("fourth"))

    world.loop.call_soon(first)
    world.until(lambda: len(seen) == 4)
    assert seen == ["first", "second", "third", "fourth"]


def test_what_is_called_soon_runs_before_what_it_sent_leaves(world: World) -> None:
    """So that all of one turn's answers leave together."""
    asking, answering = world.meet()

    def speak() -> None:
        asking.connection.send(b"one ")
        world.loop.call_soon(lambda: asking.connection.send(b"two"))

    world.loop.call_soon(speak)
    world.until(lambda: answering.heard == b"one two")


# When it is quiet.


def test_what_waits_for_quiet_runs_soon_if_nothing_happens(world: World) -> None:
    seen: list[int] = []
    for number in range(3):
        world.loop.call_when_quiet(partial(seen.append, number))
    assert seen == []
    world.until(lambda: len(seen) == 3)
    assert sorted(seen) == [0, 1, 2]


def test_what_waits_for_quiet_does_not_wait_for_long(world: World) -> None:
    """A loop that is never quiet does it all the same."""
    asking, answering = world.meet()
    seen: list[str] = []
    rounds = 0

    def busy() -> None:
        nonlocal rounds
        rounds += 1
        asking.connection.send(b"x")
        if not seen:
            world.loop.call_at(world.clock.monotonic_ms(), busy)

    world.loop.call_when_quiet(lambda: seen.append("quiet"))
    busy()
    world.until(lambda: bool(seen) and len(answering.heard) == rounds)


def test_an_error_in_what_waited_for_quiet_keeps_no_other_from_it(world: World) -> None:
    seen: list[str] = []
    world.loop.call_when_quiet(lambda: fail("quiet"))
    world.loop.call_when_quiet(lambda: seen.append("quiet"))
    world.until(lambda: bool(seen) and bool(world.errors))
    assert [str(error) for _, error in world.errors] == ["quiet"]


# Errors.


def test_an_error_in_a_callback_is_told_and_the_loop_goes_on(world: World) -> None:
    seen: list[str] = []
    now_ms = world.clock.monotonic_ms()
    world.loop.call_soon(lambda: fail("soon"))
    world.loop.call_soon(lambda: seen.append("soon"))
    world.loop.call_at(now_ms + 1, lambda: fail("timer"))
    world.loop.call_at(now_ms + 1, lambda: seen.append("timer"))
    world.loop.offload("lane", lambda: None, lambda _: fail("done"))
    world.loop.offload("lane", lambda: None, lambda _: seen.append("done"))
    world.until(lambda: len(seen) == 3)
    assert sorted(seen) == ["done", "soon", "timer"]
    assert sorted(str(error) for _, error in world.errors) == ["done", "soon", "timer"]


def fail(what: str) -> None:
    raise RuntimeError(what)


# Work beside the loop.


def test_work_beside_the_loop_answers_in_the_loop(world: World) -> None:
    seen: list[object] = []
    world.loop.offload("disk", lambda: 42, seen.append)
    assert seen == [], "never before the caller has ended"
    world.until(lambda: bool(seen))
    assert seen == [42]


def test_work_of_one_lane_is_done_and_told_in_order(world: World) -> None:
    done: list[int] = []
    told: list[object] = []

    def work(number: int) -> int:
        done.append(number)
        return number

    for number in range(50):
        world.loop.offload("disk", partial(work, number), told.append)

    world.until(lambda: len(told) == 50)
    assert done == list(range(50))
    assert told == list(range(50))


def test_what_work_raises_comes_as_a_value_and_the_lane_goes_on(world: World) -> None:
    seen: list[object] = []
    world.loop.offload("disk", lambda: fail("no disk"), seen.append)
    world.loop.offload("disk", lambda: "fine", seen.append)
    world.until(lambda: len(seen) == 2)
    assert isinstance(seen[0], RuntimeError)
    assert str(seen[0]) == "no disk"
    assert seen[1] == "fine"
    assert world.errors == []


def test_work_can_be_given_from_what_is_told(world: World) -> None:
    seen: list[object] = []

    def first_done(result: object) -> None:
        seen.append(result)
        world.loop.offload("disk", lambda: "second", seen.append)

    world.loop.offload("disk", lambda: "first", first_done)
    world.until(lambda: len(seen) == 2)
    assert seen == ["first", "second"]
