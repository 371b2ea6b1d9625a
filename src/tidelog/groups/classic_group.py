"""A group whose members agree among themselves who does what, and how far they have come in that.

Its members join; when all are there, a generation begins and its leader is told of everyone; the
leader says what each is to do, and the group is stable. Whoever comes or goes begins this anew.

    Empty --> PreparingRebalance --> CompletingRebalance --> Stable
      ^              | ^   ^                  |                |
      +--------------+ |   +------------------+                |
                       +---------------------------------------+

Here is what a group is; `rebalancing` moves it on.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.journal import Entry
from tidelog.groups.classic_member import ClassicMember, Protocols, unrepeated
from tidelog.groups.deadline import Deadline
from tidelog.groups.errors import unknown_member
from tidelog.groups.group import CheckOne
from tidelog.groups.records import (
    NO_TIME,
    GroupValue,
    OffsetValue,
    write_group_key,
    write_group_value,
)
from tidelog.groups.requests import Identity, JoinedMember, Manner
from tidelog.groups.subscriptions import CONSUMER, subscribed_topics


class State(Enum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_FROM: Final[Mapping[State, tuple[State, ...]]] = {
    State.EMPTY: (State.PREPARING,),
    State.PREPARING: (State.EMPTY, State.COMPLETING, State.STABLE),
    State.COMPLETING: (State.PREPARING,),
    State.STABLE: (State.COMPLETING,),
    State.DEAD: tuple(State),
}
_WITH_MEMBERS: Final = (State.PREPARING, State.COMPLETING, State.STABLE)


class ClassicGroup:
    kind: Final = "classic"

    def __init__(self, group_id: str, joining: Deadline, syncing: Deadline) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.state_before = State.DEAD
        self.state_time_ms = NO_TIME
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.member_ids: dict[str, str] = {}
        """Of static members, by instance id."""
        self.promised: dict[str, Deadline] = {}
        """The ids that were given to members which are to join with them."""
        self.unsynced: dict[str, None] = {}
        """The members that have not asked yet what they are to do."""
        self.topics: frozenset[str] | None = None
        """What its members subscribe to, if that is known."""
        self.joining_count = 0
        self.has_grown = False
        """Whether the first generation of an empty group may wait for more members."""
        self.is_storing = False
        """Whether what the leader said is being written to the journal."""
        self.joining = joining
        self.syncing = syncing
        self._supporters: dict[str, int] = {}
        """How many members can do a protocol."""

    # -- what it looks like

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def is_everyone_there(self) -> bool:
        return self.joining_count == len(self.members) and not self.promised

    @property
    def rebalance_timeout_ms(self) -> int:
        """As long as the most patient of its members waits."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_subscribed_to(self, topic: str) -> bool:
        return self.protocol_type == CONSUMER if self.topics is None else topic in self.topics

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """As the leader is told of them."""
        protocol = self.protocol or ""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol))
            for member in self.members.values()
        )

    def entry(self, assignments: Mapping[str, bytes]) -> Entry:
        """The group with what its members are to do, for the journal."""
        value = GroupValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            state_time_ms=self.state_time_ms,
            members=tuple(
                member.kept(self.protocol or "", assignments.get(member.member_id, b""))
                for member in self.members.values()
            ),
        )
        return Entry(write_group_key(self.group_id), write_group_value(value))

    def tombstones(self) -> list[Entry]:
        return [Entry(write_group_key(self.group_id), None)]

    # -- members

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            assert member.instance_id not in self.member_ids
            self.member_ids[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count(member.protocols, 1)
        self.joining_count += member.joining is not None
        self.forget_promise(member.member_id)

    def remove(self, member_id: str) -> ClassicMember | None:
        """The first of the others leads from then on, if it was the leader."""
        self.forget_promise(member_id)
        self.unsynced.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is not None:
            member.heartbeat.cancel()
            self._count(member.protocols, -1)
            self.joining_count -= member.joining is not None
            if member.instance_id is not None:
                del self.member_ids[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def replace(self, member: ClassicMember, new: ClassicMember) -> None:
        """Puts a static member that has started again in the place of what it was."""
        assert member.instance_id is not None
        assert member.joining is None
        member.heartbeat.cancel()
        self.members = {
            new.member_id if member_id == member.member_id else member_id: (
                new if member_id == member.member_id else other
            )
            for member_id, other in self.members.items()
        }
        self.member_ids[member.instance_id] = new.member_id
        if self.leader == member.member_id:
            self.leader = new.member_id

    def set_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        self._count(member.protocols, -1)
        member.protocols = unrepeated(protocols)
        self._count(member.protocols, 1)

    def forget_promise(self, member_id: str) -> None:
        promise = self.promised.pop(member_id, None)
        if promise is not None:
            promise.cancel()

    def lead_by_one_who_joined(self) -> bool:
        """Whether there is one: a leader that is not there is replaced by the first who is."""
        leader = None if self.leader is None else self.members[self.leader]
        if leader is None or leader.joining is None:
            there = (m.member_id for m in self.members.values() if m.joining is not None)
            found = next(there, None)
            if found is None:
                return False
            self.leader = found
        return True

    # -- protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether one that can do these can be a member, beside those there are."""
        if self.state is State.EMPTY:
            return bool(protocol_type) and bool(protocols)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(
            self._supporters.get(name, 0) == count for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """What most members like best, of what all of them can do."""
        candidates = {
            name: 0 for name, count in self._supporters.items() if count == len(self.members)
        }
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def _count(self, protocols: Protocols, change: int) -> None:
        for name, _ in protocols:
            count = self._supporters.get(name, 0) + change
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]

    # -- states

    def move_to(self, state: State, now_ms: int) -> None:
        assert self.state in _FROM[state], f"{self.group_id}: {self.state} to {state}"
        self.state_before, self.state = self.state, state
        self.state_time_ms = now_ms

    def begin_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.unsynced.clear()
        self.is_storing = False
        self.protocol = self.select_protocol() if self.members else None
        self.learn_topics()
        self.move_to(State.COMPLETING if self.members else State.EMPTY, now_ms)

    def learn_topics(self) -> None:
        protocol = self.protocol
        if self.protocol_type != CONSUMER or (self.members and protocol is None):
            self.topics = None
        else:
            members = self.members.values()
            self.topics = subscribed_topics(member.metadata(protocol or "") for member in members)

    # -- what may be done

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        if instance_id is not None:
            known = self.member_ids.get(instance_id)
            if known is None:
                raise unknown_member(f"{self.group_id}: no static member {instance_id!r}")
            if known != member_id:
                raise KafkaError(
                    ErrorCode.fenced_instance_id,
                    f"{self.group_id}: {known} took the place of {member_id} as {instance_id!r}",
                )
        member = self.members.get(member_id)
        if member is None:
            raise unknown_member(f"{self.group_id}: no member {member_id!r}")
        return member

    def check_generation(self, who: Identity) -> ClassicMember:
        member = self.check_member(who.member_id, who.instance_id)
        if who.generation != self.generation:
            raise KafkaError(
                ErrorCode.illegal_generation,
                f"{self.group_id}: generation {who.generation}, it is {self.generation} now",
            )
        return member

    def check_commit(self, who: Identity, manner: Manner) -> CheckOne | None:
        """A group without members is committed to by those who manage it, or who read without
        being members. A member that has not been told what to do may not commit: others may
        have its partitions already."""
        if who.generation < 0 and self.state is State.EMPTY:
            return None
        if who.generation >= 0 or who.member_id or who.instance_id is not None:
            self.check_generation(who)
        elif not manner.is_transactional and self.state is not State.EMPTY:
            raise unknown_member(f"{self.group_id} has members, and this is none of them")
        if not manner.is_transactional and self.state is State.COMPLETING:
            raise rebalancing(self.group_id)
        return None

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Everyone may see the offsets of a classic group."""

    def check_offset_delete(self) -> None:
        if self.state in _WITH_MEMBERS and self.protocol_type != CONSUMER:
            raise _not_empty(self.group_id)

    def check_delete(self) -> None:
        if self.state in _WITH_MEMBERS:
            raise _not_empty(self.group_id)

    def expires_from(self, value: OffsetValue) -> int | None:
        """Offsets of one without members are kept from when the last of them left, those of a
        stable one from when they were committed; one that never had members goes by the latter
        too."""
        if self.protocol_type is None:
            return value.commit_time_ms
        if self.state is State.EMPTY:
            return value.commit_time_ms if self.state_time_ms == NO_TIME else self.state_time_ms
        if self.protocol_type == CONSUMER and self.topics is not None:
            return value.commit_time_ms if self.state is State.STABLE else None
        return None


def rebalancing(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.rebalance_in_progress, f"{group_id} is rebalancing")


def _not_empty(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.non_empty_group, f"{group_id} has members")
