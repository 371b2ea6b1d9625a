"""Members that speak the classic protocol in a group of the newer one.

The broker decides for them as for the others, and says so in their own words: a member that is to
do something else is told that there is a rebalance, joins again, and gets what it is to have when
it syncs. Its generation is its epoch. No such member ever leads, so none assigns.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.classic_member import unrepeated
from tidelog.groups.consumer_context import ConsumerContext
from tidelog.groups.consumer_group import ConsumerGroup
from tidelog.groups.consumer_member import ClassicSide, Member, MemberState
from tidelog.groups.consumer_protocol import Subscription, read_subscription
from tidelog.groups.consumer_timers import Wait
from tidelog.groups.departures import Departures
from tidelog.groups.errors import unknown_member
from tidelog.groups.group_change import GroupChange, renamed
from tidelog.groups.heartbeats import check_size, settle_member
from tidelog.groups.migration import assignment_of, by_id, classic_side
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
from tidelog.groups.subscriptions import CONSUMER


class ClassicGuests:
    def __init__(self, context: ConsumerContext, departures: Departures) -> None:
        self._context = context
        self._departures = departures

    # -- joining

    def join(self, group: ConsumerGroup, join: Join, answer: AnswerJoin) -> None:
        try:
            self._join(group, join, answer)
        except KafkaError as error:
            answer(Joined(code=error.code, member_id=join.member_id))

    def _join(self, group: ConsumerGroup, join: Join, answer: AnswerJoin) -> None:
        context = self._context
        check_size(group, join.member_id, context.setting("group.consumer.max.size"))
        _check_protocols(group, join)
        member_id = join.member_id or context.new_member_id()
        is_nameless = join.member_id == NO_MEMBER_ID and join.instance_id is None
        if is_nameless and join.takes_member_id:
            answer(Joined(code=ErrorCode.member_id_required, member_id=member_id))
            return
        subscription = _subscription(join)
        was_mixed = any(member.classic is None for member in group.members.values())
        change = context.change(group)
        before = self._find(change, join, member_id)
        member = _as_it_says(before, join, subscription)
        settle_member(change, before, member, context.assignors())
        owned = by_id(subscription.owned, context.surroundings.topics)
        member = change.reconcile(change.members[member_id], owned)
        self._write(change, member, answer)
        if was_mixed:
            self._departures.replaced(group.group_id)

    def _write(self, change: GroupChange, member: Member, answer: AnswerJoin) -> None:
        group_id, member_id = change.group.group_id, member.member_id

        def finished(error: KafkaError | None) -> None:
            if error is not None:
                answer(Joined(code=error.code, member_id=member_id))
                return
            protocol = classic_side(member).protocols[0][0]
            answer(
                Joined(
                    member_id=member_id,
                    generation=member.epoch,
                    protocol_type=CONSUMER,
                    protocol=protocol,
                )
            )

        self._context.timers.cancel((group_id, member_id), Wait.JOIN)
        self._departures.watch(group_id, member)
        timeout_ms = member.rebalance_timeout_ms
        self._departures.expect(group_id, member_id, Wait.SYNC, timeout_ms)
        self._context.write(group_id, change.entries, finished)

    def _find(self, change: GroupChange, join: Join, member_id: str) -> Member:
        group = change.group
        if join.instance_id is None:
            return group.members.get(member_id, Member(member_id=member_id))
        if join.member_id != NO_MEMBER_ID:
            return group.find_static(member_id, join.instance_id)
        known = group.member_ids.get(join.instance_id)
        if known is None:
            return Member(member_id=member_id)
        member = renamed(group.members[known], member_id)
        change.replace(group.members[known], member)
        return member

    # -- being there

    def sync(self, group: ConsumerGroup, sync: Sync, answer: AnswerSync) -> None:
        try:
            member = self._check(group, sync.who)
            _check_protocol(member, sync)
            self._check_in_line(group, member)
        except KafkaError as error:
            answer(Synced(code=error.code))
            return
        self._context.timers.cancel((group.group_id, member.member_id), Wait.SYNC)
        self._departures.watch(group.group_id, member)
        assignment = assignment_of(member, self._context.surroundings.topics)

        def finished(error: KafkaError | None) -> None:
            if error is not None:
                answer(Synced(code=error.code))
                return
            protocol = classic_side(member).protocols[0][0]
            answer(Synced(protocol_type=CONSUMER, protocol=protocol, assignment=assignment))

        self._context.write(group.group_id, (), finished)

    def _check_in_line(self, group: ConsumerGroup, member: Member) -> None:
        """One that has to give up partitions does so first, and joins again by itself then."""
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
            self._await_join(group, member)
            raise KafkaError(
                ErrorCode.rebalance_in_progress, f"{group.group_id} is in epoch {group.epoch}"
            )

    def heartbeat(
        self, group: ConsumerGroup, who: Identity, answer: Callable[[ErrorCode], None]
    ) -> None:
        code = self._heard_of(group, who)
        self._context.write(
            group.group_id, (), lambda error: answer(code if error is None else error.code)
        )

    def _heard_of(self, group: ConsumerGroup, who: Identity) -> ErrorCode:
        try:
            member = self._check(group, who)
        except KafkaError as error:
            return error.code
        self._departures.watch(group.group_id, member)
        self._follow_topics(group)
        if member.epoch == group.epoch and not self._is_to_join(group, member):
            return ErrorCode.none
        self._await_join(group, member)
        return ErrorCode.rebalance_in_progress

    def _follow_topics(self, group: ConsumerGroup) -> None:
        """There may be no member of the newer protocol whose heartbeat would do it."""
        if group.is_stale:
            change = self._context.change(group)
            change.follow_topics(has_changed=False)
            if change.epoch > change.target_epoch:
                change.assign(self._context.assignors())
            self._context.write(group.group_id, change.entries, _another_time)

    def _is_to_join(self, group: ConsumerGroup, member: Member) -> bool:
        """Whether it has to give up partitions, or what it waits for has become free."""
        if member.state is MemberState.UNRELEASED:
            target = group.targets.get(member.member_id, {})
            return not any(
                group.holder_of(topic_id, partition) not in (None, member.member_id)
                for topic_id, partitions in target.items()
                for partition in partitions
            )
        return member.state is MemberState.UNREVOKED

    def _await_join(self, group: ConsumerGroup, member: Member) -> None:
        who = (group.group_id, member.member_id)
        if not self._context.timers.is_set(who, Wait.JOIN):
            self._departures.expect(*who, Wait.JOIN, member.rebalance_timeout_ms)

    def _check(self, group: ConsumerGroup, who: Identity) -> Member:
        member = _find(group, who.member_id, who.instance_id)
        if who.generation != member.epoch:
            raise KafkaError(
                ErrorCode.illegal_generation,
                f"{member.member_id}: generation {who.generation}, it is {member.epoch} now",
            )
        return member

    # -- leaving

    def leave(self, group: ConsumerGroup, leaving: Sequence[Leaving], answer: AnswerCodes) -> None:
        found: list[Member | KafkaError] = [_find_leaving(group, one) for one in leaving]
        gone = dict.fromkeys(one.member_id for one in found if isinstance(one, Member))

        def finished(error: KafkaError | None) -> None:
            code = ErrorCode.none if error is None else error.code
            answer([one.code if isinstance(one, KafkaError) else code for one in found])

        if gone:
            self._departures.dismiss(group, list(gone), finished)
        else:
            finished(None)


def _another_time(_error: KafkaError | None) -> None:
    """Topics that could not be followed are looked at again with the next heartbeat."""


def _find(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    if instance_id is None:
        member = group.find(member_id)
    else:
        member = group.find_static(member_id, instance_id)
    if member.classic is None:
        raise unknown_member(f"{member.member_id} speaks the newer protocol")
    return member


def _find_leaving(group: ConsumerGroup, leaving: Leaving) -> Member | KafkaError:
    """One that is named by its instance alone is sent away by others."""
    member_id, instance_id = leaving
    if member_id == NO_MEMBER_ID and instance_id is not None:
        member_id = group.member_ids.get(instance_id, member_id)
    try:
        return _find(group, member_id, instance_id)
    except KafkaError as error:
        return error


def _subscription(join: Join) -> Subscription:
    try:
        return read_subscription(join.protocols[0][1])
    except KafkaError as error:
        raise KafkaError(
            ErrorCode.inconsistent_group_protocol, "what it subscribes to cannot be read"
        ) from error


def _as_it_says(member: Member, join: Join, subscription: Subscription) -> Member:
    return replace(
        member,
        instance_id=member.instance_id if join.instance_id is None else join.instance_id,
        rack_id=member.rack_id if subscription.rack_id is None else subscription.rack_id,
        client_id=join.client_id,
        client_host=join.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        pattern="",
        rebalance_timeout_ms=join.rebalance_timeout_ms,
        assignor=None,
        classic=ClassicSide(join.session_timeout_ms, unrepeated(join.protocols)),
    )


def _check_protocols(group: ConsumerGroup, join: Join) -> None:
    """It has to have one in common with all others that speak the classic protocol, for the day on
    which they are among themselves again."""
    others = [
        {name for name, _ in member.classic.protocols}
        for member in group.members.values()
        if member.classic is not None and member.member_id != join.member_id
    ]
    is_common = any(all(name in known for known in others) for name, _ in join.protocols)
    if join.protocol_type != CONSUMER or not is_common:
        raise KafkaError(
            ErrorCode.inconsistent_group_protocol,
            f"{group.group_id}: the others do not know any of its protocols",
        )


def _check_protocol(member: Member, sync: Sync) -> None:
    name = classic_side(member).protocols[0][0]
    for said, known in ((sync.protocol_type, CONSUMER), (sync.protocol, name)):
        if said is not None and said != known:
            raise KafkaError(
                ErrorCode.inconsistent_group_protocol, f"{said}, {member.member_id} has {known}"
            )
