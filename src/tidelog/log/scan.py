"""Reading the batches of a segment file one after the other, in plain Python.

For short stretches: the few kilobytes behind an index entry, the tail of an active segment,
a log of some megabytes. Long ones go to a child process, which runs the same walk compiled.
"""

from collections.abc import Iterator
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


class StoredBatch(NamedTuple):
    position: int
    header: BatchHeader
    data: memoryview


def batches(file: File, position: int, end: int) -> Iterator[StoredBatch]:
    """The whole batches between two positions, trusting their lengths. Stops where a batch is
    cut off or its length cannot be: at a torn tail, or at zeros that were never written."""
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
            if len(chunk) < HEADER_SIZE:
                return
            continue
        yield StoredBatch(position, read_header(chunk, at), chunk[at : at + size])
        position += size


def good_batches(
    file: File, position: int, end: int, expected_offset: int, trusted_upto: int
) -> Iterator[StoredBatch]:
    """As `batches`, and stops at the first one that is damaged or out of order. What lies
    below `trusted_upto` was made durable: damage there is not a crash's, so a batch whose
    length can be followed is kept for a replica or a person to judge."""
    for batch in batches(file, position, end):
        if batch.header.base_offset < expected_offset or batch.header.last_offset_delta < 0:
            return
        if batch.header.next_offset > trusted_upto and not _is_good(batch):
            return
        yield batch
        expected_offset = batch.header.next_offset


def _is_good(batch: StoredBatch) -> bool:
    try:
        check_stored(batch.data)
    except KafkaError:
        return False
    return True
