"""A follower's fetch as bytes, in the one version brokers speak among themselves.

It says the same as `wire.fetch_client`, which has all versions and what is rare in an answer
(aborted transactions, tagged fields), in half the time: followers fetch as often as producers
send. The layout is drawn in `wire.fetch`.
"""

from collections.abc import Collection, Sequence
from struct import Struct
from typing import Final, NamedTuple

from tidelog.base.errors import KafkaError
from tidelog.wire.fetch import FETCH, FetchPartition
from tidelog.wire.fetch_client import FOLLOWER_VERSION, read_fetch_response
from tidelog.wire.frames import Span
from tidelog.wire.topics import Topic, grouped
from tidelog.wire.values import (
    INT32,
    UNREADABLE,
    encode_string,
    malformed,
    read_varint,
    text_malformed,
    varint,
)

_START = Struct(">ihhi")
_LIMITS = Struct(">iiibii")
_PARTITION = Struct(">iiqiqix")
_REPLICA_STATE = Struct(">iq")
_ANSWER_START = Struct(">iBihi")
_ANSWER = Struct(">ihqqqBi")
_TOPIC_BYTES: Final = 16
_COPIED_BYTES_MAX: Final = 4_096
_NOTHING: Final = b"\x01"
"""An array without items, or an empty string."""


class Fetched(NamedTuple):
    """What an answer says of one partition."""

    topic_id: bytes
    partition: int
    error: int
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None
    records: memoryview | None


class Answered(NamedTuple):
    error: int
    session_id: int
    partitions: Sequence[Fetched]


class FetchFrames:
    """Writes the requests of one follower."""

    __slots__ = ("_broker_epoch", "_broker_id", "_client_id", "_end")

    def __init__(self, broker_id: int, client_id: str) -> None:
        self._broker_id = broker_id
        self._client_id = encode_string(client_id, flexible=False) + b"\x00"
        self._broker_epoch = -1
        self._end = b""

    def write(
        self,
        correlation_id: int,
        broker_epoch: int,
        limits: tuple[int, int, int],
        session: tuple[int, int],
        partitions: Sequence[FetchPartition],
        forgotten: Collection[tuple[bytes, int]],
    ) -> bytes:
        """The whole frame. `limits` are the longest wait, the least and the largest size;
        `session` is its id and epoch."""
        if broker_epoch != self._broker_epoch or not self._end:
            self._broker_epoch = broker_epoch
            state = _REPLICA_STATE.pack(self._broker_id, broker_epoch) + b"\x00"
            self._end = _NOTHING + bytes((1, 1, len(state))) + state
        body = b"".join(
            (
                self._client_id,
                _LIMITS.pack(*limits, 0, *session),
                _topics(partitions) if partitions else _NOTHING,
                _forgotten(list(forgotten)) if forgotten else _NOTHING,
                self._end,
            )
        )
        size = _START.size - INT32.size + len(body)
        return _START.pack(size, FETCH, FOLLOWER_VERSION, correlation_id) + body


def _topics(partitions: Sequence[FetchPartition]) -> bytes:
    groups = grouped(partitions)
    parts = [varint(len(groups) + 1)]
    for topic, members in groups:
        parts += (_topic_id(topic), varint(len(members) + 1))
        parts += [_PARTITION.pack(*member[1:]) for member in members]
        parts.append(b"\x00")
    return b"".join(parts)


def _forgotten(keys: list[tuple[bytes, int]]) -> bytes:
    groups = grouped(keys)
    parts = [varint(len(groups) + 1)]
    for topic, members in groups:
        parts += (_topic_id(topic), varint(len(members) + 1))
        parts += [INT32.pack(index) for _, index in members]
        parts.append(b"\x00")
    return b"".join(parts)


def read_answer(frame: memoryview) -> Answered:
    """A whole answer frame, without its length; records are views of it."""
    try:
        answer = _read_plain(frame)
    except UNREADABLE:
        raise text_malformed("a Fetch answer") from None
    return _read_any(frame) if answer is None else answer


