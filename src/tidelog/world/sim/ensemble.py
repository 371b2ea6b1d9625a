"""The simulated ensemble: one znode tree that all simulated sessions share.

It does what a request says at the moment the request arrives, tells the sessions whose watches
that concerns, and ends sessions. How requests travel, and what goes wrong on the way, is
`coordination`'s part.
"""

from collections.abc import Callable, Sequence
from typing import Final

from tidelog.base.coordination import (
    CoordinationError,
    Node,
    Operation,
    Stat,
    Trouble,
    Watch,
    WatchKind,
    Written,
)
from tidelog.base.ports import Clock
from tidelog.world.watches import Watches
from tidelog.world.znode_tree import When, ZnodeTree

FIRST_ZXID: Final = 1 << 32

Tell = Callable[[Watch, WatchKind, str], None]


class SimEnsemble:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.tree = ZnodeTree()
        self.tree.zxid = FIRST_ZXID
        self._watches = Watches()
        self._sessions: dict[int, Tell] = {}
        self._sessions_begun = 0

    def begin_session(self, tell: Tell) -> int:
        """`tell` is called for each watch of the session that has something to be told."""
        self._sessions_begun += 1
        session_id = FIRST_ZXID + self._sessions_begun
        self._sessions[session_id] = tell
        return session_id

    def end_session(self, session_id: int) -> None:
        """Closed or expired: its nodes and watches go. Does nothing if it has ended before."""
        if session_id in self._sessions:
            self._watches.forget(session_id)
            self.write(session_id, self.tree.end_session(session_id))
            del self._sessions[session_id]

    def has_session(self, session_id: int) -> bool:
        return session_id in self._sessions

    def get(self, session_id: int, path: str, watch: Watch | None) -> Node:
        self._require_session(session_id, path)
        node = self.tree.get(path)
        if watch is not None:
            self._watches.on_node(path, session_id, watch)
        return node

    def children(self, session_id: int, path: str, watch: Watch | None) -> list[str]:
        self._require_session(session_id, path)
        names = self.tree.children(path)
        if watch is not None:
            self._watches.on_children(path, session_id, watch)
        return names

    def exists(self, session_id: int, path: str, watch: Watch | None) -> Stat | None:
        self._require_session(session_id, path)
        stat = self.tree.exists(path)
        if watch is not None:
            self._watches.on_node(path, session_id, watch)
        return stat

    def write(self, session_id: int, operations: Sequence[Operation]) -> list[Written]:
        self._require_session(session_id, operations[0].path if operations else "/")
        when = When(self.tree.zxid + 1, self._clock.now_ms(), session_id)
        outcome = self.tree.write(operations, when)
        for owner, watch, kind, path in self._watches.take(outcome.events):
            self._sessions[owner](watch, kind, path)
        return outcome.answers

    def _require_session(self, session_id: int, path: str) -> None:
        if session_id not in self._sessions:
            raise CoordinationError(Trouble.session_expired, path)
