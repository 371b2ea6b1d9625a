"""Those who wait until all replicas that live begin at an offset or later (S5).

Only the leader knows where they begin: when it leads no more, whoever waits is told so.
"""

from collections.abc import Callable

from tidelog.base.errors import KafkaError

Reached = Callable[[KafkaError | None], None]


class LowWaiters:
    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Reached]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def wait(self, offset: int, then: Reached) -> None:
        self._waiting.append((offset, then))

    def reached(self, low_watermark: int) -> None:
        reached = [then for offset, then in self._waiting if offset <= low_watermark]
        self._waiting = [entry for entry in self._waiting if entry[0] > low_watermark]
        for then in reached:
            then(None)

    def refuse(self, error: KafkaError) -> None:
        waiting, self._waiting = self._waiting, []
        for _, then in waiting:
            then(error)
