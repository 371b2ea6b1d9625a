"""What the kernels that walk a log file share: the check of a batch, and its index entries.

`check_batch` is `batch.check_stored` inside kernels; `note_batch` counts a batch for the
indexes of its segment (`indexer`).
"""

from typing import Any, Final

from numba import types

from tidelog.records.batch import CRC_POSITION, CRC_START, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, ZSTD
from tidelog.records.crc_kernel import crc32c
from tidelog.records.indexer import (
    BASE,
    INTERVAL,
    LAST_TIME,
    MAX_TIMESTAMP,
    MAX_TIMESTAMP_OFFSET,
    MOST_OFFSET_ENTRIES,
    MOST_TIME_ENTRIES,
    OFFSET_ENTRIES,
    OFFSET_PENDING,
    POSITION,
    SINCE_ENTRY,
    TIME_ENTRIES,
    TIME_PENDING,
    Indexer,
)
from tidelog.records.kernels import INT64S_OUT, helper, kernel
from tidelog.records.memory_kernels import inlined, load_int16, load_int32, load_int64
from tidelog.records.stops import (
    ATTRIBUTES_AT,
    BAD_COMPRESSION,
    BAD_COUNT,
    BAD_CRC,
    BAD_LENGTH,
    BAD_MAGIC,
    BAD_OFFSET,
    COUNT_AT,
    INCOMPLETE,
    LAST_DELTA_AT,
)

_CODEC: Final = 0x07
_UNSIGNED: Final = 0xFFFFFFFF


@inlined
def check_shape(buffer: Any, position: int, end: int, next_offset: int, vouched: int) -> int:
    """The size of the batch at `position`, or what is wrong with it, its checksum apart. Offsets
    may leave gaps but never go back. A batch of `vouched` bytes was seen to be whole and good
    by other means."""
    if end - position < HEADER_SIZE:
        return INCOMPLETE
    if buffer[position + 16] != MAGIC:
        return BAD_MAGIC
    size = load_int32(buffer, position + 8) + LENGTH_OVERHEAD
    if size < HEADER_SIZE:
        return BAD_LENGTH
    if size != vouched and size > end - position:
        return INCOMPLETE
    delta = load_int32(buffer, position + LAST_DELTA_AT)
    count = load_int32(buffer, position + COUNT_AT)
    if delta < 0 or count < 0 or count > delta + 1:
        return BAD_COUNT
    if (load_int16(buffer, position + ATTRIBUTES_AT) & _CODEC) > ZSTD:
        return BAD_COMPRESSION
    base_offset = load_int64(buffer, position)
    if base_offset < next_offset or base_offset + delta < base_offset:
        return BAD_OFFSET
    return int(size)


@inlined
def crc_is_good(buffer: Any, position: int, size: int) -> bool:
    crc = load_int32(buffer, position + CRC_POSITION) & _UNSIGNED
    return bool(crc == int(crc32c(buffer, position + CRC_START, position + size)))


@inlined
def check_batch(buffer: Any, position: int, end: int, next_offset: int, vouched: int) -> int:
    """As `check_shape`, the checksum included."""
    size = check_shape(buffer, position, end, next_offset, vouched)
    if size > 0 and size != vouched and not crc_is_good(buffer, position, size):
        return BAD_CRC
    return size


INDEXER: Final = types.NamedTuple((INT64S_OUT,) * 3, Indexer)


@inlined
def room_of(indexer: Any) -> int:
    """How many batches can be noted before the entries must be taken out."""
    return int(len(indexer.offsets) // 2 - indexer.state[OFFSET_PENDING])


@inlined
def note_batch(indexer: Any, last_offset: int, max_timestamp: int, size: int) -> None:
    """Counts a batch that begins where the one before ended."""
    state = indexer.state
    if max_timestamp > state[MAX_TIMESTAMP]:
        state[MAX_TIMESTAMP] = max_timestamp
        state[MAX_TIMESTAMP_OFFSET] = last_offset
    if state[SINCE_ENTRY] > state[INTERVAL]:
        _note_offset(indexer, last_offset)
        if state[TIME_ENTRIES] < state[MOST_TIME_ENTRIES]:
            _note_time(indexer)
        state[SINCE_ENTRY] = 0
    state[SINCE_ENTRY] += size
    state[POSITION] += size


@helper
def _note_offset(indexer: Any, last_offset: int) -> None:
    state = indexer.state
    if state[OFFSET_ENTRIES] < state[MOST_OFFSET_ENTRIES]:
        pending = state[OFFSET_PENDING]
        indexer.offsets[2 * pending] = last_offset - state[BASE]
        indexer.offsets[2 * pending + 1] = state[POSITION]
        state[OFFSET_PENDING] = pending + 1
        state[OFFSET_ENTRIES] += 1


@helper
def _note_time(indexer: Any) -> None:
    state = indexer.state
    if state[MAX_TIMESTAMP] > state[LAST_TIME]:
        pending = state[TIME_PENDING]
        indexer.times[2 * pending] = state[MAX_TIMESTAMP]
        indexer.times[2 * pending + 1] = state[MAX_TIMESTAMP_OFFSET] - state[BASE]
        state[TIME_PENDING] = pending + 1
        state[TIME_ENTRIES] += 1
        state[LAST_TIME] = state[MAX_TIMESTAMP]


@kernel(types.void(INDEXER, types.int64, types.int64, types.int64))
def note_one_batch(indexer: Any, last_offset: int, max_timestamp: int, size: int) -> None:
    note_batch(indexer, last_offset, max_timestamp, size)


@kernel(types.void(INDEXER))
def close_indexer(indexer: Any) -> None:
    """Notes the largest timestamp of a segment that is complete."""
    _note_time(indexer)
