"""The loops that read record batches: one over headers, one over records, one over record headers.

`survey` finds the batches worth reading. `fill` reads their records into columns and checks
all that `reference` checks; where it finds a batch that is not sound it only says which,
and `reference` finds the words. `fill_headers` then copies record headers, whose number
and size are known by then, from where `fill` saw them.
"""

from typing import Any, Final

from numba import types

from tidelog.records.batch import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_START,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_POSITION,
)
from tidelog.records.byte_kernels import (
    clear_bit,
    copy_bytes,
    read_int32,
    read_int64,
    read_varint,
    read_varlong,
)
from tidelog.records.crc_kernel import crc32c
from tidelog.records.decoded_rows import (
    BODY_END,
    BODY_START,
    CODEC,
    COUNT,
    GOOD,
    HEADER_KEY_BYTES,
    HEADER_NULLS,
    HEADER_VALUE_BYTES,
    HEADERS,
    POSITION,
    ROWS,
    USED_BYTES,
    USED_NULLS,
    Cells,
    Rows,
)
from tidelog.records.kernels import (
    BYTES,
    BYTES_OUT,
    INT32S_OUT,
    INT64S_OUT,
    TABLE,
    helper,
    kernel,
)
from tidelog.records.reference import RECORD_SIZE_MIN

_OFFSET_MAX: Final = (1 << 63) - 1

CELLS: Final = types.NamedTuple((INT32S_OUT, BYTES_OUT, BYTES_OUT, INT64S_OUT), Cells)
_NUMBERS: Final = (types.int64, types.int64, INT64S_OUT, INT64S_OUT, INT32S_OUT)
_HEADERS: Final = (INT32S_OUT, BYTES_OUT, INT64S_OUT, INT64S_OUT)
ROWS_TYPE: Final = types.NamedTuple((*_NUMBERS, CELLS, CELLS, *_HEADERS), Rows)


@helper
def _header_is_sound(data: Any, position: int, end: int, verify_crc: bool) -> Any:
    if data[position + MAGIC_POSITION] != MAGIC or end - position < HEADER_SIZE:
        return False
    base_offset = read_int64(data, position)
    delta = read_int32(data, position + 23)
    count = read_int32(data, position + 57)
    if delta < 0 or count < 0 or count > delta + 1:
        return False
    if base_offset < 0 or base_offset > _OFFSET_MAX - delta:
        return False
    if verify_crc:
        stored = read_int32(data, position + 17)
        return crc32c(data, position + CRC_START, end) == stored & 0xFFFFFFFF
    return True


@kernel(types.int64(BYTES, types.int64, types.int64, types.boolean, TABLE, INT64S_OUT))
def survey(data: Any, first: int, last: int, verify_crc: bool, table: Any, stopped: Any) -> Any:
    """Lists the data batches with offsets in first..last. Gives back how many there are, and in
    `stopped` the position of a batch that is not sound, which ends the list, or GOOD."""
    stopped[0] = GOOD
    found = 0
    position = 0
    while position + MAGIC_POSITION < len(data):
        base_offset = read_int64(data, position)
        length = read_int32(data, position + 8)
        if base_offset == 0 and length == 0:
            break
        end = position + LENGTH_OVERHEAD + length
        if end > len(data):
            break
        if not _header_is_sound(data, position, end, verify_crc):
            stopped[0] = position
            return found
        last_offset = base_offset + read_int32(data, position + 23)
        is_control = data[position + 22] & CONTROL
        if not is_control and base_offset <= last and last_offset >= first:
            table[found, POSITION] = position
            table[found, BODY_START] = position + HEADER_SIZE
            table[found, BODY_END] = end
            table[found, CODEC] = data[position + 22] & COMPRESSION_MASK
            table[found, COUNT] = read_int32(data, position + 57)
            found += 1
        position = end
    return found


@helper
def _read_size(source: Any, position: int, end: int) -> Any:
    """The length of a key or value, -1 for null, that is known to fit."""
    size, position = read_varint(source, position, end)
    if position < 0 or size < -1 or size > end - position:
        return 0, -1
    return size, position


@helper
def _put(cells: Any, row: int, source: Any, position: int, size: int) -> None:
    if len(cells.ends) == 0:
        return
    if size < 0:
        clear_bit(cells.valid, row)
        cells.used[USED_NULLS] += 1
    else:
        copy_bytes(cells.content, cells.used[USED_BYTES], source, position, size)
        cells.used[USED_BYTES] += size
    cells.ends[row + 1] = cells.used[USED_BYTES]


