"""What a worker does to look into a produced batch (see `inspection`).

Records are read by a kernel; what is wrong with a batch is told in the words of the reader in
plain Python.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ports import Buffer, Disk
from tidelog.records.batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    MAX_TIMESTAMP,
    NEGATIVE,
    read_header,
    seal,
)
from tidelog.records.compression import NAMES, compress, decompress
from tidelog.records.native import count_keyless
from tidelog.records.reference import RECORD_SIZE_MIN, checked_header, read_records
from tidelog.records.time_lookup import youngest

AS_SENT: Final = "producer"
BLAMED_AMONG_MAX: Final = 10_000
"""Records of a batch. Of a larger one nobody is told which records are to blame: they are found
by the reader in plain Python, and each is named in the answer."""
_CODECS: Final = {"uncompressed": 0, **{name: codec for codec, name in enumerate(NAMES)}}


def keys_missing(batch: Buffer, limit: int) -> int:
    """How many records have no key; all of them are read and checked."""
    header = checked_header(batch, verify_crc=False)
    body = decompress(header.compression, memoryview(batch)[HEADER_SIZE : header.size], limit)
    count = header.record_count
    if count * RECORD_SIZE_MIN <= len(body):
        missing = count_keyless(body, header.last_offset_delta, count)
        if missing >= 0:
            return missing
    for _ in read_records(batch, limit):
        pass
    raise AssertionError(f"a batch of {count} records was refused that is sound")


def inspect(
    batch: Buffer,
    limit: int,
    *,
    keys_required: bool,
    compression: str,
    level: int | None = None,
) -> Buffer:
    """The batch as it is to be stored. Its header must have been checked, but for its max timestamp
    if that is not given."""
    missing = keys_missing(batch, limit)
    if missing and keys_required:
        raise KafkaError(
            ErrorCode.invalid_record,
            f"{missing} records have no key: a compacted topic takes none without",
            _keyless(batch, limit),
        )
    if batch[MAX_TIMESTAMP] & NEGATIVE:
        batch = _timed(batch, limit)
    header = read_header(batch)
    codec = header.compression if compression == AS_SENT else _CODECS[compression]
    if codec == header.compression:
        return batch
    return _compressed_anew(batch, codec, level, limit)


def _keyless(batch: Buffer, limit: int) -> list[int]:
    if read_header(batch).record_count > BLAMED_AMONG_MAX:
        return []
    records = read_records(batch, limit)
    return [place for place, record in enumerate(records) if record.key is None]


def _timed(batch: Buffer, limit: int) -> bytearray:
    """With the max timestamp that its records have."""
    header = read_header(batch)._replace(max_timestamp=youngest(batch, limit))
    return seal(header, memoryview(batch)[HEADER_SIZE : header.size])


def _compressed_anew(batch: Buffer, codec: int, level: int | None, limit: int) -> bytearray:
    header = read_header(batch)
    body = decompress(header.compression, memoryview(batch)[HEADER_SIZE : header.size], limit)
    attributes = header.attributes & ~COMPRESSION_MASK | codec
    return seal(header._replace(attributes=attributes), compress(codec, body, level))


def run(_disk: Disk, argument: Mapping[str, Any]) -> dict[str, Any]:
    """The worker's task."""
    try:
        stored = inspect(
            b64decode(argument["batch"]),
            argument["limit"],
            keys_required=argument["keys_required"],
            compression=argument["compression"],
            level=argument["level"],
        )
        if len(stored) > argument["stored_bytes_max"]:
            raise KafkaError(
                ErrorCode.message_too_large,
                f"as it would be stored, the batch has {len(stored)} bytes, more than "
                f"max.message.bytes={argument['stored_bytes_max']}",
            )
    except KafkaError as error:
        return {"code": int(error.code), "message": error.message, "records": error.records}
    return {"batch": b64encode(stored).decode()}
