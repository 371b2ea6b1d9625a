"""Waiting for a partition: whoever does is woken once, when something has changed in it."""

from typing import Protocol


class Waiter(Protocol):
    def wake(self) -> None: ...


class Awaited(Protocol):
    """What can be waited for. Who wants to be woken puts itself among the waiters."""

    waiters: dict[Waiter, None]
