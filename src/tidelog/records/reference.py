"""Records inside a batch, one at a time, in plain Python: the meaning of the format.

A record is: its length, attributes (1 byte, unused), timestamp delta, offset delta, key,
value, number of headers, and for each header key and value. All numbers are varints,
a length of -1 is null, and deltas count from the batch header. `columns` does the same for
millions of records and is tested against this; small jobs (control records, group state,
one line of dump-log) use this directly.

Header keys are text: bytes that are not UTF-8 are kept as surrogate escapes, so that any
record that is read can be written again unchanged.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypedDict, Unpack

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import NO_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from tidelog.base.limits import DECOMPRESSED_BYTES_MAX
from tidelog.base.ports import Buffer
from tidelog.records.batch import (
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    bad_magic,
    crc_is_good,
    read_header,
    seal,
)
from tidelog.records.compression import compress, decompress
from tidelog.records.varint import Reader, append_varint

Header = tuple[str, bytes | None]

RECORD_SIZE_MIN: Final = 7
"""One byte for each of length, attributes, two deltas, key, value and number of headers."""
_OFFSET_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()


class BatchFields(TypedDict, total=False):
    """What a batch says about all of its records; each may be left out."""

    base_offset: int
    compression: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    leader_epoch: int
    transactional: bool
    control: bool
    log_append_time: bool


def read_records(
    batch: Buffer, limit: int = DECOMPRESSED_BYTES_MAX, *, verify_crc: bool = False
) -> Iterator[Record]:
    """The records of the batch that `batch` starts with. Its header is checked and its records
    are decompressed at once; a record that is not sound raises when it is reached."""
    header = checked_header(batch, verify_crc=verify_crc)
    body = decompress(header.compression, memoryview(batch)[HEADER_SIZE : header.size], limit)
    if header.record_count * RECORD_SIZE_MIN > len(body):
        raise _disagrees(header, f"{header.record_count} records cannot be in {len(body)} bytes")
    return _records(header, body)


def checked_header(batch: Buffer, *, verify_crc: bool) -> BatchHeader:
    """The header of the batch that `batch` starts with, if it can be one."""
    if len(batch) < HEADER_SIZE:
        raise _corrupt(f"{len(batch)} bytes are too few for a batch header of {HEADER_SIZE}")
    header = read_header(batch)
    where = f"the batch at offset {header.base_offset}"
    if header.magic != MAGIC:
        raise bad_magic(header.magic)
    if not HEADER_SIZE <= header.size <= len(batch):
        raise _corrupt(f"{where} claims {header.size} bytes of {len(batch)}")
    if verify_crc and not crc_is_good(batch, 0, header.size, header.crc):
        raise _corrupt(f"the CRC-32C of {where} does not match its content")
    if header.last_offset_delta < 0 or not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise _corrupt(
            f"{where} has {header.record_count} records and a last offset delta of "
            f"{header.last_offset_delta}"
        )
    if header.base_offset < 0 or header.last_offset > _OFFSET_MAX:
        raise _corrupt(f"{where} has offsets that do not exist")
    return header


def _records(header: BatchHeader, body: bytes) -> Iterator[Record]:
    reader = Reader(body)
    previous = header.base_offset - 1
    for index in range(header.record_count):
        try:
            record = _read_record(header, reader)
        except KafkaError as error:
            raise _disagrees(header, f"record {index}: {error.message}") from error
        if not previous < record.offset <= header.last_offset:
            raise _disagrees(header, f"record {index} has offset {record.offset}")
        previous = record.offset
        yield record
    if reader.remaining():
        raise _disagrees(
            header, f"{reader.remaining()} bytes follow its {header.record_count} records"
        )


def _read_record(header: BatchHeader, outer: Reader) -> Record:
    reader = Reader(outer.take(outer.integer()))
    reader.take(1)
    timestamp = _wrapped(header.base_timestamp + reader.long())
    record = Record(
        offset=header.base_offset + reader.integer(),
        timestamp=header.max_timestamp if header.is_log_append_time else timestamp,
        key=reader.nullable(),
        value=reader.nullable(),
        headers=_read_headers(reader),
    )
    if reader.remaining():
        raise _invalid(f"{reader.remaining()} bytes follow its headers")
    return record


def _read_headers(reader: Reader) -> tuple[Header, ...]:
    count = reader.integer()
    if not 0 <= count <= reader.remaining():
        raise _invalid(f"{count} headers in {reader.remaining()} bytes")
    return tuple(
        (reader.take(reader.integer()).decode("utf-8", "surrogateescape"), reader.nullable())
        for _ in range(count)
    )


def _wrapped(timestamp: int) -> int:
    """In 64 bits, as any other reader has it."""
    return (timestamp + (1 << 63)) % (1 << 64) - (1 << 63)


def encode_batch(records: Iterable[Record], **fields: Unpack[BatchFields]) -> bytearray:
    """A batch as a client or a leader writes it; offsets are taken from the records and must
    rise from `base_offset`."""
    records = list(records)
    base_offset = fields.get("base_offset", 0)
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    body = bytearray()
    for record in records:
        _append_record(body, record, base_offset, base_timestamp)
    last_offset = records[-1].offset if records else base_offset
    compression = fields.get("compression", 0)
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        partition_leader_epoch=fields.get("leader_epoch", NO_EPOCH),
        magic=MAGIC,
        crc=0,
        attributes=compression | _flags(fields),
        last_offset_delta=last_offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max((record.timestamp for record in records), default=NO_TIMESTAMP),
        producer_id=fields.get("producer_id", NO_PRODUCER_ID),
        producer_epoch=fields.get("producer_epoch", NO_PRODUCER_EPOCH),
        base_sequence=fields.get("base_sequence", NO_SEQUENCE),
        record_count=len(records),
    )
    return seal(header, compress(compression, body))


def _flags(fields: BatchFields) -> int:
    return (
        LOG_APPEND_TIME * fields.get("log_append_time", False)
        | TRANSACTIONAL * fields.get("transactional", False)
        | CONTROL * fields.get("control", False)
    )


def _append_record(body: bytearray, record: Record, base_offset: int, base_timestamp: int) -> None:
    inner = bytearray(1)
    append_varint(inner, _wrapped(record.timestamp - base_timestamp))
    append_varint(inner, record.offset - base_offset)
    _append_nullable(inner, record.key)
    _append_nullable(inner, record.value)
    append_varint(inner, len(record.headers))
    for key, value in record.headers:
        _append_nullable(inner, key.encode("utf-8", "surrogateescape"))
        _append_nullable(inner, value)
    append_varint(body, len(inner))
    body += inner


def _append_nullable(output: bytearray, data: bytes | None) -> None:
    if data is None:
        append_varint(output, -1)
    else:
        append_varint(output, len(data))
        output += data


def _disagrees(header: BatchHeader, message: str) -> KafkaError:
    return _invalid(f"the batch at offset {header.base_offset}: {message}")


def _corrupt(message: str) -> KafkaError:
    return KafkaError(ErrorCode.corrupt_message, message)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_record, message)
