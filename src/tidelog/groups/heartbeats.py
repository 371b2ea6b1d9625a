"""Heartbeats of members of the newer protocol: all that such a member ever asks.

A heartbeat says what has changed of a member; the group's epoch rises if that matters to others,
and a new target is computed. Then the member is brought one step further towards it, and is told
what it is to have. All that comes of one heartbeat is written as one batch.
"""

from dataclasses import replace

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups import consumer_records as records
from tidelog.groups.classic_group import ClassicGroup
from tidelog.groups.consumer_context import ConsumerContext
from tidelog.groups.consumer_group import ConsumerGroup
from tidelog.groups.consumer_member import (
    JOINING,
    LEAVING_FOR_NOW,
    Member,
    MemberState,
    partitions_of,
)
from tidelog.groups.consumer_requests import UNCHANGED, AnswerBeat, Beat, Told, check_beat
from tidelog.groups.consumer_timers import Wait
from tidelog.groups.departures import Departures
from tidelog.groups.errors import no_such_group
from tidelog.groups.group_change import GroupChange, renamed
from tidelog.groups.migration import can_upgrade, upgrade_entries, upgraded


class Heartbeats:
    def __init__(self, context: ConsumerContext, departures: Departures) -> None:
        self._context = context
        self._departures = departures

    def beat(self, beat: Beat, answer: AnswerBeat) -> None:
        try:
            check_beat(beat, self._context.assignors())
            if beat.is_leaving:
                self._leave(beat, answer)
            else:
                self._come(beat, answer)
        except KafkaError as error:
            answer(error)

    # -- coming, and being there

    def _come(self, beat: Beat, answer: AnswerBeat) -> None:
        change = self._change(beat)
        group = change.group
        check_size(group, beat.member_id, self._context.setting("group.consumer.max.size"))
        member_id = beat.member_id or self._context.new_member_id()
        before = self._find(change, beat, member_id)
        member = _as_it_says(before, beat)
        settle_member(change, before, member, self._context.assignors())
        member = change.reconcile(change.members[member_id], beat.owned)
        self._watch(group.group_id, before, member)
        told = Told(
            member_id=member_id,
            epoch=member.epoch,
            interval_ms=self._context.setting("group.consumer.heartbeat.interval.ms"),
            assignment=_news(before, member, beat),
        )
        self._write(change, told, answer)

    def _write(self, change: GroupChange, told: Told, answer: AnswerBeat) -> None:
        def finished(error: KafkaError | None) -> None:
            answer(told if error is None else error)

        self._context.write(change.group.group_id, change.entries, finished)

    def _change(self, beat: Beat) -> GroupChange:
        """Of the group of a member. Whoever joins makes the group if there is none; one without
        members makes place; one of classic consumers goes on with the newer protocol."""
        group = self._context.groups.get(beat.group_id)
        if isinstance(group, ConsumerGroup):
            return self._context.change(group)
        if beat.epoch != JOINING:
            raise no_such_group(beat.group_id)
        if group is None:
            return self._context.change(ConsumerGroup(beat.group_id))
        assert isinstance(group, ClassicGroup)
        if group.is_empty:
            change = self._context.change(ConsumerGroup(beat.group_id))
            change.entries += group.tombstones()
            return change
        return self._upgrade(group)

    def _upgrade(self, group: ClassicGroup) -> GroupChange:
        if not can_upgrade(group, self._context.surroundings):
            raise no_such_group(group.group_id)
        new = upgraded(group, self._context.surroundings.topics)
        change = self._context.change(new)
        change.entries += upgrade_entries(group, new)
        for member in new.members.values():
            self._departures.watch(group.group_id, member)
        return change

    def _find(self, change: GroupChange, beat: Beat, member_id: str) -> Member:
        """The member as it was. One that joins is new, or the same static member again."""
        group = change.group
        if beat.instance_id is None:
            member = group.members.get(member_id)
            if member is None and beat.epoch == JOINING:
                return Member(member_id=member_id)
            member = group.find(member_id)
        elif beat.epoch == JOINING:
            return self._find_joining(change, beat.instance_id, member_id)
        else:
            member = group.find_static(member_id, beat.instance_id)
        _check_epoch(member, beat)
        return member

    def _find_joining(self, change: GroupChange, instance_id: str, member_id: str) -> Member:
        known = change.group.member_ids.get(instance_id)
        if known is None or known == member_id:
            return change.group.members.get(member_id, Member(member_id=member_id))
        before = change.group.members[known]
        if before.classic is None and before.epoch != LEAVING_FOR_NOW:
            raise KafkaError(
                ErrorCode.unreleased_instance_id,
                f"{change.group.group_id}: {known} is there as {instance_id!r}",
            )
        member = renamed(before, member_id)
        change.replace(before, member)
        return member

    def _watch(self, group_id: str, before: Member, member: Member) -> None:
        self._departures.watch(group_id, member)
        if member.state is not MemberState.UNREVOKED:
            self._context.timers.cancel((group_id, member.member_id), Wait.REBALANCE)
        elif member.revoking != before.revoking:
            self._departures.expect_revocation(group_id, member)

    # -- leaving

    def _leave(self, beat: Beat, answer: AnswerBeat) -> None:
        group = self._context.groups.get(beat.group_id)
        if not isinstance(group, ConsumerGroup):
            raise no_such_group(beat.group_id)
        if beat.instance_id is None:
            member = group.find(beat.member_id)
        else:
            member = group.find_static(beat.member_id, beat.instance_id)
        told = Told(member_id=member.member_id, epoch=beat.epoch)

        def finished(error: KafkaError | None) -> None:
            answer(told if error is None else error)

        if beat.epoch == LEAVING_FOR_NOW:
            away = replace(member, epoch=LEAVING_FOR_NOW, revoking={})
            entry = records.current_entry(group.group_id, away)
            self._context.write(group.group_id, [entry], finished)
        else:
            self._departures.dismiss(group, [member.member_id], finished)


