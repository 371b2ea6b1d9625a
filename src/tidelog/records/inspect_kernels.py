"""Looking into the records of one batch inside a kernel: whether they are sound, and have keys;
which is the first of a time.

What `reference` and `time_lookup` check is checked here; where something is wrong only that is
said, and they find the words.
"""

from typing import Any, Final

from numba import types

from tidelog.records.byte_kernels import read_varint, read_varlong
from tidelog.records.kernels import BYTES, INT64S_OUT, helper, kernel

UNSOUND: Final = -1
NOT_FOUND: Final = 0
FOUND: Final = 1


@helper
def _read_size(records: Any, position: int, end: int) -> Any:
    """The length of a key or value, -1 for null, that is known to fit."""
    size, position = read_varint(records, position, end)
    if position < 0 or size < -1 or size > end - position:
        return 0, UNSOUND
    return size, position


@helper
def _headers_are_sound(records: Any, position: int, end: int) -> bool:
    count, position = read_varint(records, position, end)
    if position < 0 or count < 0 or count > end - position:
        return False
    for _ in range(count):
        size, position = _read_size(records, position, end)
        if position < 0 or size < 0:
            return False
        size, position = _read_size(records, position + size, end)
        if position < 0:
            return False
        position += max(size, 0)
    return bool(position == end)


@kernel(types.int64(BYTES, types.int64, types.int64))
def count_keyless(records: Any, last_delta: int, count: int) -> int:
    """How many records of a batch, not compressed any more, have no key; or `UNSOUND`."""
    end = len(records)
    position = 0
    previous = -1
    keyless = 0
    for _ in range(count):
        size, position = read_varint(records, position, end)
        if position < 0 or size < 1 or size > end - position:
            return UNSOUND
        record_end = position + size
        _, position = read_varlong(records, position + 1, record_end)
        if position < 0:
            return UNSOUND
        delta, position = read_varint(records, position, record_end)
        if position < 0 or delta <= previous or delta > last_delta:
            return UNSOUND
        previous = delta
        size, position = _read_size(records, position, record_end)
        if position < 0:
            return UNSOUND
        keyless += size < 0
        size, position = _read_size(records, position + max(size, 0), record_end)
        if position < 0 or not _headers_are_sound(records, position + max(size, 0), record_end):
            return UNSOUND
        position = record_end
    return keyless if position == end else UNSOUND


@kernel(types.int64(BYTES, types.int64, types.int64, types.int64, INT64S_OUT))
def find_time(records: Any, count: int, time: int, first: int, found: Any) -> int:
    """Leaves the offset and the time, both relative to the batch's, of the first record that is
    not before `time` nor at an offset below `first`."""
    end = len(records)
    position = 0
    for _ in range(count):
        size, position = read_varint(records, position, end)
        if position < 0 or size < 1 or size > end - position:
            return UNSOUND
        record_end = position + size
        relative_time, position = read_varlong(records, position + 1, record_end)
        if position < 0:
            return UNSOUND
        if relative_time >= time:
            delta, position = read_varint(records, position, record_end)
            if position < 0:
                return UNSOUND
            if delta >= first:
                found[0] = delta
                found[1] = relative_time
                return FOUND
        position = record_end
    return NOT_FOUND
