"""The aborted transactions of a segment, `.txnindex`: what a read_committed reader must skip.

An entry is 34 bytes, in the order in which the transactions ended:

     0  version             2   0
     2  producer id         8
    10  first offset        8   of the transaction's data
    18  last offset         8   of its abort marker
    26  last stable offset  8   when the marker was written

Most segments have none, and then there is no file.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from tidelog.base.errors import BadValue
from tidelog.base.ports import Buffer

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
