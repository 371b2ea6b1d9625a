"""Readers that want committed transactions only: they follow the last stable offset.

They do what consumers do: aborted transactions that an answer names are left out up to their
marker, and markers are. What is left is held against what was decided.
"""

from typing import TYPE_CHECKING, Any, ClassVar

from tidelog.trials.clients import Reader
from tidelog.trials.stamped_log import Stamp
from tidelog.trials.transacting import Found, ReadCommitted
from tidelog.trials.transaction_oracle import TransactionOracle

if TYPE_CHECKING:
    from tidelog.trials.world import World


class CommittedReader(Reader):
    message: ClassVar[type[Any]] = ReadCommitted

    def __init__(self, world: "World", index: int, oracle: TransactionOracle) -> None:
        super().__init__(world, index)
        self._oracle = oracle

    def _answered(self, position: int, found: Found | None) -> None:
        if found is not None and found.records:
            end = position + len(found.records)
            seen = self._kept(position, found)
            self._oracle.read(self.index, position, end, found.high_watermark, seen)
            self._position = end
        if self._random() < 0.2:
            self._position = int(self._random() * (self._position + 1))
        self.later(self.think_ms(), self.start)

    def _kept(self, position: int, found: Found) -> list[int]:
        coming = sorted(found.aborted, key=lambda one: one[1])
        aborted: set[int] = set()
        kept = []
        for offset, (_, value) in enumerate(found.records, position):
            while coming and coming[0][1] <= offset:
                aborted.add(coming.pop(0)[0])
            stamp = self.world.stamps.get(value)
            if stamp is None or (
                isinstance(stamp, Stamp) and stamp.producer.producer_id not in aborted
            ):
                kept.append(value)
            elif not isinstance(stamp, Stamp) and not stamp.committed:
                aborted.discard(stamp.producer_id)
        return kept
