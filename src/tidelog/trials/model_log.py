"""A log that is a list: what the machine of a replica sees of the real one, and its crashes.

A record is (leader epoch, value); a value is a number that no other record of the partition
has. Everything up to the durable end survives the loss of power, what is above may; the
death of the process costs nothing but a log start that was not saved: what lies below the start is
hidden, and there until the log begins anew. Values that are there already are known by value, as
a log knows the batches of idempotent producers.
"""

from collections.abc import Sequence
from typing import Final

from tidelog.log.epochs import LeaderEpochs
from tidelog.trials.violation import Violation

Record = tuple[int, int]


class ModelLog:
    __slots__ = (
        "_base",
        "durable_end",
        "durable_start",
        "epochs",
        "log_end_offset",
        "log_start_offset",
        "lost_from",
        "may_repeat",
        "offset_of",
        "records",
    )
    partition: Final = "a model"
    """As which production code names it."""

    def __init__(self, records: Sequence[Record] = (), log_start_offset: int = 0) -> None:
        self.records: list[Record] = []
        self._base = self.log_start_offset = self.durable_start = log_start_offset
        self.log_end_offset = self.durable_end = log_start_offset
        self.lost_from: int | None = None
        """As a log on a disk has it, where files may go missing."""
        self.may_repeat = False
        """Whether a value may come again: a replica that began above the record that was deleted
        does not know it."""
        self.epochs = LeaderEpochs()
        self.offset_of: dict[int, int] = {}
        self.append(records)

    def append(self, records: Sequence[Record]) -> None:
        epochs = self.epochs
        for record in records:
            epoch, value = record
            if epoch != epochs.latest:
                epochs.assign(epoch, self.log_end_offset)
            if value in self.offset_of and not self.may_repeat:
                raise Violation("V13", f"m{value} is at {self.offset_of[value]} already")
            self.offset_of[value] = self.log_end_offset
            self.records.append(record)
            self.log_end_offset += 1

    def read(self, offset: int, count: int) -> list[Record]:
        at = offset - self._base
        return self.records[at : at + count]

    def between(self, start: int, end: int) -> list[Record]:
        """As far as they are there."""
        base = self._base
        return self.records[max(0, start - base) : max(0, end - base)]

    @property
    def first(self) -> int:
        """The offset of the first record that is there, hidden or not."""
        return self._base

    def at(self, offset: int) -> Record:
        return self.records[offset - self._base]

    def truncate_suffix(self, to: int) -> None:
        """Where it starts is saved before, so that nothing that is hidden is there again: it need
        not fit what comes now."""
        self.save_start()
        self._cut(to)

    def _cut(self, to: int) -> None:
        assert self.log_start_offset <= to <= self.log_end_offset, f"cut at {to}"
        at = to - self._base
        for offset, (_, value) in enumerate(self.records[at:], to):
            if self.offset_of.get(value) == offset:
                del self.offset_of[value]
        del self.records[at:]
        self.log_end_offset = to
        self.durable_end = min(self.durable_end, to)
        self.epochs.truncate_suffix(to)

    def begin_at(self, offset: int) -> None:
        """Drops everything; the next record gets this offset."""
        self.records.clear()
        self.offset_of.clear()
        self.epochs = LeaderEpochs()
        self._base = self.log_start_offset = self.durable_start = offset
        self.log_end_offset = self.durable_end = offset

    def check_online(self) -> None:
        """Its disk never fails."""

    def sync(self) -> None:
        self.durable_end = self.log_end_offset
        self.save_start()

    def save_start(self) -> None:
        self.durable_start = self.log_start_offset
        self.epochs.advance_log_start(self.durable_start)

    def lose(self, count: int) -> None:
        """With its power, a log loses its last records. One that ends below its start then begins
        there."""
        end = self.log_end_offset - count
        self.log_start_offset = self.durable_start
        if end < self.log_start_offset:
            self.begin_at(self.log_start_offset)
        else:
            self._cut(end)

    def reopen(self) -> None:
        """By the next process, as recovery does: an epoch without a record is forgotten."""
        self.log_start_offset = self.durable_start
        self.epochs.truncate_suffix(self.log_end_offset)
        self.epochs.advance_log_start(self.log_start_offset)
