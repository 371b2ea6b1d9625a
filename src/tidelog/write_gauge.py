"""Whether a large batch may be written in the loop: only while the disk keeps up.

In the loop a write of a megabyte takes a fraction of a millisecond, and half the CPU of one that
is handed to a thread on another core, as long as the page cache has room. When it has not, the
system makes the writer wait, for as long as a quarter of a second. So the loop writes only while
there is no pressure, and a write that took long all the same counts as pressure for a while. It
does not if it never waited: then others had the core meanwhile, and the disk has kept up.
"""

from typing import Final

from tidelog.base.ports import Clock, Pressure

LOOK_AGAIN_MS: Final = 100
SLOW_WRITE_US: Final = 5_000
SLOW_FOR_MS: Final = 5_000


class WriteGauge:
    def __init__(self, pressure: Pressure, clock: Clock) -> None:
        self._pressure = pressure
        self._clock = clock
        self._is_high = True
        self._look_again_ms = 0
        self._waits_before = 0
        self._began_us = 0

    def is_high(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._look_again_ms:
            self._look_again_ms = now_ms + LOOK_AGAIN_MS
            self._is_high = self._pressure.is_high()
        return self._is_high

    def begins(self) -> None:
        """A large write begins in the loop."""
        self._waits_before = self._pressure.waits()
        self._began_us = self._clock.monotonic_us()

    def ends(self) -> None:
        took_us = self._clock.monotonic_us() - self._began_us
        if took_us > SLOW_WRITE_US and self._pressure.waits() > self._waits_before:
            self._is_high = True
            self._look_again_ms = self._clock.monotonic_ms() + SLOW_FOR_MS
