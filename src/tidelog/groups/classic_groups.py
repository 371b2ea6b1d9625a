"""The classic groups of a shard: what their members ask, and what becomes of it."""

from collections.abc import Sequence
from functools import partial

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.classic_group import ClassicGroup, State
from tidelog.groups.classic_member import ClassicMember
from tidelog.groups.errors import told
from tidelog.groups.joining import Joining
from tidelog.groups.rebalancing import Keep, Rebalancing
from tidelog.groups.records import GroupValue
from tidelog.groups.requests import (
    NO_MEMBER_ID,
    AnswerJoin,
    AnswerSync,
    Identity,
    Join,
    Leaving,
    Sync,
    Synced,
)
from tidelog.groups.surroundings import GroupSurroundings


class ClassicGroups:
    def __init__(self, surroundings: GroupSurroundings, keep: Keep) -> None:
        self.rebalancing = Rebalancing(surroundings, keep)
        self._joining = Joining(self.rebalancing, surroundings.entropy)

    # -- groups come and go

    def new(self, group_id: str) -> ClassicGroup:
        """An empty one."""
        rebalancing = self.rebalancing
        return ClassicGroup(group_id, rebalancing.deadline(), rebalancing.deadline())

    def loaded(self, group_id: str, value: GroupValue) -> ClassicGroup:
        """One as the journal has it: its members are not watched before `watch`."""
        group = self.new(group_id)
        group.generation = value.generation
        group.protocol = value.protocol
        group.state_time_ms = value.state_time_ms
        for kept in value.members:
            member = ClassicMember(kept.member_id, kept.instance_id, self.rebalancing.deadline())
            member.load(kept, value.protocol or "")
            group.add(member, value.protocol_type)
        group.protocol_type = value.protocol_type or None
        group.leader = value.leader if value.leader in group.members else group.leader
        group.state = State.STABLE if group.members else State.EMPTY
        group.learn_topics()
        return group

    def watch(self, group: ClassicGroup) -> None:
        """Begins to look after a group that was loaded: its members have their session timeout to
        come here. If there are more of them than may be, some have to go."""
        for member in group.members.values():
            self.rebalancing.watch(group, member)
        if len(group.members) > self.rebalancing.setting("group.max.size"):
            self.rebalancing.prepare(group)

    def close(self, group: ClassicGroup, code: ErrorCode) -> None:
        self.rebalancing.close(group, code)

    # -- what members ask

    def join(self, group: ClassicGroup, join: Join, answer: AnswerJoin) -> None:
        self._joining.join(group, join, answer)

    def sync(self, group: ClassicGroup, sync: Sync, answer: AnswerSync) -> None:
        try:
            member = group.check_generation(sync.who)
            _check_protocol(group, sync)
        except KafkaError as error:
            answer(Synced(code=error.code))
            return
        if group.state is State.PREPARING:
            answer(Synced(code=ErrorCode.rebalance_in_progress))
            return
        self.rebalancing.synced(group, member.member_id)
        if group.state is State.STABLE:
            answer(self.rebalancing.synced_answer(group, member, ErrorCode.none))
            return
        self.rebalancing.await_sync(member, answer)
        if group.leader == member.member_id and not group.is_storing:
            self._store(group, sync)

    def _store(self, group: ClassicGroup, sync: Sync) -> None:
        """Writes what the leader said. The group is stable when that is committed."""
        group.is_storing = True
        stored = partial(self._stored, group, sync)
        self.rebalancing.keep([group.entry(sync.assignments)], stored)

    def _stored(self, group: ClassicGroup, sync: Sync, error: KafkaError | None) -> None:
        if group.state is not State.COMPLETING or group.generation != sync.who.generation:
            return
        group.is_storing = False
        if error is not None:
            self.rebalancing.spread(group, told(error))
            self.rebalancing.prepare(group)
            return
        for member in group.members.values():
            member.assignment = sync.assignments.get(member.member_id, b"")
        self.rebalancing.spread(group, ErrorCode.none)
        group.move_to(State.STABLE, self.rebalancing.now_ms())

    def heartbeat(self, group: ClassicGroup, who: Identity) -> ErrorCode:
        try:
            member = group.check_generation(who)
        except KafkaError as error:
            return error.code
        self.rebalancing.watch(group, member)
        is_rebalancing = group.state is State.PREPARING
        return ErrorCode.rebalance_in_progress if is_rebalancing else ErrorCode.none

    def heard_of(self, group: ClassicGroup, member_id: str) -> None:
        """Of a member that commits."""
        member = group.members.get(member_id)
        if member is not None and group.state in (State.STABLE, State.PREPARING):
            self.rebalancing.watch(group, member)

    def leave(self, group: ClassicGroup, leaving: Sequence[Leaving]) -> list[ErrorCode]:
        """One rebalance for all of them."""
        codes = [self._let_go(group, one) for one in leaving]
        if ErrorCode.none in codes:
            if group.state in (State.STABLE, State.COMPLETING):
                self.rebalancing.prepare(group)
            else:
                self.rebalancing.complete_if_all_joined(group)
        return codes

    def _let_go(self, group: ClassicGroup, leaving: Leaving) -> ErrorCode:
        member_id, instance_id = leaving
        if member_id == NO_MEMBER_ID:
            found = None if instance_id is None else group.member_ids.get(instance_id)
            if found is None:
                return ErrorCode.unknown_member_id
            member_id = found
        elif member_id not in group.promised:
            try:
                group.check_member(member_id, instance_id)
            except KafkaError as error:
                return error.code
        self.rebalancing.dismiss(group, member_id)
        return ErrorCode.none


def _check_protocol(group: ClassicGroup, sync: Sync) -> None:
    for said, known in ((sync.protocol_type, group.protocol_type), (sync.protocol, group.protocol)):
        if said is not None and known is not None and said != known:
            raise KafkaError(
                ErrorCode.inconsistent_group_protocol, f"{group.group_id}: {said}, it is {known}"
            )
