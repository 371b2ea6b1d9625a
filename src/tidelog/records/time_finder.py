"""What a worker does to find a record of a large batch by its time (see `time_lookup`)."""

from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ports import Buffer, Disk
from tidelog.records.arrays import zeros
from tidelog.records.batch import HEADER_SIZE
from tidelog.records.compression import decompress
from tidelog.records.native import find_time
from tidelog.records.reference import checked_header
from tidelog.records.time_lookup import Place

_LONG_MAX: Final = (1 << 63) - 1


def find(batch: Buffer, timestamp: int, first_offset: int, limit: int) -> Place | None:
    """As `first_not_before`."""
    header = checked_header(batch, verify_crc=False)
    body = decompress(header.compression, memoryview(batch)[HEADER_SIZE : header.size], limit)
    base, start = header.base_offset, header.base_timestamp
    if header.is_log_append_time:
        # All have one time, whatever the records say.
        start, time = header.max_timestamp, -_LONG_MAX
        if start < timestamp:
            return None
    else:
        time = max(-_LONG_MAX, min(timestamp - start, _LONG_MAX))
    place = zeros(2)
    found = find_time(body, header.record_count, time, first_offset - base, place)
    if found < 0:
        raise KafkaError(ErrorCode.invalid_record, f"the records of the batch at {base}")
    if not found:
        return None
    return base + place[0], start if header.is_log_append_time else start + place[1]


def run(_disk: Disk, argument: Mapping[str, Any]) -> dict[str, Any]:
    """The worker's task."""
    batch = b64decode(argument["batch"])
    try:
        found = find(batch, argument["timestamp"], argument["first_offset"], argument["limit"])
    except KafkaError as error:
        return {"unreadable": error.message}
    return {"found": found}
