"""Which batches of a log the producer state needs, picked inside kernels (see `picker`).

Producers are found in an open table by their id; each has a row of numbers and six batches.
"""

from typing import Any, Final

import numpy as np
from numba import types

from tidelog.base.ids import NO_SEQUENCE
from tidelog.records.batch import COMPRESSION_MASK, CONTROL, HEADER_SIZE, TRANSACTIONAL
from tidelog.records.byte_kernels import read_varint
from tidelog.records.kernels import INT64S_OUT, TABLE, helper, kernel
from tidelog.records.map_kernels import MALFORMED, read_key
from tidelog.records.memory_kernels import inlined, load_int16, load_int32, load_int64
from tidelog.records.picker import (
    BATCHES_OF_ONE,
    ENTRY,
    FREE,
    ID,
    KEPT_BATCHES,
    PICKED,
    PRODUCERS,
    ROW,
    Picker,
)
from tidelog.records.stops import (
    ATTRIBUTES_AT,
    COUNT_AT,
    LAST_DELTA_AT,
    MAX_TIMESTAMP_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    SEQUENCE_AT,
)

_ROW_ATTRIBUTES: Final = 3
_ROW_PRODUCER_ID: Final = 5
_ROW_PRODUCER_EPOCH: Final = 6
_ROW_SEQUENCE: Final = 7
_ROW_KIND: Final = 8
_ROW_COORDINATOR_EPOCH: Final = 9

_WITHOUT_SEQUENCE: Final = KEPT_BATCHES
_EPOCH: Final = 1
_SEQUENCED: Final = 2
_IS_OPEN: Final = 3
_NEVER: Final = -2
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)

PICKER: Final = types.NamedTuple(
    (TABLE, types.Array(types.int64, 3, "C"), TABLE, INT64S_OUT), Picker
)


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
    while entries[slot, ID] != producer_id and entries[slot, ID] != FREE:
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
    row[_ROW_KIND] = FREE
    row[_ROW_COORDINATOR_EPOCH] = FREE


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
    if entry[ID] == FREE:
        entry[ID] = producer_id
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
        producer_id = source.entries[slot, ID]
        if producer_id != FREE:
            into = _slot_of(target.entries, producer_id)
            for index in range(ENTRY):
                target.entries[into, index] = source.entries[slot, index]
            for index in range(BATCHES_OF_ONE):
                _copy_row(target.batches[into, index], source.batches[slot, index])
    target.counts[PRODUCERS] = source.counts[PRODUCERS]
