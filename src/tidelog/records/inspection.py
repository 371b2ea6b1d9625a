"""Looking into a produced batch, where its topic wants that: in a worker, never in the loop.

A compacted topic takes no record without a key, and a topic with a `compression.type` of its
own stores batches in that codec. Everything else is stored as it was sent, unseen. The batch
travels to the worker and back as base64 in JSON: `{"batch"}`, or `{"code", "message"}` if it
is refused. Batches of very many records have a task of their own, so that the others do not wait
behind them.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.limits import decompressed_bytes_max
from tidelog.base.ports import Buffer, Disk
from tidelog.records.batch import COMPRESSION_MASK, HEADER_SIZE, read_header, seal
from tidelog.records.compression import NAMES, compress, decompress
from tidelog.records.reference import read_records

AS_SENT: Final = "producer"
FEW_RECORDS_MAX: Final = 1_000
FEW_BYTES_MAX: Final = 1 << 20
_CODECS: Final = {"uncompressed": 0, **{name: codec for codec, name in enumerate(NAMES)}}


def task_for(batch: Buffer) -> str:
    """What a worker is to do with a batch whose header was checked."""
    is_small = len(batch) <= FEW_BYTES_MAX and read_header(batch).record_count <= FEW_RECORDS_MAX
    return "inspect" if is_small else "inspect many"


def keys_missing(batch: Buffer, limit: int) -> int:
    """How many records have no key; all of them are read and checked."""
    return sum(record.key is None for record in read_records(batch, limit))


def inspect(
    batch: Buffer,
    limit: int,
    *,
    keys_required: bool,
    compression: str,
    count: Callable[[Buffer, int], int] = keys_missing,
) -> Buffer:
    """The batch as it is to be stored. Its header must have been checked."""
    missing = count(batch, limit)
    if missing and keys_required:
        raise KafkaError(
            ErrorCode.invalid_record,
            f"{missing} records have no key: a compacted topic takes none without",
        )
    header = read_header(batch)
    codec = header.compression if compression == AS_SENT else _CODECS[compression]
    return batch if codec == header.compression else _compressed_anew(batch, codec, limit)


def _compressed_anew(batch: Buffer, codec: int, limit: int) -> bytearray:
    header = read_header(batch)
    body = decompress(header.compression, memoryview(batch)[HEADER_SIZE : header.size], limit)
    attributes = header.attributes & ~COMPRESSION_MASK | codec
    return seal(header._replace(attributes=attributes), compress(codec, body))


def run(_disk: Disk, argument: Mapping[str, Any]) -> dict[str, Any]:
    """The worker's task."""
    return answer(argument, keys_missing)


def answer(argument: Mapping[str, Any], count: Callable[[Buffer, int], int]) -> dict[str, Any]:
    try:
        stored = inspect(
            b64decode(argument["batch"]),
            argument["limit"],
            keys_required=argument["keys_required"],
            compression=argument["compression"],
            count=count,
        )
        if len(stored) > argument["stored_bytes_max"]:
            raise KafkaError(
                ErrorCode.message_too_large,
                f"as it would be stored, the batch has {len(stored)} bytes, more than "
                f"max.message.bytes={argument['stored_bytes_max']}",
            )
    except KafkaError as error:
        return {"code": int(error.code), "message": error.message}
    return {"batch": b64encode(stored).decode()}


def argument_for(
    batch: Buffer, stored_bytes_max: int, *, keys_required: bool, compression: str
) -> dict[str, Any]:
    """A batch that grows beyond what its topic takes must not come back as large as that."""
    return {
        "batch": b64encode(batch).decode(),
        "limit": decompressed_bytes_max(stored_bytes_max),
        "stored_bytes_max": stored_bytes_max,
        "keys_required": keys_required,
        "compression": compression,
    }


def stored_batch(result: Mapping[str, Any]) -> bytearray:
    """What the task gave; raises what it found wrong."""
    if "code" in result:
        raise KafkaError(ErrorCode(result["code"]), result["message"])
    return bytearray(b64decode(result["batch"]))
