"""How a classic group comes from one generation to the next, and what its timers do.

A rebalance waits for all members to join again: an empty group waits a little for more of them to
come, any other for those it has, as long as the most patient of them allows. Then all are answered,
and the leader's word is awaited. Members that say nothing for their session timeout are let go.

Answers are given when the step that gives them is over, so that what they lead to finds the group
as it is after it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.journal import Committed, Entry
from tidelog.groups.classic_group import ClassicGroup, State
from tidelog.groups.classic_member import ClassicMember
from tidelog.groups.deadline import Deadline
from tidelog.groups.requests import NO_LEADER, AnswerJoin, AnswerSync, Joined, Synced
from tidelog.groups.surroundings import GroupSurroundings

Answer = TypeVar("Answer")

Keep = Callable[[Sequence[Entry], Committed], None]
"""Writes to the journal; an error is told to the one who waits for the commit."""

NEW_MEMBER_TIMEOUT_MS: Final = 300_000
"""How long one that is new may wait for a generation: it sends no heartbeats meanwhile, and if it
is still there it asks again."""


class Rebalancing:
    def __init__(self, surroundings: GroupSurroundings, keep: Keep) -> None:
        self._surroundings = surroundings
        self.keep = keep

    def deadline(self) -> Deadline:
        return Deadline(self._surroundings.clock, self._surroundings.loop)

    def now_ms(self) -> int:
        return self._surroundings.clock.now_ms()

    def setting(self, name: str) -> int:
        return self._surroundings.settings().whole(name)

    # -- the way to a generation

    def go_on(self, group: ClassicGroup) -> None:
        """After someone came, went, or changed: begins a rebalance, or ends the one there is if
        nobody is missing."""
        if group.state in (State.EMPTY, State.COMPLETING, State.STABLE):
            self.prepare(group)
        else:
            self.complete_if_all_joined(group)

    def prepare(self, group: ClassicGroup) -> None:
        if group.state is State.COMPLETING:
            self.spread(group, ErrorCode.rebalance_in_progress)
        group.unsynced.clear()
        group.syncing.cancel()
        is_first = group.state is State.EMPTY
        group.move_to(State.PREPARING, self.now_ms())
        if is_first:
            group.has_grown = False
            delay_ms = self.setting("group.initial.rebalance.delay.ms")
            self._wait_for_more(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        elif group.is_everyone_there:
            self.complete(group)
        else:
            group.joining.set(group.rebalance_timeout_ms, partial(self.complete, group))

    def _wait_for_more(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        group.joining.set(delay_ms, partial(self._waited, group, delay_ms, remaining_ms))

    def _waited(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        """As long as more members come, it waits on, though no longer than any of them would."""
        if group.has_grown and remaining_ms:
            group.has_grown = False
            next_ms = min(self.setting("group.initial.rebalance.delay.ms"), remaining_ms)
            self._wait_for_more(group, next_ms, max(remaining_ms - delay_ms, 0))
        else:
            self.complete(group)

    def complete_if_all_joined(self, group: ClassicGroup) -> None:
        is_first = group.state_before is State.EMPTY
        if group.state is State.PREPARING and not is_first and group.is_everyone_there:
            self.complete(group)

    def complete(self, group: ClassicGroup) -> None:
        """Begins the next generation with those who are there, and with static members that may
        come back. Nobody who could lead it: it waits on."""
        group.joining.cancel()
        for member in list(group.members.values()):
            if member.joining is None and member.instance_id is None:
                self.dismiss(group, member.member_id)
        if group.members and not group.lead_by_one_who_joined():
            group.joining.set(group.rebalance_timeout_ms, partial(self.complete, group))
            return
        group.begin_generation(self.now_ms())
        if group.state is State.EMPTY:
            self.keep([group.entry({})], _no_matter)
        else:
            self._announce(group)

    def _announce(self, group: ClassicGroup) -> None:
        for member in group.members.values():
            self.answer_join(group, member, self.joined(group, member.member_id))
            self.watch(group, member)
            member.is_new = False
            group.unsynced[member.member_id] = None
        group.syncing.set(
            group.rebalance_timeout_ms, partial(self._sync_is_over, group, group.generation)
        )

    def _sync_is_over(self, group: ClassicGroup, generation: int) -> None:
        assert group.generation == generation, "the deadline is cancelled with its generation"
        for member_id in list(group.unsynced):
            self.dismiss(group, member_id)
        self.prepare(group)

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        group.unsynced.pop(member_id, None)
        if not group.unsynced:
            group.syncing.cancel()

    def spread(self, group: ClassicGroup, code: ErrorCode) -> None:
        """Answers all who wait to be told what to do: with that, or with what has come of it. Who
        is told nothing new may go on with what the generation before gave."""
        for member in group.members.values():
            if member.syncing is not None:
                self.answer_sync(member, self.synced_answer(group, member, code))
                self.watch(group, member)

    # -- members

    def watch(self, group: ClassicGroup, member: ClassicMember, for_ms: int | None = None) -> None:
        """Lets it go unless it is heard of in time."""
        timeout_ms = member.session_timeout_ms if for_ms is None else for_ms
        member.heartbeat.set(timeout_ms, partial(self._is_silent, group, member))

    def _is_silent(self, group: ClassicGroup, member: ClassicMember) -> None:
        if not member.is_heard_of:
            self.dismiss(group, member.member_id)
            self.went(group)

    def promise(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """Waits for a member to join with the id that it was given."""
        promise = group.promised[member_id] = self.deadline()
        promise.set(timeout_ms, partial(self._did_not_come, group, member_id))

    def _did_not_come(self, group: ClassicGroup, member_id: str) -> None:
        group.remove(member_id)
        if group.state is State.PREPARING and group.is_everyone_there:
            self.complete(group)

    def dismiss(self, group: ClassicGroup, member_id: str) -> None:
        """Takes a member out of the group. It is told, if it waits, so that it may join anew."""
        member = group.remove(member_id)
        if member is not None:
            if member.joining is not None:
                self._soon(member.joining, Joined(code=ErrorCode.unknown_member_id))
                member.joining = None
            if member.syncing is not None:
                self.answer_sync(member, Synced(code=ErrorCode.unknown_member_id))

    def went(self, group: ClassicGroup) -> None:
        """After members were dismissed."""
        if group.state in (State.STABLE, State.COMPLETING):
            self.prepare(group)
        elif group.state is State.PREPARING and group.is_everyone_there:
            self.complete(group)

    # -- answers

    def joined(self, group: ClassicGroup, member_id: str) -> Joined:
        is_leader = group.leader == member_id
        return Joined(
            member_id=member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol=group.protocol,
            leader=group.leader or NO_LEADER,
            members=group.joined_members() if is_leader else (),
        )

    def synced_answer(self, group: ClassicGroup, member: ClassicMember, code: ErrorCode) -> Synced:
        if code is not ErrorCode.none:
            return Synced(code=code)
        return Synced(
            protocol_type=group.protocol_type,
            protocol=group.protocol,
            assignment=member.assignment,
        )

    def await_join(self, group: ClassicGroup, member: ClassicMember, answer: AnswerJoin) -> None:
        """A member that asks again is answered once, where it asked last."""
        if member.joining is None:
            group.joining_count += 1
        else:
            self._soon(member.joining, Joined(code=ErrorCode.rebalance_in_progress))
        member.joining = answer

    def answer_join(self, group: ClassicGroup, member: ClassicMember, joined: Joined) -> None:
        if member.joining is not None:
            self._soon(member.joining, joined)
            member.joining = None
            group.joining_count -= 1

    def await_sync(self, member: ClassicMember, answer: AnswerSync) -> None:
        if member.syncing is not None:
            self.answer_sync(member, Synced(code=ErrorCode.rebalance_in_progress))
        member.syncing = answer

    def answer_sync(self, member: ClassicMember, synced: Synced) -> None:
        if member.syncing is not None:
            self._soon(member.syncing, synced)
            member.syncing = None

    def close(self, group: ClassicGroup, code: ErrorCode) -> None:
        """It is no longer looked after here: no timer runs on, whoever waits is told."""
        group.joining.cancel()
        group.syncing.cancel()
        for promise in group.promised.values():
            promise.cancel()
        for member in group.members.values():
            member.heartbeat.cancel()
            self.answer_join(group, member, Joined(code=code, member_id=member.member_id))
            self.answer_sync(member, Synced(code=code))
        group.move_to(State.DEAD, self.now_ms())

    def _soon(self, answer: Callable[[Answer], None], value: Answer) -> None:
        self._surroundings.loop.call_soon(partial(answer, value))


def _no_matter(_error: KafkaError | None) -> None:
    """Should a group without members be forgotten, those it had before time out again."""
