"""Reading the batches of a segment file one after the other, in plain Python.

For short stretches: the few kilobytes behind an index entry, the tail of an active segment,
a log of some megabytes. Long ones go to a child process, which runs the same walk compiled.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.base.errors import KafkaError
from tidelog.base.ports import File
from tidelog.records.batch import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    OFFSET_AND_LENGTH,
    BatchHeader,
    check_stored,
    read_header,
)

CHUNK_BYTES: Final = 1 << 20
RELATIVE_OFFSET_MAX: Final = (1 << 31) - 1
EVERYTHING: Final = 1 << 63


class StoredBatch(NamedTuple):
    position: int
    header: BatchHeader
    data: "memoryview[int]"


def batches(file: File, position: int, end: int) -> Iterator[StoredBatch]:
    """The whole batches between two positions, trusting their lengths. Stops where a batch is
    cut off or its length cannot be: at a torn tail, at zeros that were never written, or where
    the file ends before `end`."""
    chunk_start = position
    chunk = memoryview(b"")
    while position + HEADER_SIZE <= end:
        at = position - chunk_start
        size = 0
        if at + LENGTH_OVERHEAD <= len(chunk):
            size = LENGTH_OVERHEAD + OFFSET_AND_LENGTH.unpack_from(chunk, at)[1]
            if size < HEADER_SIZE or position + size > end:
                return
        if size == 0 or at + size > len(chunk):
            wanted = max(CHUNK_BYTES, size)
            chunk_start, chunk = (
                position,
                memoryview(file.pread(min(wanted, end - position), position)),
            )
            if len(chunk) < max(HEADER_SIZE, size):
                return
            continue
        yield StoredBatch(position, read_header(chunk, at), chunk[at : at + size])
        position += size


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a stretch of batches belongs: in which segment, behind which offset, and up to
    which offset it was made durable before."""

    segment_base: int
    expected_offset: int = 0
    trusted_upto: int = 0

    def takes(self, header: BatchHeader, expected_offset: int) -> bool:
        return (
            header.base_offset >= expected_offset
            and header.last_offset_delta >= 0
            and header.last_offset - self.segment_base <= RELATIVE_OFFSET_MAX
        )


def good_batches(file: File, position: int, end: int, place: Place) -> Iterator[StoredBatch]:
    """As `batches`, and stops at the first one that a crash may have left damaged or out of order.

    What lies below `trusted_upto` was made durable: damage there is not a crash's, and what
    comes behind it must not be lost. There a batch is passed over, and only if its offsets
    cannot be: they do not follow, or those of the next one would not."""
    expected = place.expected_offset
    stream = batches(file, position, end)
    batch = next(stream, None)
    while batch is not None:
        after = next(stream, None)
        if expected >= place.trusted_upto:
            if not place.takes(batch.header, expected) or not _is_good(batch):
                return
        elif not place.takes(batch.header, expected) or _contradicts(after, batch, expected, place):
            batch = after
            continue
        yield batch
        expected = batch.header.next_offset
        batch = after


def _contradicts(
    after: StoredBatch | None, batch: StoredBatch, expected: int, place: Place
) -> bool:
    """Whether the next batch is durable too and says that this one's offsets are wrong."""
    return (
        after is not None
        and after.header.next_offset <= place.trusted_upto
        and after.header.base_offset < batch.header.next_offset
        and place.takes(after.header, expected)
    )


def _is_good(batch: StoredBatch) -> bool:
    try:
        check_stored(batch.data)
    except KafkaError:
        return False
    return True
