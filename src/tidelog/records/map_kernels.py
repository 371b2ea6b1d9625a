"""The first pass of compaction inside kernels: the last offset of every key, into a map.

Both passes go through a buffer of whole batches from `stop[AT]` on and stop at the first
one that is not theirs: cut off by the end of the buffer, damaged, or special (compressed,
transactional, control). The caller deals with that one, with the same functions on its
records alone, and goes on behind it. `stop` says where and why.
"""

from typing import Any, Final

from numba import types

from tidelog.records.batch import HEADER_SIZE
from tidelog.records.batch_kernels import check_shape
from tidelog.records.byte_kernels import read_varint
from tidelog.records.kernels import BYTES, INT64S, INT64S_OUT, kernel
from tidelog.records.key_kernels import KEY_TABLE, WINDOW_TYPE, add_to_window, mark, put_window
from tidelog.records.key_table import LIMIT, LIMIT_MAX, USED, WINDOW
from tidelog.records.memory_kernels import inlined, load_int16, load_int32, load_int64
from tidelog.records.stops import (
    AT,
    ATTRIBUTES_AT,
    BAD_RECORDS,
    BEYOND,
    COUNT_AT,
    DONE,
    LAST_DELTA_AT,
    MAP_FULL,
    MAP_SMALL,
    NEXT_OFFSET,
    REASON,
    RECORDS_READ,
    SPECIAL,
    SPECIAL_BITS,
)
from tidelog.records.varint import LONG_BYTES_MAX

MALFORMED: Final = -1

_LAST: Final = 0x80


@inlined
def shape_of(buffer: Any, position: int) -> Any:
    """Base offset, last offset delta and count of the batch at `position`."""
    return (
        load_int64(buffer, position),
        load_int32(buffer, position + LAST_DELTA_AT),
        load_int32(buffer, position + COUNT_AT),
    )


@inlined
def skip_varlong(buffer: Any, position: int, end: int) -> int:
    for at in range(position, min(end, position + LONG_BYTES_MAX)):
        if buffer[at] < _LAST:
            return at + 1
    return MALFORMED


@inlined
def read_key(buffer: Any, position: int, end: int) -> Any:
    """Reads a record as far as its key: where the record ends (`MALFORMED` if it is not sound),
    its offset delta, where its key begins, and the key's size, negative if it has none."""
    size, position = read_varint(buffer, position, end)
    if position == MALFORMED or size < 1 or size > end - position:
        return MALFORMED, 0, 0, 0
    end = position + size
    position = skip_varlong(buffer, position + 1, end)
    if position == MALFORMED:
        return MALFORMED, 0, 0, 0
    delta, position = read_varint(buffer, position, end)
    if position == MALFORMED:
        return MALFORMED, 0, 0, 0
    key_size, position = read_varint(buffer, position, end)
    if position == MALFORMED or key_size > end - position:
        return MALFORMED, 0, 0, 0
    return end, delta, position, key_size


@inlined
def _map_records(
    buffer: Any, start: int, end: int, batch: Any, first_dirty: int, table: Any, window: Any
) -> int:
    """Puts the keys of one batch's records into the map. `batch` is its base offset, its last
    offset delta and its count. None is put into a map that can still grow and is too small for
    all of them: an offset that is put twice would count as its own successor."""
    base_offset, last_delta, count = batch
    in_doubt = table.tally[USED] + window.count[0] + count > table.tally[LIMIT]
    if in_doubt:
        put_window(table, window)
        in_doubt = table.tally[USED] + count > table.tally[LIMIT]
        if in_doubt and table.tally[LIMIT] < table.tally[LIMIT_MAX]:
            return MAP_SMALL
    position = start
    previous = -1
    for _ in range(count):
        position, delta, key_at, key_size = read_key(buffer, position, end)
        if position == MALFORMED or delta <= previous or delta > last_delta:
            return BAD_RECORDS
        value_size, _ = read_varint(buffer, key_at + max(0, key_size), position)
        if key_size < 0 or value_size < 0:
            mark(table, table.lacking, base_offset + delta)
        if key_size >= 0 and base_offset + delta >= first_dirty:
            if in_doubt and table.tally[USED] >= table.tally[LIMIT]:
                return MAP_FULL
            add_to_window(table, window, buffer, key_at, key_size, base_offset + delta, 0)
            if in_doubt or window.count[0] == WINDOW:
                put_window(table, window)
        previous = delta
    return DONE if position == end else BAD_RECORDS


@kernel(types.void(BYTES, INT64S, KEY_TABLE, WINDOW_TYPE, INT64S_OUT))
def map_batches(buffer: Any, bounds: Any, table: Any, window: Any, stop: Any) -> None:
    """Puts the keys of plain batches into the map, those within `bounds`: from the first offset,
    below the second. Checksums are left to the second pass, which reads all of it again before
    anything is kept."""
    end = len(buffer)
    stop[REASON] = DONE
    while stop[AT] < end:
        position = stop[AT]
        size = check_shape(buffer, position, end, stop[NEXT_OFFSET], 0)
        if size <= 0:
            stop[REASON] = size
            break
        batch = shape_of(buffer, position)
        if batch[0] + batch[1] >= bounds[1]:
            stop[REASON] = BEYOND
            break
        if load_int16(buffer, position + ATTRIBUTES_AT) & SPECIAL_BITS:
            stop[REASON] = SPECIAL
            break
        if batch[0] + batch[1] >= bounds[0]:
            first = position + HEADER_SIZE
            result = _map_records(buffer, first, position + size, batch, bounds[0], table, window)
            if result != DONE:
                stop[REASON] = result
                break
        stop[AT] = position + size
        stop[NEXT_OFFSET] = batch[0] + batch[1] + 1
        stop[RECORDS_READ] += batch[2]
    put_window(table, window)


@kernel(types.int64(BYTES, INT64S, types.int64, KEY_TABLE, WINDOW_TYPE))
def map_records(buffer: Any, batch: Any, first_dirty: int, table: Any, window: Any) -> int:
    """Puts the keys of the records of one batch, not compressed any more, into the map."""
    shape = (batch[0], batch[1], batch[2])
    result = _map_records(buffer, 0, len(buffer), shape, first_dirty, table, window)
    put_window(table, window)
    return result