@helper
def _count_headers(
    source: Any, position: int, end: int, count: int, wanted: bool, totals: Any
) -> Any:
    for _ in range(count):
        key_size, position = _read_size(source, position, end)
        if position < 0 or key_size < 0:
            return False
        value_size, position = _read_size(source, position + key_size, end)
        if position < 0:
            return False
        position += max(value_size, 0)
        if wanted:
            totals[HEADER_KEY_BYTES] += key_size
            totals[HEADER_VALUE_BYTES] += max(value_size, 0)
    if wanted:
        totals[HEADERS] += count
    return position == end


@helper
def _fill_cells(source: Any, packed: bool, position: int, end: int, wanted: bool, rows: Any) -> Any:
    row = rows.totals[ROWS]
    size, position = _read_size(source, position, end)
    if position < 0:
        return False
    if wanted:
        _put(rows.key, row, source, position, size)
    size, position = _read_size(source, position + max(size, 0), end)
    if position < 0:
        return False
    if wanted:
        _put(rows.value, row, source, position, size)
    position += max(size, 0)
    count, after = read_varint(source, position, end)
    if after < 0 or count < 0 or count > end - after:
        return False
    if count == 0:
        if after != end:
            return False
    elif not _count_headers(source, after, end, count, wanted, rows.totals):
        return False
    if wanted:
        if len(rows.header_ends):
            rows.header_ends[row + 1] = rows.totals[HEADERS]
            rows.header_position[row] = ~after if packed else after
            if count == 0:
                clear_bit(rows.header_valid, row)
                rows.totals[HEADER_NULLS] += 1
        rows.totals[ROWS] += 1
    return True


@helper
def _fill_batch(source: Any, data: Any, batch: Any, rows: Any) -> Any:
    header = batch[POSITION]
    base_offset = read_int64(data, header)
    last_offset = base_offset + read_int32(data, header + 23)
    base_timestamp = read_int64(data, header + 27)
    max_timestamp = read_int64(data, header + 35)
    append_time = data[header + 22] & LOG_APPEND_TIME != 0
    position, end = batch[BODY_START], batch[BODY_END]
    if batch[COUNT] * RECORD_SIZE_MIN > end - position:
        return False
    previous = base_offset - 1
    for _ in range(batch[COUNT]):
        size, position = read_varint(source, position, end)
        if position < 0 or size < 1 or size > end - position:
            return False
        record_end = position + size
        time_delta, position = read_varlong(source, position + 1, record_end)
        if position < 0:
            return False
        delta, position = read_varint(source, position, record_end)
        offset = base_offset + delta
        if position < 0 or offset <= previous or offset > last_offset:
            return False
        previous = offset
        wanted = rows.first <= offset <= rows.last
        if wanted:
            row = rows.totals[ROWS]
            rows.offset[row] = offset
            rows.timestamp[row] = max_timestamp if append_time else base_timestamp + time_delta
            rows.timestamp_type[row] = append_time
        if not _fill_cells(source, batch[CODEC] != 0, position, record_end, wanted, rows):
            return False
        position = record_end
    return position == end


@kernel(types.int64(BYTES, BYTES, TABLE, ROWS_TYPE))
def fill(data: Any, bodies: Any, table: Any, rows: Any) -> Any:
    """Reads the records of the batches in the table; those that were compressed are in
    `bodies`. Gives back the index of a batch that is not sound, or GOOD."""
    for index in range(len(table)):
        source = bodies if table[index, CODEC] != 0 else data
        if not _fill_batch(source, data, table[index], rows):
            return index
    return GOOD


@kernel(types.void(BYTES, BYTES, ROWS_TYPE, CELLS, CELLS))
def fill_headers(data: Any, bodies: Any, rows: Any, keys: Any, values: Any) -> None:
    """Copies the headers of all rows."""
    header = 0
    for row in range(rows.totals[ROWS]):
        position = rows.header_position[row]
        source = data
        if position < 0:
            source = bodies
            position = ~position
        while header < rows.header_ends[row + 1]:
            size, position = read_varint(source, position, len(source))
            _put(keys, header, source, position, size)
            size, position = read_varint(source, position + size, len(source))
            _put(values, header, source, position, size)
            position += max(size, 0)
            header += 1
