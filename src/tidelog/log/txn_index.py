"""The aborted transactions of a segment, `.txnindex`: what a read_committed reader must skip.

An entry is 34 bytes, in the order in which the transactions ended:

     0  version             2   0
     2  producer id         8
    10  first offset        8   of the transaction's data
    18  last offset         8   of its abort marker
    26  last stable offset  8   when the marker was written

Most segments have none, and then there is no file.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from tidelog.base.errors import BadValue
from tidelog.base.ports import Buffer, Disk
from tidelog.log.files import read_whole

ENTRY: Final = Struct(">hqqqq")
VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode(transactions: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(ENTRY.pack(VERSION, *transaction) for transaction in transactions)


def decode(path: str, data: Buffer) -> Iterator[AbortedTransaction]:
    """Reads up to a torn last entry or a zero-filled tail; refuses a version it does not know."""
    whole = len(data) - len(data) % ENTRY.size
    for version, *fields in ENTRY.iter_unpack(memoryview(data)[:whole]):
        if version != VERSION:
            raise BadValue(f"{path}: entry of version {version}, this reads version {VERSION}")
        if not any(fields):
            return
        yield AbortedTransaction._make(fields)


class TxnIndex:
    """The index of one segment, read once and then kept as it is in the file: a reader of
    committed transactions asks for a stretch of it with every fetch."""

    __slots__ = ("_entries", "is_empty")

    def __init__(self, path: str, data: Buffer) -> None:
        self._entries = bytearray(encode(decode(path, data)))
        self.is_empty = not self._entries

    @classmethod
    def load(cls, disk: Disk, path: str) -> "TxnIndex":
        return cls(path, read_whole(disk, path) if disk.stat(path) is not None else b"")

    def __len__(self) -> int:
        return len(self._entries) // ENTRY.size

    def __getitem__(self, number: int) -> AbortedTransaction:
        if not 0 <= number < len(self):
            raise IndexError(number)
        _, *fields = ENTRY.unpack_from(self._entries, number * ENTRY.size)
        return AbortedTransaction._make(fields)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return (self[number] for number in range(len(self)))

    def append(self, transaction: AbortedTransaction) -> int:
        """Takes one more; returns where in the file it belongs."""
        position = len(self._entries)
        self._entries += encode([transaction])
        self.is_empty = False
        return position

    def ended_since(self, offset: int) -> Iterator[AbortedTransaction]:
        """Those whose marker is at an offset or behind it."""
        first = bisect_left(range(len(self)), offset, key=self._marker_offset)
        return (self[number] for number in range(first, len(self)))

    def _marker_offset(self, number: int) -> int:
        return self[number].last_offset
