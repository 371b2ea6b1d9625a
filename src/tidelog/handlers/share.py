"""What a connection answers in one go: how much more it may be, and how long its requests took.

What came in one go is answered in shares, each when the last has left. Requests of one kind that
are answered at once are counted together: their answers leave at the end of the share, so that is
how long each took.
"""

from typing import Final

from tidelog.base.ports import Clock
from tidelog.serving.counters import Counters

IN_FLIGHT_MAX: Final = 100
SHARE_BYTES: Final = 256 * 1024
"""What is answered in one go, if it was asked for in one go."""
REQUEST_BYTES: Final = SHARE_BYTES // IN_FLIGHT_MAX
"""What a request takes of that beside its answer."""


class Share:
    __slots__ = ("_api_key", "_clock", "_count", "_counters", "began_us", "room")

    def __init__(self, clock: Clock, counters: Counters) -> None:
        self._clock = clock
        self._counters = counters
        self._api_key = -1
        self._count = 0
        self.began_us = 0
        self.room = 0
        """Bytes."""

    def begin(self) -> None:
        self.began_us = self._clock.monotonic_us()
        self.room = SHARE_BYTES

    def count(self, api_key: int) -> None:
        """Counts a request that was answered at once."""
        if api_key != self._api_key:
            self.end()
            self._api_key = api_key
        self._count += 1

    def end(self) -> None:
        if self._count:
            took_us = self._clock.monotonic_us() - self.began_us
            self._counters.answered(self._api_key, took_us, self._count)
            self._count = 0
