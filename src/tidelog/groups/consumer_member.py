"""A member of a group of the newer protocol, as the journal has it.

A member is a value: what changes makes a new one. Its epoch is the one in which it was last brought
in line with what the group wants of it; `state` says what it waits for on the way there. What it
holds is by topic id and partition, with the epoch in which it got it: a commit that comes late,
from an epoch before the member's own, is good for what the member has had since then.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from tidelog.groups.assignors import Assignment

JOINING: Final = 0
LEAVING: Final = -1
LEAVING_FOR_NOW: Final = -2
"""Epochs that say something else: a static member that leaves for now keeps what it has."""

Held = Mapping[bytes, Mapping[int, int]]
"""The epoch in which each partition was got, by topic id and partition."""


class MemberState(IntEnum):
    STABLE = 0
    UNREVOKED = 1
    """It has to give up partitions, and has not said yet that it did."""
    UNRELEASED = 2
    """It waits for partitions that others have not given up."""
    UNKNOWN = 127


class ClassicSide(NamedTuple):
    """What a member that speaks the classic protocol said when it joined."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    member_id: str
    epoch: int = JOINING
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    """The names it subscribes to, sorted."""
    pattern: str = ""
    """The regular expression it subscribes to; empty if it does not."""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    held: Held = field(default_factory=dict)
    revoking: Held = field(default_factory=dict)
    """What it is to give up; it counts as held by it until it did."""
    classic: ClassicSide | None = None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def got_at(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch in which it got a partition that it may still work on."""
        found = self.held.get(topic_id, {}).get(partition)
        return self.revoking.get(topic_id, {}).get(partition) if found is None else found

    def works_on(self) -> Assignment:
        """What it holds, and what it has not given up yet."""
        return {
            topic_id: tuple(
                sorted({*self.held.get(topic_id, ()), *self.revoking.get(topic_id, ())})
            )
            for topic_id in self.held.keys() | self.revoking.keys()
        }


def partitions_of(held: Held) -> Assignment:
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in held.items()}
