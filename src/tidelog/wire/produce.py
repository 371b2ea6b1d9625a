"""Produce requests, versions 3 to 13, unpacked by hand.

The records of a partition are a slice of the frame, never a copy. Topics stay encoded in the
request, so that the answer (`produce_answer`) repeats the bytes they came in. From version 9 on
messages are flexible; from version 13 on a topic is its 16-byte id. `produce_client` has the other
role.

    request   transactional id | int16 acks | int32 timeout | topics [name or id,
              partitions [int32 index | records]]
"""

from array import array
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias

from tidelog.base.ports import Buffer
from tidelog.records.join_layout import BYTES_MAX, ROW_WORDS
from tidelog.wire.topics import Topic
from tidelog.wire.values import (
    INT16,
    INT32,
    ITEMS_MAX,
    NAMES,
    UNREADABLE,
    malformed,
    name_of,
    read_string,
    read_varint,
    skip_tags,
    text_malformed,
)

if TYPE_CHECKING:
    from tidelog.records.joiner import Found, Joiner

FLEXIBLE: Final = 9
TOPIC_IDS: Final = 13
_COPIED_BYTES_MAX: Final = 4096
_FEW: Final = 1
"""Partitions that are read and appended sooner than kernels are called."""
_BATCH_BYTES_MAX: Final = 4096
"""On average: what is larger gains nothing when it is joined, because that is a copy of it."""

ProducePartition: TypeAlias = tuple[Topic, int, memoryview | None]
_AFTER_ID_CLASSIC = Struct(">hii")
_AFTER_ID_FLEXIBLE = Struct(">hiB")
_PARTITION_CLASSIC = Struct(">ii")
_PARTITION_FLEXIBLE = Struct(">iBB")


class ProduceRequest:
    """One Produce request. `groups` has, for each topic, the bytes with which it began, which
    are those with which the answer's topic begins, and how many of the partitions are its own.
    Where all partitions were found by kernels, `rows` tells of them (`join_layout`), and
    `partitions` are made when somebody asks for them."""

    __slots__ = (
        "_address",
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
        self._address = 0

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

    def set_rows(self, rows: "array[int]", address: int) -> None:
        """What was found in the frame, which is at that address."""
        self.rows = rows
        self._address = address
        self._partitions = None

    def _of_rows(self) -> list[ProducePartition]:
        assert self.rows is not None
        frame = self._frame
        words = iter(self.rows)
        made: list[ProducePartition] = []
        for topic, (_, count) in zip(self.topics, self.groups, strict=True):
            for index, address, size in islice(zip(words, words, words, strict=True), count):
                at = address - self._address
                made.append((topic, index, frame[at : at + size]))
        return made


def read_produce_request(
    frame: memoryview, at: int, version: int, joiner: "Joiner | None" = None
) -> ProduceRequest:
    """Reads the body that begins at `at`; it must end where the frame does. Where it may have many
    batches, a joiner finds them."""
    # Bytes are read faster than a view of them, by more than it takes to copy a small frame.
    data = frame.tobytes() if len(frame) <= _COPIED_BYTES_MAX else frame
    request = ProduceRequest(frame)
    try:
        if version >= FLEXIBLE:
            at = _read_flexible(frame, data, at, version, request, joiner)
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
    frame: memoryview,
    data: Buffer,
    at: int,
    version: int,
    request: ProduceRequest,
    joiner: "Joiner | None",
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
    if (
        joiner is not None
        and request.transactional_id is None
        and _may_have_many(data, at, version, topics - 1)
    ):
        found = joiner.find(frame, at, topics - 1, version >= TOPIC_IDS)
        if found is not None and len(frame) <= len(found.rows) // ROW_WORDS * _BATCH_BYTES_MAX:
            _take(request, frame, version, found)
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


def _take(request: ProduceRequest, frame: memoryview, version: int, found: "Found") -> None:
    words = iter(found.topics)
    for address, size, count in zip(words, words, words, strict=True):
        start = address - found.address
        head = bytes(frame[start : start + size])
        request.groups.append((head, count))
        if version >= TOPIC_IDS:
            request.topics.append(head[:16])
        else:
            name_bytes, name_at = read_varint(head, 0)
            encoded = head[: name_at + name_bytes - 1]
            request.topics.append(NAMES.get(encoded) or name_of(encoded, name_at))
    request.set_rows(found.rows, found.address)


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
