"""The asking side of Produce, versions 3 to 13: what our own client sends and reads.

The layout is drawn in `produce`.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from tidelog.base.ports import Buffer
from tidelog.wire.header import read_response_header
from tidelog.wire.produce import FLEXIBLE, TOPIC_IDS
from tidelog.wire.produce_answer import ProduceResult
from tidelog.wire.topics import Topic, grouped, read_topic
from tidelog.wire.values import (
    INT32,
    INT64,
    UNREADABLE,
    encode_count,
    encode_string,
    malformed,
    read_count,
    read_string,
    skip_tags,
    text_malformed,
    varint,
)

PRODUCE: Final = 0
_ACKS_TIMEOUT = Struct(">hi")
_RESULT_3 = Struct(">ihqq")


def write_produce_request(
    start: bytes,
    version: int,
    acks: int,
    timeout_ms: int,
    partitions: Sequence[tuple[Topic, int, Buffer]],
    transactional_id: str | None = None,
) -> list[Buffer]:
    """A request frame as pieces to be sent one after the other, so that no records are copied.
    `start` is the request header. Consecutive partitions of one topic are grouped."""
    flexible = version >= FLEXIBLE
    head = encode_string(transactional_id, flexible) + _ACKS_TIMEOUT.pack(acks, timeout_ms)
    groups = grouped(partitions)
    pieces: list[Buffer] = [start + head + encode_count(len(groups), flexible)]
    for topic, members in groups:
        encoded = topic if isinstance(topic, bytes) else encode_string(topic, flexible)
        pieces.append(encoded + encode_count(len(members), flexible))
        for _, index, records in members:
            size = len(records)
            pieces.append(INT32.pack(index) + (varint(size + 1) if flexible else INT32.pack(size)))
            pieces.append(records)
            if flexible:
                pieces.append(b"\x00")
        if flexible:
            pieces.append(b"\x00")
    if flexible:
        pieces.append(b"\x00")
    pieces[0] = INT32.pack(sum(map(len, pieces))) + bytes(pieces[0])
    return pieces


def read_produce_response(
    frame: memoryview, version: int
) -> tuple[int, list[tuple[Topic, int, ProduceResult]], int]:
    """The correlation id, the result of each partition, and the throttle time."""
    results: list[tuple[Topic, int, ProduceResult]] = []
    try:
        correlation_id, at = read_response_header(PRODUCE, version, frame)
        flexible = version >= FLEXIBLE
        topic_count, at = read_count(frame, at, flexible, 3)
        for _ in range(topic_count):
            topic, at = read_topic(frame, at, version, FLEXIBLE, TOPIC_IDS)
            count, at = read_count(frame, at, flexible, 22)
            for _ in range(count):
                at = _read_result(frame, at, version, topic, results)
            at = skip_tags(frame, at) if flexible else at
        throttle_ms = INT32.unpack_from(frame, at)[0]
        at = skip_tags(frame, at + 4) if flexible else at + 4
    except UNREADABLE:
        raise text_malformed("a Produce answer") from None
    if at != len(frame):
        raise malformed(f"a Produce answer has {len(frame) - at} bytes after its end")
    return correlation_id, results, throttle_ms


def _read_result(
    frame: memoryview,
    at: int,
    version: int,
    topic: Topic,
    results: list[tuple[Topic, int, ProduceResult]],
) -> int:
    flexible = version >= FLEXIBLE
    log_start, message = -1, None
    index, error_code, base_offset, append_time_ms = _RESULT_3.unpack_from(frame, at)
    at += _RESULT_3.size
    if version >= 5:
        log_start = INT64.unpack_from(frame, at)[0]
        at += 8
    if version >= 8:
        count, at = read_count(frame, at, flexible, 6)
        for _ in range(count):
            _, at = read_string(frame, at + 4, flexible)
            at = skip_tags(frame, at) if flexible else at
        message, at = read_string(frame, at, flexible)
    at = skip_tags(frame, at) if flexible else at
    result = (error_code, base_offset, append_time_ms, log_start, message)
    results.append((topic, index, result))
    return at
