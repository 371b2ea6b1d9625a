"""Record batches to Arrow columns, with no Python per record.

The bytes of a fetch or a segment go through `survey`; what is compressed is decompressed, and
`fill` writes the columns. `decode` gives one Arrow batch, `decode_stream` several of bounded
size, for data that may decompress to much more than it is.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelog.base.errors import BadValue, KafkaError
from tidelog.base.limits import DECOMPRESSED_BYTES_MAX
from tidelog.base.ports import Buffer
from tidelog.records import decoded_rows as layout
from tidelog.records.arrays import numbers
from tidelog.records.batch import HEADER_SIZE, MAGIC, MAGIC_POSITION, bad_magic
from tidelog.records.column_buffers import ALL_COLUMNS, Columns
from tidelog.records.compression import decompress
from tidelog.records.native import fill, survey
from tidelog.records.reference import RECORD_SIZE_MIN, read_records

COLUMN_BYTES_MAX: Final = (1 << 31) - 1
"""Where the 32-bit positions of an Arrow column end."""
_UNBOUNDED: Final = 1 << 62

_INT64: Final = np.iinfo(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which records and columns to read, and how carefully."""

    first: int = int(_INT64.min)
    last: int = int(_INT64.max)
    limit: int = DECOMPRESSED_BYTES_MAX
    verify_crc: bool = False
    columns: Collection[str] = ALL_COLUMNS

    def __post_init__(self) -> None:
        unknown = set(self.columns) - set(ALL_COLUMNS)
        if unknown:
            raise BadValue(f"columns {sorted(unknown)}: there are only {', '.join(ALL_COLUMNS)}")


def decode(
    data: Buffer,
    *,
    from_offset: int | None = None,
    upto_offset: int | None = None,
    limit: int = DECOMPRESSED_BYTES_MAX,
    verify_crc: bool = False,
    columns: Collection[str] = ALL_COLUMNS,
) -> pa.RecordBatch:
    """All records of the whole batches in `data` with from_offset <= offset < upto_offset;
    control batches are skipped, and so is a last batch that is cut off. `limit` is what one
    batch may decompress to."""
    wanted = Wanted(
        first=int(_INT64.min) if from_offset is None else from_offset,
        last=int(_INT64.max) if upto_offset is None else upto_offset - 1,
        limit=limit,
        verify_crc=verify_crc,
        columns=columns,
    )
    return next(decode_stream(data, wanted, chunk_bytes=_UNBOUNDED))


def decode_stream(
    data: Buffer, wanted: Wanted, *, chunk_bytes: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[pa.RecordBatch]:
    """At least one Arrow batch, empty if there is nothing. One is ended by the record batch
    that takes it to `chunk_bytes` of records."""
    source = np.frombuffer(data, np.uint8)
    table = np.empty((len(source) // HEADER_SIZE + 1, layout.TABLE_WIDTH), np.int64)
    stopped = numbers(layout.GOOD)
    found = survey(source, wanted.first, wanted.last, wanted.verify_crc, table, stopped)
    error = None if stopped[0] == layout.GOOD else _explain(data, stopped[0], wanted)
    pending: pa.RecordBatch | None = None
    for part in _parts(data, table[:found], wanted, chunk_bytes):
        if pending is not None:
            yield pending
        pending = _read(source, part, wanted)
    if error is not None:
        raise error
    yield pending


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of the table, and the decompressed records that they point into."""

    table: Any
    bodies: bytes
    body_bytes: int


def _parts(data: Buffer, table: Any, wanted: Wanted, chunk_bytes: int) -> Iterator[_Part]:
    if len(data) <= chunk_bytes and not table[:, layout.CODEC].any():
        yield _Part(table, b"", len(data))
        return
    view = memoryview(data)
    bodies: list[bytes] = []
    start = size = packed = 0
    for index, (_, body_start, body_end, codec, _) in enumerate(table.tolist()):
        if size >= chunk_bytes:
            yield _Part(table[start:index], b"".join(bodies), size)
            bodies, start, size, packed = [], index, 0, 0
        if codec:
            try:
                bodies.append(decompress(codec, view[body_start:body_end], wanted.limit))
            except KafkaError:
                yield _Part(table[start:index], b"".join(bodies), size)
                raise
            body_start, body_end = packed, packed + len(bodies[-1])
            table[index, layout.BODY_START : layout.BODY_END + 1] = body_start, body_end
            packed = body_end
        size += body_end - body_start
        if size > COLUMN_BYTES_MAX:
            raise BadValue("2 GiB of records do not fit into one Arrow batch: use decode_stream")
    yield _Part(table[start:], b"".join(bodies), size)


def _read(source: Any, part: _Part, wanted: Wanted) -> pa.RecordBatch:
    if part.body_bytes > COLUMN_BYTES_MAX:
        raise BadValue("2 GiB of records do not fit into one Arrow batch: use decode_stream")
    bodies = np.frombuffer(part.bodies, np.uint8)
    sizes = part.table[:, layout.BODY_END] - part.table[:, layout.BODY_START]
    # A header that claims more records than can be there must not cost memory.
    row_count = int(np.minimum(part.table[:, layout.COUNT], sizes // RECORD_SIZE_MIN).sum())
    offsets = wanted.first, wanted.last
    columns = Columns(row_count, int(sizes.sum()), wanted.columns, offsets)
    bad = fill(source, bodies, part.table, columns.rows)
    if bad != layout.GOOD:
        raise _explain(source, int(part.table[bad, layout.POSITION]), wanted)
    return columns.finish(source, bodies)


def _explain(data: Any, position: int, wanted: Wanted) -> KafkaError:
    """The words for a batch that the kernels refused."""
    batch = memoryview(data)[position:]
    if batch[MAGIC_POSITION] != MAGIC:
        return bad_magic(int(np.int8(np.uint8(batch[MAGIC_POSITION]))))
    try:
        for _ in read_records(batch, wanted.limit, verify_crc=wanted.verify_crc):
            pass
    except KafkaError as error:
        return error
    raise AssertionError(f"the kernels refused a batch at position {position} that is sound")
