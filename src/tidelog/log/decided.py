"""The transactions of a log as its compaction sees them: all decided, some aborted.

Everything that may be compacted lies below the last stable offset, so each of its
transactional batches was committed or is named in a transaction index, its own segment's or
a later one's. A marker may only go once no batch of its transaction is left before it.
"""

from bisect import bisect_right

from tidelog.base.ports import Disk
from tidelog.log import txn_index
from tidelog.log.files import TXN_INDEX, base_offset_of, read_whole
from tidelog.log.txn_index import AbortedTransaction
from tidelog.records.batch import BatchHeader


def read_aborted(disk: Disk, folder: str, from_base: int) -> list[AbortedTransaction]:
    """The aborted transactions of all segments from one on, also of those that are still
    written to: a transaction's data may lie long before its marker."""
    aborted: list[AbortedTransaction] = []
    for name in disk.list(folder):
        base = base_offset_of(name, TXN_INDEX)
        if base is not None and base >= from_base:
            path = f"{folder}/{name}"
            aborted += txn_index.decode(path, read_whole(disk, path))
    return aborted


class DecidedTransactions:
    def __init__(self, aborted: list[AbortedTransaction]) -> None:
        self._with_data: set[int] = set()
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        for entry in sorted(aborted, key=lambda entry: entry.first_offset):
            self._aborted.setdefault(entry.producer_id, []).append(entry)

    def is_aborted(self, batch: BatchHeader) -> bool:
        entry = self._entry(batch)
        return batch.is_transactional and entry is not None

    def saw_data(self, batch: BatchHeader) -> None:
        if batch.is_transactional:
            self._with_data.add(batch.producer_id)

    def saw_marker(self, batch: BatchHeader) -> bool:
        """Whether a transaction that ends with this marker still has data."""
        had_data = batch.producer_id in self._with_data
        self._with_data.discard(batch.producer_id)
        return had_data

    def aborted_by(self, marker: BatchHeader) -> AbortedTransaction | None:
        """The transaction that this marker aborted, as the index has it."""
        entry = self._entry(marker)
        return entry if entry is not None and entry.last_offset == marker.base_offset else None

    def _entry(self, batch: BatchHeader) -> AbortedTransaction | None:
        entries = self._aborted.get(batch.producer_id)
        if not entries:
            return None
        at = bisect_right(entries, batch.base_offset, key=lambda entry: entry.first_offset)
        found = entries[at - 1] if at else None
        return found if found is not None and batch.base_offset <= found.last_offset else None
