"""Decoded records as the Arrow batches that Spark takes: its columns, its types, bounded sizes.

Spark looks at the schema of the first batch only and reads the others' memory as if it were the
same, so each one is compared here. A batch ends at so many rows or bytes, whichever comes first:
Spark's side needs a multiple of it in memory. A larger record goes alone.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

BATCH_ROWS_MAX: Final = 20_000
BATCH_BYTES_MAX: Final = 16 * 1024 * 1024
_ROW_BYTES: Final = 64
"""What the columns of fixed width come to."""
_HEADER_TYPE: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", _HEADER_TYPE)),
}
_DECODED: Final = {"timestampType": "timestamp_type"}
"""Where the decoder has another name for a column."""
_TIME_MAX: Final = np.iinfo(np.int64).max // 1000


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([(name, TYPES[name]) for name in columns])


def decoded_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """What the decoder must give; the offset always, as it tells how many rows there are."""
    needed = {"offset", *columns} - {"topic", "partition"}
    return tuple(sorted(_DECODED.get(name, name) for name in needed))


class BatchMaker:
    """For the records of one partition."""

    def __init__(self, topic: str, partition: int, columns: Sequence[str]) -> None:
        self._schema = arrow_schema(columns)
        self._columns = tuple(columns)
        # The same in every row, so made once; a batch takes as much of it as it has rows.
        self._constants = {
            "topic": _repeated_text(topic.encode()),
            "partition": _repeated_number(partition),
        }

    def make(self, decoded: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Batches within the bounds; none if there are no records."""
        start = 0
        for end in cuts(decoded):
            yield self._convert(decoded.slice(start, end - start))
            start = end

    def _convert(self, decoded: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [self._array(name, decoded) for name in self._columns]
        batch = pa.RecordBatch.from_arrays(arrays, names=list(self._columns))
        assert batch.schema.equals(self._schema), f"{batch.schema} where Spark has {self._schema}"
        return batch

    def _array(self, name: str, decoded: pa.RecordBatch) -> pa.Array:
        if name in self._constants:
            return self._constants[name].slice(0, decoded.num_rows)
        column = decoded.column(_DECODED.get(name, name))
        convert = _CONVERSIONS.get(name)
        return column if convert is None else convert(column)


def cuts(decoded: pa.RecordBatch) -> Iterator[int]:
    """The row behind the last one of each batch."""
    rows = decoded.num_rows
    sizes = _sizes_up_to(decoded)
    start = 0
    while start < rows:
        limit = sizes[start] + BATCH_BYTES_MAX
        fitting = int(np.searchsorted(sizes, limit, side="right")) - 1
        start = min(rows, start + BATCH_ROWS_MAX, max(fitting, start + 1))
        yield start


def _sizes_up_to(decoded: pa.RecordBatch) -> Any:
    """The bytes of all rows before each, and of all rows."""
    sizes = np.arange(decoded.num_rows + 1, dtype=np.int64) * _ROW_BYTES
    for name in ("key", "value"):
        if name in decoded.schema.names:
            sizes += _ends(decoded.column(name))
    if "headers" in decoded.schema.names:
        lists = decoded.column("headers")
        entries = lists.values
        if len(entries):
            entry_sizes = _ends(entries.field(0)).astype(np.int64) + _ends(entries.field(1))
            sizes += entry_sizes[_ends(lists)]
    return sizes


def _ends(column: pa.Array) -> Any:
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1]


def _repeated_text(text: bytes) -> pa.Array:
    """From buffers: whatever takes Python's own values makes pyarrow import pandas, if it is
    there, which takes longer than all else that a task imports."""
    ends = np.arange(BATCH_ROWS_MAX + 1, dtype=np.int32) * len(text)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(text * BATCH_ROWS_MAX)]
    return pa.Array.from_buffers(TYPES["topic"], BATCH_ROWS_MAX, buffers, 0)


def _repeated_number(number: int) -> pa.Array:
    numbers = np.full(BATCH_ROWS_MAX, number, np.int32)
    return pa.Array.from_buffers(
        TYPES["partition"], BATCH_ROWS_MAX, [None, pa.py_buffer(numbers)], 0
    )


def _times(column: pa.Array) -> pa.Array:
    """From ms; what lies beyond the years that Spark knows is the last moment it does."""
    times = np.frombuffer(column.buffers()[1], np.int64)[column.offset :][: len(column)]
    moved = np.clip(times, -_TIME_MAX, _TIME_MAX) * 1000
    return pa.Array.from_buffers(TYPES["timestamp"], len(column), [None, pa.py_buffer(moved)], 0)


def _headers(column: pa.Array) -> pa.Array:
    return column.cast(TYPES["headers"])


_CONVERSIONS: Final[dict[str, Callable[[pa.Array], pa.Array]]] = {
    "timestamp": _times,
    "headers": _headers,
}
