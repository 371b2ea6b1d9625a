"""Who may join a classic group, and as whom.

One that is new gets an id, and is a member when it comes with it. A static member has a name of its
own, and no id is promised to it: when it starts again it takes the place it had, what it was before
is fenced, and if nothing else changes by it there is no rebalance. One that is a member joins again
when it is told to, when what it says has changed, or, as the leader, when it wants to decide anew.
"""

from dataclasses import replace
from functools import partial
from typing import Final
from uuid import UUID

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ports import Entropy
from tidelog.groups.classic_group import ClassicGroup, State
from tidelog.groups.classic_member import ClassicMember, unrepeated
from tidelog.groups.errors import told
from tidelog.groups.rebalancing import NEW_MEMBER_TIMEOUT_MS, Rebalancing
from tidelog.groups.requests import NO_MEMBER_ID, AnswerJoin, Join, Joined, Synced

_NAME_CHARACTERS_MAX: Final = 1000
"""Of a name in an id, which must not become longer than a string may be."""


class Joining:
    def __init__(self, rebalancing: Rebalancing, entropy: Entropy) -> None:
        self._rebalancing = rebalancing
        self._entropy = entropy

    def join(self, group: ClassicGroup, join: Join, answer: AnswerJoin) -> None:
        if not self._has_room(group, join.member_id):
            answer(Joined(code=ErrorCode.group_max_size_reached))
            self._rebalancing.dismiss(group, join.member_id)
            self._rebalancing.complete_if_all_joined(group)
        elif not group.supports(join.protocol_type, join.protocols):
            code = ErrorCode.inconsistent_group_protocol
            answer(Joined(code=code, member_id=join.member_id))
        elif join.member_id == NO_MEMBER_ID:
            self._join_as_new(group, join, answer)
        elif join.instance_id is None and join.member_id in group.promised:
            self._add(group, join, join.member_id, answer)
        else:
            self._join_again(group, join, answer)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """While all join again, those who came first stay, should there be too many of them."""
        size_max = self._rebalancing.setting("group.max.size")
        member = group.members.get(member_id)
        if group.state is State.EMPTY:
            return True
        if group.state is State.PREPARING:
            is_there = member is not None and member.joining is not None
            return is_there or group.joining_count < size_max
        return member is not None or len(group.members) < size_max

    def _join_as_new(self, group: ClassicGroup, join: Join, answer: AnswerJoin) -> None:
        name = join.client_id if join.instance_id is None else join.instance_id
        unique = UUID(bytes=self._entropy.random_bytes(16), version=4)
        member_id = f"{name[:_NAME_CHARACTERS_MAX]}-{unique}"
        if join.instance_id in group.member_ids and join.instance_id is not None:
            self._replace(group, join, member_id, answer)
        elif join.instance_id is None and join.takes_member_id:
            self._rebalancing.promise(group, member_id, join.session_timeout_ms)
            answer(Joined(code=ErrorCode.member_id_required, member_id=member_id))
        else:
            self._add(group, join, member_id, answer)

    def _add(self, group: ClassicGroup, join: Join, member_id: str, answer: AnswerJoin) -> None:
        member = ClassicMember(member_id, join.instance_id, self._rebalancing.deadline())
        member.client_id = join.client_id
        member.client_host = join.client_host
        member.update(join)
        member.is_new = True
        member.joining = answer
        group.has_grown = True
        group.add(member, join.protocol_type)
        self._rebalancing.watch(group, member, NEW_MEMBER_TIMEOUT_MS)
        self._rebalancing.go_on(group)

    def _join_again(self, group: ClassicGroup, join: Join, answer: AnswerJoin) -> None:
        try:
            member = group.check_member(join.member_id, join.instance_id)
        except KafkaError as error:
            answer(Joined(code=error.code, member_id=join.member_id))
            return
        has_changed = member.protocols != unrepeated(join.protocols)
        decides_anew = group.state is State.STABLE and group.leader == member.member_id
        if group.state is State.PREPARING or has_changed or decides_anew:
            self._update(group, member, join, answer)
            self._rebalancing.go_on(group)
        else:
            answer(self._rebalancing.joined(group, member.member_id))

    def _update(
        self, group: ClassicGroup, member: ClassicMember, join: Join, answer: AnswerJoin
    ) -> None:
        group.set_protocols(member, join.protocols)
        member.update(join)
        self._rebalancing.await_join(group, member, answer)

    # -- static members

    def _replace(self, group: ClassicGroup, join: Join, member_id: str, answer: AnswerJoin) -> None:
        assert join.instance_id is not None
        before = group.members[group.member_ids[join.instance_id]]
        leader_before = group.leader
        member = self._succeed(group, before, member_id)
        self._update(group, member, join, answer)
        if group.state is State.STABLE and group.select_protocol() == group.protocol:
            assignments = {other.member_id: other.assignment for other in group.members.values()}
            stored = partial(self._replaced, group, join, (before, member), leader_before)
            self._rebalancing.keep([group.entry(assignments)], stored)
        elif group.state in (State.STABLE, State.COMPLETING):
            self._rebalancing.prepare(group)
        else:
            self._rebalancing.complete_if_all_joined(group)

    def _succeed(self, group: ClassicGroup, before: ClassicMember, member_id: str) -> ClassicMember:
        fenced = ErrorCode.fenced_instance_id
        rebalancing = self._rebalancing
        rebalancing.answer_join(group, before, Joined(code=fenced, member_id=before.member_id))
        rebalancing.answer_sync(before, Synced(code=fenced))
        member = before.renamed(member_id, rebalancing.deadline())
        group.replace(before, member)
        rebalancing.watch(group, member)
        return member

    def _replaced(
        self,
        group: ClassicGroup,
        join: Join,
        members: tuple[ClassicMember, ClassicMember],
        leader_before: str | None,
        error: KafkaError | None,
    ) -> None:
        """The new place is known to be the journal's. If it is not, the old one is taken back. If
        a rebalance began meanwhile the member is part of that."""
        before, member = members
        is_there = group.members.get(member.member_id) is member
        if not is_there or group.state is not State.STABLE:
            return
        if error is not None:
            answer = Joined(code=told(error), leader=leader_before or "")
            self._rebalancing.answer_join(group, member, answer)
            group.set_protocols(member, before.protocols)
            group.replace(member, before)
            self._rebalancing.watch(group, before)
            return
        joined = self._rebalancing.joined(group, member.member_id)
        self._rebalancing.answer_join(
            group, member, _as_it_was(joined, join.may_skip_assignment, leader_before)
        )
        self._rebalancing.watch(group, member)


def _as_it_was(joined: Joined, may_skip_assignment: bool, leader_before: str | None) -> Joined:
    """A leader that would assign anew is told to leave it; one that cannot be told that is told
    that another leads, the one it was before."""
    if may_skip_assignment:
        return replace(joined, skip_assignment=bool(joined.members))
    return replace(joined, members=(), leader=leader_before or "")
