"""Produce requests and answers, versions 3 to 13, packed and unpacked by hand.

The records of a partition are a slice of the frame, never a copy. Topics stay encoded in the
request, so that the answer repeats the bytes they came in. From version 9 on messages are
flexible; from version 13 on a topic is its 16-byte id. `produce_client` has the other role.

    request   transactional id | int16 acks | int32 timeout | topics [name or id,
              partitions [int32 index | records]]
    answer    topics [name or id, partitions [int32 index | int16 error | int64 base offset |
              int64 append time | int64 log start (5+) | record errors [int32 place in the batch |
              message] (8+) | message (8+)]] | int32 throttle time
"""

from array import array
from collections.abc import Generator, Iterable, Sequence
from itertools import islice
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

from tidelog.base.ports import Buffer
from tidelog.records.join_layout import ANSWER, ROW_WORDS
from tidelog.records.joiner import BYTES_MAX, the_joiner
from tidelog.records.native import address_of
from tidelog.wire.topics import Topic
from tidelog.wire.values import (
    INT16,
    INT32,
    ITEMS_MAX,
    NAMES,
    UNREADABLE,
    encode_string,
    malformed,
    name_of,
    read_string,
    read_varint,
    skip_tags,
    text_malformed,
    varint,
)

FLEXIBLE: Final = 9
TOPIC_IDS: Final = 13
_COPIED_BYTES_MAX: Final = 4096
_FEW: Final = 1
"""Partitions that are read and appended sooner than kernels are called."""
_BATCH_BYTES_MAX: Final = 4096
"""On average: what is larger gains nothing when it is joined, because that is a copy of it."""

ProducePartition: TypeAlias = tuple[Topic, int, memoryview | None]
# error code, base offset, log append time, log start offset, error message
ProduceResult: TypeAlias = tuple[int, int, int, int, str | None]


class RecordsRefused(NamedTuple):
    """Why a batch was refused, and which of its records are to blame, by their places in it."""

    message: str
    records: Sequence[int]


# as a `ProduceResult`, but for what is said of an error
ProduceAnswer: TypeAlias = tuple[int, int, int, int, str | RecordsRefused | None]

_AFTER_ID_CLASSIC = Struct(">hii")
_AFTER_ID_FLEXIBLE = Struct(">hiB")
_PARTITION_CLASSIC = Struct(">ii")
_PARTITION_FLEXIBLE = Struct(">iBB")
_START_CLASSIC = Struct(">iii")
_START_FLEXIBLE = Struct(">iiBB")
_END_FLEXIBLE = Struct(">iB")
_RESULT_3 = Struct(">ihqq")
_RESULT_5 = Struct(">ihqqq")
_RESULT_8 = Struct(">ihqqqih")
_RESULT_9 = ANSWER


class ProduceRequest:
    """One Produce request. `groups` has, for each topic, the bytes with which it began, which
    are those with which the answer's topic begins, and how many of the partitions are its own.
    Where all partitions were found by kernels, `rows` tells of them (`join_layout`), and
    `partitions` are made when somebody asks for them."""

    __slots__ = (
        "_frame",
        "_partitions",
        "acks",
        "groups",
        "rows",
        "timeout_ms",
        "topics",
        "transactional_id",
    )

    def __init__(self, frame: memoryview) -> None:
        self.transactional_id: str | None = None
        self.acks = 0
        self.timeout_ms = 0
        self.groups: list[tuple[bytes, int]] = []
        self.topics: list[Topic] = []
        self.rows: array[int] | None = None
        self._partitions: list[ProducePartition] | None = []
        self._frame = frame

    @property
    def partitions(self) -> list[ProducePartition]:
        if self._partitions is None:
            self._partitions = self._of_rows()
        return self._partitions

    @partitions.setter
    def partitions(self, partitions: list[ProducePartition]) -> None:
        self._partitions = partitions

    @property
    def partition_count(self) -> int:
        made = self._partitions
        return len(self.rows or ()) // ROW_WORDS if made is None else len(made)

    def set_rows(self, rows: "array[int]") -> None:
        self.rows = rows
        self._partitions = None

    def _of_rows(self) -> list[ProducePartition]:
        assert self.rows is not None
        frame = self._frame
        first = address_of(frame)
        words = iter(self.rows)
        made: list[ProducePartition] = []
        for topic, (_, count) in zip(self.topics, self.groups, strict=True):
            for index, address, size in islice(zip(words, words, words, strict=True), count):
                at = address - first
                made.append((topic, index, frame[at : at + size]))
        return made


def read_produce_request(frame: memoryview, at: int, version: int) -> ProduceRequest:
    """Reads the body that begins at `at`; it must end where the frame does."""
    # Bytes are read faster than a view of them, by more than it takes to copy a small frame.
    data = frame.tobytes() if len(frame) <= _COPIED_BYTES_MAX else frame
    request = ProduceRequest(frame)
    try:
        if version >= FLEXIBLE:
            at = _read_flexible(frame, data, at, version, request)
        else:
            at = _read_classic(frame, data, at, request)
    except UNREADABLE:
        raise text_malformed("a Produce request") from None
    if at != len(frame):
        raise malformed(f"a Produce request has {len(frame) - at} bytes after its end")
    return request


