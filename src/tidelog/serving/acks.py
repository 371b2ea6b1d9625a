"""Producers that wait until what they sent is committed (acks=all).

They wait in the order of their offsets, so a high watermark that moves looks only at those it
passes. A partition that is led elsewhere now, or has too few replicas in sync, tells all of
them at once: whether their records stay is not known then, only that nobody promises it.
"""

from collections import deque
from collections.abc import Callable

from tidelog.base.errors import KafkaError

Committed = Callable[[KafkaError | None], None]


class Acks:
    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Committed]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def wait(self, end_offset: int, committed: Committed) -> None:
        """`committed` is told once the high watermark has reached `end_offset`."""
        assert not self._waiting or self._waiting[-1][0] <= end_offset, "offsets only grow"
        self._waiting.append((end_offset, committed))

    def reached(self, high_watermark: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            waiting.popleft()[1](None)

    def refuse(self, error: KafkaError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, committed in waiting:
            committed(error)
