"""A model log that knows its producers, as a real one does: transactions begin and end in it.

What a number in the log stands for, if it is a batch of a transaction or the marker that ends one,
is kept beside the logs, for all replicas alike. The production `Producers` hear of each as it is
appended, and of all that is left when a log is cut or opened again.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.base.ids import NO_TIMESTAMP
from tidelog.log.producers import Producers
from tidelog.log.txn_index import AbortedTransaction
from tidelog.records.batch import TRANSACTIONAL
from tidelog.records.control import EndTransaction
from tidelog.transactions.state import Producer
from tidelog.trials.model_log import ModelLog, Record

FIRST_MARKER: Final = 2_000_000_000
"""Numbers of markers begin here: those of clients and of journals are below."""


class Stamp(NamedTuple):
    """A batch of one record, in a transaction."""

    producer: Producer
    sequence: int


class Stamps:
    """What numbers stand for that have to do with transactions."""

    def __init__(self) -> None:
        self._stamps: dict[int, Stamp | EndTransaction] = {}
        self._markers = 0
        self.get = self._stamps.get

    def put(self, value: int, stamp: Stamp) -> None:
        self._stamps[value] = stamp

    def add_marker(self, marker: EndTransaction) -> int:
        self._markers += 1
        number = FIRST_MARKER + self._markers
        self._stamps[number] = marker
        return number


class StampedLog(ModelLog):
    __slots__ = ("_stamps", "aborted", "producers")

    def __init__(self, stamps: Stamps) -> None:
        self._stamps = stamps
        self._forget()
        super().__init__()

    def _forget(self) -> None:
        self.producers = Producers()
        self.aborted: list[AbortedTransaction] = []

    def append(self, records: Sequence[Record]) -> None:
        offset = self.log_end_offset
        super().append(records)
        self._note(offset, records)

    def _note(self, offset: int, records: Sequence[Record]) -> None:
        for at, (_, value) in enumerate(records, offset):
            stamp = self._stamps.get(value)
            if isinstance(stamp, Stamp):
                self.producers.append(
                    *stamp.producer, stamp.sequence, (at, at), NO_TIMESTAMP, TRANSACTIONAL
                )
            elif stamp is not None:
                self._end(at, stamp)

    def _end(self, offset: int, marker: EndTransaction) -> None:
        ended = (offset, marker.coordinator_epoch, not marker.committed)
        aborted = self.producers.end_transaction(
            marker.producer_id, marker.producer_epoch, ended, NO_TIMESTAMP
        )
        if aborted is not None:
            self.aborted.append(aborted)

    def truncate_suffix(self, to: int) -> None:
        super().truncate_suffix(to)
        self.reload()

    def begin_at(self, offset: int) -> None:
        super().begin_at(offset)
        self._forget()

    def reopen(self) -> None:
        super().reopen()
        self.reload()

    def reload(self) -> None:
        """Forgets what is known of producers, and learns it anew from the log."""
        self._forget()
        self._note(self.log_start_offset, self.records)

    def last_stable_offset(self, high_watermark: int) -> int:
        self.producers.committed_up_to(high_watermark)
        unstable = self.producers.first_unstable_offset
        return high_watermark if unstable is None else min(unstable, high_watermark)

    def aborted_between(self, start: int, end: int) -> list[tuple[int, int]]:
        """Producers of aborted transactions that reach into a range, and where they begin."""
        return [
            (each.producer_id, each.first_offset)
            for each in self.aborted
            if each.last_offset >= start and each.first_offset < end
        ]
