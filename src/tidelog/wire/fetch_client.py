"""The asking side of Fetch, versions 4 to 18: what a follower and our own client send and read.

The layout is drawn in `fetch`. Records come out as slices of the frame.
"""

from struct import Struct
from typing import Final, TypeAlias

from tidelog.wire.fetch import (
    FETCH,
    FLEXIBLE,
    RACKS,
    REPLICA_STATE,
    SESSIONS,
    TOPIC_IDS,
    Aborted,
    FetchPartition,
    FetchRequest,
)
from tidelog.wire.header import read_response_header
from tidelog.wire.topics import Topic, grouped, read_topic
from tidelog.wire.values import (
    INT32,
    UNREADABLE,
    encode_count,
    encode_string,
    malformed,
    read_count,
    read_varint,
    skip_tags,
    text_malformed,
)

FOLLOWER_VERSION: Final = 17
"""What a follower asks with: topics by id, its broker epoch beside its number, and an answer
that says where the logs part."""

_WAIT_TO_ISOLATION = Struct(">iiib")
_SESSION = Struct(">ii")
_EPOCH_OFFSET = Struct(">iq")
_LEADER = Struct(">ii")
_ANSWER = Struct(">ihqq")
_INT64 = Struct(">q")
_ABORTED = Struct(">qq")
_ERROR_SESSION = Struct(">hi")

# epoch and end offset where the logs part, if the leader says so
Diverging: TypeAlias = tuple[int, int] | None


class FetchedPartition:
    """What a Fetch answer says of one partition. `current_leader` is (broker id, epoch)."""

    __slots__ = (
        "aborted",
        "current_leader",
        "diverging",
        "error_code",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "partition",
        "preferred_read_replica",
        "records",
        "topic",
    )

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.partition = -1
        self.error_code = 0
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.aborted: Aborted = None
        self.preferred_read_replica = -1
        self.records: memoryview | None = None
        self.diverging: Diverging = None
        self.current_leader = (-1, -1)


class FetchResponse:
    """One Fetch answer."""

    __slots__ = ("correlation_id", "error_code", "partitions", "session_id", "throttle_ms")

    def __init__(self, correlation_id: int) -> None:
        self.correlation_id = correlation_id
        self.throttle_ms = 0
        self.error_code = 0
        self.session_id = 0
        self.partitions: list[FetchedPartition] = []


def write_fetch_request(header: bytes, version: int, request: FetchRequest) -> bytes:
    """The whole frame; `header` is the request header. Neighbours of one topic are grouped."""
    flexible = version >= FLEXIBLE
    end = b"\x00" if flexible else b""
    out = bytearray(header)
    if version < REPLICA_STATE:
        out += INT32.pack(request.replica_id)
    out += _WAIT_TO_ISOLATION.pack(
        request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level
    )
    if version >= SESSIONS:
        out += _SESSION.pack(request.session_id, request.session_epoch)
    groups = grouped(request.partitions)
    out += encode_count(len(groups), flexible)
    for topic, partitions in groups:
        out += _topic(topic, flexible) + encode_count(len(partitions), flexible)
        for partition in partitions:
            _write_partition(out, version, partition)
        out += end
    if version >= SESSIONS:
        _write_forgotten(out, request, flexible)
    if version >= RACKS:
        out += encode_string(request.rack_id, flexible)
    out += _replica_state(version, request) if flexible else b""
    return INT32.pack(len(out)) + out


def _topic(topic: Topic, flexible: bool) -> bytes:
    return topic if isinstance(topic, bytes) else encode_string(topic, flexible)


def _write_partition(out: bytearray, version: int, partition: FetchPartition) -> None:
    _, index, epoch, offset, last_epoch, log_start, max_bytes = partition
    out += INT32.pack(index)
    if version >= 9:
        out += INT32.pack(epoch)
    out += _INT64.pack(offset)
    if version >= FLEXIBLE:
        out += INT32.pack(last_epoch)
    if version >= 5:
        out += _INT64.pack(log_start)
    out += INT32.pack(max_bytes)
    if version >= FLEXIBLE:
        out.append(0)


