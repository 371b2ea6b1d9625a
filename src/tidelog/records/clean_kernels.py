"""The second pass of compaction inside kernels: what is left of the batches of a log.

It stops where the first pass does (see `map_kernels`), and where its output is full. A
verdict is made for every record of a few hundred batches before any of them is written,
because lookups in the map go through a window; a batch that loses nothing is then copied as
it is.
"""

from typing import Any, Final

from numba import types

from tidelog.records.batch import (
    COMPRESSION_MASK,
    CRC_POSITION,
    CRC_START,
    DELETE_HORIZON,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
)
from tidelog.records.batch_kernels import INDEXER, check_shape, crc_is_good, note_batch, room_of
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
    WINDOW_TYPE,
    add_to_window,
    drop_outdated,
    has_mark,
    is_in_span,
    is_untouched,
)
from tidelog.records.key_table import WINDOW
from tidelog.records.map_kernels import MALFORMED, read_key, shape_of
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
from tidelog.records.rules import (
    DROP,
    END,
    GROUP_BATCHES,
    GROWTH,
    KEEP,
    KEEP_TOMBSTONE,
    LAST_POSITION,
    NEW_HORIZON_MS,
    NOW_MS,
    Output,
    Rules,
)
from tidelog.records.stops import (
    AT,
    ATTRIBUTES_AT,
    BAD_CRC,
    BAD_RECORDS,
    BASE_TIMESTAMP_AT,
    BEYOND,
    COUNT_AT,
    DONE,
    MAX_TIMESTAMP_AT,
    MORE_VERDICTS,
    NEXT_OFFSET,
    OFFSET_SPAN,
    OUTPUT_FULL,
    PRODUCER_ID_AT,
    REASON,
    RECORDS_KEPT,
    RECORDS_READ,
    SPECIAL,
    SPECIAL_BITS,
)

RULES: Final = types.NamedTuple((INT64S_OUT, INT64S_OUT), Rules)
OUTPUT: Final = types.NamedTuple((BYTES_OUT, INT64S_OUT, BYTES_OUT, INT64S_OUT), Output)
_GROUP_RECORDS: Final = 4096
_NO_TIMESTAMP: Final = -1


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


@kernel(types.int64(BYTES, BYTES, INT64S_OUT, BYTES_OUT))
def copy_kept(buffer: Any, verdicts: Any, shift: Any, output: Any) -> int:
    """The records of one batch, not compressed any more, without those to be dropped: how many
    bytes of `output` they take. Of `shift`, the first number is added to their timestamp deltas,
    the second is the timestamp that those count from, the third becomes the largest of them."""
    both = (shift[0], shift[1])
    end, shift[2] = _copy_kept(buffer, 0, len(buffer), verdicts, 0, both, (output, 0))
    return int(end)


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
    if kept == count and count > 0 and not needs_horizon:
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
def _why_not(buffer: Any, position: int, size: int, batch: Any, room: Any) -> int:
    """Why the batch at `position`, whose header is sound, cannot be taken now, if it cannot.
    `room` is what there is of bytes, of index entries, and of verdicts."""
    bytes_left, entries_left, verdicts_left = room
    if load_int16(buffer, position + ATTRIBUTES_AT) & SPECIAL_BITS:
        return SPECIAL if crc_is_good(buffer, position, size) else BAD_CRC
    if batch[2] * RECORD_SIZE_MIN > size - HEADER_SIZE:
        return BAD_RECORDS
    if size + batch[2] * GROWTH > bytes_left or entries_left < 1:
        return OUTPUT_FULL
    if batch[2] > verdicts_left:
        return MORE_VERDICTS
    return DONE if crc_is_good(buffer, position, size) else BAD_CRC


@inlined
def _judge_batch(buffer: Any, position: int, batch: Any, rules: Any, first: int, tools: Any) -> int:
    """The verdicts over the records of a batch, from the `first` one on."""
    size = load_int32(buffer, position + 8) + LENGTH_OVERHEAD
    attributes = load_int16(buffer, position + ATTRIBUTES_AT)
    horizon_ms = load_int64(buffer, position + BASE_TIMESTAMP_AT)
    expired = attributes & DELETE_HORIZON and horizon_ms <= rules.numbers[NOW_MS]
    start = position + HEADER_SIZE
    return _judge_records(buffer, start, position + size, batch, expired, first, tools)


@inlined
def _gather(buffer: Any, rules: Any, tools: Any, output: Any, entries: int, stop: Any) -> int:
    """Checks and judges some batches. Stops as soon as it has enough, or at one that is not
    plain or does not fit; returns how many there are. Batches that stay as they are need no
    verdicts; the complement of the position stands for them."""
    table, window, verdicts = tools
    end = len(buffer)
    found = 0
    records = 0
    bytes_left = len(output.data) - output.used[0]
    while stop[AT] < end and found < GROUP_BATCHES and records < _GROUP_RECORDS:
        position = stop[AT]
        size = check_shape(buffer, position, end, stop[NEXT_OFFSET], 0)
        if size <= 0:
            stop[REASON] = size
            break
        batch = shape_of(buffer, position)
        room = (bytes_left, entries - found, len(verdicts) - records)
        stop[REASON] = _why_not(buffer, position, size, batch, room)
        if stop[REASON] != DONE:
            break
        last_offset = batch[0] + batch[1]
        beyond = batch[0] >= rules.numbers[END]
        if beyond or (batch[2] > 0 and is_untouched(table, batch[0], last_offset)):
            output.positions[found] = ~position
        else:
            output.positions[found] = position
            stop[REASON] = _judge_batch(buffer, position, batch, rules, records, tools)
            if stop[REASON] != DONE:
                break
            records += batch[2]
        found += 1
        bytes_left -= size + batch[2] * GROWTH
        stop[AT] = position + size
        stop[NEXT_OFFSET] = last_offset + 1
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
    stop[REASON] = DONE
    while stop[REASON] == DONE and stop[AT] < len(buffer):
        found = _gather(buffer, rules, tools, output, room_of(indexer), stop)
        first = 0
        for index in range(found):
            position = output.positions[index]
            is_kept = position < 0
            if is_kept:
                position = ~position
            base_offset, delta, count = shape_of(buffer, position)
            if is_kept:
                size = load_int32(buffer, position + 8) + LENGTH_OVERHEAD
                end = output.used[0] + size
                copy_bytes(output.data, output.used[0], buffer, position, size)
            else:
                end = _write_batch(buffer, position, first, rules, output)
                first += count
            _note(output, end, base_offset + delta, indexer, stop)
            stop[RECORDS_READ] += count
            if stop[REASON] == BEYOND:
                return
