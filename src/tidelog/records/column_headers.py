"""The headers of many batches at once: what an audit compares, with no Python for each batch.

A compiled walk checks every batch, its checksum included, and notes where it begins; the header
fields are then taken out as columns. Never imported by the broker process.
"""

from typing import Any, Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from tidelog.base.ports import Buffer
from tidelog.records.batch import HEADER_SIZE, LENGTH_OVERHEAD
from tidelog.records.batch_kernels import check_batch
from tidelog.records.kernels import BYTES, INT64S_OUT, kernel
from tidelog.records.memory_kernels import load_int32, load_int64
from tidelog.records.stops import BAD_CRC, LAST_DELTA_AT, PROBLEMS

HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("count", ">i4"),
    ]
)
"""A batch's header as it lies in a file."""

_AT: Final = 0
_NEXT_OFFSET: Final = 1
_COUNT: Final = 2
_PROBLEM: Final = 3
_FINE: Final = 1


@kernel(types.void(BYTES, INT64S_OUT, INT64S_OUT))
def _walk(buffer: Any, positions: Any, state: Any) -> None:
    """Notes where good batches begin, up to the first that is not, or not whole."""
    end = len(buffer)
    position, next_offset, count = state[_AT], state[_NEXT_OFFSET], state[_COUNT]
    state[_PROBLEM] = _FINE
    while position < end:
        size = check_batch(buffer, position, end, next_offset, -1)
        if size <= 0:
            state[_PROBLEM] = size
            break
        positions[count] = position
        count += 1
        next_offset = load_int64(buffer, position) + load_int32(buffer, position + LAST_DELTA_AT)
        next_offset += 1
        position += size
    state[_AT], state[_NEXT_OFFSET], state[_COUNT] = position, next_offset, count


class BatchTable:
    """The batches at the beginning of some bytes."""

    def __init__(self, data: Buffer, next_offset: int = 0) -> None:
        """Offsets must not be below `next_offset`."""
        source = np.frombuffer(data, np.uint8)
        positions = np.empty(len(source) // HEADER_SIZE + 1, np.int64)
        state = np.array([0, next_offset, 0, _FINE], np.int64)
        _walk(source, positions, state)
        self.end, self.next_offset, count, self._problem = state.tolist()
        """How many bytes they take; the offset behind the last of them."""
        self.headers = _headers(source, positions[:count])

    @property
    def problem(self) -> str | None:
        """What is wrong with the batch behind them; None if that is just not whole."""
        return PROBLEMS[self._problem] if self._problem < 0 else None

    @property
    def can_be_passed(self) -> bool:
        """Whether the batch that is wrong says where the next one begins."""
        return bool(self._problem == BAD_CRC)


def size_of_batch(data: Buffer, position: int) -> int:
    """As the header of a batch says that begins there."""
    return LENGTH_OVERHEAD + int.from_bytes(data[position + 8 : position + 12], "big", signed=True)


def _headers(source: NDArray[np.uint8], positions: NDArray[np.int64]) -> NDArray[Any]:
    spread = source[positions[:, None] + np.arange(HEADER_SIZE)]
    return np.ascontiguousarray(spread).view(HEADER)[:, 0]
