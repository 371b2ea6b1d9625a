"""What is written to `__consumer_offsets` for groups of the newer protocol, as Kafka 4.3 does it.

    kind   key               value
    3      group             the group's epoch, and a hash of the topics it was computed for
    4      group             (older brokers wrote the topics themselves; skipped)
    5      group, member     who a member is and what it subscribes to
    6      group             the epoch of the assignment that is aimed at
    7      group, member     what a member is to have in it
    8      group, member     what a member has, in which epoch
    16     group, pattern    the topics that match a regular expression

Kinds are the versions of keys. Values are flexible, in version 0. What newer brokers may add as
tagged fields is passed over.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.journal import Entry
from tidelog.groups.assignors import Assignment
from tidelog.groups.consumer_member import ClassicSide, Held, Member, MemberState
from tidelog.records.fields import FieldReader, FieldWriter, version_of

GROUP_EPOCH: Final = 3
TOPICS: Final = 4
MEMBER: Final = 5
TARGET_EPOCH: Final = 6
TARGET: Final = 7
CURRENT: Final = 8
PATTERN: Final = 16
KINDS: Final = (GROUP_EPOCH, TOPICS, MEMBER, TARGET_EPOCH, TARGET, CURRENT, PATTERN)
_WITH_NAME: Final = (MEMBER, TARGET, CURRENT, PATTERN)
_INT64: Final = Struct(">q")


class Key(NamedTuple):
    kind: int
    group_id: str
    name: str = ""
    """Of the member, or the regular expression."""


class EpochValue(NamedTuple):
    epoch: int
    topics_hash: int = 0


class PatternValue(NamedTuple):
    topics: tuple[str, ...]
    """Sorted."""
    resolved_ms: int
    version: int = 0


# -- keys


def write_key(key: Key) -> bytes:
    writer = FieldWriter(key.kind).text(key.group_id)
    return (writer.text(key.name) if key.kind in _WITH_NAME else writer).done()


def read_key(data: bytes) -> Key:
    kind = version_of(data)
    reader = FieldReader(data)
    return Key(kind, reader.text(), reader.text() if kind in _WITH_NAME else "")


def tombstone(kind: int, group_id: str, name: str = "") -> Entry:
    return Entry(write_key(Key(kind, group_id, name)), None)


# -- groups


def group_entry(group_id: str, value: EpochValue) -> Entry:
    writer = _writer().int32(value.epoch)
    tags = {0: _INT64.pack(value.topics_hash)} if value.topics_hash else {}
    return Entry(write_key(Key(GROUP_EPOCH, group_id)), writer.tags(tags).done())


def read_group(data: bytes) -> EpochValue:
    reader = _reader(data)
    epoch = reader.int32()
    packed = reader.tags().get(0)
    return EpochValue(epoch, 0 if packed is None else _INT64.unpack(packed)[0])


def target_epoch_entry(group_id: str, epoch: int) -> Entry:
    return Entry(write_key(Key(TARGET_EPOCH, group_id)), _writer().int32(epoch).tags().done())


def read_target_epoch(data: bytes) -> int:
    return _reader(data).int32()


def pattern_entry(group_id: str, pattern: str, value: PatternValue) -> Entry:
    writer = _writer().count(len(value.topics))
    for topic in value.topics:
        writer.text(topic)
    writer.int64(value.version).int64(value.resolved_ms).tags()
    return Entry(write_key(Key(PATTERN, group_id, pattern)), writer.done())


def read_pattern(data: bytes) -> PatternValue:
    reader = _reader(data)
    topics = tuple(sorted(reader.text() for _ in range(reader.count())))
    version = reader.int64()
    return PatternValue(topics, reader.int64(), version)


# -- members


def member_entry(group_id: str, member: Member) -> Entry:
    writer = _writer().text(member.instance_id).text(member.rack_id)
    writer.text(member.client_id).text(member.client_host).count(len(member.topics))
    for topic in member.topics:
        writer.text(topic)
    writer.text(member.pattern).int32(member.rebalance_timeout_ms).text(member.assignor)
    tags = {} if member.classic is None else {0: _write_classic(member.classic)}
    return Entry(write_key(Key(MEMBER, group_id, member.member_id)), writer.tags(tags).done())


def read_member(data: bytes, member: Member) -> Member:
    """The member, with what the record says of it."""
    reader = _reader(data)
    described = replace(
        member,
        instance_id=reader.nullable_text(),
        rack_id=reader.nullable_text(),
        client_id=reader.text(),
        client_host=reader.text(),
        topics=_shared(tuple(sorted(reader.text() for _ in range(reader.count())))),
        pattern=reader.nullable_text() or "",
        rebalance_timeout_ms=reader.int32(),
        assignor=reader.nullable_text(),
    )
    packed = reader.tags().get(0)
    return replace(described, classic=None if packed is None else _read_classic(packed))


@lru_cache(maxsize=1024)
def _shared(topics: tuple[str, ...]) -> tuple[str, ...]:
    """Members of a group mostly subscribe to the same: it is kept once for all of them."""
    return topics


def _write_classic(classic: ClassicSide) -> bytes:
    """A structure within a tagged field begins with a byte that says that it is there."""
    writer = _writer().int8(1).int32(classic.session_timeout_ms).count(len(classic.protocols))
    for name, metadata in classic.protocols:
        writer.text(name).data(metadata).tags()
    return writer.tags().done()[_VERSION_BYTES:]


def _read_classic(packed: bytes) -> ClassicSide | None:
    reader = _reader(bytes(_VERSION_BYTES) + packed)
    if reader.int8() < 0:
        return None
    timeout_ms = reader.int32()
    protocols = []
    for _ in range(reader.count()):
        protocols.append((reader.text(), reader.data()))
        reader.tags()
    return ClassicSide(timeout_ms, tuple(protocols))


# -- what members are to have, and what they have


def target_entry(group_id: str, member_id: str, assignment: Assignment) -> Entry:
    writer = _writer().count(len(assignment))
    for topic_id in sorted(assignment):
        _write_partitions(writer.uuid(topic_id), assignment[topic_id])
        writer.tags()
    return Entry(write_key(Key(TARGET, group_id, member_id)), writer.tags().done())


def read_target(data: bytes) -> Assignment:
    reader = _reader(data)
    assignment = {}
    for _ in range(reader.count()):
        topic_id = reader.uuid()
        assignment[topic_id] = tuple(sorted(reader.int32() for _ in range(reader.count())))
        reader.tags()
    return assignment


def current_entry(group_id: str, member: Member) -> Entry:
    writer = _writer().int32(member.epoch).int32(member.previous_epoch).int8(member.state)
    _write_held(writer, member.held)
    _write_held(writer, member.revoking)
    return Entry(write_key(Key(CURRENT, group_id, member.member_id)), writer.tags().done())


def read_current(data: bytes, member: Member) -> Member:
    """The member, with what the record says it has."""
    reader = _reader(data)
    epoch, previous_epoch, state = reader.int32(), reader.int32(), reader.int8()
    known = state in (MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED)
    return replace(
        member,
        epoch=epoch,
        previous_epoch=previous_epoch,
        state=MemberState(state) if known else MemberState.UNKNOWN,
        held=_read_held(reader, epoch),
        revoking=_read_held(reader, epoch),
    )


def _write_held(writer: FieldWriter, held: Held) -> None:
    writer.count(len(held))
    for topic_id in sorted(held):
        partitions = sorted(held[topic_id])
        _write_partitions(writer.uuid(topic_id), partitions)
        writer.tags({0: _packed_epochs(held[topic_id], partitions)})


def _read_held(reader: FieldReader, member_epoch: int) -> Held:
    """Brokers before 4.3 did not write when a partition was got: it counts as got just now."""
    held = {}
    for _ in range(reader.count()):
        topic_id = reader.uuid()
        partitions = [reader.int32() for _ in range(reader.count())]
        packed = reader.tags().get(0)
        epochs = [member_epoch] * len(partitions) if packed is None else _epochs(packed)
        if len(epochs) != len(partitions):
            raise KafkaError(ErrorCode.corrupt_message, "partitions without their epochs")
        held[topic_id] = dict(zip(partitions, epochs, strict=True))
    return held


def _packed_epochs(epochs: Mapping[int, int], partitions: list[int]) -> bytes:
    writer = _writer()
    _write_partitions(writer, [epochs[partition] for partition in partitions])
    return writer.done()[_VERSION_BYTES:]


def _epochs(packed: bytes) -> list[int]:
    reader = _reader(bytes(_VERSION_BYTES) + packed)
    return [reader.int32() for _ in range(reader.count())]


def _write_partitions(writer: FieldWriter, partitions: tuple[int, ...] | list[int]) -> None:
    writer.count(len(partitions))
    for partition in partitions:
        writer.int32(partition)


# -- versions

_VERSION: Final = 0
_VERSION_BYTES: Final = 2


def _writer() -> FieldWriter:
    return FieldWriter(_VERSION, is_flexible=True)


def _reader(data: bytes) -> FieldReader:
    version = version_of(data)
    if version != _VERSION:
        raise KafkaError(ErrorCode.corrupt_message, f"a record of a group in version {version}")
    return FieldReader(data, is_flexible=True)
