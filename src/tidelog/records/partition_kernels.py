"""The partitions of a whole column of keys, hashed as Java's client does it."""

from typing import Any

import numpy as np
import pyarrow as pa
from numba import types

from tidelog.records.column_encoder import bytes_column
from tidelog.records.encode_kernel import BYTES_COLUMN, length_of
from tidelog.records.kernels import INT32S_OUT, helper, kernel
from tidelog.records.murmur2 import FACTOR, SEED

NO_PARTITION = -1
"""Of a record without a key: it may go anywhere."""

_FACTOR = np.uint32(FACTOR)
_SEED = np.uint32(SEED)


@helper
def _mix(value: Any, shift: int) -> Any:
    # numba widens 32-bit arithmetic to 64 bits: the result is cut back each time.
    return np.uint32((value ^ value >> shift) * _FACTOR)


@helper
def key_hash(content: Any, start: int, length: int) -> Any:
    result = np.uint32(_SEED ^ np.uint32(length))
    whole = start + (length & ~3)
    for position in range(start, whole, 4):
        word = np.uint32(0)
        for place in range(4):
            word |= np.uint32(content[position + place]) << (8 * place)
        word = _mix(np.uint32(word * _FACTOR), 24)
        result = np.uint32(np.uint32(result * _FACTOR) ^ word)
    if length & 3:
        for place in range(length & 3):
            result ^= np.uint32(np.uint32(content[whole + place]) << (8 * place))
        result = np.uint32(result * _FACTOR)
    result = _mix(np.uint32(result), 13)
    return np.uint32(result ^ result >> 15)


@kernel(types.void(BYTES_COLUMN, types.int64, INT32S_OUT))
def _partitions(keys: Any, partitions: int, output: Any) -> None:
    for row in range(len(output)):
        length = length_of(keys, row)
        if length < 0:
            output[row] = NO_PARTITION
        else:
            positive = key_hash(keys.content, keys.ends[row], length) & np.uint32(0x7FFFFFFF)
            output[row] = np.int64(positive) % partitions


def partitions_for(keys: pa.Array, partitions: int) -> pa.Array:
    """An int32 for each key, NO_PARTITION for a null."""
    output = np.empty(len(keys), np.int32)
    _partitions(bytes_column(keys), partitions, output)
    return pa.array(output)
