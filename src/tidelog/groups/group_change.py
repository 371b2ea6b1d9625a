"""A change of a group of the newer protocol while it is put together.

It has the group as it is going to be, and the entries that say so. Nothing of the group itself is
touched: that happens when the entries are replayed, if they could be written.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from tidelog.base.journal import Entry
from tidelog.base.ports import Clock
from tidelog.groups import consumer_records as records
from tidelog.groups.assignors import ASSIGNORS, Assignment, Subscriber
from tidelog.groups.consumer_group import NO_TARGET, ConsumerGroup, member_tombstones
from tidelog.groups.consumer_member import Member
from tidelog.groups.consumer_records import EpochValue, PatternValue
from tidelog.groups.reconciliation import Aim, reconcile
from tidelog.groups.surroundings import TopicView
from tidelog.groups.topic_patterns import matching

_BITS: Final = 64


class GroupChange:
    def __init__(self, group: ConsumerGroup, topics: TopicView, clock: Clock) -> None:
        self.group = group
        self.entries: list[Entry] = []
        self.members = dict(group.members)
        self.patterns = dict(group.patterns)
        self.epoch = group.epoch
        self.target_epoch = group.target_epoch
        self._targets = dict(group.targets)
        self._topics = topics
        self._clock = clock
        self._ids: dict[_Subscription, tuple[bytes, ...]] = {}

    # -- members

    def describe(self, member: Member) -> None:
        """A member is new, or says something else of itself."""
        self.members[member.member_id] = member
        self.entries.append(records.member_entry(self.group.group_id, member))

    def replace(self, before: Member, member: Member) -> None:
        """A static member has started again: it is to have what it had."""
        group_id = self.group.group_id
        target = self._targets.get(before.member_id, NO_TARGET)
        self.remove([before.member_id])
        self.describe(member)
        self._targets[member.member_id] = target
        self.entries.append(records.target_entry(group_id, member.member_id, target))
        self.entries.append(records.current_entry(group_id, member))

    def remove(self, member_ids: Iterable[str]) -> None:
        gone = list(member_ids)
        self.entries += member_tombstones(self.group.group_id, gone)
        for member_id in gone:
            del self.members[member_id]
            self._targets.pop(member_id, None)

    def reconcile(self, member: Member, owned: Assignment | None) -> Member:
        """Brings a member a step further, if there is one."""
        if member.is_reconciled_to(self.target_epoch):
            return member
        aim = Aim(
            epoch=self.target_epoch,
            target=self._targets.get(member.member_id, NO_TARGET),
            topic_ids=self._topic_ids(member),
        )
        found = reconcile(member, aim, self.group.holder_of, owned)
        if found != member:
            self.members[found.member_id] = found
            self.entries.append(records.current_entry(self.group.group_id, found))
        return found

    # -- the group

    @property
    def is_due(self) -> bool:
        """Whether its topics have to be looked at."""
        return self.group.is_stale or self.group.is_pattern_due(self._clock.monotonic_ms())

    def follow_topics(self, *, has_changed: bool) -> None:
        """Looks at the topics its members subscribe to, and raises the epoch if they, or the
        members, have changed."""
        self._follow_patterns()
        topics_hash = self._topics_hash()
        if has_changed or topics_hash != self.group.topics_hash:
            self.epoch += 1
            value = EpochValue(self.epoch, topics_hash)
            self.entries.append(records.group_entry(self.group.group_id, value))
        self.group.is_stale = False

    def assign(self, assignors: Sequence[str]) -> None:
        """Computes who is to have what in the epoch that the group has come to."""
        group_id = self.group.group_id
        members = {
            member_id: Subscriber(
                self._topic_ids(member), self._targets.get(member_id, NO_TARGET), member.instance_id
            )
            for member_id, member in self.members.items()
        }
        assign = ASSIGNORS[preferred_assignor(self.members.values(), assignors)]
        targets = assign(members, dict(self._subscribed().values()))
        for member_id in self.members:
            if targets[member_id] != self._targets.get(member_id):
                self._targets[member_id] = targets[member_id]
                self.entries.append(records.target_entry(group_id, member_id, targets[member_id]))
        self.target_epoch = self.epoch
        self.entries.append(records.target_epoch_entry(group_id, self.epoch))

    # -- topics

    def _follow_patterns(self) -> None:
        """A new expression is looked up at once, known ones when topics have changed."""
        group = self.group
        used = dict.fromkeys(m.pattern for m in self.members.values() if m.pattern)
        is_due = group.is_pattern_due(self._clock.monotonic_ms())
        for pattern in [found for found in self.patterns if found not in used]:
            del self.patterns[pattern]
            self.entries.append(records.tombstone(records.PATTERN, group.group_id, pattern))
        for pattern in used:
            known = self.patterns.get(pattern)
            if known is not None and not is_due:
                continue
            topics = matching(pattern, self._topics.names())
            found = PatternValue(topics, self._clock.now_ms())
            if known is None or known.topics != found.topics:
                self.patterns[pattern] = found
                self.entries.append(records.pattern_entry(group.group_id, pattern, found))
        if is_due:
            group.patterns_looked_up(self._clock.monotonic_ms())

    def _names(self, member: Member) -> Iterator[str]:
        yield from member.topics
        if member.pattern in self.patterns:
            yield from self.patterns[member.pattern].topics

    def _topic_ids(self, member: Member) -> tuple[bytes, ...]:
        """Of the topics a member subscribes to, as far as there are any."""
        subscription = _subscription(member)
        found = self._ids.get(subscription)
        if found is None:
            ids = (self._topics.topic_id(name) for name in self._names(member))
            found = self._ids[subscription] = tuple(sorted({i for i in ids if i is not None}))
        return found

    def _subscribed(self) -> dict[str, tuple[bytes, int]]:
        """The id and the number of partitions of each topic that any member subscribes to."""
        subscriptions = {_subscription(member): member for member in self.members.values()}
        found = {}
        for member in subscriptions.values():
            for name in self._names(member):
                topic_id = self._topics.topic_id(name)
                count = self._topics.partition_count(name)
                if topic_id is not None and count is not None:
                    found[name] = (topic_id, count)
        return found

    def _topics_hash(self) -> int:
        """It does not depend on an order. 0 if there are no topics; signed, as it is written."""
        combined = 0
        for name, (topic_id, count) in self._subscribed().items():
            combined ^= _hash(name, topic_id, count)
        return combined - (1 << _BITS) if combined >> _BITS - 1 else combined


_Subscription = tuple[int, str]


def _subscription(member: Member) -> _Subscription:
    """The same for members that have subscribed to the same. Names are told apart by where they
    are: those that come from the journal are shared."""
    return (id(member.topics), member.pattern)


def preferred_assignor(members: Iterable[Member], assignors: Sequence[str]) -> str:
    """The one that most members ask for; the first of the setting if none does."""
    votes = {name: 0 for name in assignors if name in ASSIGNORS}
    for member in members:
        if member.assignor in votes:
            votes[member.assignor] += 1
    return max(votes, key=votes.__getitem__)


def renamed(member: Member, member_id: str) -> Member:
    """A static member that has started again, in the place of what it was."""
    return replace(member, member_id=member_id, epoch=0, previous_epoch=0)


@lru_cache(maxsize=16_384)
def _hash(name: str, topic_id: bytes, partition_count: int) -> int:
    text = f"{name}\0{partition_count}\0".encode() + topic_id
    return int.from_bytes(blake2b(text, digest_size=_BITS // 8).digest(), "big")
