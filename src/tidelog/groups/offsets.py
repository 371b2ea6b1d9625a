"""How far groups have come: the offset last committed of each group, topic and partition.

An offset committed in a transaction waits beside the others until the transaction ends, and takes
its place then if it was committed; of two for the same partition the one that was written later
counts, whichever became visible last. All of it comes from the journal, through `replay`.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from tidelog.base.ids import NO_PRODUCER_ID
from tidelog.base.journal import Entry, Origin
from tidelog.groups.group import Group
from tidelog.groups.records import (
    NO_TIME,
    NO_TOPIC_ID,
    OffsetKey,
    OffsetValue,
    write_offset_key,
)

_NOTHING: Final[Mapping[str, "Mapping[int, Kept]"]] = {}


class Kept(NamedTuple):
    value: OffsetValue
    written_at: int
    """Where in the journal it stands."""


class Offsets:
    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, Kept]]] = {}
        self._groups_by_topic: dict[str, dict[str, None]] = {}
        self._by_producer: dict[int, dict[OffsetKey, Kept]] = {}
        self._pending: dict[OffsetKey, int] = {}
        """In how many open transactions there is one for a partition, if there is."""
        self._open: dict[str, dict[int, None]] = {}
        """The transactions, by producer id, that hold offsets of a group."""

    # -- what there is

    def find(self, key: OffsetKey) -> OffsetValue | None:
        kept = self.of_group(key.group_id).get(key.topic, {}).get(key.partition)
        return None if kept is None else kept.value

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, Kept]]:
        """By topic and partition."""
        return self._by_group.get(group_id, _NOTHING)

    def is_pending(self, key: OffsetKey) -> bool:
        return key in self._pending

    def is_in_transaction(self, group_id: str) -> bool:
        return group_id in self._open

    def pending_of_group(self, group_id: str) -> Mapping[str, list[int]]:
        """By topic: the partitions for which open transactions hold offsets."""
        topics: dict[str, list[int]] = {}
        for key in self._pending_keys(group_id):
            topics.setdefault(key.topic, []).append(key.partition)
        return topics

    def topics(self) -> list[str]:
        return list(self._groups_by_topic)

    def keys_of_group(self, group_id: str) -> Iterator[OffsetKey]:
        """Of all that was committed, and of what may be."""
        of_group = self.of_group(group_id)
        for topic, partitions in of_group.items():
            for partition in partitions:
                yield OffsetKey(group_id, topic, partition)
        for key in self._pending_keys(group_id):
            if key.partition not in of_group.get(key.topic, {}):
                yield key

    def keys_of_topic(self, topic: str, topic_id: bytes | None) -> Iterator[OffsetKey]:
        """Of all groups: those for a topic of this id, and those that do not say which."""
        for group_id in self._groups_by_topic.get(topic, ()):
            for partition, kept in self._by_group[group_id][topic].items():
                if _may_be_of(kept.value, topic_id):
                    yield OffsetKey(group_id, topic, partition)
        for pending in self._by_producer.values():
            for key, kept in pending.items():
                if key.topic == topic and _may_be_of(kept.value, topic_id):
                    yield key

    def _pending_keys(self, group_id: str) -> dict[OffsetKey, None]:
        return {
            key: None
            for producer_id in self._open.get(group_id, ())
            for key in self._by_producer[producer_id]
            if key.group_id == group_id
        }

    # -- what the journal says

    def replay(self, key: OffsetKey, value: OffsetValue | None, origin: Origin) -> None:
        if value is None:
            self._remove(key)
        elif origin.producer_id == NO_PRODUCER_ID:
            self._put(key, Kept(value, origin.offset))
        else:
            self._hold(key, Kept(value, origin.offset), origin.producer_id)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        for key, kept in self._by_producer.pop(producer_id, {}).items():
            self._release(key, producer_id)
            if is_commit:
                before = self.of_group(key.group_id).get(key.topic, {}).get(key.partition)
                if before is None or before.written_at < kept.written_at:
                    self._put(key, kept)

    def _put(self, key: OffsetKey, kept: Kept) -> None:
        topics = self._by_group.get(key.group_id)
        if topics is None:
            topics = self._by_group[key.group_id] = {}
        partitions = topics.get(key.topic)
        if partitions is None:
            partitions = topics[key.topic] = {}
            self._groups_by_topic.setdefault(key.topic, {})[key.group_id] = None
        partitions[key.partition] = kept

    def _hold(self, key: OffsetKey, kept: Kept, producer_id: int) -> None:
        held = self._by_producer.setdefault(producer_id, {})
        if key not in held:
            self._pending[key] = self._pending.get(key, 0) + 1
            self._open.setdefault(key.group_id, {})[producer_id] = None
        held[key] = kept

    def _release(self, key: OffsetKey, producer_id: int) -> None:
        self._pending[key] -= 1
        if not self._pending[key]:
            del self._pending[key]
        open_here = self._open.get(key.group_id, {})
        open_here.pop(producer_id, None)
        if not open_here:
            self._open.pop(key.group_id, None)

    def _remove(self, key: OffsetKey) -> None:
        """It is gone, and what open transactions hold for it will not come either."""
        topics = self._by_group.get(key.group_id, {})
        partitions = topics.get(key.topic, {})
        if partitions.pop(key.partition, None) is not None and not partitions:
            del topics[key.topic]
            if not topics:
                del self._by_group[key.group_id]
            self._forget_topic(key)
        if key in self._pending:
            self._remove_pending(key)

    def _forget_topic(self, key: OffsetKey) -> None:
        groups = self._groups_by_topic[key.topic]
        del groups[key.group_id]
        if not groups:
            del self._groups_by_topic[key.topic]

    def _remove_pending(self, key: OffsetKey) -> None:
        holders = self._open[key.group_id]
        for producer_id in list(holders):
            held = self._by_producer[producer_id]
            if held.pop(key, None) is not None:
                self._pending[key] -= 1
                if not any(other.group_id == key.group_id for other in held):
                    del holders[producer_id]
        assert not self._pending[key]
        del self._pending[key]
        if not holders:
            del self._open[key.group_id]


def tombstone(key: OffsetKey) -> Entry:
    return Entry(write_offset_key(key), None)


def expired(
    group: Group, offsets: Offsets, now_ms: int, retention_ms: int
) -> tuple[list[OffsetKey], bool]:
    """What of a group has been kept for long enough, and whether nothing of it is left then."""
    found, is_all = [], not offsets.is_in_transaction(group.group_id)
    for topic, partitions in offsets.of_group(group.group_id).items():
        is_subscribed = group.is_subscribed_to(topic)
        for partition, kept in partitions.items():
            key = OffsetKey(group.group_id, topic, partition)
            is_over = _is_over(group, kept.value, now_ms, retention_ms)
            if is_over and not is_subscribed and not offsets.is_pending(key):
                found.append(key)
            else:
                is_all = False
    return found, is_all


def _is_over(group: Group, value: OffsetValue, now_ms: int, retention_ms: int) -> bool:
    from_ms = group.expires_from(value)
    if from_ms is None:
        return False
    if value.expire_time_ms != NO_TIME:
        return now_ms >= value.expire_time_ms
    return now_ms - from_ms >= retention_ms


def _may_be_of(value: OffsetValue, topic_id: bytes | None) -> bool:
    return topic_id is None or value.topic_id in (topic_id, NO_TOPIC_ID)
