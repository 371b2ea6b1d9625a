"""Finding a record of a batch by its time, without reading more of each record than that.

A lookup runs in the broker's loop, where reading whole records in Python would take a tenth of
a second a megabyte. `reference` says what a record is; this goes from one record's length to
the next. A few kilobytes may hold millions of records: only a batch of few is searched in the
loop, the others in a worker, to which they travel as base64 in JSON (`time_finder`).
"""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import NO_TIMESTAMP
from tidelog.base.ports import Buffer
from tidelog.records.batch import HEADER_SIZE, BatchHeader
from tidelog.records.compression import decompress
from tidelog.records.reference import checked_header
from tidelog.records.varint import LONG_BYTES_MAX

TASK: Final = "find time"
_LONG_MAX: Final = (1 << 63) - 1
FEW_RECORDS_MAX: Final = 5_000
"""Two milliseconds."""
FEW_BYTES_MAX: Final = 256 * 1024
"""Of a batch as it is stored, and of its records when they are decompressed."""

Place = tuple[int, int]
"""An offset and its timestamp."""


def argument_for(batch: Buffer, timestamp: int, first_offset: int, limit: int) -> dict[str, Any]:
    """What a worker is to be told to do the same as `first_not_before`."""
    return {
        "batch": b64encode(batch).decode(),
        "timestamp": timestamp,
        "first_offset": first_offset,
        "limit": limit,
    }


def found_by(result: Mapping[str, Any]) -> Place | None:
    """What the worker gave; raises what it found wrong."""
    if "unreadable" in result:
        raise KafkaError(ErrorCode.invalid_record, result["unreadable"])
    found = result["found"]
    return None if found is None else (found[0], found[1])


def first_not_before(batch: Buffer, timestamp: int, first_offset: int, limit: int) -> Place | None:
    """Offset and timestamp of the first record, at `first_offset` or behind it, that is at least
    that young; None if there is none. A batch that decompresses to more than `limit`, or whose
    records are not sound as far as they are looked at, raises."""
    header = checked_header(batch, verify_crc=False)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    body = _body(batch, header, limit)
    at = 0
    try:
        for _ in range(header.record_count):
            size, at = _number(body, at)
            end = at + size
            delta, at = _number(body, at + 1)
            found = header.max_timestamp if header.is_log_append_time else base_timestamp + delta
            if found >= timestamp:
                offset = base_offset + _number(body, at)[0]
                if offset >= first_offset:
                    return offset, found
            if end < at or end > len(body):
                raise _unsound(f"a record of {size} bytes")
            at = end
    except IndexError as error:
        raise _unsound("the records end within a number") from error
    return None


def youngest(batch: Buffer, limit: int) -> int:
    """The largest timestamp of the records of a batch whose header does not tell it. The records
    must be sound."""
    header = checked_header(batch, verify_crc=False)
    body = _body(batch, header, limit)
    at, largest = 0, NO_TIMESTAMP - header.base_timestamp
    for _ in range(header.record_count):
        size, at = _number(body, at)
        largest = max(largest, _number(body, at + 1)[0])
        at += size
    if header.base_timestamp + largest > _LONG_MAX:
        raise _unsound("a record of a time that does not exist")
    return header.base_timestamp + largest


def _body(batch: Buffer, header: BatchHeader, limit: int) -> bytes:
    packed = memoryview(batch)[HEADER_SIZE : header.size]
    return bytes(decompress(header.compression, packed, limit))


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint and where it ends; most have one byte or two."""
    first = data[at]
    if first < 0x80:
        return first >> 1 ^ -(first & 1), at + 1
    second = data[at + 1]
    if second < 0x80:
        value = first & 0x7F | second << 7
        return value >> 1 ^ -(value & 1), at + 2
    value = 0
    for place in range(LONG_BYTES_MAX):
        byte = data[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            value &= (1 << 64) - 1
            return value >> 1 ^ -(value & 1), at + place + 1
    raise _unsound(f"a number of more than {LONG_BYTES_MAX} bytes")


def _unsound(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_record, message)
