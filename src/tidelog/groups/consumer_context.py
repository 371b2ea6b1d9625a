"""What the parts of the newer protocol share: the groups, the journal, the timers.

Whatever changes a group, or tells of it, goes through `write`; so nobody is told of anything that
could still be lost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from tidelog.base.errors import KafkaError
from tidelog.base.journal import Entry
from tidelog.groups.classic_groups import ClassicGroups
from tidelog.groups.consumer_group import ConsumerGroup
from tidelog.groups.consumer_timers import MemberTimers
from tidelog.groups.errors import told
from tidelog.groups.group import Group
from tidelog.groups.group_change import GroupChange
from tidelog.groups.journaled import Journaled
from tidelog.groups.surroundings import GroupSurroundings

Finished = Callable[[KafkaError | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerContext:
    surroundings: GroupSurroundings
    groups: dict[str, Group]
    """All of the shard, of both protocols."""
    journaled: Journaled
    timers: MemberTimers
    classic: ClassicGroups

    def change(self, group: ConsumerGroup) -> GroupChange:
        return GroupChange(group, self.surroundings.topics, self.surroundings.clock)

    def write(self, group_id: str, entries: Sequence[Entry], finished: Finished) -> None:
        """Calls back when they are committed, with an error as members know it if they are not.
        With no entries, when all that is known of the group is."""

        def committed(error: KafkaError | None) -> None:
            if error is not None:
                self._look_again(group_id)
            finished(None if error is None else KafkaError(told(error), error.message))

        if entries:
            self.journaled.write(entries, committed)
        else:
            self.journaled.journal.settle(committed)

    def _look_again(self, group_id: str) -> None:
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.topics_changed()

    def setting(self, name: str) -> int:
        return self.surroundings.settings().whole(name)

    def assignors(self) -> tuple[str, ...]:
        return self.surroundings.settings().words("group.consumer.assignors")

    def new_member_id(self) -> str:
        return str(UUID(bytes=self.surroundings.entropy.random_bytes(16), version=4))
