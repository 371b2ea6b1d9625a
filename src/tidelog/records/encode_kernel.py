"""The loop that writes records: from Arrow columns into the body of a record batch.

It is told which rows, and writes them until the next one would not fit, so that the caller can
close the batch and come back for the rest. Timestamps count from the first row of a batch,
offsets from 0.
"""

from typing import Any, Final

from numba import types

from tidelog.records.byte_kernels import (
    bit_is_set,
    copy_bytes,
    varint_size,
    write_varint,
)
from tidelog.records.kernels import BYTES, BYTES_OUT, INT64S, INT64S_OUT, helper, kernel
from tidelog.records.source_rows import TIME_MAX, WRITTEN_BYTES, Bytes, Source

BYTES_COLUMN: Final = types.NamedTuple((INT64S, BYTES, types.int64, BYTES), Bytes)
_SOURCE: Final = types.NamedTuple(
    (INT64S, BYTES_COLUMN, BYTES_COLUMN, INT64S, BYTES_COLUMN, BYTES_COLUMN), Source
)


@helper
def length_of(column: Any, row: int) -> Any:
    if column.first_bit >= 0 and not bit_is_set(column.valid, column.first_bit + row):
        return -1
    return column.ends[row + 1] - column.ends[row]


@helper
def _cell_size(column: Any, row: int) -> Any:
    length = length_of(column, row)
    return varint_size(length) + max(length, 0)


@helper
def _write_cell(output: Any, position: int, column: Any, row: int) -> Any:
    length = length_of(column, row)
    position = write_varint(output, position, length)
    if length > 0:
        copy_bytes(output, position, column.content, column.ends[row], length)
        position += length
    return position


@helper
def _header_range(source: Any, row: int) -> Any:
    if len(source.header_ends) == 0:
        return 0, 0
    return source.header_ends[row], source.header_ends[row + 1]


@helper
def _record_size(source: Any, row: int, time_delta: int, offset_delta: int) -> Any:
    """Of everything after the record's own length."""
    size = 1 + varint_size(time_delta) + varint_size(offset_delta)
    size += _cell_size(source.key, row) + _cell_size(source.value, row)
    start, end = _header_range(source, row)
    size += varint_size(end - start)
    for header in range(start, end):
        size += _cell_size(source.header_key, header) + _cell_size(source.header_value, header)
    return size


@helper
def _write_cells(output: Any, position: int, source: Any, row: int) -> Any:
    position = _write_cell(output, position, source.key, row)
    position = _write_cell(output, position, source.value, row)
    start, end = _header_range(source, row)
    position = write_varint(output, position, end - start)
    for header in range(start, end):
        position = _write_cell(output, position, source.header_key, header)
        position = _write_cell(output, position, source.header_value, header)
    return position


@kernel(types.int64(_SOURCE, INT64S, BYTES_OUT, INT64S_OUT))
def write_records(source: Any, rows: Any, output: Any, written: Any) -> int:
    """`rows` has at least one. Gives back how many were written; no row and the bytes needed, if
    not even the first one fits."""
    base_timestamp = source.timestamp[rows[0]]
    max_timestamp = base_timestamp
    position = 0
    count = 0
    for offset_delta in range(len(rows)):
        row = rows[offset_delta]
        timestamp = source.timestamp[row]
        time_delta = timestamp - base_timestamp
        size = _record_size(source, row, time_delta, offset_delta)
        needed = varint_size(size) + size
        if position + needed > len(output):
            if count == 0:
                position = needed
            break
        position = write_varint(output, position, size)
        output[position] = 0
        position = write_varint(output, position + 1, time_delta)
        position = write_varint(output, position, offset_delta)
        position = _write_cells(output, position, source, row)
        max_timestamp = max(max_timestamp, timestamp)
        count += 1
    written[WRITTEN_BYTES] = position
    written[TIME_MAX] = max_timestamp
    return count
