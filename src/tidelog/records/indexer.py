"""The entries of a segment's two indexes, collected by kernels as its batches go by.

By the same rule as an append. An `Indexer` may be handed from one kernel call to the next, its
entries being taken out in between.
"""

from struct import Struct
from typing import Final, NamedTuple

from tidelog.records.arrays import Int64s, zeros

# What `state` holds.
BASE: Final = 0
INTERVAL: Final = 1
MOST_OFFSET_ENTRIES: Final = 2
MOST_TIME_ENTRIES: Final = 3
POSITION: Final = 4
SINCE_ENTRY: Final = 5
MAX_TIMESTAMP: Final = 6
MAX_TIMESTAMP_OFFSET: Final = 7
LAST_TIME: Final = 8
OFFSET_ENTRIES: Final = 9
TIME_ENTRIES: Final = 10
OFFSET_PENDING: Final = 11
TIME_PENDING: Final = 12
_FIELDS: Final = 13

_OFFSET_ENTRY: Final = "iI"
_OFFSET_ENTRY_BYTES: Final = 8
_TIME_ENTRY: Final = "qi"
_TIME_ENTRY_BYTES: Final = 12


class Indexer(NamedTuple):
    """Arrays, because kernels write to them: the state by the names above, and the pairs that
    have not been taken out yet. A time of 0 is never noted: it would be read as the file's
    end."""

    state: Int64s
    offsets: Int64s
    times: Int64s


def new_indexer(base: int, interval_bytes: int, max_index_bytes: int, room: int) -> Indexer:
    """An indexer with room for the entries of `room` batches between two calls of `take`."""
    state = zeros(_FIELDS)
    state[BASE] = base
    state[INTERVAL] = interval_bytes
    state[MOST_OFFSET_ENTRIES] = max_index_bytes // _OFFSET_ENTRY_BYTES
    # The last one is for the largest timestamp, when the segment is closed.
    state[MOST_TIME_ENTRIES] = max_index_bytes // _TIME_ENTRY_BYTES - 1
    state[MAX_TIMESTAMP] = -1
    state[MAX_TIMESTAMP_OFFSET] = base
    return Indexer(state, zeros(2 * room), zeros(2 * room + 2))


def take_offset_entries(indexer: Indexer) -> bytes:
    """The entries since the last call, as the file has them."""
    return _take(indexer.state, OFFSET_PENDING, indexer.offsets, _OFFSET_ENTRY)


def take_time_entries(indexer: Indexer) -> bytes:
    return _take(indexer.state, TIME_PENDING, indexer.times, _TIME_ENTRY)


def _take(state: Int64s, pending: int, pairs: Int64s, entry: str) -> bytes:
    count = state[pending]
    state[pending] = 0
    return Struct(">" + entry * count).pack(*pairs[: 2 * count])
