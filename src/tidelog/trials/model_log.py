"""A log that is a list: what the machine of a replica sees of the real one, and its crashes.

A record is (leader epoch, value); a value is a number that no other record of the partition
has. Everything up to the durable end survives the loss of power, what is above may; the
death of the process costs nothing. Values that are there already are known by value, as a log
knows the batches of idempotent producers.
"""

from collections.abc import Sequence

from tidelog.log.epochs import LeaderEpochs

Record = tuple[int, int]


class ModelLog:
    __slots__ = (
        "durable_end",
        "epochs",
        "log_end_offset",
        "log_start_offset",
        "offset_of",
        "records",
    )

    def __init__(self, records: Sequence[Record] = (), log_start_offset: int = 0) -> None:
        self.records: list[Record] = []
        self.log_start_offset = self.log_end_offset = self.durable_end = log_start_offset
        self.epochs = LeaderEpochs()
        self.offset_of: dict[int, int] = {}
        self.append(records)

    def append(self, records: Sequence[Record]) -> None:
        epochs = self.epochs
        for record in records:
            epoch, value = record
            if epoch != epochs.latest:
                epochs.assign(epoch, self.log_end_offset)
            assert value not in self.offset_of, f"m{value} is in the log already"
            self.offset_of[value] = self.log_end_offset
            self.records.append(record)
            self.log_end_offset += 1

    def read(self, offset: int, count: int) -> list[Record]:
        at = offset - self.log_start_offset
        return self.records[at : at + count]

    def at(self, offset: int) -> Record:
        return self.records[offset - self.log_start_offset]

    def truncate_suffix(self, to: int) -> None:
        assert self.log_start_offset <= to <= self.log_end_offset, f"cut at {to}"
        at = to - self.log_start_offset
        for _, value in self.records[at:]:
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
        self.log_start_offset = self.log_end_offset = self.durable_end = offset

    def sync(self) -> None:
        self.durable_end = self.log_end_offset
