"""Whether a batch may be written in the loop: a large one only while the disk keeps up.

In the loop a write of a megabyte takes a fraction of a millisecond, and half the CPU of one that
is handed to a thread on another core, as long as the page cache has room. When it has not, the
system makes the writer wait, for as long as a quarter of a second. So the loop writes only while
there is no pressure, and a write that took long all the same counts as pressure for a while. It
does not if it never waited: then others had the core meanwhile, and the disk has kept up.

At the limit a write of a few bytes waits as long, and whoever else the loop serves would wait for
it: then no batch is written there.

To look takes as long as several small requests. So whoever writes again and again is served first,
and has it looked at afterwards; only what was seen too long ago is not believed.
"""

from typing import Final

from tidelog.base.ports import Clock, Level, Loop, Pressure

LOOK_AGAIN_MS: Final = 100
LOOK_IN_MS: Final = 2
"""By then a record has its copies, and whoever wrote it his answer."""
BELIEVED_MS: Final = 250
SLOW_WRITE_US: Final = 5_000
SLOW_FOR_MS: Final = 5_000


class WriteGauge:
    def __init__(self, pressure: Pressure, clock: Clock, loop: Loop) -> None:
        self._pressure = pressure
        self._clock = clock
        self._loop = loop
        self._level = Level.high
        self._look_again_ms = self._believed_until_ms = 0
        self._will_look = False
        self._waits_before = 0
        self._began_us = 0

    def is_high(self) -> bool:
        return self._level_now() is not Level.low

    def is_at_limit(self) -> bool:
        return self._level_now() is Level.limit

    def _level_now(self) -> Level:
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._look_again_ms:
            if now_ms >= self._believed_until_ms:
                self._look(now_ms)
            elif not self._will_look:
                self._will_look = True
                self._loop.call_at(now_ms + LOOK_IN_MS, self._look_later)
        return self._level

    def _look(self, now_ms: int) -> None:
        self._look_again_ms = now_ms + LOOK_AGAIN_MS
        self._believed_until_ms = now_ms + BELIEVED_MS
        self._level = self._pressure.level()

    def _look_later(self) -> None:
        self._will_look = False
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._look_again_ms:
            self._look(now_ms)

    def begins(self) -> None:
        """A large write begins in the loop."""
        self._waits_before = self._pressure.waits()
        self._began_us = self._clock.monotonic_us()

    def ends(self) -> None:
        took_us = self._clock.monotonic_us() - self._began_us
        if took_us > SLOW_WRITE_US and self._pressure.waits() > self._waits_before:
            self._level = max(Level.high, self._level)
            self._look_again_ms = self._clock.monotonic_ms() + SLOW_FOR_MS
            self._believed_until_ms = self._look_again_ms
