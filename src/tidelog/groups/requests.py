"""What members ask of a group, and what they are told: values without a wire format."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.base.errors import ErrorCode

NO_MEMBER_ID: Final = ""
NO_GENERATION: Final = -1
NO_LEADER: Final = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    group_id: str
    member_id: str = NO_MEMBER_ID
    """Empty for one that is new."""
    instance_id: str | None = None
    """Of a static member: it stays the same when the member starts again."""
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """The names of what it can do, dearest first, and what it says to others for each."""
    takes_member_id: bool = True
    """Whether one that is new is told its id first, and then joins with that."""
    may_skip_assignment: bool = True
    """Whether a leader can be told that all stays as it is."""


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    code: ErrorCode = ErrorCode.none
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_LEADER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()
    """For the leader alone: all of them."""


class Identity(NamedTuple):
    """Who asks, as a member of which generation."""

    group_id: str
    member_id: str
    instance_id: str | None = None
    generation: int = NO_GENERATION
    """Or the epoch of a member of the newer protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    who: Identity
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes]
    """Of the leader: what each member is to do, by id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    code: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Leaving(NamedTuple):
    """A member that leaves: one that is named by its instance id alone is sent away by others."""

    member_id: str
    instance_id: str | None = None


class Manner(NamedTuple):
    """How offsets are committed."""

    is_transactional: bool
    version: int
    """Of the request: older clients know fewer errors."""


class Commit(NamedTuple):
    """An offset that a member wants to be kept."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


AnswerJoin = Callable[[Joined], None]
AnswerSync = Callable[[Synced], None]
AnswerCodes = Callable[[list[ErrorCode]], None]
"""One for each thing that was asked, in order."""
