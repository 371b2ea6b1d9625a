"""What members of groups of the newer protocol have time for, each kind of thing on its own."""

from collections.abc import Callable
from enum import Enum

from tidelog.groups.deadline import Deadline
from tidelog.groups.surroundings import GroupSurroundings


class Wait(Enum):
    SESSION = "it was not heard of"
    REBALANCE = "it did not give up what it was to give up"
    JOIN = "it did not join again"
    SYNC = "it did not ask for its assignment"


class MemberTimers:
    def __init__(self, surroundings: GroupSurroundings) -> None:
        self._surroundings = surroundings
        self._deadlines: dict[str, dict[str, dict[Wait, Deadline]]] = {}
        """By group and member."""

    def set(
        self,
        who: tuple[str, str],
        wait: Wait,
        delay_ms: int,
        expired: Callable[[], None],
    ) -> None:
        """Calls back for a member, named by its group and id, unless it is set or cancelled
        before."""
        group_id, member_id = who
        deadlines = self._deadlines.setdefault(group_id, {}).setdefault(member_id, {})
        if wait not in deadlines:
            deadlines[wait] = Deadline(self._surroundings.clock, self._surroundings.loop)
        deadlines[wait].set(delay_ms, expired)

    def is_set(self, who: tuple[str, str], wait: Wait) -> bool:
        group_id, member_id = who
        deadline = self._deadlines.get(group_id, {}).get(member_id, {}).get(wait)
        return deadline is not None and deadline.is_set

    def cancel(self, who: tuple[str, str], wait: Wait) -> None:
        group_id, member_id = who
        deadline = self._deadlines.get(group_id, {}).get(member_id, {}).get(wait)
        if deadline is not None:
            deadline.cancel()

    def forget_member(self, group_id: str, member_id: str) -> None:
        for deadline in self._deadlines.get(group_id, {}).pop(member_id, {}).values():
            deadline.cancel()

    def forget_group(self, group_id: str) -> None:
        for member_id in list(self._deadlines.get(group_id, {})):
            self.forget_member(group_id, member_id)
        self._deadlines.pop(group_id, None)

    def stop(self) -> None:
        for group_id in list(self._deadlines):
            self.forget_group(group_id)
