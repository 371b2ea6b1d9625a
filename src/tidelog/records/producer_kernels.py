"""Which batches of a log the producer state needs, picked inside kernels.

Replaying what is picked gives the same state as replaying everything: all markers, and of
a producer's data batches the first one, those that begin an epoch or a transaction, the last
five with a sequence number, and the last without one. So what comes back from a scan grows with
producers and transactions, not with the log.

Producers are found in an open table by their id; each has a row of numbers and six batches.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numba import typeof, types

from tidelog.base.ids import NO_SEQUENCE
from tidelog.records.batch import COMPRESSION_MASK, CONTROL, HEADER_SIZE, TRANSACTIONAL
from tidelog.records.batch_kernels import (
    ATTRIBUTES_AT,
    COUNT_AT,
    LAST_DELTA_AT,
    MAX_TIMESTAMP_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    SEQUENCE_AT,
)
from tidelog.records.byte_kernels import read_varint
from tidelog.records.kernels import helper, kernel
from tidelog.records.map_kernels import MALFORMED, read_key
from tidelog.records.memory_kernels import inlined, load_int16, load_int32, load_int64

# The numbers of a batch that are handed on; the last two are a marker's.
ROW: Final = 10
DATA_ROW: Final = 8
_ROW_ATTRIBUTES: Final = 3
_ROW_PRODUCER_ID: Final = 5
_ROW_PRODUCER_EPOCH: Final = 6
_ROW_SEQUENCE: Final = 7
_ROW_KIND: Final = 8
_ROW_COORDINATOR_EPOCH: Final = 9

KEPT_BATCHES: Final = 5
_BATCHES: Final = KEPT_BATCHES + 1
_WITHOUT_SEQUENCE: Final = KEPT_BATCHES
_ENTRY: Final = 4
_ID: Final = 0
_EPOCH: Final = 1
_SEQUENCED: Final = 2
_IS_OPEN: Final = 3
_FREE: Final = -1
_NEVER: Final = -2
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)

PRODUCERS: Final = 0
PICKED: Final = 1


class Picker(NamedTuple):
    """`entries` and `batches` are the table, by slot, a power of two of them; `picked` are batches
    that stay for certain; `counts` how many there are of producers and of those."""

    entries: Any
    batches: Any
    picked: Any
    counts: Any


def new_picker(slots: int, room: int) -> Picker:
    entries = np.full((slots, _ENTRY), _FREE, np.int64)
    batches = np.full((slots, _BATCHES, ROW), _FREE, np.int64)
    picked = np.empty((room, ROW), np.int64)
    return Picker(entries, batches, picked, np.zeros(2, np.int64))


PICKER: Final = typeof(new_picker(1, 1))


@inlined
def picker_has_room(picker: Any) -> bool:
    return bool(
        2 * picker.counts[PRODUCERS] < len(picker.entries)
        and picker.counts[PICKED] < len(picker.picked)
    )


@inlined
def _slot_of(entries: Any, producer_id: int) -> int:
    mask = len(entries) - 1
    slot = int((np.uint64(producer_id) * _SPREAD) >> np.uint64(32)) & mask
    while entries[slot, _ID] != producer_id and entries[slot, _ID] != _FREE:
        slot = (slot + 1) & mask
    return slot


@inlined
def _read_row(row: Any, buffer: Any, at: int, position: int) -> None:
    row[0] = position
    row[1] = load_int64(buffer, at)
    row[2] = load_int32(buffer, at + LAST_DELTA_AT)
    row[_ROW_ATTRIBUTES] = load_int16(buffer, at + ATTRIBUTES_AT)
    row[4] = load_int64(buffer, at + MAX_TIMESTAMP_AT)
    row[_ROW_PRODUCER_ID] = load_int64(buffer, at + PRODUCER_ID_AT)
    row[_ROW_PRODUCER_EPOCH] = load_int16(buffer, at + PRODUCER_EPOCH_AT)
    row[_ROW_SEQUENCE] = load_int32(buffer, at + SEQUENCE_AT)
    row[_ROW_KIND] = _FREE
    row[_ROW_COORDINATOR_EPOCH] = _FREE


@helper
def _read_marker(row: Any, buffer: Any, at: int, end: int) -> bool:
    """Whether this control batch ends a transaction; if so, how goes into the row."""
    if load_int32(buffer, at + COUNT_AT) < 1 or row[_ROW_ATTRIBUTES] & COMPRESSION_MASK:
        return False
    record_end, _, key_at, key_size = read_key(buffer, at + HEADER_SIZE, end)
    if record_end == MALFORMED or key_size < 4 or load_int16(buffer, key_at) < 0:
        return False
    value_size, value_at = read_varint(buffer, key_at + key_size, record_end)
    if value_at == MALFORMED or value_size < 6 or value_size > record_end - value_at:
        return False
    row[_ROW_KIND] = load_int16(buffer, key_at + 2)
    row[_ROW_COORDINATOR_EPOCH] = load_int32(buffer, value_at + 2)
    return bool(load_int16(buffer, value_at) >= 0 and 0 <= row[_ROW_KIND] <= 1)


@helper
def _copy_row(target: Any, source: Any) -> None:
    for index in range(ROW):
        target[index] = source[index]


@inlined
def _enter(picker: Any, producer_id: int) -> int:
    """The slot of a producer, which is entered if it was not known."""
    slot = _slot_of(picker.entries, producer_id)
    entry = picker.entries[slot]
    if entry[_ID] == _FREE:
        entry[_ID] = producer_id
        entry[_EPOCH] = _NEVER
        entry[_SEQUENCED] = 0
        entry[_IS_OPEN] = 0
        picker.counts[PRODUCERS] += 1
    return slot


@helper
def _pick_marker(picker: Any, buffer: Any, at: int, end: int, position: int) -> None:
    row = picker.picked[picker.counts[PICKED]]
    _read_row(row, buffer, at, position)
    if _read_marker(row, buffer, at, end):
        entry = picker.entries[_enter(picker, row[_ROW_PRODUCER_ID])]
        entry[_EPOCH] = row[_ROW_PRODUCER_EPOCH]
        entry[_IS_OPEN] = 0
        picker.counts[PICKED] += 1


@inlined
def pick_batch(picker: Any, buffer: Any, at: int, end: int, position: int) -> None:
    """Notes the batch at `at` of the buffer, which is at `position` of the file. There must be
    room."""
    producer_id = load_int64(buffer, at + PRODUCER_ID_AT)
    if producer_id < 0:
        return
    attributes = load_int16(buffer, at + ATTRIBUTES_AT)
    if attributes & CONTROL:
        _pick_marker(picker, buffer, at, end, position)
        return
    slot = _enter(picker, producer_id)
    entry = picker.entries[slot]
    place = _WITHOUT_SEQUENCE
    if load_int32(buffer, at + SEQUENCE_AT) != NO_SEQUENCE:
        place = entry[_SEQUENCED] % KEPT_BATCHES
        entry[_SEQUENCED] += 1
    row = picker.batches[slot, place]
    _read_row(row, buffer, at, position)
    begins = attributes & TRANSACTIONAL and not entry[_IS_OPEN]
    if begins or entry[_EPOCH] != row[_ROW_PRODUCER_EPOCH]:
        _copy_row(picker.picked[picker.counts[PICKED]], row)
        picker.counts[PICKED] += 1
        entry[_EPOCH] = row[_ROW_PRODUCER_EPOCH]
        entry[_IS_OPEN] |= begins != 0


@kernel(types.void(PICKER, PICKER))
def move_producers(source: Any, target: Any) -> None:
    """Fills a larger table; `target` has no producers yet."""
    for slot in range(len(source.entries)):
        producer_id = source.entries[slot, _ID]
        if producer_id != _FREE:
            into = _slot_of(target.entries, producer_id)
            for index in range(_ENTRY):
                target.entries[into, index] = source.entries[slot, index]
            for index in range(_BATCHES):
                _copy_row(target.batches[into, index], source.batches[slot, index])
    target.counts[PRODUCERS] = source.counts[PRODUCERS]


def take_picked(picker: Picker) -> Any:
    """The batches that stay for certain, since the last call."""
    count = int(picker.counts[PICKED])
    picker.counts[PICKED] = 0
    return picker.picked[:count].copy()


def last_batches(picker: Picker) -> Any:
    """The last batches of every producer."""
    rows = picker.batches[picker.entries[:, _ID] != _FREE].reshape(-1, ROW)
    return rows[rows[:, 0] != _FREE]
