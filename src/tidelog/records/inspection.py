"""Looking into a produced batch, where that has to be: in a worker, never in the loop.

A compacted topic takes no record without a key, a topic with a `compression.type` of its own
stores batches in that codec, and some clients (Sarama up to 1.45) leave it to the broker to find
the max timestamp of a batch. Everything else is stored as it was sent, unseen. The batch
travels to the worker and back as base64 in JSON: `{"batch"}`, or `{"code", "message", "records"}`
if it is refused. Large batches have a task, and so a worker, of their own: the others do not wait
behind them. `inspector` is what the worker does.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.limits import decompressed_bytes_max
from tidelog.base.ports import Buffer
from tidelog.records.batch import read_header

FEW_RECORDS_MAX: Final = 1_000
FEW_BYTES_MAX: Final = 1 << 20


def task_for(batch: Buffer) -> str:
    """What a worker is to do with a batch whose header was checked."""
    is_small = len(batch) <= FEW_BYTES_MAX and read_header(batch).record_count <= FEW_RECORDS_MAX
    return "inspect" if is_small else "inspect many"


def argument_for(
    batch: Buffer,
    stored_bytes_max: int,
    *,
    keys_required: bool,
    compression: str,
    level: int | None = None,
) -> dict[str, Any]:
    """A batch that grows beyond what its topic takes must not come back as large as that."""
    return {
        "batch": b64encode(batch).decode(),
        "limit": decompressed_bytes_max(stored_bytes_max),
        "stored_bytes_max": stored_bytes_max,
        "keys_required": keys_required,
        "compression": compression,
        "level": level,
    }


def stored_batch(result: Mapping[str, Any]) -> bytearray:
    """What the task gave; raises what it found wrong."""
    if "code" in result:
        raise KafkaError(ErrorCode(result["code"]), result["message"], result["records"])
    return bytearray(b64decode(result["batch"]))
