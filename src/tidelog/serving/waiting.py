"""Waiting for a partition: whoever does is woken once, when something has changed in it."""

from typing import Protocol


class Waiter(Protocol):
    def wake(self) -> None: ...


class WaitingFollower(Waiter, Protocol):
    """A follower that has all there was when it last asked."""

    @property
    def follower(self) -> int: ...

    @property
    def asked_ms(self) -> int: ...

    def note(self) -> None:
        """There is something it shall be told, but that need not be now."""


class Leading(Protocol):
    def was_caught_up(self, follower: int, asked_ms: int) -> None:
        """A follower that has asked then had everything until now."""


class Awaited(Protocol):
    """What can be waited for: readers for its high watermark, followers for its end. Who wants to
    be woken puts itself among the waiters."""

    waiters: dict[Waiter, None]
    end_waiters: dict[WaitingFollower, None]

    @property
    def replica(self) -> Leading: ...


class Reader(Protocol):
    """A connection to which ranges of the log were sent."""

    def abort(self, why: str) -> None: ...
