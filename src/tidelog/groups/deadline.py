"""A time by which something must have happened, or else something is done.

It is moved on at every heartbeat, so that costs next to nothing: a timer of the loop stays where it
is and, when it runs, looks whether the time has really come.
"""

from collections.abc import Callable

from tidelog.base.ports import Clock, Loop, Timer


class Deadline:
    __slots__ = ("_clock", "_ends_ms", "_expired", "_loop", "_timer", "_timer_ms")

    def __init__(self, clock: Clock, loop: Loop) -> None:
        self._clock = clock
        self._loop = loop
        self._ends_ms = 0
        self._expired: Callable[[], None] | None = None
        self._timer: Timer | None = None
        self._timer_ms = 0

    @property
    def is_set(self) -> bool:
        return self._expired is not None

    def set(self, delay_ms: int, expired: Callable[[], None]) -> None:
        """Calls back after this time, unless it is set again or cancelled before."""
        self._ends_ms = self._clock.monotonic_ms() + delay_ms
        self._expired = expired
        if self._timer is not None and self._timer_ms > self._ends_ms:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._wait()

    def cancel(self) -> None:
        self._expired = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        self._timer_ms = self._ends_ms
        self._timer = self._loop.call_at(self._timer_ms, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._clock.monotonic_ms() < self._ends_ms:
            self._wait()
            return
        expired, self._expired = self._expired, None
        assert expired is not None, "a cancelled deadline has no timer"
        expired()
