"""A group whose members the broker tells what to read: the newer protocol.

The group has an epoch, which rises whenever members, their subscriptions or the topics change. An
assignment is computed for it, the target; its epoch is the group's once that is done. Then each
member is brought there, one heartbeat after the other, at its own pace (`reconciliation`).

    members?  no --> Empty
    target of an older epoch than the group's --> Assigning
    a member that is not there yet --> Reconciling
    otherwise --> Stable

All that is here comes from the journal, through the `put` and `drop` methods, and so is the same
on whichever broker looks after the group.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.journal import Entry
from tidelog.groups import consumer_records as records
from tidelog.groups.assignors import Assignment
from tidelog.groups.consumer_member import LEAVING, Held, Member
from tidelog.groups.consumer_records import PatternValue
from tidelog.groups.errors import unknown_member
from tidelog.groups.group import CheckOne
from tidelog.groups.records import OffsetValue
from tidelog.groups.requests import Commit, Identity, Manner
from tidelog.groups.subscriptions import CONSUMER

NO_TARGET: Final[Assignment] = {}
PATTERN_INTERVAL_MS: Final = 10_000
"""Topics are looked through for those that match no more often than this."""
_KNOWS_EPOCHS_FROM: Final = 9
"""The version of OffsetCommit from which on clients know of epochs of members."""


class ConsumerGroup:
    kind: Final = "consumer"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.protocol_type: str | None = CONSUMER
        self.epoch = 0
        self.topics_hash = 0
        """Of the topics, and their partitions, that the epoch stands for."""
        self.target_epoch = 0
        self.members: dict[str, Member] = {}
        self.member_ids: dict[str, str] = {}
        """Of static members, by instance id."""
        self.targets: dict[str, Assignment] = {}
        self.patterns: dict[str, PatternValue] = {}
        """The topics that each regular expression stands for."""
        self.is_stale = True
        """Whether topics may have changed since they were last looked at."""
        self._are_patterns_stale = True
        self._patterns_ms = -PATTERN_INTERVAL_MS
        self._holders: dict[bytes, dict[int, str]] = {}
        self._subscribers: dict[str, int] = {}
        """How many members name a topic."""

    # -- what it looks like

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        target_epoch = self.target_epoch
        is_stable = all(m.is_reconciled_to(target_epoch) for m in self.members.values())
        return "Stable" if is_stable else "Reconciling"

    @property
    def is_empty(self) -> bool:
        return not self.members

    def holder_of(self, topic_id: bytes, partition: int) -> str | None:
        """The member that has a partition, or has not said yet that it gave it up."""
        return self._holders.get(topic_id, {}).get(partition)

    def is_subscribed_to(self, topic: str) -> bool:
        if topic in self._subscribers:
            return True
        return any(topic in value.topics for value in self.patterns.values())

    def find(self, member_id: str) -> Member:
        member = self.members.get(member_id)
        if member is None:
            raise unknown_member(f"{self.group_id}: no member {member_id!r}")
        return member

    def find_static(self, member_id: str, instance_id: str) -> Member:
        """The member of that instance, if it is still this one."""
        known = self.member_ids.get(instance_id)
        if known is None:
            raise unknown_member(f"{self.group_id}: no static member {instance_id!r}")
        if known != member_id:
            raise KafkaError(
                ErrorCode.fenced_instance_id,
                f"{self.group_id}: {known} took the place of {member_id} as {instance_id!r}",
            )
        return self.members[known]

    # -- what it has seen of the topics; this is not kept in the journal

    def topics_changed(self) -> None:
        """Topics have changed, or what was found out about them could not be written."""
        self.is_stale = self._are_patterns_stale = True

    def is_pattern_due(self, monotonic_ms: int) -> bool:
        """Whether it is time to look up again what its regular expressions stand for."""
        is_time = monotonic_ms - self._patterns_ms >= PATTERN_INTERVAL_MS
        return self._are_patterns_stale and bool(self.patterns) and is_time

    def patterns_looked_up(self, monotonic_ms: int) -> None:
        self._are_patterns_stale = False
        self._patterns_ms = monotonic_ms

    # -- what may be done

    def check_commit(self, who: Identity, manner: Manner) -> CheckOne | None:
        """A commit of an earlier epoch is good for what the member has had all the time since: no
        other member can have committed to that meanwhile (V15). A producer need not say for which
        member it commits."""
        is_nobody = not who.member_id and who.instance_id is None
        if who.generation < 0 and (not self.members or (manner.is_transactional and is_nobody)):
            return None
        member = self.find(who.member_id)
        is_classic = member.classic is not None
        if not manner.is_transactional and not is_classic and manner.version < _KNOWS_EPOCHS_FROM:
            raise KafkaError(
                ErrorCode.unsupported_version,
                f"members of {self.group_id} commit in version {_KNOWS_EPOCHS_FROM} or later",
            )
        if who.generation == member.epoch:
            return None
        refusal = _of_another_epoch(
            member, who.generation, is_generation=is_classic or manner.is_transactional
        )
        if who.generation > member.epoch:
            raise refusal
        return partial(_check_late_commit, member, who.generation, refusal)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Whoever does not say who it is may see them."""
        if member_id is None and member_epoch < 0:
            return
        member = self.find(member_id or "")
        if member_epoch != member.epoch:
            is_classic = member.classic is not None
            raise _of_another_epoch(member, member_epoch, is_generation=is_classic)

    def check_offset_delete(self) -> None:
        """Those of topics nobody reads can be deleted at any time."""

    def check_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.non_empty_group, f"{self.group_id} has members")

    def expires_from(self, value: OffsetValue) -> int | None:
        return value.commit_time_ms

    def tombstones(self) -> list[Entry]:
        """Those of a member stand in the order in which Kafka wants to read them."""
        group_id = self.group_id
        members = list(dict.fromkeys([*self.members, *self.targets]))
        return [
            *(records.tombstone(records.CURRENT, group_id, found) for found in members),
            *(records.tombstone(records.TARGET, group_id, found) for found in members),
            records.tombstone(records.TARGET_EPOCH, group_id),
            *(records.tombstone(records.MEMBER, group_id, found) for found in members),
            *(records.tombstone(records.PATTERN, group_id, found) for found in self.patterns),
            records.tombstone(records.GROUP_EPOCH, group_id),
        ]

    # -- what the journal says

    def put_member(self, member: Member) -> None:
        before = self.members.get(member.member_id)
        if before is not None:
            self._release(before.member_id, before.held)
            self._release(before.member_id, before.revoking)
            self._forget_instance(before)
        self.members[member.member_id] = member
        if before is None or before.topics is not member.topics:
            self._count(() if before is None else before.topics, -1)
            self._count(member.topics, 1)
        self._take(member.member_id, member.held)
        self._take(member.member_id, member.revoking)
        if member.instance_id is not None:
            self.member_ids[member.instance_id] = member.member_id

    def drop_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.topics, -1)
            self._release(member_id, member.held)
            self._release(member_id, member.revoking)
            self._forget_instance(member)

    def drop_partitions(self, member_id: str) -> None:
        """A member has nothing any more; it is about to be no member."""
        member = self.members.get(member_id)
        if member is not None:
            left = replace(member, epoch=LEAVING, previous_epoch=LEAVING, held={}, revoking={})
            self.put_member(left)

    def _forget_instance(self, member: Member) -> None:
        if self.member_ids.get(member.instance_id or "") == member.member_id:
            del self.member_ids[member.instance_id or ""]

    def _count(self, topics: Iterable[str], change: int) -> None:
        for topic in topics:
            count = self._subscribers.get(topic, 0) + change
            if count:
                self._subscribers[topic] = count
            else:
                del self._subscribers[topic]

    def _take(self, member_id: str, held: Held) -> None:
        for topic_id, partitions in held.items():
            holders = self._holders.setdefault(topic_id, {})
            for partition in partitions:
                holders[partition] = member_id

    def _release(self, member_id: str, held: Held) -> None:
        for topic_id, partitions in held.items():
            holders = self._holders.get(topic_id, {})
            for partition in partitions:
                if holders.get(partition) == member_id:
                    del holders[partition]
            if not holders:
                self._holders.pop(topic_id, None)


def member_tombstones(group_id: str, member_ids: Iterable[str]) -> list[Entry]:
    """What says that members are no more."""
    kinds = (records.CURRENT, records.TARGET, records.MEMBER)
    return [
        records.tombstone(kind, group_id, member_id) for member_id in member_ids for kind in kinds
    ]


def _check_late_commit(member: Member, epoch: int, refusal: KafkaError, commit: Commit) -> None:
    got_at = member.got_at(commit.topic_id, commit.partition)
    if got_at is None or epoch < got_at:
        raise refusal


def _of_another_epoch(member: Member, epoch: int, *, is_generation: bool) -> KafkaError:
    """Members that speak the classic protocol, and producers, know epochs as generations."""
    code = ErrorCode.illegal_generation if is_generation else ErrorCode.stale_member_epoch
    return KafkaError(code, f"{member.member_id}: epoch {epoch}, it is {member.epoch} now")
