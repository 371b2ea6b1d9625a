"""What a group coordinator writes to `__consumer_offsets`, in the format of Apache Kafka 4.3.

A key begins with its kind, and so says what its value is. Values of all versions are read; they
are written in the version Kafka writes: 4 for offsets, 1 for those that expire at a time of their
own, 3 for the members of a group. Kinds up to 2 are here, those of the newer protocol elsewhere.

    kind   key                        value
    0, 1   group, topic, partition    an offset that was committed
    2      group                      the generation of a classic group, and its members

Offsets are by far the most of it, so their fields are put together by hand.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.records.fields import FieldReader, FieldWriter, version_of, write_varint

NO_TOPIC_ID: Final = bytes(16)
NO_TIME: Final = -1
OFFSET_KINDS: Final = (0, 1)
GROUP_KIND: Final = 2
_OFFSET_KIND: Final = 1
_FLEXIBLE_FROM: Final = 4
_NEWEST: Final = 4
_EXPIRING: Final = 1
_GROUP_VERSION: Final = 3
_KIND_AND_LENGTH: Final = Struct(">hh")
_LENGTH: Final = Struct(">h")
_PARTITION: Final = Struct(">i")
_OFFSET_AND_EPOCH: Final = Struct(">hqi")
_TIME: Final = Struct(">q")
_TOPIC_ID_TAG: Final = bytes((1, 0, 16))
"""One tagged field, of number 0 and 16 bytes."""


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


class OffsetValue(NamedTuple):
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_time_ms: int = NO_TIME
    expire_time_ms: int = NO_TIME
    topic_id: bytes = NO_TOPIC_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberValue:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupValue:
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_time_ms: int
    """When the group came into the state it is in."""
    members: tuple[MemberValue, ...]


# -- offsets


def write_offset_key(key: OffsetKey) -> bytes:
    group_id, topic = key.group_id.encode(), key.topic.encode()
    begin = _KIND_AND_LENGTH.pack(_OFFSET_KIND, len(group_id))
    end = _PARTITION.pack(key.partition)
    return b"".join((begin, group_id, _LENGTH.pack(len(topic)), topic, end))


def read_offset_key(data: bytes) -> OffsetKey:
    reader = FieldReader(data)
    return OffsetKey(reader.text(), reader.text(), reader.int32())


def write_offset_value(value: OffsetValue) -> bytes:
    if value.expire_time_ms != NO_TIME:
        writer = FieldWriter(_EXPIRING).int64(value.offset).text(value.metadata)
        return writer.int64(value.commit_time_ms).int64(value.expire_time_ms).done()
    metadata = value.metadata.encode()
    begin = _OFFSET_AND_EPOCH.pack(_NEWEST, value.offset, value.leader_epoch)
    size, time = write_varint(len(metadata) + 1), _TIME.pack(value.commit_time_ms)
    tags = b"\0" if value.topic_id == NO_TOPIC_ID else _TOPIC_ID_TAG + value.topic_id
    return b"".join((begin, size, metadata, time, tags))


def read_offset_value(data: bytes) -> OffsetValue:
    version = _checked_version(data, "an offset")
    reader = FieldReader(data, is_flexible=version >= _FLEXIBLE_FROM)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.text()
    commit_time_ms = reader.int64()
    expire_time_ms = reader.int64() if version == _EXPIRING else NO_TIME
    topic_id = reader.tags().get(0, NO_TOPIC_ID)
    return OffsetValue(offset, leader_epoch, metadata, commit_time_ms, expire_time_ms, topic_id)


# -- groups


def write_group_key(group_id: str) -> bytes:
    return FieldWriter(GROUP_KIND).text(group_id).done()


def read_group_key(data: bytes) -> str:
    return FieldReader(data).text()


def write_group_value(value: GroupValue) -> bytes:
    writer = FieldWriter(_GROUP_VERSION).text(value.protocol_type).int32(value.generation)
    writer.text(value.protocol).text(value.leader).int64(value.state_time_ms)
    writer.count(len(value.members))
    for member in value.members:
        writer.text(member.member_id).text(member.instance_id)
        writer.text(member.client_id).text(member.client_host)
        writer.int32(member.rebalance_timeout_ms).int32(member.session_timeout_ms)
        writer.data(member.subscription).data(member.assignment)
    return writer.done()


def read_group_value(data: bytes) -> GroupValue:
    version = _checked_version(data, "a group")
    reader = FieldReader(data, is_flexible=version >= _FLEXIBLE_FROM)
    value = GroupValue(
        protocol_type=reader.text(),
        generation=reader.int32(),
        protocol=reader.nullable_text(),
        leader=reader.nullable_text(),
        state_time_ms=reader.int64() if version >= 2 else NO_TIME,
        members=tuple(_read_member(reader, version) for _ in range(reader.count())),
    )
    reader.tags()
    return value


def _read_member(reader: FieldReader, version: int) -> MemberValue:
    """Version 0 knew one timeout, for both."""
    member_id = reader.text()
    instance_id = reader.nullable_text() if version >= 3 else None
    client_id, client_host = reader.text(), reader.text()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    member = MemberValue(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=(
            session_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms
        ),
        session_timeout_ms=session_timeout_ms,
        subscription=reader.data(),
        assignment=reader.data(),
    )
    reader.tags()
    return member


def _checked_version(data: bytes, what: str) -> int:
    version = version_of(data)
    if not 0 <= version <= _NEWEST:
        raise KafkaError(
            ErrorCode.corrupt_message, f"{what} in version {version}; 0 to {_NEWEST} can be read"
        )
    return version
