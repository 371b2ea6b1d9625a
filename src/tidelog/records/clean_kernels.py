"""The second pass of compaction inside kernels: what is left of the batches of a log.

It stops where the first pass does (see `map_kernels`), and where its output is full. A
verdict is made for every record of a few hundred batches before any of them is written,
because lookups in the map go through a window; a batch that loses nothing is then copied as
it is.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np
from numba import typeof, types

from tidelog.records.batch import (
    COMPRESSION_MASK,
    CRC_POSITION,
    CRC_START,
    DELETE_HORIZON,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
)
from tidelog.records.batch_kernels import (
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    COUNT_AT,
    INDEXER,
    MAX_TIMESTAMP_AT,
    OFFSET_SPAN,
    PRODUCER_ID_AT,
    check_batch,
    has_room,
    note_batch,
)
from tidelog.records.byte_kernels import (
    copy_bytes,
    read_varint,
    read_varlong,
    varint_size,
    write_varint,
)
from tidelog.records.crc_kernel import crc32c
from tidelog.records.kernels import BYTES, BYTES_OUT, INT64S, INT64S_OUT, helper, kernel
from tidelog.records.key_kernels import (
    KEY_TABLE,
    WINDOW,
    WINDOW_TYPE,
    add_to_window,
    drop_outdated,
    has_mark,
    is_in_span,
)
from tidelog.records.map_kernels import (
    AT,
    BAD_RECORDS,
    BEYOND,
    DONE,
    MALFORMED,
    MORE_VERDICTS,
    NEXT_OFFSET,
    OUTPUT_FULL,
    REASON,
    RECORDS_KEPT,
    RECORDS_READ,
    SPECIAL,
    SPECIAL_BITS,
    read_key,
    shape_of,
)
from tidelog.records.memory_kernels import (
    inlined,
    load_int16,
    load_int32,
    load_int64,
    store_int16,
    store_int32,
    store_int64,
)
from tidelog.records.reference import RECORD_SIZE_MIN

DROP: Final = 0
KEEP: Final = 1
KEEP_TOMBSTONE: Final = 2

GROWTH: Final = 13
"""By how much a record may grow when its timestamp is written anew: 9 bytes, and 4 more of
length."""
GROUP_BATCHES: Final = 256
_GROUP_RECORDS: Final = 4096
_NO_TIMESTAMP: Final = -1


class Rules(NamedTuple):
    """What decides over a record. `numbers` by the names below; `active` is sorted."""

    numbers: Any
    active: Any


END: Final = 0
NOW_MS: Final = 1
NEW_HORIZON_MS: Final = 2
LAST_POSITION: Final = 3
"""Where in the buffer the last batch of the group ends; -1 if it is not in it."""


def new_rules(end: int, now_ms: int, new_horizon_ms: int, active: Iterable[int]) -> Rules:
    """The rules of one cleaning; `active` are the offsets whose batches stay, if empty."""
    numbers = np.array([end, now_ms, new_horizon_ms, -1], np.int64)
    return Rules(numbers, np.array(sorted(active), np.int64))


RULES: Final = typeof(new_rules(0, 0, 0, ()))


class Output(NamedTuple):
    """Where cleaned batches go: `used` has one element, how much of `data` is taken. Verdicts
    and positions are of the batches at hand; `positions` has `GROUP_BATCHES` elements."""

    data: Any
    used: Any
    verdicts: Any
    positions: Any


def new_output(size: int, verdicts: int) -> Output:
    positions = np.empty(GROUP_BATCHES, np.int64)
    verdicts_so_far = np.empty(verdicts, np.uint8)
    return Output(np.empty(size, np.uint8), np.zeros(1, np.int64), verdicts_so_far, positions)


OUTPUT: Final = typeof(new_output(0, 0))


# -- the second pass: verdicts


@inlined
def _judge_records(
    buffer: Any, start: int, end: int, batch: Any, expired: bool, first: int, tools: Any
) -> int:
    """Writes a verdict for each record of a batch, from the `first` one on; those in the window
    are still to be made. `expired`: tombstones of this batch may go."""
    base_offset, last_delta, count = batch
    table, window, verdicts = tools
    position = start
    previous = -1
    for index in range(count):
        position, delta, key_at, key_size = read_key(buffer, position, end)
        if position == MALFORMED or delta <= previous or delta > last_delta:
            return BAD_RECORDS
        value_size, value_at = read_varint(buffer, key_at + max(0, key_size), position)
        if value_at == MALFORMED or value_size > position - value_at:
            return BAD_RECORDS
        verdict = KEEP if value_size >= 0 else KEEP_TOMBSTONE
        offset = base_offset + delta
        if key_size < 0 or (expired and value_size < 0):
            verdict = DROP
        elif is_in_span(table, offset):
            verdict = DROP if has_mark(table, offset) else verdict
        else:
            add_to_window(table, window, buffer, key_at, key_size, offset, first + index)
        verdicts[first + index] = verdict
        if window.count[0] == WINDOW:
            drop_outdated(table, window, verdicts, DROP)
        previous = delta
    return DONE if position == end else BAD_RECORDS


@kernel(types.int64(BYTES, INT64S, types.boolean, KEY_TABLE, WINDOW_TYPE, BYTES_OUT))
def judge_records(
    buffer: Any, batch: Any, expired: bool, table: Any, window: Any, verdicts: Any
) -> int:
    """The verdicts over the records of one batch, not compressed any more."""
    tools = (table, window, verdicts)
    shape = (batch[0], batch[1], batch[2])
    result = _judge_records(buffer, 0, len(buffer), shape, expired, 0, tools)
    drop_outdated(table, window, verdicts, DROP)
    return result


# -- the second pass: writing


@helper
def _copy_kept(
    buffer: Any, start: int, end: int, verdicts: Any, first: int, shift: Any, target: Any
) -> Any:
    """Copies the records that are not to be dropped, neighbours together as a `run`, adding the
    first number of `shift` to their timestamp deltas. Returns where the copy ends and the largest
    timestamp, counted from the second number of `shift`."""
    data, at = target
    change, base_timestamp = shift
    latest = _NO_TIMESTAMP
    position = run = start
    index = first
    while position < end:
        size, body = read_varint(buffer, position, end)
        body_end = body + size
        if verdicts[index] == DROP:
            copy_bytes(data, at, buffer, run, position - run)
            at, run = at + position - run, body_end
        else:
            delta, rest = read_varlong(buffer, body + 1, body_end)
            latest = max(latest, base_timestamp + delta)
            if change != 0:
                delta += change
                at = write_varint(data, at, 1 + varint_size(delta) + body_end - rest)
                data[at] = buffer[body]
                at = write_varint(data, at + 1, delta)
                copy_bytes(data, at, buffer, rest, body_end - rest)
                at, run = at + body_end - rest, body_end
        position = body_end
        index += 1
    copy_bytes(data, at, buffer, run, position - run)
    return at + position - run, latest


@kernel(types.UniTuple(types.int64, 2)(BYTES, BYTES, types.int64, types.int64, BYTES_OUT))
def copy_kept(buffer: Any, verdicts: Any, change: int, base_timestamp: int, output: Any) -> Any:
    """The records of one batch, not compressed any more, without those to be dropped: how many
    bytes of `output` they take, and their largest timestamp."""
    shift = (change, base_timestamp)
    return _copy_kept(buffer, 0, len(buffer), verdicts, 0, shift, (output, 0))


@helper
def _seal(data: Any, start: int, end: int) -> None:
    store_int32(data, start + 8, end - start - LENGTH_OVERHEAD)
    store_int32(data, start + CRC_POSITION, int(crc32c(data, start + CRC_START, end)))


@helper
def _write_empty(buffer: Any, position: int, data: Any, at: int) -> int:
    """Only the header: offsets, epochs, sequence and largest timestamp stay known."""
    copy_bytes(data, at, buffer, position, HEADER_SIZE)
    attributes = load_int16(buffer, position + ATTRIBUTES_AT)
    store_int16(data, at + ATTRIBUTES_AT, attributes & ~(COMPRESSION_MASK | DELETE_HORIZON))
    store_int64(data, at + BASE_TIMESTAMP_AT, _NO_TIMESTAMP)
    store_int32(data, at + COUNT_AT, 0)
    _seal(data, at, at + HEADER_SIZE)
    return at + HEADER_SIZE


@helper
def _write_filtered(
    buffer: Any, position: int, size: int, kept: int, horizon_ms: int, first: int, output: Any
) -> int:
    """A batch without the dropped records; with a delete horizon, unless that is negative."""
    at = output.used[0]
    data = output.data
    attributes = load_int16(buffer, position + ATTRIBUTES_AT)
    base_timestamp = load_int64(buffer, position + BASE_TIMESTAMP_AT)
    copy_bytes(data, at, buffer, position, HEADER_SIZE)
    change = 0
    if horizon_ms >= 0:
        change = base_timestamp - horizon_ms
        store_int16(data, at + ATTRIBUTES_AT, attributes | DELETE_HORIZON)
        store_int64(data, at + BASE_TIMESTAMP_AT, horizon_ms)
    records = position + HEADER_SIZE
    shift = (change, base_timestamp)
    target = (data, at + HEADER_SIZE)
    end, latest = _copy_kept(
        buffer, records, position + size, output.verdicts, first, shift, target
    )
    if not attributes & LOG_APPEND_TIME:
        store_int64(data, at + MAX_TIMESTAMP_AT, latest)
    store_int32(data, at + COUNT_AT, kept)
    _seal(data, at, end)
    return int(end)


@inlined
def _is_active(active: Any, last_offset: int) -> bool:
    low = 0
    high = len(active)
    while low < high:
        middle = (low + high) >> 1
        if active[middle] < last_offset:
            low = middle + 1
        else:
            high = middle
    return bool(low < len(active) and active[low] == last_offset)


@inlined
def _write_batch(buffer: Any, position: int, first: int, rules: Any, output: Any) -> int:
    """Writes what is left of a batch behind what is in `output`; returns where that ends, which
    is where it began if nothing is left."""
    size = load_int32(buffer, position + 8) + LENGTH_OVERHEAD
    base_offset, delta, count = shape_of(buffer, position)
    attributes = load_int16(buffer, position + ATTRIBUTES_AT)
    at = output.used[0]
    kept = 0
    tombstones = 0
    for index in range(first, first + count):
        kept += output.verdicts[index] != DROP
        tombstones += output.verdicts[index] == KEEP_TOMBSTONE
    needs_horizon = tombstones > 0 and not attributes & DELETE_HORIZON
    untouched = kept == count and count > 0 and not needs_horizon
    if untouched or base_offset >= rules.numbers[END]:
        copy_bytes(output.data, at, buffer, position, size)
        return int(at + size)
    if kept:
        horizon_ms = rules.numbers[NEW_HORIZON_MS] if needs_horizon else -1
        return _write_filtered(buffer, position, size, kept, horizon_ms, first, output)
    is_last = position + size == rules.numbers[LAST_POSITION]
    has_producer = load_int64(buffer, position + PRODUCER_ID_AT) >= 0
    if is_last or (has_producer and _is_active(rules.active, base_offset + delta)):
        return _write_empty(buffer, position, output.data, at)
    return int(at)


@inlined
def _gather(buffer: Any, rules: Any, tools: Any, positions: Any, stop: Any) -> int:
    """Checks and judges some batches. Stops as soon as it has enough, or at one that is not
    plain; returns how many there are."""
    table, window, verdicts = tools
    end = len(buffer)
    found = 0
    records = 0
    while stop[AT] < end and found < GROUP_BATCHES and records < _GROUP_RECORDS:
        position = stop[AT]
        size = check_batch(buffer, position, end, stop[NEXT_OFFSET], 0)
        if size <= 0:
            stop[REASON] = size
            break
        attributes = load_int16(buffer, position + ATTRIBUTES_AT)
        if attributes & SPECIAL_BITS:
            stop[REASON] = SPECIAL
            break
        batch = shape_of(buffer, position)
        if batch[2] * RECORD_SIZE_MIN > size - HEADER_SIZE:
            stop[REASON] = BAD_RECORDS
            break
        if records + batch[2] > len(verdicts):
            stop[REASON] = MORE_VERDICTS
            break
        if batch[0] >= rules.numbers[END]:
            for index in range(records, records + batch[2]):
                verdicts[index] = KEEP
        else:
            horizon_ms = load_int64(buffer, position + BASE_TIMESTAMP_AT)
            expired = attributes & DELETE_HORIZON and horizon_ms <= rules.numbers[NOW_MS]
            start = position + HEADER_SIZE
            result = _judge_records(buffer, start, position + size, batch, expired, records, tools)
            if result != DONE:
                stop[REASON] = result
                break
        positions[found] = position
        found += 1
        records += batch[2]
        stop[AT] = position + size
        stop[NEXT_OFFSET] = batch[0] + batch[1] + 1
    drop_outdated(table, window, verdicts, DROP)
    return found


@inlined
def _note(output: Any, end: int, last_offset: int, indexer: Any, stop: Any) -> None:
    """Counts the batch that was just written, if there is one."""
    start = output.used[0]
    if end == start:
        return
    if last_offset - indexer.state[0] > OFFSET_SPAN:
        stop[REASON] = BEYOND
    stop[RECORDS_KEPT] += load_int32(output.data, start + COUNT_AT)
    latest = load_int64(output.data, start + MAX_TIMESTAMP_AT)
    note_batch(indexer, last_offset, latest, end - start)
    output.used[0] = end


@kernel(types.void(BYTES, RULES, KEY_TABLE, WINDOW_TYPE, OUTPUT, INDEXER, INT64S_OUT))
def clean_batches(
    buffer: Any, rules: Any, table: Any, window: Any, output: Any, indexer: Any, stop: Any
) -> None:
    """Writes what is left of the plain batches from `stop[AT]` on."""
    tools = (table, window, output.verdicts)
    positions = output.positions
    stop[REASON] = DONE
    while stop[REASON] == DONE and stop[AT] < len(buffer):
        found = _gather(buffer, rules, tools, positions, stop)
        first = 0
        for index in range(found):
            position = positions[index]
            size = load_int32(buffer, position + 8) + LENGTH_OVERHEAD
            base_offset, delta, count = shape_of(buffer, position)
            room = len(output.data) - output.used[0]
            if size + count * GROWTH > room or not has_room(indexer):
                stop[REASON] = OUTPUT_FULL
                stop[AT] = position
                stop[NEXT_OFFSET] = base_offset
                return
            end = _write_batch(buffer, position, first, rules, output)
            _note(output, end, base_offset + delta, indexer, stop)
            first += count
            stop[RECORDS_READ] += count
            if stop[REASON] == BEYOND:
                return
