"""A loop on virtual time: hours pass in a moment, and the same way for the same seed.

Timers fire up to a millisecond late, never early; work beside the loop ends at a later time,
so that whatever can happen meanwhile does. A turn takes one or more of the events that are
due, and ends like a real one: timers, callbacks for soon, flushes. An error that escapes a
callback is raised to whoever runs the loop, unless `on_error` takes it.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import Any, Protocol

from tidelog.base.ports import QUIET_MS_MAX, Result
from tidelog.world.sim.choices import Choices
from tidelog.world.sim.clock import SimClock

OnError = Callable[[str, Exception], None]

WORK_MS_MAX = 20


def raise_error(_what: str, error: Exception) -> None:
    raise error


class Flushable(Protocol):
    def flush(self) -> None: ...


class SimTimer:
    __slots__ = ("callback", "lateness_ms")

    def __init__(self, callback: Callable[[], None], lateness_ms: int) -> None:
        self.callback: Callable[[], None] | None = callback
        self.lateness_ms = lateness_ms

    def cancel(self) -> None:
        self.callback = None


class SimLoop:
    def __init__(
        self, clock: SimClock | None = None, seed: int = 0, on_error: OnError = raise_error
    ) -> None:
        self.clock = SimClock() if clock is None else clock
        self.choices = Choices(seed)
        self.on_error = on_error
        self.flushes: deque[Flushable] = deque()
        self._timers: list[tuple[int, int, SimTimer]] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._soon: deque[Callable[[], None]] = deque()
        self._idle: list[Callable[[], None]] = []
        self._begins_ms: dict[str, int] = {}
        """When the last work of a lane begins, and below, when its end is told of."""
        self._tells_ms: dict[str, int] = {}
        self._is_stopping = False

    # The port.

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> SimTimer:
        timer = SimTimer(callback, self.choices.stream("timers").randint(0, 1))
        heappush(self._timers, (monotonic_ms, self._next(), timer))
        return timer

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def call_when_quiet(self, callback: Callable[[], None]) -> None:
        self.after(self.choices.stream("quiet").randint(0, QUIET_MS_MAX), callback)

    def offload(
        self,
        lane: str,
        work: Callable[[], Result],
        done: Callable[[Result | Exception], None],
    ) -> None:
        """The work takes effect at one later time and is told of at another: crashes and
        changes of mind fall between any two of them."""
        draws = self.choices.stream(f"lane {lane}")
        now_ms = self.clock.monotonic_ms()
        begins_ms = max(now_ms, self._begins_ms.get(lane, 0)) + draws.randint(0, WORK_MS_MAX)
        self._begins_ms[lane] = begins_ms
        self.after(begins_ms - now_ms, partial(self._work, lane, work, done))

    # Running.

    def run(self) -> None:
        """Until `stop`, or until nothing is left to wait for."""
        while not self._is_stopping and self.turn():
            continue
        self._is_stopping = False

    def stop(self) -> None:
        self._is_stopping = True

    def run_for(self, duration_ms: int) -> None:
        """Everything that happens within a time; afterwards that time has passed."""
        end_ms = self.clock.monotonic_ms() + duration_ms
        while self.turn(end_ms):
            continue
        self.clock.advance(max(0, end_ms - self.clock.monotonic_ms()))

    def run_until(self, condition: Callable[[], bool], duration_ms_max: int = 600_000) -> bool:
        """Whether a condition came true within a time."""
        end_ms = self.clock.monotonic_ms() + duration_ms_max
        while not condition():
            if not self.turn(end_ms):
                return condition()
        return True

    def turn(self, end_ms: int | None = None) -> bool:
        """Goes to the next time at which something happens, and does it; False if nothing
        will, or not by `end_ms`."""
        at_ms = self._next_ms()
        if at_ms is None or (end_ms is not None and at_ms > end_ms):
            return False
        is_idle = at_ms > self.clock.monotonic_ms()
        self.clock.advance(max(0, at_ms - self.clock.monotonic_ms()))
        try:
            self._run_events()
            self._run_timers()
            while self._soon:
                self._soon.popleft()()
            for _ in range(len(self.flushes)):
                self.flushes.popleft().flush()
            if is_idle and self._idle:
                self._idle.pop(0)()
        except Exception as error:
            self.on_error("a callback failed", error)
        return True

    def post(self, callback: Callable[[], None]) -> None:
        """Runs a callback in a later turn."""
        self.after(0, callback)

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Runs a callback once, in a turn before which nothing was ready."""
        self._idle.append(callback)

    def close(self) -> None:
        """Nothing that was planned happens any more."""
        for planned in (self._timers, self._events, self._soon, self.flushes, self._idle):
            planned.clear()

    # What the simulated world uses.

    def after(self, delay_ms: int, event: Callable[[], None]) -> None:
        """Something that happens at exactly that time, in order with what was planned before."""
        heappush(self._events, (self.clock.monotonic_ms() + delay_ms, self._next(), event))

    # Inside.

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    def _next_ms(self) -> int | None:
        now_ms = self.clock.monotonic_ms()
        if self._soon or self.flushes:
            return now_ms
        while self._timers and self._timers[0][2].callback is None:
            heappop(self._timers)
        times = [self._events[0][0]] if self._events else []
        if self._timers:
            due_ms, _, timer = self._timers[0]
            times.append(due_ms + timer.lateness_ms)
        if self._idle:
            times.append(now_ms + 1)
        return max(min(times), now_ms) if times else None

    def _run_events(self) -> None:
        """One turn may find several things ready, or come between any two of them."""
        events, now_ms = self._events, self.clock.monotonic_ms()
        draws = self.choices.stream("turns")
        newest = self._sequence
        while events and events[0][0] <= now_ms and events[0][1] <= newest:
            heappop(events)[2]()
            if draws.random() < 0.5:
                return

    def _run_timers(self) -> None:
        timers, now_ms = self._timers, self.clock.monotonic_ms()
        newest = self._sequence
        while timers and timers[0][0] <= now_ms and timers[0][1] <= newest:
            timer = heappop(timers)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()

    def _work(self, lane: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        outcome: Any
        try:
            outcome = work()
        except Exception as error:
            outcome = error
        now_ms = self.clock.monotonic_ms()
        wait_ms = self.choices.stream(f"lane {lane}").choice((0, 0, 1, WORK_MS_MAX))
        tells_ms = max(now_ms + wait_ms, self._tells_ms.get(lane, 0))
        self._tells_ms[lane] = tells_ms
        self.after(tells_ms - now_ms, partial(done, outcome))
