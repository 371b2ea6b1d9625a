"""Walking over the batches of a fetch answer inside a kernel, as far as there is nothing to say
about them: whoever called looks at the batch where it ended, and finds the words.
"""

from typing import Any

from numba import types

from tidelog.records.batch import CRC_POSITION, CRC_START, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC
from tidelog.records.crc_kernel import crc32c
from tidelog.records.kernels import BYTES, INT64S_OUT, kernel
from tidelog.records.memory_kernels import load_int32, load_int64
from tidelog.records.stops import LAST_DELTA_AT

_UNSIGNED = 0xFFFFFFFF


@kernel(types.int64(BYTES, types.int64, INT64S_OUT))
def walk_good(data: Any, end: int, next_offset: Any) -> int:
    """Where the batches end that are whole, good, in order and begin before `end`. The offset that
    follows the last of them is left where the one was that the first must reach."""
    total = len(data)
    position = 0
    following = next_offset[0]
    while total - position >= HEADER_SIZE:
        size = load_int32(data, position + 8) + LENGTH_OVERHEAD
        if data[position + 16] != MAGIC or size < HEADER_SIZE or size > total - position:
            break
        base = load_int64(data, position)
        delta = load_int32(data, position + LAST_DELTA_AT)
        reached = base if position else base + delta
        if delta < 0 or reached < following or base >= end:
            break
        crc = load_int32(data, position + CRC_POSITION) & _UNSIGNED
        if crc != int(crc32c(data, position + CRC_START, position + size)):
            break
        following = base + delta + 1
        position += size
    next_offset[0] = following
    return position