def _read_plain(frame: memoryview) -> Answered | None:
    """None if something rare is in it."""
    # Bytes are read faster than a view of them, by more than it takes to copy a small frame.
    data = frame.tobytes() if len(frame) <= _COPIED_BYTES_MAX else frame
    _, tags, _, error, session_id = _ANSWER_START.unpack_from(data)
    if tags:
        return None
    topic_count, at = read_varint(data, _ANSWER_START.size)
    partitions: list[Fetched] = []
    for _ in range(topic_count - 1):
        topic_id = bytes(data[at : at + _TOPIC_BYTES])
        count, at = read_varint(data, at + _TOPIC_BYTES)
        for _ in range(count - 1):
            index, code, watermark, _, start, aborted, _ = _ANSWER.unpack_from(data, at)
            if aborted > 1:
                return None
            size, at = read_varint(data, at + _ANSWER.size)
            end = at + size - 1 if size else at
            if data[end]:
                return None
            records = frame[at:end] if size else None
            partitions.append(Fetched(topic_id, index, code, watermark, start, None, records))
            at = end + 1
        if data[at]:
            return None
        at += 1
    if data[at]:
        return None
    if at + 1 != len(frame):
        raise malformed(f"a Fetch answer has {len(frame) - at - 1} bytes after its end")
    return Answered(error, session_id, partitions)


class Coming(NamedTuple):
    """What has come of one partition's records, and where: their size, and they themselves."""

    fetched: Fetched
    records: "memoryview[int]"
    size_at: int
    at: int

    def shorten(self, part: memoryview, taken: int) -> Span:
        """Says of records in an answer that so many bytes fewer are in it, and returns which are to
        be taken out. Their size takes as many bytes as before."""
        size = read_varint(part, self.size_at)[0] - taken
        for place in range(self.size_at, self.at - 1):
            part[place] = size & 0x7F | 0x80
            size >>= 7
        part[self.at - 1] = size
        return self.at, taken


def read_coming(part: memoryview) -> list[Coming]:
    """The partitions with records of an answer that is still coming, as far as it is there: the
    last records may have no end yet. What is behind something rare is left for the whole."""
    found: list[Coming] = []
    try:
        _, tags, _, error, _ = _ANSWER_START.unpack_from(part)
        topic_count, at = read_varint(part, _ANSWER_START.size)
        for _ in range(0 if tags or error else topic_count - 1):
            topic_id = bytes(part[at : at + _TOPIC_BYTES])
            count, at = read_varint(part, at + _TOPIC_BYTES)
            for _ in range(count - 1):
                index, code, watermark, _, start, aborted, _ = _ANSWER.unpack_from(part, at)
                if aborted > 1:
                    return found
                size_at = at + _ANSWER.size
                size, at = read_varint(part, size_at)
                end = at + size - 1 if size else at
                if size > 1 and not code:
                    records = part[at:end]
                    told = Fetched(topic_id, index, code, watermark, start, None, records)
                    found.append(Coming(told, records, size_at, at))
                if part[end]:
                    return found
                at = end + 1
            if part[at]:
                return found
            at += 1
    except (*UNREADABLE, KafkaError):
        # It ends here, for now; if it is not that, the whole answer cannot be read either.
        return found
    return found


def _read_any(frame: memoryview) -> Answered:
    response = read_fetch_response(frame, FOLLOWER_VERSION)
    return Answered(
        response.error_code,
        response.session_id,
        [
            Fetched(
                _topic_id(found.topic),
                found.partition,
                found.error_code,
                found.high_watermark,
                found.log_start_offset,
                found.diverging,
                found.records,
            )
            for found in response.partitions
        ],
    )


def _topic_id(topic: Topic) -> bytes:
    assert isinstance(topic, bytes), "from version 13 on topics are named by their ids"
    return topic
