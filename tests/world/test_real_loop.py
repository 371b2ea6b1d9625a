"""The loop of this machine: threads, signals, idleness, and what it leaves behind."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from tidelog.world.real.clock import RealClock
from tidelog.world.real.loop import EpollLoop, log_error
from tidelog.world.real.signals import Signals

AT_ONCE_SECONDS_MAX = 60.0
"""On a machine that is busy with other tests; a loop that is not woken waits for an hour."""


class Failures(list[tuple[str, Exception]]):
    def note(self, what: str, error: Exception) -> None:
        self.append((what, error))


@pytest.fixture
def failures() -> Failures:
    return Failures()


@pytest.fixture
def loop(failures: Failures) -> Iterator[EpollLoop]:
    made = EpollLoop(failures.note)
    yield made
    made.close()


def test_other_threads_wake_the_loop_and_none_of_their_posts_is_lost(loop: EpollLoop) -> None:
    seen: list[int] = []

    def post_many(first: int) -> None:
        for number in range(first, first + 1_000):
            loop.post(partial(seen.append, number))

    threads = [
        threading.Thread(target=post_many, args=(first,)) for first in range(0, 4_000, 1_000)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    while len(seen) < 4_000 and time.monotonic() < deadline:
        loop.turn(1.0)
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(4_000))
    assert [number for number in seen if number < 1_000] == list(range(1_000))


def test_a_post_ends_a_long_wait_at_once(loop: EpollLoop) -> None:
    timer = threading.Timer(0.05, lambda: loop.post(loop.stop))
    timer.start()
    begun = time.monotonic()
    loop.run()
    assert time.monotonic() - begun < AT_ONCE_SECONDS_MAX
    timer.join()


def test_a_stop_ends_the_run_after_its_turn_and_the_loop_can_run_again(loop: EpollLoop) -> None:
    seen: list[str] = []
    loop.call_soon(loop.stop)
    loop.call_soon(lambda: seen.append("same turn"))
    loop.run()
    assert seen == ["same turn"]
    loop.call_soon(lambda: seen.append("second run"))
    loop.call_soon(loop.stop)
    loop.run()
    assert seen == ["same turn", "second run"]


def test_a_stop_before_the_run_is_not_forgotten(loop: EpollLoop) -> None:
    """A signal may come while the broker still starts."""
    loop.stop()
    loop.run()


def test_a_lane_that_waits_does_not_hold_up_another_or_the_loop(loop: EpollLoop) -> None:
    gate = threading.Event()
    seen: list[object] = []
    loop.offload("slow", gate.wait, lambda _: seen.append("slow"))
    loop.offload("fast", lambda: "fast", seen.append)
    loop.call_soon(lambda: seen.append("soon"))
    while len(seen) < 2:
        loop.turn(1.0)
    assert sorted(str(item) for item in seen) == ["fast", "soon"]
    gate.set()
    while len(seen) < 3:
        loop.turn(1.0)
    assert seen[2] == "slow"


def test_work_that_tries_to_exit_does_not_end_its_lane(loop: EpollLoop) -> None:
    seen: list[object] = []

    def leave() -> None:
        raise SystemExit(3)

    loop.offload("lane", leave, seen.append)
    loop.offload("lane", lambda: "alive", seen.append)
    while len(seen) < 2:
        loop.turn(1.0)
    assert isinstance(seen[0], RuntimeError)
    assert "SystemExit(3)" in str(seen[0])
    assert seen[1] == "alive"


def test_closing_waits_for_work_that_was_given_and_ends_the_threads() -> None:
    before = set(threading.enumerate())
    loop = EpollLoop()
    done: list[int] = []
    for number in range(20):
        loop.offload("disk", partial(done.append, number), lambda _: None)
    loop.close()
    assert done == list(range(20))
    after = set(threading.enumerate()) - before
    assert [thread.name for thread in after if "lane" in thread.name] == []
    loop.post(lambda: None)


def test_what_is_for_idle_times_waits_until_nothing_is_ready(loop: EpollLoop) -> None:
    seen: list[str] = []
    reader, writer = os.pipe()
    os.write(writer, b"1234")

    def readable(_events: int) -> None:
        os.read(reader, 1)
        seen.append("busy")

    loop.watch(reader, 1, readable)
    loop.when_idle(lambda: seen.append("idle"))
    for _ in range(6):
        loop.turn(0.01)
    assert seen == ["busy"] * 4 + ["idle"]
    loop.unwatch(reader)
    loop.unwatch(reader)
    os.close(reader)
    os.close(writer)


def test_cancelled_timers_do_not_pile_up(loop: EpollLoop) -> None:
    """Nearly every timeout is cancelled, long before its time."""
    far_ms = RealClock().monotonic_ms() + 3_600_000
    kept = [loop.call_at(far_ms, lambda: None) for _ in range(10)]
    for _ in range(20_000):
        loop.call_at(far_ms, lambda: None).cancel()
    assert len(loop._timers) < 1_000
    for timer in kept:
        timer.cancel()


def test_a_timer_far_in_the_future_can_be_waited_for(loop: EpollLoop) -> None:
    loop.call_at(1 << 62, lambda: None)
    loop.turn(0.0)
    threading.Timer(0.05, lambda: loop.post(lambda: None)).start()
    loop.turn()


def test_a_handler_that_fails_is_told_and_others_are_still_called(
    loop: EpollLoop, failures: Failures
) -> None:
    pipes = [os.pipe() for _ in range(3)]
    seen: set[int] = set()

    def handle(number: int, _events: int) -> None:
        os.read(pipes[number][0], 1)
        seen.add(number)
        raise ValueError(f"handler {number}")

    for number, (reader, writer) in enumerate(pipes):
        loop.watch(reader, 1, partial(handle, number))
        os.write(writer, b"x")
    for _ in range(4):
        loop.turn(0.01)
    assert seen == {0, 1, 2}
    assert sorted(str(error) for _, error in failures) == [f"handler {n}" for n in range(3)]
    for pair in pipes:
        loop.unwatch(pair[0])
        for descriptor in pair:
            os.close(descriptor)


def test_errors_are_logged_with_their_traceback(caplog: pytest.LogCaptureFixture) -> None:
    loop = EpollLoop()
    assert loop.on_error is log_error
    loop.call_soon(partial(divmod, 1, 0))
    loop.turn(0.0)
    loop.close()
    assert "a callback failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_a_signal_ends_the_wait_and_runs_as_a_callback(loop: EpollLoop) -> None:
    seen: list[str] = []

    def terminate() -> None:
        seen.append(threading.current_thread().name)
        loop.stop()

    before = signal.getsignal(signal.SIGTERM)
    signals = Signals(loop, {signal.SIGTERM: terminate})
    killer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGTERM))
    killer.start()
    begun = time.monotonic()
    loop.run()
    killer.join()
    signals.close()
    assert seen == [threading.main_thread().name]
    assert time.monotonic() - begun < AT_ONCE_SECONDS_MAX
    assert signal.getsignal(signal.SIGTERM) is before


def test_many_signals_do_not_block_the_loop(loop: EpollLoop) -> None:
    seen: list[int] = []
    signals = Signals(loop, {signal.SIGUSR1: lambda: seen.append(1)})
    for _ in range(500):
        os.kill(os.getpid(), signal.SIGUSR1)
    for _ in range(5):
        loop.turn(0.01)
    signals.close()
    assert seen
