"""What consumers of the classic protocol say to one another, as far as the broker takes part in it.

While members of both protocols are in one group the broker assigns for all of them, so it reads
what a classic member subscribes to and writes what that is to do, in the clients' own format.

    subscription   version (2), topics, user data, from 1: what it owns, from 2: generation (4),
                   from 3: rack
    assignment     version (2), for each topic its name and its partitions, user data
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tidelog.records.fields import FieldReader, FieldWriter, version_of

BUILT_IN: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""The assignors that clients bring along. What they tell members beside their partitions, if they
do, says nothing that a member needs."""
_WITH_OWNED: Final = 1
_WITH_GENERATION: Final = 2
_WITH_RACK: Final = 3

Partitions = Mapping[str, tuple[int, ...]]
"""By the name of the topic."""


class Subscription(NamedTuple):
    version: int
    topics: tuple[str, ...]
    owned: Partitions
    rack_id: str | None


def read_subscription(data: bytes) -> Subscription:
    version = version_of(data)
    reader = FieldReader(data)
    topics = tuple(reader.text() for _ in range(reader.count()))
    reader.nullable_data()
    owned = _read_partitions(reader) if version >= _WITH_OWNED else {}
    if version >= _WITH_GENERATION:
        reader.int32()
    rack_id = reader.nullable_text() if version >= _WITH_RACK else None
    return Subscription(version, topics, owned, rack_id)


def read_assignment(data: bytes) -> Partitions:
    """One that has never been told anything has nothing."""
    return _read_partitions(FieldReader(data)) if data else {}


def user_data_of(assignment: bytes) -> bytes:
    """What the leader told a member beside its partitions."""
    if not assignment:
        return b""
    reader = FieldReader(assignment)
    _read_partitions(reader)
    return reader.nullable_data() or b""


def write_assignment(version: int, partitions: Partitions) -> bytes:
    writer = FieldWriter(version).count(len(partitions))
    for topic in sorted(partitions):
        writer.text(topic).count(len(partitions[topic]))
        for partition in partitions[topic]:
            writer.int32(partition)
    return writer.data(None).done()


def _read_partitions(reader: FieldReader) -> Partitions:
    found = {}
    for _ in range(reader.count()):
        topic = reader.text()
        found[topic] = tuple(sorted(reader.int32() for _ in range(reader.count())))
    return found
