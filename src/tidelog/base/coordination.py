"""Coordination as ZooKeeper models it: a tree of small nodes with versions, sessions, watches.

A write is a list of operations of which all happen or none. Answers come later, in the
loop, in the order in which they were asked for; a watch is told once, before any answer that
shows the change it announces. What could not be done comes back as a `CoordinationError`,
never as an exception.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

ANY_VERSION = -1


class Trouble(Enum):
    no_node = "there is no such node"
    node_exists = "there is such a node already"
    bad_version = "the node has another version by now"
    not_empty = "the node has children"
    no_children_for_ephemerals = "an ephemeral node cannot have children"
    bad_arguments = "no such path is possible"
    connection_loss = "the connection was lost: it may or may not have been done"
    session_expired = "the session has expired"
    storage = "the journal could not be written"


class CoordinationError(Exception):
    """Why a read or a write failed, and at which path."""

    def __init__(self, trouble: Trouble, path: str) -> None:
        super().__init__(f"{path}: {trouble.value}")
        self.trouble = trouble
        self.path = path


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    created_zxid: int
    modified_zxid: int
    version: int
    children_version: int
    ephemeral_owner: int
    """The session's id; 0 for a node that stays."""
    created_ms: int
    modified_ms: int
    children_count: int


@dataclass(frozen=True, slots=True)
class Node:
    data: bytes
    stat: Stat


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetData:
    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    path: str
    version: int


Operation = Create | SetData | Delete | Check

Written = str | Stat | None
"""What an operation of a write gives: a Create the path it made, a SetData the new Stat."""

Answer = TypeVar("Answer")
Done = Callable[[Answer | CoordinationError], None]


class WatchKind(Enum):
    created = "created"
    deleted = "deleted"
    changed = "changed"
    children = "children"


Watch = Callable[[WatchKind, str], None]


class SessionState(Enum):
    connected = "connected"
    suspended = "suspended"
    expired = "expired"


class Coordination(Protocol):
    @property
    def session_id(self) -> int: ...

    def get(self, path: str, done: Done[Node], watch: Watch | None = None) -> None:
        """A watch is left only if the node is there."""

    def children(self, path: str, done: Done[list[str]], watch: Watch | None = None) -> None:
        """Names, sorted."""

    def exists(self, path: str, done: Done[Stat | None], watch: Watch | None = None) -> None:
        """A watch is left either way."""

    def write(self, operations: Sequence[Operation], done: Done[list[Written]]) -> None: ...

    def on_session(self, listener: Callable[[SessionState], None]) -> None: ...

    def close(self) -> None:
        """Ends the session: its ephemeral nodes go."""
