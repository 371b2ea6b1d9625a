"""Arrow columns to record batches, with no Python per record.

Takes the columns `key`, `value` (binary, large_binary or string), `timestamp` (int64
milliseconds or an Arrow timestamp) and `headers` (a list of structs of key and value), each of
which may be missing; other columns are ignored. Slices of larger arrays are fine.
"""

from collections.abc import Iterator
from typing import Any, Final, TypedDict, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.base.ids import NO_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from tidelog.records.arrays import zeros
from tidelog.records.batch import (
    HEADER_SIZE,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    seal,
    sequence_after,
)
from tidelog.records.compression import NAMES, NONE, compress
from tidelog.records.native import write_records
from tidelog.records.source_rows import TIME_MAX, WRITTEN, WRITTEN_BYTES, Bytes, Source

DEFAULT_MAX_BYTES: Final = 1024 * 1024


class ProducerFields(TypedDict, total=False):
    """Who writes; each may be left out."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool


def encode(
    batch: pa.RecordBatch,
    *,
    compression: int = NONE,
    max_bytes: int = DEFAULT_MAX_BYTES,
    default_timestamp: int = NO_TIMESTAMP,
    **producer: Unpack[ProducerFields],
) -> list[bytearray]:
    """Record batches of at most `max_bytes` as a producer sends them: base offset 0, sequences
    counting on from one to the next. A row that has no timestamp gets `default_timestamp`."""
    encoder = RowEncoder(compression=compression, batch_bytes=max_bytes, bytes_max=max_bytes)
    source = columns_of(batch, default_timestamp)
    rows = fixed(np.arange(batch.num_rows, dtype=np.int64))
    return list(encoder.encode(source, rows, **producer))


class RowEncoder:
    """Makes record batches of chosen rows. A batch is filled up to `batch_bytes` before it is
    compressed; a record that does not fit goes alone, and may take `bytes_max`."""

    def __init__(self, *, compression: int, batch_bytes: int, bytes_max: int) -> None:
        if compression not in range(len(NAMES)):
            raise BadValue(f"compression {compression}: it is one of 0 to {len(NAMES) - 1}")
        self._compression = compression
        self._bytes_max = bytes_max
        self._output = np.empty(max(batch_bytes - HEADER_SIZE, 0), np.uint8)

    def encode(
        self, source: Source, rows: Any, **producer: Unpack[ProducerFields]
    ) -> Iterator[bytearray]:
        """`rows` are numbers of rows, int64, read-only."""
        sequence = producer.get("base_sequence", NO_SEQUENCE)
        written = zeros(WRITTEN)
        start = 0
        while start < len(rows):
            body = self._output
            count = write_records(source, rows[start:], body, written)
            if not count:
                body = np.empty(written[WRITTEN_BYTES], np.uint8)
                count = write_records(source, rows[start : start + 1], body, written)
            row = int(rows[start])
            header = _header(source, row, count, producer)._replace(
                base_sequence=sequence, max_timestamp=written[TIME_MAX]
            )
            made = _sealed(header, body[: written[WRITTEN_BYTES]], self._compression)
            if len(made) > self._bytes_max:
                raise _too_large(row, len(made), self._bytes_max)
            yield made
            start += count
            if sequence != NO_SEQUENCE:
                sequence = sequence_after(sequence, count)


def _header(source: Source, row: int, count: int, producer: ProducerFields) -> BatchHeader:
    return BatchHeader(
        base_offset=0,
        length=0,
        partition_leader_epoch=NO_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=TRANSACTIONAL * producer.get("transactional", False),
        last_offset_delta=count - 1,
        base_timestamp=int(source.timestamp[row]),
        max_timestamp=NO_TIMESTAMP,
        producer_id=producer.get("producer_id", NO_PRODUCER_ID),
        producer_epoch=producer.get("producer_epoch", NO_PRODUCER_EPOCH),
        base_sequence=NO_SEQUENCE,
        record_count=count,
    )


def _sealed(header: BatchHeader, body: Any, compression: int) -> bytearray:
    if compression != NONE:
        packed = compress(compression, memoryview(body))
        # What does not get smaller is sent as it is: it stays within the size, and saves work.
        if len(packed) < len(body):
            return seal(header._replace(attributes=header.attributes | compression), packed)
    return seal(header, memoryview(body))


def columns_of(batch: pa.RecordBatch, default_timestamp: int) -> Source:
    """The columns as the kernels read them; they are used where they are, not copied."""
    headers = _column(batch, "headers")
    nothing = bytes_column(pa.nulls(0, pa.large_binary()))
    ends, header_key, header_value = (
        (_numbers(None, np.int64), nothing, nothing) if headers is None else _headers(headers)
    )
    return Source(
        fixed(_timestamps(batch, default_timestamp)),
        bytes_column(_column(batch, "key"), batch.num_rows),
        bytes_column(_column(batch, "value"), batch.num_rows),
        ends,
        header_key,
        header_value,
    )


def _column(batch: pa.RecordBatch, name: str) -> Any:
    return batch.column(name) if name in batch.schema.names else None


def _timestamps(batch: pa.RecordBatch, default: int) -> Any:
    column = _column(batch, "timestamp")
    if column is None:
        return np.full(batch.num_rows, default, np.int64)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    return np.ascontiguousarray(pc.fill_null(_cast(column, pa.int64(), "timestamp"), default))


def bytes_column(column: Any, rows: int = 0, name: str = "key and value") -> Bytes:
    if column is None:
        column = pa.nulls(rows, pa.large_binary())
    column = _cast(column, pa.large_binary(), name)
    valid, ends, content = column.buffers()
    first = column.offset
    return Bytes(
        fixed(_numbers(ends, np.int64)[first : first + len(column) + 1]),
        _numbers(valid, np.uint8),
        -1 if valid is None else first,
        _numbers(content, np.uint8),
    )


def _numbers(buffer: Any, dtype: Any) -> Any:
    return fixed(np.frombuffer(b"" if buffer is None else buffer, dtype))


def fixed(array: Any) -> Any:
    """Read-only: the kernels are compiled for exactly that."""
    array = array.view()
    array.flags.writeable = False
    return array


def _headers(column: Any) -> tuple[Any, Bytes, Bytes]:
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not (
        pa.types.is_struct(kind.value_type)
        and [kind.value_type.field(index).name for index in range(kind.value_type.num_fields)]
        == ["key", "value"]
    ):
        raise BadValue(f"headers are a list of struct<key, value>, not {kind}")
    # Null lists may still span entries: what is left is rebuilt without them.
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int64())
    ends = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    key, value = column.flatten().flatten()
    if key.null_count:
        raise BadValue("headers need a key each: there is a header without one")
    return (
        fixed(ends),
        bytes_column(key, name="a header's key"),
        bytes_column(value, name="a header's value"),
    )


def _cast(column: Any, kind: Any, name: str) -> Any:
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadValue(f"{name} cannot be of type {column.type}: {error}") from error


def _too_large(row: int, size: int, max_bytes: int) -> KafkaError:
    return KafkaError(
        ErrorCode.message_too_large,
        f"row {row} makes a batch of {size} bytes, larger than {max_bytes}",
    )