def settle_member(
    change: GroupChange, before: Member, member: Member, assignors: tuple[str, ...]
) -> None:
    """Takes in what a member says of itself, and what that and the topics mean for the group."""
    is_new = member.member_id not in change.members
    if is_new or member != before:
        change.describe(member)
    has_changed = is_new or member.topics != before.topics or member.pattern != before.pattern
    if has_changed or change.is_due:
        change.follow_topics(has_changed=has_changed)
    if change.epoch > change.target_epoch:
        change.assign(assignors)


def check_size(group: ConsumerGroup, member_id: str, size_max: int) -> None:
    if len(group.members) >= size_max and member_id not in group.members:
        raise KafkaError(
            ErrorCode.group_max_size_reached, f"{group.group_id} has {size_max} members already"
        )


def _check_epoch(member: Member, beat: Beat) -> None:
    """One that comes with the epoch before its own did not get the last answer, if it has no more
    than it was to have."""
    if beat.epoch in (JOINING, member.epoch):
        return
    is_late = beat.epoch == member.previous_epoch and beat.epoch < member.epoch
    has_only_its_own = beat.owned is not None and all(
        partition in member.held.get(topic_id, {})
        for topic_id, partitions in beat.owned.items()
        for partition in partitions
    )
    if not (is_late and has_only_its_own):
        raise KafkaError(
            ErrorCode.fenced_member_epoch,
            f"{member.member_id}: epoch {beat.epoch}, it is {member.epoch} now; it has to give "
            "up all partitions and join again",
        )


def _as_it_says(member: Member, beat: Beat) -> Member:
    timeout_ms = beat.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if beat.instance_id is None else beat.instance_id,
        rack_id=member.rack_id if beat.rack_id is None else beat.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        topics=member.topics if beat.topics is None else tuple(sorted(set(beat.topics))),
        pattern=member.pattern if beat.pattern is None else beat.pattern,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == UNCHANGED else timeout_ms,
        assignor=member.assignor if beat.assignor is None else beat.assignor,
        classic=None,
    )


def _news(before: Member, member: Member, beat: Beat) -> dict[bytes, tuple[int, ...]] | None:
    found = dict(partitions_of(member.held))
    return found if beat.is_full or found != partitions_of(before.held) else None
