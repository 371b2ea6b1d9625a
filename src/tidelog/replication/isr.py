"""The in-sync set as a leader holds it: what is written, and what it has asked for.

A change takes effect in the careful direction. A member to be added counts from the moment it is
proposed, because the write may land at any time from then on; one to be removed counts until
the write is known to have landed (D5). So the *maximal* set is never smaller than what anybody
could read from the coordinator.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Committed:
    isr: tuple[int, ...]

    @property
    def maximal(self) -> tuple[int, ...]:
        return self.isr


@dataclass(frozen=True, slots=True)
class PendingExpand:
    isr: tuple[int, ...]
    added: int
    added_epoch: int
    """The broker epoch of the member to be added: this incarnation of it, no other."""

    @property
    def maximal(self) -> tuple[int, ...]:
        return (*self.isr, self.added)


@dataclass(frozen=True, slots=True)
class PendingShrink:
    isr: tuple[int, ...]
    removed: tuple[int, ...]

    @property
    def maximal(self) -> tuple[int, ...]:
        return self.isr


Isr = Committed | PendingExpand | PendingShrink
