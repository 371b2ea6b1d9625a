"""The groups of the newer protocol of a shard: what the journal says of them, and their requests.

What members of the newer protocol ask is in `heartbeats`, what those of the classic protocol ask,
while they are members of such a group, in `classic_guests`.
"""

from collections.abc import Iterator

from tidelog.base.journal import Entry
from tidelog.groups import consumer_records as records
from tidelog.groups.classic_groups import ClassicGroups
from tidelog.groups.classic_guests import ClassicGuests
from tidelog.groups.consumer_context import ConsumerContext
from tidelog.groups.consumer_group import ConsumerGroup
from tidelog.groups.consumer_member import Member, MemberState
from tidelog.groups.consumer_records import Key
from tidelog.groups.consumer_timers import MemberTimers
from tidelog.groups.departures import Departures
from tidelog.groups.errors import no_such_group
from tidelog.groups.group import Group
from tidelog.groups.group_change import preferred_assignor
from tidelog.groups.heartbeats import Heartbeats
from tidelog.groups.journaled import Journaled
from tidelog.groups.surroundings import GroupSurroundings


class ConsumerGroups:
    def __init__(
        self,
        surroundings: GroupSurroundings,
        groups: dict[str, Group],
        journaled: Journaled,
        classic: ClassicGroups,
    ) -> None:
        self._context = ConsumerContext(
            surroundings=surroundings,
            groups=groups,
            journaled=journaled,
            timers=MemberTimers(surroundings),
            classic=classic,
        )
        self._departures = Departures(self._context)
        self.beat = Heartbeats(self._context, self._departures).beat
        self.guests = ClassicGuests(self._context, self._departures)

    # -- what there is

    def find(self, group_id: str) -> ConsumerGroup:
        group = self._context.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise no_such_group(group_id)
        return group

    def assignor_of(self, group: ConsumerGroup) -> str:
        return preferred_assignor(group.members.values(), self._context.assignors())

    def _all(self) -> Iterator[ConsumerGroup]:
        return (g for g in self._context.groups.values() if isinstance(g, ConsumerGroup))

    # -- being looked after here

    def start(self) -> None:
        """Members have their whole session timeout to come here."""
        for group in self._all():
            for member in group.members.values():
                self._departures.watch(group.group_id, member)
                if member.state is MemberState.UNREVOKED and member.classic is None:
                    self._departures.expect_revocation(group.group_id, member)

    def stop(self) -> None:
        self._context.timers.stop()

    def topics_changed(self) -> None:
        for group in self._all():
            group.topics_changed()

    # -- what the journal says

    def replay(self, entry: Entry) -> None:
        key = records.read_key(entry.key)
        if entry.value is None:
            group = self._context.groups.get(key.group_id)
            if isinstance(group, ConsumerGroup):
                self._replay_end(group, key)
        else:
            _replay(self._make(key.group_id), key, entry.value)

    def _make(self, group_id: str) -> ConsumerGroup:
        """A group that only has offsets was made for those, when they were replayed before it."""
        group = self._context.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            group = self._context.groups[group_id] = ConsumerGroup(group_id)
        return group

    def _replay_end(self, group: ConsumerGroup, key: Key) -> None:
        if key.kind == records.GROUP_EPOCH:
            del self._context.groups[key.group_id]
            self._context.timers.forget_group(key.group_id)
        elif key.kind == records.MEMBER:
            group.drop_member(key.name)
            self._context.timers.forget_member(key.group_id, key.name)
        elif key.kind == records.CURRENT:
            group.drop_partitions(key.name)
        elif key.kind == records.TARGET:
            group.targets.pop(key.name, None)
        elif key.kind == records.TARGET_EPOCH:
            group.target_epoch = -1
        elif key.kind == records.PATTERN:
            group.patterns.pop(key.name, None)


def _replay(group: ConsumerGroup, key: Key, value: bytes) -> None:
    if key.kind == records.GROUP_EPOCH:
        group.epoch, group.topics_hash = records.read_group(value)
    elif key.kind == records.MEMBER:
        group.put_member(records.read_member(value, _member(group, key.name)))
    elif key.kind == records.CURRENT:
        group.put_member(records.read_current(value, _member(group, key.name)))
    elif key.kind == records.TARGET:
        group.targets[key.name] = records.read_target(value)
    elif key.kind == records.TARGET_EPOCH:
        group.target_epoch = records.read_target_epoch(value)
    elif key.kind == records.PATTERN:
        group.patterns[key.name] = records.read_pattern(value)


def _member(group: ConsumerGroup, member_id: str) -> Member:
    return group.members.get(member_id) or Member(member_id=member_id)
