"""Whose batches are to be verified in a partition although their transaction is open there (X30).

A batch that a producer sends while its transaction is open needs no question. That is not so while
a marker waits for its turn, which will end it; and a marker that comes while the coordinator is
asked may be of the very transaction that it was asked about.
"""

from collections import Counter


class Guards:
    """By producer id. Verification has one guard at a time for each, and markers take it away."""

    __slots__ = ("_asked", "_ending")

    def __init__(self) -> None:
        self._asked: dict[int, object] = {}
        self._ending: Counter[int] = Counter()

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._asked or producer_id in self._ending

    # -- verification

    def set(self, producer_id: int) -> object:
        """Before a coordinator is asked; instead of the one that there was."""
        guard = self._asked[producer_id] = object()
        return guard

    def stands(self, producer_id: int, guard: object) -> bool:
        """Whether no marker came since it was set."""
        return self._asked.get(producer_id) is guard

    def lift(self, producer_id: int, guard: object) -> None:
        """If it is still the one."""
        if self.stands(producer_id, guard):
            del self._asked[producer_id]

    def clear(self) -> None:
        """Whatever was verified may be over. Markers that wait are told by themselves."""
        self._asked.clear()

    # -- markers

    def marker_comes(self, producer_id: int) -> None:
        self._asked.pop(producer_id, None)

    def marker_waits(self, producer_id: int) -> None:
        """Until `marker_waited`, whatever verification comes to."""
        self._ending[producer_id] += 1

    def marker_waited(self, producer_id: int) -> None:
        """It is in the log, or was refused."""
        self.marker_comes(producer_id)
        self._ending[producer_id] -= 1
        if not self._ending[producer_id]:
            del self._ending[producer_id]