def _read_classic(frame: memoryview, data: Buffer, at: int, request: ProduceRequest) -> int:
    end = len(data)
    partitions = request.partitions
    items_left = ITEMS_MAX
    request.transactional_id, at = read_string(data, at, False)
    request.acks, request.timeout_ms, topics = _AFTER_ID_CLASSIC.unpack_from(data, at)
    at += 10
    if topics < 0 or topics > ITEMS_MAX:
        raise malformed(f"a Produce request of {topics} topics")
    for _ in range(topics):
        name_at = at
        at += 2 + INT16.unpack_from(data, at)[0]
        if at < name_at + 2 or at > end:
            raise malformed(f"a topic name of {at - name_at - 2} bytes")
        encoded = bytes(data[name_at:at])
        topic = NAMES.get(encoded) or name_of(encoded, 2)
        count = INT32.unpack_from(data, at)[0]
        at += 4
        items_left -= count
        if count < 0 or items_left < 0:
            raise malformed(f"a Produce request of {count} partitions in {topic}")
        request.groups.append((bytes(data[name_at:at]), count))
        request.topics.append(topic)
        for _ in range(count):
            index, size = _PARTITION_CLASSIC.unpack_from(data, at)
            start = at + 8
            if size >= 0:
                at = start + size
                if at > end:
                    raise malformed(f"records of {size} bytes where {end - start} are left")
                partitions.append((topic, index, frame[start:at]))
            elif size == -1:
                at = start
                partitions.append((topic, index, None))
            else:
                raise malformed(f"records of {size} bytes")
    return at


def _read_flexible(
    frame: memoryview, data: Buffer, at: int, version: int, request: ProduceRequest
) -> int:
    items_left = ITEMS_MAX
    if data[at] == 0:
        at += 1
    else:
        request.transactional_id, at = read_string(data, at, True)
    request.acks, request.timeout_ms, topics = _AFTER_ID_FLEXIBLE.unpack_from(data, at)
    at += 7
    if topics >= 0x80:
        topics, at = read_varint(data, at - 1)
    if topics == 0 or topics > ITEMS_MAX:
        raise malformed(f"a Produce request of {topics - 1} topics")
    if _may_have_many(data, at, version, topics - 1) and _find_rows(
        frame, at, version, topics - 1, request
    ):
        return len(frame)
    for _ in range(topics - 1):
        topic: Topic
        topic_at = at
        if version >= TOPIC_IDS:
            at += 16
            topic = bytes(data[topic_at:at])
        else:
            size = data[at]
            at += 1
            if size >= 0x80:
                size, at = read_varint(data, topic_at)
            name_at = at
            at += size - 1
            if at < name_at or at > len(data):
                raise malformed(f"a topic name of {size - 1} bytes")
            encoded = bytes(data[topic_at:at])
            topic = NAMES.get(encoded) or name_of(encoded, name_at - topic_at)
        count = data[at] - 1
        at += 1
        if count >= 0x7F:
            count, at = read_varint(data, at - 1)
            count -= 1
        items_left -= count
        if count < 0 or items_left < 0:
            raise malformed(f"a Produce request of {count} partitions in one topic")
        request.groups.append((bytes(data[topic_at:at]), count))
        request.topics.append(topic)
        at = _read_partitions(frame, data, at, topic, count, request.partitions)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return at + 1 if data[at] == 0 else skip_tags(data, at)


def _may_have_many(data: Buffer, at: int, version: int, topics: int) -> bool:
    """Whether more than a few partitions follow, as far as the first topic tells."""
    end = len(data)
    if end > BYTES_MAX:
        return False
    counted_at = at + (16 if version >= TOPIC_IDS else data[at])
    return topics > 1 or (counted_at < end and data[counted_at] > _FEW + 1)


def _find_rows(
    frame: memoryview, at: int, version: int, topics: int, request: ProduceRequest
) -> bool:
    """Has kernels read the topics, if they find nothing that has to be looked at more closely."""
    joiner = the_joiner()
    found = None if joiner is None else joiner.find(frame, at, topics, version >= TOPIC_IDS)
    if found is None:
        return False
    rows, groups = found
    if len(frame) > len(rows) // ROW_WORDS * _BATCH_BYTES_MAX:
        return False
    words = iter(groups)
    for start, size, count in zip(words, words, words, strict=True):
        head = bytes(frame[start : start + size])
        request.groups.append((head, count))
        if version >= TOPIC_IDS:
            request.topics.append(head[:16])
        else:
            name_bytes, name_at = read_varint(head, 0)
            encoded = head[: name_at + name_bytes - 1]
            request.topics.append(NAMES.get(encoded) or name_of(encoded, name_at))
    request.set_rows(rows)
    return True


