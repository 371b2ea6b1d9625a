"""Many small batches of Produce requests inside kernels: found in the requests, checked, stamped,
and put together by partition, so that what several requests have for one is a single write.

Kernels read requests where they are, so a position in `memory` is an address. A kernel that finds
anything out of the ordinary says so and nothing more: whoever called appends those batches one by
one, which does what is to be done about it, or tells what is wrong. `joiner` has the other side.
"""

from typing import Any

from numba import types

from tidelog.records.batch import (
    CRC_POSITION,
    CRC_START,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    ZSTD,
)
from tidelog.records.byte_kernels import copy_bytes
from tidelog.records.crc_kernel import crc32c
from tidelog.records.join_layout import (
    ADDRESS,
    ANSWER,
    BATCH_BYTES_MAX,
    BATCH_POSITION,
    COUNT,
    DELTA,
    EARLIEST,
    END,
    FIRST,
    HAS_PRODUCERS,
    HEAD_BYTES,
    INDEX,
    LATEST,
    LEADER_EPOCH,
    LOG_START,
    NEXT_END,
    NEXT_OFFSET,
    PARTITIONS,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    SEQUENCE,
    SIZE,
    TIMESTAMP,
    TOPIC_ADDRESS,
    WRITTEN_FROM,
    WRITTEN_UPTO,
    YOUNGEST,
    YOUNGEST_OFFSET,
)
from tidelog.records.kernels import BYTES, BYTES_OUT, INT64S, INT64S_OUT, TABLE, kernel
from tidelog.records.memory_kernels import (
    inlined,
    load_int16,
    load_int32,
    load_int64,
    store_int16,
    store_int32,
    store_int64,
)
from tidelog.records.stops import (
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    COUNT_AT,
    LAST_DELTA_AT,
    LEADER_EPOCH_AT,
    MAX_TIMESTAMP_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    SEQUENCE_AT,
)

_UNSIGNED = 0xFFFFFFFF
_SIZE_BITS_MAX = 28
_ANSWER_BYTES = ANSWER.size
_ID_BYTES = 16
_GIVEN = types.Tuple((INT64S, TABLE, INT64S, TABLE))
_FOUND = types.Tuple((INT64S_OUT, TABLE, TABLE, BYTES_OUT, BYTES_OUT))


@inlined
def _read_size(memory: Any, at: int, end: int) -> Any:
    """An unsigned varint that is one more than what it tells, and where it ends; -1 where it is
    null, too long, or not whole."""
    value = bits = 0
    while bits < _SIZE_BITS_MAX and at < end:
        byte = int(memory[at])
        at += 1
        value |= (byte & 0x7F) << bits
        bits += 7
        if byte < 0x80:
            return value - 1, at
    return -1, at


@inlined
def _find_batches(memory: Any, at: int, end: int, rows: Any, first: int, upto: int) -> Any:
    """Reads partitions: index, records, no tags. Where they end, or 0."""
    for row in range(first, upto):
        if end - at < 4:
            return 0
        rows[row, INDEX] = load_int32(memory, at)
        size, at = _read_size(memory, at + 4, end)
        if size < HEADER_SIZE or size >= end - at or memory[at + size] != 0:
            return 0
        rows[row, ADDRESS] = at
        rows[row, SIZE] = size
        at += size + 1
    return at


@kernel(types.int64(BYTES, INT64S, TABLE, TABLE))
def find_rows(memory: Any, place: Any, topics: Any, rows: Any) -> int:
    """Reads all topics of a flexible Produce request. `place` is where the first of them begins,
    where the request ends, how many there are, and whether they have ids. Returns the number of
    rows; or 0 if there are none, or too many, or one has no batch, or something has tags, or
    anything ends too late or too early."""
    at, end, topic_count, have_ids = place[0], place[1], place[2], place[3]
    if topic_count > len(topics):
        return 0
    row = 0
    for topic in range(topic_count):
        topics[topic, TOPIC_ADDRESS] = at
        if have_ids:
            name_bytes = _ID_BYTES
        else:
            name_bytes, at = _read_size(memory, at, end)
        if name_bytes < 0 or name_bytes >= end - at:
            return 0
        count, at = _read_size(memory, at + name_bytes, end)
        topics[topic, HEAD_BYTES] = at - topics[topic, TOPIC_ADDRESS]
        topics[topic, PARTITIONS] = count
        if count < 0 or count > len(rows) - row:
            return 0
        at = _find_batches(memory, at, end, rows, row, row + count)
        if at == 0 or at == end or memory[at] != 0:
            return 0
        at += 1
        row += count
    return row if at == end - 1 and memory[at] == 0 else 0


