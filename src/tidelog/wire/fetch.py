"""Fetch requests and answers, versions 4 to 18, packed and unpacked by hand.

An answer is written without its records: they are sent, mostly straight from a file, between
its pieces. From version 12 on messages are flexible, from 13 on a topic is its 16-byte id, and
from 15 on a follower names itself in a tagged field. `fetch_client` has the other role.

    request   int32 replica (-14) | int32 max wait | int32 min bytes | int32 max bytes |
              int8 isolation | int32 session id, epoch (7+) | topics [name or id,
              partitions [...]] | forgotten topics [name or id, int32s] (7+) | rack id (11+)
    partition int32 index | int32 leader epoch (9+) | int64 offset | int32 last fetched epoch
              (12+) | int64 log start (5+) | int32 max bytes
    answer    int32 throttle time | int16 error, int32 session id (7+) | topics [name or id,
              partitions [int32 index | int16 error | int64 high watermark | int64 last stable
              offset | int64 log start (5+) | aborted | int32 preferred replica (11+) | records]]
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, TypeAlias

from tidelog.base.ports import Buffer
from tidelog.wire.topics import Topic, grouped, read_topic
from tidelog.wire.values import (
    INT32,
    INT64,
    ITEMS_MAX,
    UNREADABLE,
    encode_count,
    encode_string,
    malformed,
    read_count,
    read_string,
    read_varint,
    skip_tags,
    text_malformed,
)

FETCH: Final = 1
STORAGE_ERRORS: Final = 6
SESSIONS: Final = 7
RACKS: Final = 11
FLEXIBLE: Final = 12
TOPIC_IDS: Final = 13
REPLICA_STATE: Final = 15
_COPIED_BYTES_MAX: Final = 4096

# topic, partition, current leader epoch, fetch offset, last fetched epoch, log start, max bytes
FetchPartition: TypeAlias = tuple[Topic, int, int, int, int, int, int]
Aborted: TypeAlias = list[tuple[int, int]] | None
# topic, partition, error code, high watermark, last stable offset, log start offset,
# aborted transactions, preferred read replica, size of the records
FetchAnswer: TypeAlias = tuple[Topic, int, int, int, int, int, Aborted, int, int]

_START_4 = Struct(">iiiib")
_START_7 = Struct(">iiiibii")
_SESSION = Struct(">ii")
_START_15 = Struct(">iiibii")
_PARTITION_4 = Struct(">iqi")
_PARTITION_5 = Struct(">iqqi")
_PARTITION_9 = Struct(">iiqqi")
_PARTITION_12 = Struct(">iiqiqiB")
_REPLICA_STATE = Struct(">iq")
_ABORTED = Struct(">qq")
_ANSWER_START = Struct(">ihqq")
_ANSWER_4 = Struct(">ihqqii")
_ANSWER_5 = Struct(">ihqqqii")
_ANSWER_11 = Struct(">ihqqqiii")
# The size of the records is a varint; x is the tag section of the partition before.
_SMALL = Struct(">xihqqqBiB")
_MIDDLE = Struct(">xihqqqBiBB")
_LARGE = Struct(">xihqqqBiBBB")
_HEAD_4 = Struct(">iii")
_HEAD_7 = Struct(">iiihi")
_HEAD_12 = Struct(">iiBihi")


class FetchRequest:
    """One Fetch request."""

    __slots__ = (
        "forgotten",
        "isolation_level",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "partitions",
        "rack_id",
        "replica_epoch",
        "replica_id",
        "session_epoch",
        "session_id",
    )

    def __init__(self) -> None:
        self.replica_id = -1
        self.replica_epoch = -1
        self.max_wait_ms = 0
        self.min_bytes = 0
        self.max_bytes = 0x7FFF_FFFF
        self.isolation_level = 0
        self.session_id = 0
        self.session_epoch = -1
        self.partitions: list[FetchPartition] = []
        self.forgotten: list[tuple[Topic, int]] = []
        self.rack_id = ""


def read_fetch_request(frame: memoryview, at: int, version: int) -> FetchRequest:
    """Reads the body that begins at `at`; it must end where the frame does."""
    # Bytes are read faster than a view of them, by more than it takes to copy a small frame.
    data = frame.tobytes() if len(frame) <= _COPIED_BYTES_MAX else frame
    request = FetchRequest()
    try:
        at = _read_start(data, at, version, request)
        at = _read_topics(data, at, version, request)
        if version >= SESSIONS:
            at = _read_forgotten(data, at, version, request)
        if version >= FLEXIBLE:
            if data[at] == 1:
                at += 1
            else:
                request.rack_id, at = _read_rack(data, at, True)
            at = at + 1 if data[at] == 0 else _read_tags(data, at, version, request)
        elif version >= RACKS:
            request.rack_id, at = _read_rack(data, at, False)
    except UNREADABLE:
        raise text_malformed("a Fetch request") from None
    if at != len(frame):
        raise malformed(f"a Fetch request has {len(frame) - at} bytes after its end")
    return request


def _read_rack(data: Buffer, at: int, flexible: bool) -> tuple[str, int]:
    rack_id, at = read_string(data, at, flexible)
    if rack_id is None:
        raise malformed("the rack id of a Fetch request is null")
    return rack_id, at


def _read_start(data: Buffer, at: int, version: int, request: FetchRequest) -> int:
    if version >= REPLICA_STATE:
        (
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            request.isolation_level,
            request.session_id,
            request.session_epoch,
        ) = _START_15.unpack_from(data, at)
        return at + _START_15.size
    if version >= SESSIONS:
        request.session_id, request.session_epoch = _SESSION.unpack_from(data, at + 17)
    (
        request.replica_id,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
    ) = _START_4.unpack_from(data, at)
    return at + (_START_7.size if version >= SESSIONS else _START_4.size)


def _read_topics(data: Buffer, at: int, version: int, request: FetchRequest) -> int:
    flexible = version >= FLEXIBLE
    layout = _layout(version)
    topics, at = read_count(data, at, flexible, 3)
    if topics < 0:
        raise malformed("the topics of a Fetch request are null")
    for _ in range(topics):
        topic: Topic
        if version >= TOPIC_IDS:
            topic = bytes(data[at : at + 16])
            at += 16
        else:
            topic, at = read_topic(data, at, version, FLEXIBLE, TOPIC_IDS)
        count, at = read_count(data, at, flexible, layout.size)
        if count < 0 or count + len(request.partitions) > ITEMS_MAX:
            raise malformed(f"{count} partitions in a Fetch request")
        stop = at + count * layout.size
        items = layout.iter_unpack(data[at:stop])
        if not flexible:
            _add_classic(items, version, topic, request.partitions)
            at = stop
        elif _add_flexible(items, topic, request.partitions):
            at = stop + 1 if data[stop] == 0 else skip_tags(data, stop)
        else:
            del request.partitions[len(request.partitions) - count :]
            at = _read_tagged_partitions(data, at, topic, count, request.partitions)
            at = skip_tags(data, at)
    return at


def _layout(version: int) -> Struct:
    """What a partition without tagged fields looks like."""
    if version >= FLEXIBLE:
        return _PARTITION_12
    if version >= 9:
        return _PARTITION_9
    return _PARTITION_5 if version >= 5 else _PARTITION_4


def _add_flexible(
    items: Iterator[tuple[int, ...]], topic: Topic, partitions: list[FetchPartition]
) -> bool:
    """Adds what was read, if no partition has tagged fields, which would shift what follows."""
    tagged = 0
    for index, epoch, offset, last_epoch, log_start, max_bytes, tags in items:
        tagged |= tags
        partitions.append((topic, index, epoch, offset, last_epoch, log_start, max_bytes))
    return tagged == 0


def _add_classic(
    items: Iterator[tuple[int, ...]], version: int, topic: Topic, partitions: list[FetchPartition]
) -> None:
    if version >= 9:
        for index, epoch, offset, log_start, max_bytes in items:
            partitions.append((topic, index, epoch, offset, -1, log_start, max_bytes))
    elif version >= 5:
        for index, offset, log_start, max_bytes in items:
            partitions.append((topic, index, -1, offset, -1, log_start, max_bytes))
    else:
        for index, offset, max_bytes in items:
            partitions.append((topic, index, -1, offset, -1, -1, max_bytes))


def _read_tagged_partitions(
    data: Buffer, at: int, topic: Topic, count: int, partitions: list[FetchPartition]
) -> int:
    """The log directory that a follower may name, and a KRaft observer's high watermark, mean
    nothing to a partition's leader: every tagged field is skipped."""
    for _ in range(count):
        index, epoch, offset, last_epoch, log_start, max_bytes, _ = _PARTITION_12.unpack_from(
            data, at
        )
        partitions.append((topic, index, epoch, offset, last_epoch, log_start, max_bytes))
        at = skip_tags(data, at + _PARTITION_12.size - 1)
    return at


