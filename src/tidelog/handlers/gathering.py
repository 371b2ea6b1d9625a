"""Wide Produce requests that are not served before the next ones have come.

Who sends ahead sends one request after the other, and a broker that waits for them wakes up with
the first. Where a request writes to many partitions, one that comes in the same moment costs
hardly anything if both are written together; so such a request waits until a look at the network
finds nothing more to do.
"""

from collections.abc import Callable
from typing import Final

from tidelog.base.ports import Loop
from tidelog.records.join_layout import BYTES_MAX
from tidelog.wire.produce import ProduceRequest

PARTITIONS_MIN: Final = 16
"""Of a request that waits: what it saves others must be worth another look."""


def is_wide(produce: ProduceRequest) -> bool:
    return produce.rows is not None and produce.partition_count >= PARTITIONS_MIN


class Gathering:
    """What has come on one connection since the first request that waits."""

    __slots__ = ("_frames", "_loop", "_serve", "_size")

    def __init__(self, loop: Loop, serve: Callable[[list[memoryview]], None]) -> None:
        self._loop = loop
        self._serve = serve
        self._frames: list[memoryview] = []
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._frames)

    def add(self, frames: list[memoryview]) -> None:
        """Keeps a copy of them; with as much as can be joined, nothing more is waited for."""
        if not self._frames:
            self._loop.call_when_quiet(self.end)
        for frame in frames:
            self._frames.append(memoryview(bytearray(frame)))
            self._size += len(frame)
        if self._size >= BYTES_MAX:
            self.end()

    def end(self) -> None:
        """Has them served now, if there are any."""
        frames, self._frames = self._frames, []
        self._size = 0
        if frames:
            self._serve(frames)
