"""What time it is for retention: the wall clock, which is not believed at once when it leaps ahead.

A clock that was set two hours ahead by mistake would make everything look two hours older, and what
is deleted then does not come back when the clock does. So time passes here at most twice as fast as
it really does: a leap is caught up with in as much time as it skipped. The wall clock is followed
back at once, since that only keeps things longer.
"""

from typing import Final

from tidelog.base.ports import Clock

FASTEST: Final = 2


class RetentionClock:
    __slots__ = ("_clock", "_now_ms", "_seen_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now_ms = clock.now_ms()
        self._seen_ms = clock.monotonic_ms()

    def now_ms(self) -> int:
        seen_ms = self._clock.monotonic_ms()
        latest_ms = self._now_ms + FASTEST * (seen_ms - self._seen_ms)
        self._seen_ms = seen_ms
        self._now_ms = min(self._clock.now_ms(), latest_ms)
        return self._now_ms
