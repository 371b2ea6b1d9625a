"""A group of either protocol, as far as its offsets, and those who look at it, need to know it."""

from collections.abc import Callable
from typing import Protocol

from tidelog.base.journal import Entry
from tidelog.groups.records import OffsetValue
from tidelog.groups.requests import Commit, Identity, Manner

CheckOne = Callable[[Commit], None]
"""Raises if this one offset may not be committed."""


class Group(Protocol):
    @property
    def group_id(self) -> str: ...

    @property
    def kind(self) -> str:
        """`classic` or `consumer`."""

    @property
    def protocol_type(self) -> str | None:
        """What its members are to one another; None for one that only ever had offsets."""

    @property
    def state_name(self) -> str:
        """As it is shown."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""

    def check_commit(self, who: Identity, manner: Manner) -> CheckOne | None:
        """Raises if this member may not commit now. Where it depends on the partition, returns
        what tells."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises if offsets are not for this member to see."""

    def check_offset_delete(self) -> None:
        """Raises if offsets cannot be deleted now."""

    def check_delete(self) -> None:
        """Raises if the group cannot be deleted now."""

    def is_subscribed_to(self, topic: str) -> bool: ...

    def expires_from(self, value: OffsetValue) -> int | None:
        """The time from which on an offset of a topic nobody subscribes to is kept for as long as
        it is to be kept; None as long as nothing expires."""

    def tombstones(self) -> list[Entry]:
        """What says in the journal that the group is no more."""