def _read_forgotten(data: Buffer, at: int, version: int, request: FetchRequest) -> int:
    flexible = version >= FLEXIBLE
    if flexible and data[at] == 1:
        return at + 1
    topic_count, at = read_count(data, at, flexible, 3)
    if topic_count < 0:
        raise malformed("the forgotten topics of a Fetch request are null")
    for _ in range(topic_count):
        topic, at = read_topic(data, at, version, FLEXIBLE, TOPIC_IDS)
        count, at = read_count(data, at, flexible, 4)
        if count < 0 or len(request.forgotten) + count > ITEMS_MAX:
            raise malformed(f"{count} forgotten partitions in a Fetch request")
        stop = at + count * 4
        for (index,) in INT32.iter_unpack(data[at:stop]):
            request.forgotten.append((topic, index))
        at = skip_tags(data, stop) if flexible else stop
    return at


def _read_tags(data: Buffer, at: int, version: int, request: FetchRequest) -> int:
    """The tag section of the request: 0 is a cluster id, of which only KRaft takes note, and 1
    says from version 15 on which replica asks."""
    count, at = read_varint(data, at)
    for _ in range(count):
        tag, at = read_varint(data, at)
        size, at = read_varint(data, at)
        stop = at + size
        if stop > len(data):
            raise malformed("a tagged field runs past the end of a Fetch request")
        if tag == 1 and version >= REPLICA_STATE:
            request.replica_id, request.replica_epoch = _REPLICA_STATE.unpack_from(data, at)
            if skip_tags(data, at + _REPLICA_STATE.size) != stop:
                raise malformed("the replica state of a Fetch request has the wrong size")
        at = stop
    return at