@inlined
def _is_ordinary(memory: Any, at: int, size: int, logs: Any, run: int) -> Any:
    """Whether a batch is what nearly all are: good, of about now, outside of transactions."""
    if (
        load_int64(memory, at) != 0
        or load_int32(memory, at + 8) != size - LENGTH_OVERHEAD
        or memory[at + MAGIC_POSITION] != MAGIC
        or size > logs[run, BATCH_BYTES_MAX]
    ):
        return False
    attributes = load_int16(memory, at + ATTRIBUTES_AT)
    count = load_int32(memory, at + COUNT_AT)
    first = load_int64(memory, at + BASE_TIMESTAMP_AT)
    last = load_int64(memory, at + MAX_TIMESTAMP_AT)
    if (
        attributes < 0
        or attributes > ZSTD
        or count <= 0
        or count != load_int32(memory, at + LAST_DELTA_AT) + 1
        or first < -1
        or last < 0
        or first < logs[run, EARLIEST]
        or first > last
        or last > logs[run, LATEST]
    ):
        return False
    crc = load_int32(memory, at + CRC_POSITION) & _UNSIGNED
    return crc == int(crc32c(memory, at + CRC_START, at + size))


@inlined
def _order(row_count: int, run_count: int, run_of: Any, runs: Any, order: Any) -> None:
    """The rows of each run behind one another, as they came."""
    for run in range(run_count):
        runs[run, COUNT] = 0
    for row in range(row_count):
        runs[run_of[row], COUNT] += 1
    first = 0
    for run in range(run_count):
        runs[run, FIRST] = first
        first += runs[run, COUNT]
        runs[run, COUNT] = 0
    for row in range(row_count):
        run = run_of[row]
        order[runs[run, FIRST] + runs[run, COUNT]] = row
        runs[run, COUNT] += 1


@inlined
def _note(memory: Any, at: int, batches: Any, place: int) -> None:
    batches[DELTA, place] = load_int32(memory, at + LAST_DELTA_AT)
    batches[TIMESTAMP, place] = load_int64(memory, at + MAX_TIMESTAMP_AT)
    batches[PRODUCER_ID, place] = load_int64(memory, at + PRODUCER_ID_AT)
    batches[PRODUCER_EPOCH, place] = load_int16(memory, at + PRODUCER_EPOCH_AT)
    batches[SEQUENCE, place] = load_int32(memory, at + SEQUENCE_AT)


@inlined
def _answer(answers: Any, row: int, index: int, offset: int, log_start: int) -> None:
    at = row * _ANSWER_BYTES
    store_int32(answers, at, index)
    store_int16(answers, at + 4, 0)
    store_int64(answers, at + 6, offset)
    store_int64(answers, at + 14, -1)
    store_int64(answers, at + 22, log_start)
    answers[at + 30] = 1
    answers[at + 31] = 0
    answers[at + 32] = 0


@kernel(types.int64(BYTES, _GIVEN, _FOUND))
def join_batches(memory: Any, given: Any, found: Any) -> int:
    """Puts the batches for each log together in `joined`, stamped with what comes next there, and
    makes an answer for each row. `counts` says how many rows and how many runs there are, `run_of`
    in which run each row is. Returns their size, or 0 if one of them is not ordinary."""
    counts, rows, run_of, logs = given
    order, runs, batches, joined, answers = found
    row_count, run_count = counts[0], counts[1]
    _order(row_count, run_count, run_of, runs, order)
    end = 0
    for run in range(run_count):
        runs[run, WRITTEN_FROM] = end
        runs[run, HAS_PRODUCERS] = 0
        runs[run, YOUNGEST] = -1
        offset, position = logs[run, END], logs[run, POSITION]
        for place in range(runs[run, FIRST], runs[run, FIRST] + runs[run, COUNT]):
            row = order[place]
            at, size = rows[row, ADDRESS], rows[row, SIZE]
            if size > len(joined) - end or not _is_ordinary(memory, at, size, logs, run):
                return 0
            _note(memory, at, batches, place)
            copy_bytes(joined, end, memory, at, size)
            store_int64(joined, end, offset)
            store_int32(joined, end + LEADER_EPOCH_AT, logs[run, LEADER_EPOCH])
            _answer(answers, row, rows[row, INDEX], offset, logs[run, LOG_START])
            batches[BATCH_POSITION, place] = position
            end += size
            position += size
            offset += batches[DELTA, place] + 1
            batches[NEXT_OFFSET, place] = offset
            if batches[TIMESTAMP, place] > runs[run, YOUNGEST]:
                runs[run, YOUNGEST] = batches[TIMESTAMP, place]
                runs[run, YOUNGEST_OFFSET] = offset - 1
            if batches[PRODUCER_ID, place] >= 0:
                runs[run, HAS_PRODUCERS] = 1
        runs[run, WRITTEN_UPTO] = end
        runs[run, NEXT_END] = offset
    return end
