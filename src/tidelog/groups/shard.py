"""All groups that belong to one partition of `__consumer_offsets`, of both protocols, and their
offsets: a coordinator's shard.

Requests come as plain values and are answered through callbacks. What is kept is written to the
journal and replayed from there; what a classic group goes through between two generations is not
kept, its members begin anew if the coordinator changes. Whoever only looks answers through
`settle`, so that nothing is told that could still be lost.
"""

from collections.abc import Callable, Sequence

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.journal import Committed, Entry, Journal, Origin
from tidelog.groups.classic_group import ClassicGroup
from tidelog.groups.classic_groups import ClassicGroups
from tidelog.groups.committing import Committing
from tidelog.groups.consumer_group import ConsumerGroup
from tidelog.groups.consumer_groups import ConsumerGroups
from tidelog.groups.consumer_records import KINDS as CONSUMER_KINDS
from tidelog.groups.errors import no_such_group, told
from tidelog.groups.group import Group
from tidelog.groups.journaled import Journaled
from tidelog.groups.offsets import Offsets, tombstone
from tidelog.groups.records import (
    GROUP_KIND,
    OFFSET_KINDS,
    OffsetKey,
    read_group_key,
    read_group_value,
    read_offset_key,
    read_offset_value,
)
from tidelog.groups.requests import (
    NO_MEMBER_ID,
    AnswerCodes,
    AnswerJoin,
    AnswerSync,
    Identity,
    Join,
    Joined,
    Leaving,
    Sync,
    Synced,
)
from tidelog.groups.settling import settled_codes, settled_join, settled_sync
from tidelog.groups.surroundings import GroupSurroundings
from tidelog.groups.sweeping import Sweeping
from tidelog.records.fields import version_of


class GroupShard:
    def __init__(self, journal: Journal, surroundings: GroupSurroundings) -> None:
        self.surroundings = surroundings
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self.journaled = Journaled(journal, self.replay)
        self.classic = ClassicGroups(surroundings, self.journaled.keep)
        self.consumer = ConsumerGroups(surroundings, self.groups, self.journaled, self.classic)
        self.committing = Committing(
            surroundings, self.groups, self.offsets, self.classic, self.journaled
        )
        self._sweeping = Sweeping(
            surroundings, self.groups, self.offsets, self.journaled, self.committing.topic_ids
        )

    # -- the journal

    def replay(self, entry: Entry, origin: Origin) -> None:
        kind = version_of(entry.key)
        if kind in OFFSET_KINDS:
            value = None if entry.value is None else read_offset_value(entry.value)
            self.committing.replay(read_offset_key(entry.key), value, origin)
        elif kind == GROUP_KIND:
            self._replay_group(read_group_key(entry.key), entry.value)
        elif kind in CONSUMER_KINDS:
            self.consumer.replay(entry)

    def _replay_group(self, group_id: str, value: bytes | None) -> None:
        if value is not None:
            self.groups[group_id] = self.classic.loaded(group_id, read_group_value(value))
            return
        group = self.groups.pop(group_id, None)
        if isinstance(group, ClassicGroup):
            self.classic.close(group, ErrorCode.rebalance_in_progress)

    def replay_marker(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        """A producer has one transaction at a time, so its epoch tells nothing new."""
        del producer_epoch
        self.offsets.end_transaction(producer_id, is_commit=is_commit)

    def start(self) -> None:
        for group in list(self.groups.values()):
            if isinstance(group, ClassicGroup):
                self.classic.watch(group)
        self.consumer.start()
        self._sweeping.start()

    def stop(self) -> None:
        self._sweeping.stop()
        self.consumer.stop()
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                self.classic.close(group, ErrorCode.not_coordinator)

    def topics_changed(self) -> None:
        self.consumer.topics_changed()
        self._sweeping.topics_changed()

    def settle(self, committed: Committed) -> None:
        """Calls back once all that is known here is committed."""
        self.journaled.journal.settle(committed)

    def confirm(self, group_id: str, committed: Committed) -> None:
        """The same, and no other broker has looked after the group when this was asked: what says
        nothing new is committed, which one that was replaced without knowing it cannot do."""
        self.journaled.keep([tombstone(OffsetKey(group_id, "", -1))], committed)

    # -- members

    def join(self, join: Join, answer: AnswerJoin) -> None:
        group = self.groups.get(join.group_id)
        if isinstance(group, ConsumerGroup):
            self._join_consumer(group, join, answer)
            return
        if group is None:
            if join.member_id != NO_MEMBER_ID:
                code = ErrorCode.unknown_member_id
                answer(Joined(code=code, member_id=join.member_id))
                return
            group = self.groups[join.group_id] = self.classic.new(join.group_id)
        assert isinstance(group, ClassicGroup)
        self.classic.join(group, join, settled_join(self.settle, answer))

    def _join_consumer(self, group: ConsumerGroup, join: Join, answer: AnswerJoin) -> None:
        """One of the newer protocol that has no members any more makes place for a classic one,
        which keeps its offsets, also if the coordinator changes before it has a generation."""
        if not group.is_empty:
            self.consumer.guests.join(group, join, answer)
            return

        def written(error: KafkaError | None) -> None:
            if error is None:
                self.join(join, answer)
            else:
                answer(Joined(code=told(error), member_id=join.member_id))

        empty = self.classic.new(group.group_id).entry({})
        self.journaled.write([*group.tombstones(), empty], written)

    def sync(self, sync: Sync, answer: AnswerSync) -> None:
        group = self.groups.get(sync.who.group_id)
        if group is None or group.is_empty:
            answer(Synced(code=ErrorCode.unknown_member_id))
            return
        if isinstance(group, ConsumerGroup):
            self.consumer.guests.sync(group, sync, answer)
            return
        assert isinstance(group, ClassicGroup)
        self.classic.sync(group, sync, settled_sync(self.settle, answer))

    def heartbeat(self, who: Identity, answer: Callable[[ErrorCode], None]) -> None:
        group = self.groups.get(who.group_id)
        if group is None:
            answer(ErrorCode.unknown_member_id)
            return
        if isinstance(group, ConsumerGroup):
            self.consumer.guests.heartbeat(group, who, answer)
            return
        assert isinstance(group, ClassicGroup)
        code = self.classic.heartbeat(group, who)
        settled_codes(self.settle, [code], lambda codes: answer(codes[0]))

    def leave(self, group_id: str, leaving: Sequence[Leaving], answer: AnswerCodes) -> None:
        group = self.groups.get(group_id)
        if group is None:
            answer([ErrorCode.unknown_member_id] * len(leaving))
            return
        if isinstance(group, ConsumerGroup):
            self.consumer.guests.leave(group, leaving, answer)
            return
        assert isinstance(group, ClassicGroup)
        settled_codes(self.settle, self.classic.leave(group, leaving), answer)

    # -- groups

    def find_classic(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise no_such_group(group_id)
        return group

    def delete(self, group_id: str, answer: Callable[[ErrorCode], None]) -> None:
        """Forgets a group without members, and its offsets. Raises if it cannot be."""
        group = self.groups.get(group_id)
        if group is None:
            raise no_such_group(group_id)
        group.check_delete()
        entries = [tombstone(key) for key in self.offsets.keys_of_group(group_id)]

        def committed(error: KafkaError | None) -> None:
            answer(told(error))

        self.journaled.write_in_parts(entries + group.tombstones(), committed)
