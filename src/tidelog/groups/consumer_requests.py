"""What members of the newer protocol ask of a group, and what they are told.

There is one request, the heartbeat, and its epoch says what is meant: 0 joins, -1 leaves, -2 is a
static member that leaves for now. A full request says all there is to say of a member; what the
others do not say has not changed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.assignors import Assignment
from tidelog.groups.consumer_member import JOINING, LEAVING, LEAVING_FOR_NOW
from tidelog.groups.topic_patterns import check_pattern

UNCHANGED: Final = -1
_NAME_BYTES_MAX: Final = (1 << 15) - 1
"""What the key of a record can hold."""
_TOPICS_MAX: Final = 10_000
"""What a member may name, so that no heartbeat holds up those of others. For more there are
regular expressions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = UNCHANGED
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: Assignment | None = None
    is_named: bool = True
    """Whether members make their ids themselves; the first version left that to the broker."""

    @property
    def is_leaving(self) -> bool:
        return self.epoch < JOINING

    @property
    def is_full(self) -> bool:
        says_topics = self.topics is not None or self.pattern is not None
        says_all = self.rebalance_timeout_ms != UNCHANGED and self.owned is not None
        return self.epoch == JOINING or (says_topics and says_all)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    member_id: str
    epoch: int
    interval_ms: int = 0
    assignment: Assignment | None = None
    """What it is to have from now on; None if that is what it was told before."""


AnswerBeat = Callable[[Told | KafkaError], None]


def check_beat(beat: Beat, assignors: Sequence[str]) -> None:
    """Raises if it cannot be meant."""
    for name, value in (
        ("the group's id", beat.group_id),
        ("the instance id", beat.instance_id),
        ("the rack", beat.rack_id),
    ):
        _require(value is None or bool(value.strip()), f"{name} is empty")
    for name, text in (("group", beat.group_id), ("member", beat.member_id)):
        _require(len(text.encode()) <= _NAME_BYTES_MAX, f"the {name}'s id is too long")
    has_few = beat.topics is None or len(beat.topics) <= _TOPICS_MAX
    _require(has_few, f"a member names {_TOPICS_MAX} topics at most")
    may_be_nameless = beat.epoch == JOINING and not beat.is_named
    _require(bool(beat.member_id.strip()) or may_be_nameless, "the member's id is empty")
    _require(beat.epoch >= LEAVING_FOR_NOW, f"there is no epoch {beat.epoch}")
    if beat.epoch == JOINING:
        _check_join(beat)
    elif beat.epoch == LEAVING_FOR_NOW:
        _require(beat.instance_id is not None, "only static members leave for now")
    if beat.assignor is not None and beat.assignor not in assignors:
        raise KafkaError(
            ErrorCode.unsupported_assignor,
            f"no assignor {beat.assignor!r} here; there are {', '.join(assignors)}",
        )
    if beat.pattern and beat.epoch > LEAVING:
        check_pattern(beat.pattern, _NAME_BYTES_MAX)


def _check_join(beat: Beat) -> None:
    _require(beat.rebalance_timeout_ms != UNCHANGED, "a member that joins has a rebalance timeout")
    _require(beat.owned == {}, "a member that joins has no partitions")
    says_topics = beat.topics is not None or beat.pattern is not None
    _require(says_topics, "a member that joins says what it subscribes to")


def _require(is_so: bool, message: str) -> None:
    if not is_so:
        raise KafkaError(ErrorCode.invalid_request, message)
