"""What the kernels that walk a log file share: the check of a batch, and its index entries.

`check_batch` is `batch.check_stored` inside kernels. An `Indexer` collects the entries of
a segment's two indexes as its batches go by, by the same rule as an append: it may be handed
from one kernel call to the next, its entries being taken out in between.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numba import typeof, types

from tidelog.records.batch import CRC_POSITION, CRC_START, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, ZSTD
from tidelog.records.crc_kernel import crc32c
from tidelog.records.kernels import helper, kernel
from tidelog.records.memory_kernels import inlined, load_int16, load_int32, load_int64

INCOMPLETE: Final = 0
BAD_MAGIC: Final = -1
BAD_LENGTH: Final = -2
BAD_CRC: Final = -3
BAD_COUNT: Final = -4
BAD_COMPRESSION: Final = -5
BAD_OFFSET: Final = -6

PROBLEMS: Final = {
    INCOMPLETE: "the batch is cut off",
    BAD_MAGIC: "bad header: the magic is not 2",
    BAD_LENGTH: "bad header: the length is too small for a batch",
    BAD_CRC: "bad CRC",
    BAD_COUNT: "bad header: the count does not fit the last offset delta",
    BAD_COMPRESSION: "bad header: unknown compression",
    BAD_OFFSET: "bad header: the offsets do not follow those before, or are too far from the base",
}

ATTRIBUTES_AT: Final = 21
LAST_DELTA_AT: Final = 23
BASE_TIMESTAMP_AT: Final = 27
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_ID_AT: Final = 43
PRODUCER_EPOCH_AT: Final = 51
SEQUENCE_AT: Final = 53
COUNT_AT: Final = 57
OFFSET_SPAN: Final = (1 << 31) - 1
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
def check_batch(buffer: Any, position: int, end: int, next_offset: int, vouched: int) -> int:
    """As `check_shape`, the checksum included."""
    size = check_shape(buffer, position, end, next_offset, vouched)
    if size <= 0 or size == vouched:
        return size
    crc = load_int32(buffer, position + CRC_POSITION) & _UNSIGNED
    if crc != int(crc32c(buffer, position + CRC_START, position + size)):
        return BAD_CRC
    return size


BASE: Final = 0
INTERVAL: Final = 1
MOST_OFFSET_ENTRIES: Final = 2
MOST_TIME_ENTRIES: Final = 3
POSITION: Final = 4
SINCE_ENTRY: Final = 5
MAX_TIMESTAMP: Final = 6
MAX_TIMESTAMP_OFFSET: Final = 7
LAST_TIME: Final = 8
OFFSET_ENTRIES: Final = 9
TIME_ENTRIES: Final = 10
OFFSET_PENDING: Final = 11
TIME_PENDING: Final = 12
_FIELDS: Final = 13

OFFSET_ENTRY: Final = np.dtype([("key", ">i4"), ("value", ">u4")])
TIME_ENTRY: Final = np.dtype([("key", ">i8"), ("value", ">i4")])


class Indexer(NamedTuple):
    """Arrays, because kernels write to them: the state by the names above, and the pairs that
    have not been taken out yet. A time of 0 is never noted: it would be read as the file's
    end."""

    state: Any
    offsets: Any
    times: Any


def new_indexer(base: int, interval_bytes: int, max_index_bytes: int, room: int) -> Indexer:
    """An indexer with room for the entries of `room` batches between two calls of `take`."""
    state = np.zeros(_FIELDS, np.int64)
    state[BASE] = base
    state[INTERVAL] = interval_bytes
    state[MOST_OFFSET_ENTRIES] = max_index_bytes // OFFSET_ENTRY.itemsize
    # The last one is for the largest timestamp, when the segment is closed.
    state[MOST_TIME_ENTRIES] = max_index_bytes // TIME_ENTRY.itemsize - 1
    state[MAX_TIMESTAMP] = -1
    state[MAX_TIMESTAMP_OFFSET] = base
    return Indexer(state, np.empty(2 * room, np.int64), np.empty(2 * room + 2, np.int64))


INDEXER: Final = typeof(new_indexer(0, 0, 0, 0))


@inlined
def has_room(indexer: Any) -> bool:
    return bool(2 * (indexer.state[OFFSET_PENDING] + 1) <= len(indexer.offsets))


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


def take_offset_entries(indexer: Indexer) -> bytes:
    """The entries since the last call, as the file has them."""
    return _take(indexer.state, OFFSET_PENDING, indexer.offsets, OFFSET_ENTRY)


def take_time_entries(indexer: Indexer) -> bytes:
    return _take(indexer.state, TIME_PENDING, indexer.times, TIME_ENTRY)


def _take(state: Any, pending: int, pairs: Any, form: np.dtype[Any]) -> bytes:
    count = int(state[pending])
    state[pending] = 0
    entries = np.empty(count, form)
    entries["key"] = pairs[: 2 * count : 2]
    entries["value"] = pairs[1 : 2 * count : 2]
    return entries.tobytes()
