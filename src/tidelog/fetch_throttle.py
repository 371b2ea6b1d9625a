"""Holds what is fetched of throttled replicas to `follower.replication.throttled.rate`.

A bucket of one second's worth is filled at the rate and emptied by what comes, below zero if one
answer brings more. While it is empty an *episode* lasts: throttled replicas are left out of
fetches. The end of it is told to whoever asked to be told.
"""

from collections.abc import Callable
from typing import Final

from tidelog.base.ports import Clock, Loop, Timer

EPISODE_MS_MIN: Final = 100
CHECK_MS_MAX: Final = 1_000
UNLIMITED: Final = 1 << 62


class FetchThrottle:
    __slots__ = (
        "_clock",
        "_filled_ms",
        "_is_named",
        "_loop",
        "_millibytes",
        "_on_end",
        "_rate",
        "_timer",
        "episodes",
        "is_over",
    )

    def __init__(
        self,
        rate: int,
        is_named: Callable[[bytes, int], bool],
        on_end: Callable[[], None],
        loop: Loop,
        clock: Clock,
    ) -> None:
        """`rate` is in bytes a second; `is_named` tells of a topic id and a partition whether
        that replica is a throttled one."""
        self._rate = rate
        self._is_named = is_named
        self._on_end = on_end
        self._loop = loop
        self._clock = clock
        self._filled_ms = clock.monotonic_ms()
        self._millibytes = rate * 1_000
        self._timer: Timer | None = None
        self.is_over = rate == 0
        self.episodes = 1 if self.is_over else 0
        """How many there were; whoever has seen fewer has replicas to leave out."""

    def holds(self, topic_id: bytes, index: int) -> bool:
        """Whether a replica is to be left out for now."""
        return self.is_over and self._is_named(topic_id, index)

    def took(self, topic_id: bytes, index: int, size: int) -> None:
        """So much has come of a replica."""
        if self._rate < UNLIMITED and self._is_named(topic_id, index):
            self._fill()
            self._millibytes -= size * 1_000
            if self._millibytes <= 0 and not self.is_over:
                self._begin()

    def set_rate(self, rate: int) -> None:
        if rate == self._rate:
            return
        self._rate = rate
        self._millibytes = rate * 1_000
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if rate == 0:
            self._begin()
        elif self.is_over:
            self._end()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fill(self) -> None:
        now_ms = self._clock.monotonic_ms()
        grown = self._millibytes + (now_ms - self._filled_ms) * self._rate
        self._millibytes = min(grown, self._rate * 1_000)
        self._filled_ms = now_ms

    def _begin(self) -> None:
        self.is_over = True
        self.episodes += 1
        self._check_later(EPISODE_MS_MIN)

    def _check_later(self, delay_ms_min: int) -> None:
        if self._rate:
            missing_ms = -self._millibytes // self._rate + 1
            delay_ms = min(max(missing_ms, delay_ms_min), CHECK_MS_MAX)
            self._timer = self._loop.call_at(self._clock.monotonic_ms() + delay_ms, self._check)

    def _check(self) -> None:
        self._timer = None
        self._fill()
        if self._millibytes > 0:
            self._end()
        else:
            self._check_later(1)

    def _end(self) -> None:
        self.is_over = False
        self._on_end()
