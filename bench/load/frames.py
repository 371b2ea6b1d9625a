"""Whole Produce and Fetch requests, encoded once, and where in them and their answers to look.

A frame knows where the error codes of its answer are, and a fetch where its offsets are, so that
the generator need not know the protocol. Produce 9 to 13 and Fetch 12 to 18 are written: what
clients of the last years negotiate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import time

from bench.load.fields import (
    EMPTY_ARRAY,
    NO_TAGS,
    NULL,
    array,
    compact,
    int16,
    int32,
    int64,
    varint,
)
from tidelog.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from tidelog.records.batch import CRC_START, read_header
from tidelog.records.checksum import crc32c
from tidelog.records.reference import Record, encode_batch

PRODUCE, FETCH = 0, 1
ACKS_LEADER, ACKS_ALL = 1, -1
_TIMEOUT_MS = 30_000
_FIRST_WITH_IDS = {PRODUCE: 13, FETCH: 13}
_FIRST_WITHOUT_REPLICA = 15
_PRODUCED_PARTITION = 4 + 2 + 8 + 8 + 8 + 1 + 1 + 1
_FETCHED_PARTITION = 4 + 4 + 8 + 4 + 8 + 4 + 1
_NO_SESSION = -1
_SEQUENCE_AT, _SEQUENCE_BITS = 53, 32
"""Where a batch has its base sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    name: str
    topic_id: bytes

    def key(self, api: int, version: int) -> bytes:
        return self.topic_id if has_ids(api, version) else compact(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    data: bytes
    error_at: int = 0
    error_stride: int = 0
    error_count: int = 0
    offset_at: int = 0
    offset_stride: int = 0
    topic_ids: bool = True
    sequence_at: int = 0
    sequence_stride: int = 0
    sequence_count: int = 0
    sequence_step: int = 0
    crc_flips: tuple[int, ...] = ()
    """What each bit of a batch's sequence does to its CRC, from the lowest on."""


def has_ids(api: int, version: int) -> bool:
    return version >= _FIRST_WITH_IDS[api]


def batch(record_bytes: int, batch_bytes: int = 0, producer_id: int | None = None) -> bytes:
    """Records of so many bytes each, as many as go into `batch_bytes`, at least one; the first
    ones of an idempotent producer, if its id is given."""
    now_ms = int(time() * 1000)
    value = bytes(97 + n * 7 % 26 for n in range(record_bytes))
    one = encode_batch([Record(offset=0, timestamp=now_ms, value=value)])
    two = encode_batch([Record(offset=n, timestamp=now_ms, value=value) for n in range(2)])
    # The offsets inside a batch take a byte more from 64 and from 8,192 on.
    each = len(two) - len(one) + 2
    count = max(1, (batch_bytes - len(one)) // each + 1)
    return bytes(
        encode_batch(
            [Record(offset=n, timestamp=now_ms, value=value) for n in range(count)],
            producer_id=NO_PRODUCER_ID if producer_id is None else producer_id,
            producer_epoch=NO_PRODUCER_EPOCH if producer_id is None else 0,
            base_sequence=NO_SEQUENCE if producer_id is None else 0,
        )
    )


def crc_flips(data: bytes) -> tuple[int, ...]:
    """A CRC is linear: a bit of the sequence changes it the same way whatever the others are."""
    found = []
    for bit in range(_SEQUENCE_BITS):
        other = bytearray(data)
        at = _SEQUENCE_AT + 3 - bit // 8
        other[at] ^= 1 << bit % 8
        found.append(crc32c(memoryview(data)[CRC_START:]) ^ crc32c(memoryview(other)[CRC_START:]))
    return tuple(found)


def request(api: int, version: int, body: bytes) -> bytes:
    """With a header of version 2, as all flexible requests have it, and its length."""
    header = int16(api) + int16(version) + int32(0) + int16(4) + b"load" + NO_TAGS
    return int32(len(header) + len(body)) + header + body


def keyed_batch(record_bytes: int, keys: Sequence[bytes]) -> bytes:
    """A record for each key, as a compacted topic wants them."""
    now_ms, value = int(time() * 1000), bytes(record_bytes)
    records = [
        Record(offset=n, timestamp=now_ms, key=key, value=value) for n, key in enumerate(keys)
    ]
    return bytes(encode_batch(records))


def produce(
    topic: Topic,
    batches: Sequence[tuple[int, bytes]],
    version: int,
    acks: int = ACKS_LEADER,
    timeout_ms: int = _TIMEOUT_MS,
) -> Frame:
    """One batch for each of some partitions; of the same size, if an idempotent producer's."""
    key = topic.key(PRODUCE, version)
    items = [int32(partition) + compact(data) + NO_TAGS for partition, data in batches]
    body = NULL + int16(acks) + int32(timeout_ms)
    body += array([key + array(items) + NO_TAGS]) + NO_TAGS
    first_partition = 4 + len(NO_TAGS) + 1 + len(key) + len(varint(len(batches) + 1))
    frame = Frame(
        data=request(PRODUCE, version, body),
        error_at=first_partition + 4,
        error_stride=_PRODUCED_PARTITION,
        error_count=len(batches),
    )
    header = read_header(batches[0][1])
    if header.producer_id == NO_PRODUCER_ID:
        return frame
    first = batches[0][1]
    return replace(
        frame,
        sequence_at=frame.data.index(first) + _SEQUENCE_AT,
        sequence_stride=len(items[0]),
        sequence_count=len(batches),
        sequence_step=header.record_count,
        crc_flips=crc_flips(first),
    )


def fetch(
    topic: Topic, partitions: int, partition_bytes: int, version: int, isolation: int = 0
) -> Frame:
    """From the start of the first so many partitions, without a fetch session."""
    key = topic.key(FETCH, version)
    start = int32(-1) if version < _FIRST_WITHOUT_REPLICA else b""
    start += int32(500) + int32(1) + int32(50 << 20) + bytes((isolation,))
    start += int32(0) + int32(_NO_SESSION)
    items = [
        int32(n) + int32(-1) + int64(0) + int32(-1) + int64(-1) + int32(partition_bytes) + NO_TAGS
        for n in range(partitions)
    ]
    before = start + varint(2) + key + varint(partitions + 1)
    body = before + b"".join(items) + NO_TAGS + EMPTY_ARRAY + compact("") + NO_TAGS
    whole = request(FETCH, version, body)
    return Frame(
        data=whole,
        offset_at=len(whole) - len(body) + len(before) + 8,
        offset_stride=_FETCHED_PARTITION,
        topic_ids=has_ids(FETCH, version),
    )
