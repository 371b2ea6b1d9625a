"""The memory that decoded records are written to, and the Arrow columns made of it.

Buffers are as large as the records could need and are cut to what was used: memory that is
never touched costs nothing, and keys and values are copied once.
"""

import ctypes
from collections.abc import Collection
from functools import cache
from typing import Any, Final

import pyarrow as pa

from tidelog.records import decoded_rows as layout
from tidelog.records.arrays import numbers
from tidelog.records.native import fill_headers

HEADER: Final = pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())])
SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("timestamp_type", pa.int32(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.field("item", HEADER, nullable=False))),
    ]
)
ALL_COLUMNS: Final = tuple(SCHEMA.names)
_INT64: Final = 8
_INT32: Final = 4
_BYTE: Final = 1


class _Space:
    """A buffer of Arrow's, and for a kernel where it is, and how many items it has."""

    __slots__ = ("_buffer", "_item_bytes", "words")

    def __init__(self, count: int, item_bytes: int) -> None:
        self._buffer = pa.allocate_buffer(count * item_bytes, resizable=True)
        self._item_bytes = item_bytes
        self.words = [self._buffer.address, count]

    def set(self, byte: int, count: int) -> None:
        """The first items, each of so many bytes that are all the same."""
        ctypes.memset(self.words[0], byte, min(count, self.words[1]) * self._item_bytes)

    def cut(self, count: int) -> Any:
        """The first `count` items, as Arrow has them, who may move them."""
        self._buffer.resize(count * self._item_bytes, shrink_to_fit=True)
        return self._buffer


class _CellSpace:
    """A column of bytes in the making."""

    def __init__(self, rows: int, content_bytes: int) -> None:
        self.ends = _Space(rows + 1, _INT32)
        self.valid = _Space(rows + 7 >> 3, _BYTE)
        self.content = _Space(content_bytes, _BYTE)
        self.used = numbers(0, 0)
        self.ends.set(0, 1)
        self.valid.set(0xFF, rows + 7 >> 3)

    def cells(self) -> list[int]:
        """`decoded_rows.Cells`, as a kernel takes them."""
        used = self.used.buffer_info()
        return [*self.ends.words, *self.valid.words, *self.content.words, *used]

    def finish(self, rows: int) -> pa.BinaryArray:
        content_bytes, nulls = self.used
        valid = self.valid.cut(rows + 7 >> 3) if nulls else None
        buffers = [valid, self.ends.cut(rows + 1), self.content.cut(content_bytes)]
        return pa.BinaryArray.from_buffers(pa.binary(), rows, buffers, nulls)


_UNWANTED: Final = [0] * 8


class Columns:
    """All columns of one Arrow batch: `rows` is for `fill`, then `finish` makes them Arrow's."""

    def __init__(
        self, rows: int, content_bytes: int, names: Collection[str], offsets: tuple[int, int]
    ) -> None:
        self._names = [name for name in ALL_COLUMNS if name in names]
        self._offset = _Space(rows, _INT64)
        self._timestamp = _Space(rows, _INT64)
        self._timestamp_type = _Space(rows, _INT32)
        self._key = _CellSpace(rows, content_bytes) if "key" in names else None
        self._value = _CellSpace(rows, content_bytes) if "value" in names else None
        self._headers = "headers" in names
        lists = rows if self._headers else -1
        self._header_ends = _Space(lists + 1, _INT32)
        self._header_valid = _Space(max(lists, 0) + 7 >> 3, _BYTE)
        self._header_position = _Space(max(lists, 0), _INT64)
        self._header_ends.set(0, 1)
        self._header_valid.set(0xFF, max(lists, 0) + 7 >> 3)
        self._totals = numbers(*[0] * layout.TOTALS)
        self.rows = [
            *offsets,
            *self._offset.words,
            *self._timestamp.words,
            *self._timestamp_type.words,
            *(self._key.cells() if self._key else _UNWANTED),
            *(self._value.cells() if self._value else _UNWANTED),
            *self._header_ends.words,
            *self._header_valid.words,
            *self._header_position.words,
            *self._totals.buffer_info(),
        ]
        """`decoded_rows.Rows`, as a kernel takes them."""

    def finish(self, source: Any, bodies: Any) -> pa.RecordBatch:
        totals = self._totals
        rows = totals[layout.ROWS]
        wanted = self._headers and totals[layout.HEADERS]
        entries = self._header_entries(source, bodies) if wanted else None
        # Cutting a buffer may move it: nobody may write where it was.
        del self.rows
        made: dict[str, Any] = {
            "offset": _numbers(pa.int64(), rows, self._offset),
            "timestamp": _numbers(pa.int64(), rows, self._timestamp),
            "timestamp_type": _numbers(pa.int32(), rows, self._timestamp_type),
        }
        if self._key:
            made["key"] = self._key.finish(rows)
        if self._value:
            made["value"] = self._value.finish(rows)
        if self._headers:
            made["headers"] = self._header_lists(rows, totals[layout.HEADER_NULLS], entries)
        schema = _schema_of(tuple(self._names))
        return pa.RecordBatch.from_arrays([made[name] for name in self._names], schema=schema)

    def _header_entries(self, source: Any, bodies: Any) -> pa.StructArray:
        totals = self._totals
        count = totals[layout.HEADERS]
        keys = _CellSpace(count, totals[layout.HEADER_KEY_BYTES])
        values = _CellSpace(count, totals[layout.HEADER_VALUE_BYTES])
        fill_headers(source, bodies, self.rows, keys.cells(), values.cells())
        made = [_as_text(keys.finish(count)), values.finish(count)]
        return pa.StructArray.from_arrays(made, fields=list(HEADER))

    def _header_lists(self, rows: int, nulls: int, entries: pa.StructArray | None) -> pa.ListArray:
        kind = SCHEMA.field("headers").type
        if entries is None:
            return pa.nulls(rows, kind)
        buffers = [self._header_valid.cut(rows + 7 >> 3), self._header_ends.cut(rows + 1)]
        return pa.ListArray.from_buffers(kind, rows, buffers, nulls, children=[entries])


@cache
def _schema_of(names: tuple[str, ...]) -> pa.Schema:
    return pa.schema([SCHEMA.field(name) for name in names])


def _numbers(kind: Any, rows: int, space: _Space) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, space.cut(rows)], 0)


def _as_text(keys: pa.BinaryArray) -> pa.StringArray:
    """Arrow's text is UTF-8; bytes that are not become U+FFFD, as they do in Java."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