def write_fetch_response(
    correlation_id: int,
    version: int,
    session_id: int,
    error_code: int,
    partitions: Sequence[FetchAnswer],
    throttle_ms: int = 0,
) -> list[bytes]:
    """The answer frame in pieces, one more than there are partitions: the records of a partition
    are sent between its piece and the next. The frame's length counts them."""
    flexible = version >= FLEXIBLE
    groups = grouped(partitions)
    pieces: list[bytes] = []
    carried = encode_count(len(groups), flexible)
    for topic, members in groups:
        encoded = topic if isinstance(topic, bytes) else encode_string(topic, flexible)
        carried += encoded + encode_count(len(members), flexible)
        first = len(pieces)
        if flexible:
            pack_flexible(pieces, version, members)
            pieces[first] = carried + pieces[first][1:]
            carried = b"\x00\x00"
        else:
            pieces += [pack_classic(version, member) for member in members]
            pieces[first] = carried + pieces[first]
            carried = b""
    pieces.append(carried + b"\x00" if flexible else carried)
    size = sum(map(len, pieces)) + sum([partition[8] for partition in partitions])
    pieces[0] = (
        answer_head(correlation_id, version, session_id, error_code, size, throttle_ms) + pieces[0]
    )
    return pieces


def answer_head(
    correlation_id: int,
    version: int,
    session_id: int,
    error_code: int,
    size: int,
    throttle_ms: int,
) -> bytes:
    if version >= FLEXIBLE:
        return _HEAD_12.pack(size + 15, correlation_id, 0, throttle_ms, error_code, session_id)
    if version >= SESSIONS:
        return _HEAD_7.pack(size + 14, correlation_id, throttle_ms, error_code, session_id)
    return _HEAD_4.pack(size + 8, correlation_id, throttle_ms)


def pack_flexible(pieces: list[bytes], version: int, members: list[FetchAnswer]) -> None:
    """The partitions of a topic up to their records. Each begins with the empty tag section that
    ends the one before, which saves putting the two together; the first has one too many."""
    for member in members:
        _, index, code, watermark, stable, start, aborted, preferred, size = member
        none = 0 if aborted is None else 1
        size += 1
        if aborted or size >= 0x20_0000:
            pieces.append(b"\x00" + _pack_long(version, member))
        elif size < 0x80:
            pieces.append(_SMALL.pack(index, code, watermark, stable, start, none, preferred, size))
        else:
            low, high = size & 0x7F | 0x80, size >> 7
            if high < 0x80:
                pieces.append(
                    _MIDDLE.pack(index, code, watermark, stable, start, none, preferred, low, high)
                )
            else:
                sizes = (low, high & 0x7F | 0x80, high >> 7)
                pieces.append(
                    _LARGE.pack(index, code, watermark, stable, start, none, preferred, *sizes)
                )


def pack_classic(version: int, answer: FetchAnswer) -> bytes:
    """One partition up to its records."""
    _, index, code, watermark, stable, start, aborted, preferred, size = answer
    if aborted:
        return _pack_long(version, answer)
    count = -1 if aborted is None else 0
    if version >= RACKS:
        return _ANSWER_11.pack(index, code, watermark, stable, start, count, preferred, size)
    if version >= 5:
        return _ANSWER_5.pack(index, code, watermark, stable, start, count, size)
    return _ANSWER_4.pack(index, code, watermark, stable, count, size)


def _pack_long(version: int, answer: FetchAnswer) -> bytes:
    """One partition with aborted transactions or very large records, up to its records."""
    _, index, code, watermark, stable, start, aborted, preferred, size = answer
    flexible = version >= FLEXIBLE
    fixed = _ANSWER_START.pack(index, code, watermark, stable)
    if version >= 5:
        fixed += INT64.pack(start)
    end = b"\x00" if flexible else b""
    listed = b"".join([_ABORTED.pack(producer, first) + end for producer, first in aborted or ()])
    replica = INT32.pack(preferred) if version >= RACKS else b""
    counted = encode_count(-1 if aborted is None else len(aborted), flexible)
    return fixed + counted + listed + replica + encode_count(size, flexible)
