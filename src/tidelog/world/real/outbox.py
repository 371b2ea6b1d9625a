"""Answers on their way out: in order, each no sooner than the journal holds what it shows."""

from collections import deque
from collections.abc import Callable

from tidelog.base.ports import Loop
from tidelog.world.real.group_commit import GroupCommit

_Entry = tuple[int, Callable[[], None], Callable[[], None] | None]


class Outbox:
    def __init__(self, loop: Loop, journal: GroupCommit) -> None:
        self._loop = loop
        self._journal = journal
        self._entries: deque[_Entry] = deque()
        self._is_scheduled = False

    def put(self, deliver: Callable[[], None], refuse: Callable[[], None] | None) -> None:
        """`deliver` runs when all that is in the journal by now is durable; if it never will be,
        `refuse` does. Neither runs before this returns."""
        self._entries.append((self._journal.appended, deliver, refuse))
        self.release()

    def release(self) -> None:
        """To be called when the journal has got on."""
        if not self._is_scheduled and self._entries and self._is_decided():
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    def _is_decided(self) -> bool:
        journal = self._journal
        return self._entries[0][0] <= journal.durable or journal.failure is not None

    def _run(self) -> None:
        """What is put meanwhile waits for the next time: others want the loop too."""
        try:
            for _ in range(len(self._entries)):
                if not self._is_decided():
                    break
                after, deliver, refuse = self._entries.popleft()
                if after <= self._journal.durable:
                    deliver()
                elif refuse is not None:
                    refuse()
        finally:
            self._is_scheduled = False
            self.release()
