"""Members of groups of the newer protocol that go: by themselves, or because their time is over.

What a member had is free as soon as it is gone. The group's epoch rises, and the next heartbeat of
any other member finds that there is something to assign.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.journal import Entry
from tidelog.groups.classic_group import ClassicGroup
from tidelog.groups.consumer_context import ConsumerContext, Finished
from tidelog.groups.consumer_group import ConsumerGroup
from tidelog.groups.consumer_member import Member
from tidelog.groups.consumer_timers import Wait
from tidelog.groups.migration import can_downgrade, downgrade_entries

_AGAIN_MS: Final = 500
"""A member whose time is over is tried to be removed again after this, if the journal refused."""


class Departures:
    def __init__(self, context: ConsumerContext) -> None:
        self._context = context
        self._surroundings = context.surroundings

    def dismiss(self, group: ConsumerGroup, member_ids: Sequence[str], finished: Finished) -> None:
        """Takes members out of a group. It goes on as a classic one if the last that spoke the
        newer protocol is among them, unless that is too much for one record: then as it is."""
        is_last = any(group.members[found].classic is None for found in member_ids)
        if not is_last or not can_downgrade(group, member_ids, self._surroundings):
            self._remove(group, member_ids, finished)
            return

        def downgraded(error: KafkaError | None) -> None:
            is_too_large = error is not None and error.code is ErrorCode.unknown_server_error
            if is_too_large and self._context.groups.get(group.group_id) is group:
                self._remove(group, member_ids, finished)
            else:
                finished(error)

        self._write(group.group_id, self._downgraded(group, member_ids), downgraded)

    def replaced(self, group_id: str) -> None:
        """A member of the newer protocol has been replaced by one of the classic one: if it was
        the last, that is as if it had left."""
        group = self._context.groups.get(group_id)
        if isinstance(group, ConsumerGroup) and can_downgrade(group, (), self._surroundings):
            self._write(group_id, self._downgraded(group, ()), _as_it_is)

    def _write(self, group_id: str, entries: list[Entry], finished: Finished) -> None:
        context = self._context
        context.write(group_id, entries, finished)
        downgraded = context.groups.get(group_id)
        if isinstance(downgraded, ClassicGroup):
            context.classic.watch(downgraded)
            context.classic.rebalancing.prepare(downgraded)

    def _downgraded(self, group: ConsumerGroup, leaving: Sequence[str]) -> list[Entry]:
        now_ms = self._surroundings.clock.now_ms()
        return downgrade_entries(group, leaving, self._surroundings.topics, now_ms)

    def _remove(self, group: ConsumerGroup, member_ids: Sequence[str], finished: Finished) -> None:
        change = self._context.change(group)
        change.remove(member_ids)
        change.follow_topics(has_changed=True)
        self._context.write(group.group_id, change.entries, finished)

    # -- time

    def watch(self, group_id: str, member: Member) -> None:
        """Waits for the next sign of a member."""
        if member.classic is None:
            timeout_ms = self._context.setting("group.consumer.session.timeout.ms")
        else:
            timeout_ms = member.classic.session_timeout_ms
        self.expect(group_id, member.member_id, Wait.SESSION, timeout_ms)

    def expect(self, group_id: str, member_id: str, wait: Wait, timeout_ms: int) -> None:
        expired = partial(self._expire, group_id, member_id, wait)
        self._context.timers.set((group_id, member_id), wait, timeout_ms, expired)

    def expect_revocation(self, group_id: str, member: Member) -> None:
        """Waits for a member to give up what it is to give up, in the epoch it is in."""

        def expired() -> None:
            group = self._context.groups.get(group_id)
            now = group.members.get(member.member_id) if isinstance(group, ConsumerGroup) else None
            if now is not None and now.epoch == member.epoch:
                self._expire(group_id, member.member_id, Wait.REBALANCE)

        who = (group_id, member.member_id)
        self._context.timers.set(who, Wait.REBALANCE, member.rebalance_timeout_ms, expired)

    def _expire(self, group_id: str, member_id: str, wait: Wait) -> None:
        group = self._context.groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or member_id not in group.members:
            self._context.timers.forget_member(group_id, member_id)
        else:

            def finished(error: KafkaError | None) -> None:
                now = self._context.groups.get(group_id)
                is_there = isinstance(now, ConsumerGroup) and member_id in now.members
                if error is not None and is_there:
                    self.expect(group_id, member_id, wait, _AGAIN_MS)

            self.dismiss(group, [member_id], finished)


def _as_it_is(_error: KafkaError | None) -> None:
    """A group that could not become classic serves its classic members as it is."""