def _read_partitions(
    frame: memoryview,
    data: Buffer,
    at: int,
    topic: Topic,
    count: int,
    partitions: list[ProducePartition],
) -> int:
    for _ in range(count):
        # The smallest partition has six bytes, so two of the records' size are always there.
        index, size, more = _PARTITION_FLEXIBLE.unpack_from(data, at)
        if size < 0x80:
            start = at + 5
        elif more < 0x80:
            size += (more - 1) << 7
            start = at + 6
        else:
            size, start = read_varint(data, at + 4)
        if size:
            at = start + size - 1
            partitions.append((topic, index, frame[start:at]))
        else:
            at = start
            partitions.append((topic, index, None))
        # Where the records end something follows, so records that run past the end fail here.
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return at


def write_produce_response(
    correlation_id: int,
    version: int,
    request: ProduceRequest,
    results: Sequence[ProduceAnswer],
    throttle_ms: int = 0,
) -> bytes:
    """The whole answer frame; `results` are in the order of `request.partitions`."""
    parts: list[bytes] = []
    pairs = zip(request.partitions, results, strict=True)
    pack = _pack_flexible if version >= FLEXIBLE else _pack_classic
    for head, count in request.groups:
        parts.append(head)
        pack(parts, version, islice(pairs, count))
        if version >= FLEXIBLE:
            parts.append(b"\x00")
    return _framed(correlation_id, version, len(request.groups), parts, throttle_ms)


def frame_packed(correlation_id: int, request: ProduceRequest, packed: memoryview) -> bytes:
    """The same of a flexible version, of parts for each partition that are packed already."""
    parts: list[Buffer] = []
    at = 0
    for head, count in request.groups:
        end = at + count * _RESULT_9.size
        parts += (head, packed[at:end], b"\x00")
        at = end
    return _framed(correlation_id, FLEXIBLE, len(request.groups), parts, 0)


def write_in_steps(
    correlation_id: int,
    version: int,
    request: ProduceRequest,
    results: Sequence[ProduceAnswer],
    step: int,
) -> Generator[None, None, bytes]:
    """The same answer, made of so many partitions at a time."""
    parts: list[bytes] = []
    pairs = zip(request.partitions, results, strict=True)
    pack = _pack_flexible if version >= FLEXIBLE else _pack_classic
    packed = 0
    for head, count in request.groups:
        parts.append(head)
        for start in range(0, count, step):
            size = min(step, count - start)
            pack(parts, version, islice(pairs, size))
            packed += size
            if packed >= step:
                packed = 0
                yield
        if version >= FLEXIBLE:
            parts.append(b"\x00")
    return _framed(correlation_id, version, len(request.groups), parts, 0)


def _framed(
    correlation_id: int, version: int, groups: int, parts: list[Any], throttle_ms: int
) -> bytes:
    if version < FLEXIBLE:
        parts.append(INT32.pack(throttle_ms))
        body = b"".join(parts)
        return _START_CLASSIC.pack(8 + len(body), correlation_id, groups) + body
    parts.append(_END_FLEXIBLE.pack(throttle_ms, 0))
    body = b"".join(parts)
    if groups < 0x7F:
        return _START_FLEXIBLE.pack(6 + len(body), correlation_id, 0, groups + 1) + body
    counted = varint(groups + 1)
    size = 5 + len(counted) + len(body)
    return _START_FLEXIBLE.pack(size, correlation_id, 0, 0)[:-1] + counted + body


def _pack_flexible(
    parts: list[bytes],
    _version: int,
    pairs: Iterable[tuple[ProducePartition, ProduceAnswer]],
) -> None:
    for (_, index, _), (error_code, base, append_time, log_start, message) in pairs:
        if message is None:
            parts.append(_RESULT_9.pack(index, error_code, base, append_time, log_start, 1, 0, 0))
        else:
            parts.append(_RESULT_5.pack(index, error_code, base, append_time, log_start))
            parts += (_why(message, True), b"\x00")


def _pack_classic(
    parts: list[bytes],
    version: int,
    pairs: Iterable[tuple[ProducePartition, ProduceAnswer]],
) -> None:
    for (_, index, _), (error_code, base, append_time, log_start, message) in pairs:
        if version < 5:
            parts.append(_RESULT_3.pack(index, error_code, base, append_time))
        elif version < 8:
            parts.append(_RESULT_5.pack(index, error_code, base, append_time, log_start))
        elif message is None:
            parts.append(_RESULT_8.pack(index, error_code, base, append_time, log_start, 0, -1))
        else:
            parts.append(_RESULT_5.pack(index, error_code, base, append_time, log_start))
            parts.append(_why(message, False))


def _why(refusal: str | RecordsRefused, flexible: bool) -> bytes:
    """The same sentence for each record that is to blame, and for the batch."""
    message, places = (refusal, ()) if isinstance(refusal, str) else refusal
    said = encode_string(message, flexible)
    count = varint(len(places) + 1) if flexible else INT32.pack(len(places))
    end = said + b"\x00" if flexible else said
    return count + b"".join(INT32.pack(place) + end for place in places) + said
