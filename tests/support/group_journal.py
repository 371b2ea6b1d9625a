"""What coordinators have decided of a group, as it stands in `__consumer_offsets` (A5, V15): who
had which partition, and each commit.

`given` reads it of classic groups and `owned` of the newer ones. Both notice a partition with two
owners, whenever that was; `check_commits` notices a commit that goes back.
"""

import time
from collections.abc import Iterable, Iterator
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from support.log_ends import log_end
from tidelog.coordinators import hash_of
from tidelog.groups import consumer_records
from tidelog.groups.consumer_member import Held, Member
from tidelog.groups.consumer_protocol import read_assignment
from tidelog.groups.records import (
    GROUP_KIND,
    OFFSET_KINDS,
    OffsetKey,
    read_group_key,
    read_group_value,
    read_offset_key,
    read_offset_value,
)
from tidelog.records.fields import version_of

OFFSETS: Final = "__consumer_offsets"
_SECONDS_MAX: Final = 120

Record = tuple[bytes, bytes | None]
Shares = frozenset[tuple[str, tuple[int, ...]]]
"""The members at one time, and what each of them had."""


def journal(bootstrap: str, group: str, count: int) -> list[Record]:
    """All records of its partition of `__consumer_offsets`, of which there are `count`."""
    place = TopicPartition(OFFSETS, hash_of(group) % count, 0)
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "journal", "log_level": 0})
    try:
        end = log_end(reader, place)
        reader.assign([place])
        return list(_records(reader, end))
    finally:
        reader.close()


def _records(reader: Consumer, end: int) -> Iterator[Record]:
    deadline = time.monotonic() + _SECONDS_MAX
    at = 0
    while at < end:
        assert time.monotonic() < deadline, f"only read up to {at} of {end}"
        for message in reader.consume(1000, 1.0):
            if not message.error():
                at = message.offset() + 1
                yield message.key(), message.value()


def check_commits(records: Iterable[Record], group: str) -> set[tuple[str, int, int]]:
    """Returns all that was ever committed: topic, partition and offset."""
    committed: dict[OffsetKey, int] = {}
    seen = set()
    for key, value in records:
        if version_of(key) not in OFFSET_KINDS or value is None:
            continue
        place = read_offset_key(key)
        if place.group_id == group:
            offset, before = read_offset_value(value).offset, committed.get(place, 0)
            assert offset >= before, (
                f"{place.topic}-{place.partition}: from {before} back to {offset}"
            )
            committed[place] = offset
            seen.add((place.topic, place.partition, offset))
    assert seen, "commits are in the journal"
    return seen


def given(records: Iterable[Record], group: str, topic: str) -> Iterator[Shares]:
    """What each generation of a classic group was given of a topic."""
    for key, value in records:
        if version_of(key) != GROUP_KIND or value is None or read_group_key(key) != group:
            continue
        found = read_group_value(value)
        shares = {
            member.member_id: read_assignment(member.assignment).get(topic, ())
            for member in found.members
        }
        yield _shares(shares, f"in generation {found.generation}")


def owned(records: Iterable[Record], group: str) -> Iterator[Shares]:
    """What members of a newer group, which reads one topic, had after each step of one of them.
    What a member is to give up is its own until it did."""
    shares: dict[str, tuple[int, ...]] = {}
    for key, value in records:
        if version_of(key) != consumer_records.CURRENT:
            continue
        _, group_id, member_id = consumer_records.read_key(key)
        if group_id != group:
            continue
        shares.pop(member_id, None)
        if value is not None:
            found = consumer_records.read_current(value, Member(member_id=member_id))
            shares[member_id] = tuple(sorted(_numbers(found.held) | _numbers(found.revoking)))
        yield _shares(shares, f"after a step of {member_id}")


def _numbers(held: Held) -> set[int]:
    return {number for partitions in held.values() for number in partitions}


def _shares(shares: dict[str, tuple[int, ...]], when: str) -> Shares:
    parts = [number for share in shares.values() for number in share]
    assert len(parts) == len(set(parts)), f"a partition has two owners {when}: {shares}"
    return frozenset(shares.items())


def partitions_of(shares: Shares) -> list[int]:
    """All that its members had together."""
    return sorted(number for _, share in shares for number in share)