def _write_forgotten(out: bytearray, request: FetchRequest, flexible: bool) -> None:
    groups = grouped(request.forgotten)
    out += encode_count(len(groups), flexible)
    for topic, members in groups:
        out += _topic(topic, flexible) + encode_count(len(members), flexible)
        for _, index in members:
            out += INT32.pack(index)
        if flexible:
            out.append(0)


def _replica_state(version: int, request: FetchRequest) -> bytes:
    if version < REPLICA_STATE or (request.replica_id, request.replica_epoch) == (-1, -1):
        return b"\x00"
    state = _EPOCH_OFFSET.pack(request.replica_id, request.replica_epoch) + b"\x00"
    return bytes((1, 1, len(state))) + state


def read_fetch_response(frame: memoryview, version: int) -> FetchResponse:
    """Reads a whole answer frame, without its length."""
    flexible = version >= FLEXIBLE
    try:
        correlation_id, at = read_response_header(FETCH, version, frame)
        response = FetchResponse(correlation_id)
        response.throttle_ms = INT32.unpack_from(frame, at)[0]
        at += 4
        if version >= SESSIONS:
            response.error_code, response.session_id = _ERROR_SESSION.unpack_from(frame, at)
            at += 6
        topic_count, at = read_count(frame, at, flexible, 3)
        for _ in range(topic_count):
            topic, at = read_topic(frame, at, version, FLEXIBLE, TOPIC_IDS)
            count, at = read_count(frame, at, flexible, 27)
            for _ in range(count):
                fetched = FetchedPartition(topic)
                response.partitions.append(fetched)
                at = _read_partition(frame, at, version, fetched)
            at = skip_tags(frame, at) if flexible else at
        at = skip_tags(frame, at) if flexible else at
    except UNREADABLE:
        raise text_malformed("a Fetch answer") from None
    if at != len(frame):
        raise malformed(f"a Fetch answer has {len(frame) - at} bytes after its end")
    return response


def _read_partition(frame: memoryview, at: int, version: int, fetched: FetchedPartition) -> int:
    flexible = version >= FLEXIBLE
    (
        fetched.partition,
        fetched.error_code,
        fetched.high_watermark,
        fetched.last_stable_offset,
    ) = _ANSWER.unpack_from(frame, at)
    at += _ANSWER.size
    if version >= 5:
        fetched.log_start_offset = _INT64.unpack_from(frame, at)[0]
        at += 8
    at = _read_aborted(frame, at, flexible, fetched)
    if version >= RACKS:
        fetched.preferred_read_replica = INT32.unpack_from(frame, at)[0]
        at += 4
    size, at = read_count(frame, at, flexible, 1)
    if size >= 0:
        fetched.records = frame[at : at + size]
        at += size
    return _read_tags(frame, at, fetched) if flexible else at


def _read_aborted(frame: memoryview, at: int, flexible: bool, fetched: FetchedPartition) -> int:
    count, at = read_count(frame, at, flexible, _ABORTED.size)
    aborted = []
    for _ in range(count):
        producer_id, first_offset = _ABORTED.unpack_from(frame, at)
        aborted.append((producer_id, first_offset))
        at += _ABORTED.size
        at = skip_tags(frame, at) if flexible else at
    fetched.aborted = aborted if count >= 0 else None
    return at


def _read_tags(frame: memoryview, at: int, fetched: FetchedPartition) -> int:
    """Tag 0 says where the logs part, tag 1 who leads now."""
    count, at = read_varint(frame, at)
    for _ in range(count):
        tag, at = read_varint(frame, at)
        size, at = read_varint(frame, at)
        stop = at + size
        if stop > len(frame):
            raise malformed("a tagged field runs past the end of a Fetch answer")
        if tag == 0:
            fetched.diverging = _read_pair(_EPOCH_OFFSET, frame, at, stop)
        elif tag == 1:
            fetched.current_leader = _read_pair(_LEADER, frame, at, stop)
        at = stop
    return at


def _read_pair(layout: Struct, frame: memoryview, at: int, stop: int) -> tuple[int, int]:
    """A tagged field of two numbers. Logs are cut by it, so it must be exactly that."""
    first, second = layout.unpack_from(frame, at)
    if skip_tags(frame, at + layout.size) != stop:
        raise malformed("a tagged field of a Fetch answer has the wrong size")
    return first, second
