"""Checking the batches of a log file inside a kernel, with all that recovery wants to know.

One loop over the headers and checksums of a buffer: index entries, leader epochs and
the batches that the producer state needs are collected on the way.
"""

from typing import Any, Final

from numba import types

from tidelog.records.batch import HEADER_SIZE, LENGTH_OVERHEAD
from tidelog.records.batch_kernels import INDEXER, check_batch, note_batch, room_of
from tidelog.records.indexer import BASE, POSITION
from tidelog.records.kernels import BYTES, INT64S_OUT, TABLE, helper, kernel
from tidelog.records.memory_kernels import inlined, load_int32, load_int64
from tidelog.records.picker import EpochStarts
from tidelog.records.producer_kernels import PICKER, pick_batch, picker_has_room
from tidelog.records.stops import (
    AT,
    BAD_LENGTH,
    BAD_OFFSET,
    BATCHES,
    DAMAGED,
    DONE,
    INCOMPLETE,
    LAST_DELTA_AT,
    LEADER_EPOCH_AT,
    MAX_TIMESTAMP_AT,
    NEXT_OFFSET,
    OFFSET_SPAN,
    OUTPUT_FULL,
    REASON,
    TRUSTED_UPTO,
    VOUCHED,
)

EPOCH_STARTS: Final = types.NamedTuple((TABLE, INT64S_OUT, INT64S_OUT), EpochStarts)


@inlined
def _note_epoch(epochs: Any, epoch: int, base_offset: int) -> None:
    if epoch >= 0 and epoch != epochs.latest[0]:
        epochs.pairs[epochs.count[0], 0] = epoch
        epochs.pairs[epochs.count[0], 1] = base_offset
        epochs.count[0] += 1
        epochs.latest[0] = epoch


@helper
def _forgive(buffer: Any, position: int, end: int, problem: int, stop: Any) -> int:
    """The size of a batch that is damaged but was made durable, if its length can be followed
    (`INCOMPLETE` if that is not in the buffer); otherwise the problem it has."""
    if problem in (INCOMPLETE, BAD_LENGTH, BAD_OFFSET):
        return problem
    size = load_int32(buffer, position + 8) + LENGTH_OVERHEAD
    delta = load_int32(buffer, position + LAST_DELTA_AT)
    base_offset = load_int64(buffer, position)
    follows = base_offset >= stop[NEXT_OFFSET] and base_offset + delta < stop[TRUSTED_UPTO]
    if size < HEADER_SIZE or delta < 0 or not follows:
        return problem
    if size > end - position and size != stop[VOUCHED]:
        return INCOMPLETE
    stop[DAMAGED] += 1
    return int(size)


@kernel(types.void(BYTES, INDEXER, PICKER, EPOCH_STARTS, INT64S_OUT))
def scan_batches(buffer: Any, indexer: Any, picker: Any, epochs: Any, stop: Any) -> None:
    """Checks batches from `stop[AT]` on until one is not good or there is no more room for what
    is collected."""
    end = len(buffer)
    position, next_offset, vouched = stop[AT], stop[NEXT_OFFSET], stop[VOUCHED]
    base = indexer.state[BASE]
    stop[REASON] = DONE
    while position < end:
        is_roomy = room_of(indexer) > 0 and picker_has_room(picker)
        if not is_roomy or epochs.count[0] == len(epochs.pairs):
            stop[REASON] = OUTPUT_FULL
            return
        size = check_batch(buffer, position, end, next_offset, vouched)
        if size <= 0:
            size = _forgive(buffer, position, end, size, stop)
            if size <= 0:
                stop[REASON] = size
                return
        base_offset = load_int64(buffer, position)
        last_offset = base_offset + load_int32(buffer, position + LAST_DELTA_AT)
        if last_offset - base > OFFSET_SPAN:
            stop[REASON] = BAD_OFFSET
            return
        pick_batch(picker, buffer, position, min(end, position + size), indexer.state[POSITION])
        _note_epoch(epochs, load_int32(buffer, position + LEADER_EPOCH_AT), base_offset)
        latest = load_int64(buffer, position + MAX_TIMESTAMP_AT)
        note_batch(indexer, last_offset, latest, size)
        stop[BATCHES] += 1
        next_offset = stop[NEXT_OFFSET] = last_offset + 1
        position = stop[AT] = position + size
