"""Watches: who wants to be told once that a node changes.

As ZooKeeper has them, there are two kinds. A watch left by `get` or `exists` waits for the node
to be made, changed or deleted; one left by `children` waits for a child to come or go, or the
node itself to be deleted. The same callback left twice at one place is one watch.
"""

from collections.abc import Iterable, Iterator

from tidelog.base.coordination import Watch, WatchKind
from tidelog.world.znode_tree import Event

_Waiting = dict[str, dict[tuple[int, Watch], None]]

Told = tuple[int, Watch, WatchKind, str]
"""A session, which of its watches, and what it is to be told."""


class Watches:
    def __init__(self) -> None:
        self._on_node: _Waiting = {}
        self._on_children: _Waiting = {}

    def on_node(self, path: str, session_id: int, watch: Watch) -> None:
        self._on_node.setdefault(path, {})[session_id, watch] = None

    def on_children(self, path: str, session_id: int, watch: Watch) -> None:
        self._on_children.setdefault(path, {})[session_id, watch] = None

    def take(self, events: Iterable[Event]) -> Iterator[Told]:
        """Whom these events concern, in their order. Watches that are told are gone."""
        for kind, path in events:
            for session_id, watch in self._take(kind, path):
                yield session_id, watch, kind, path

    def forget(self, session_id: int) -> None:
        """A session is over: nothing of it waits any more."""
        for waiting in (self._on_node, self._on_children):
            for path in list(waiting):
                kept = {key: None for key in waiting[path] if key[0] != session_id}
                if kept:
                    waiting[path] = kept
                else:
                    del waiting[path]

    def _take(self, kind: WatchKind, path: str) -> dict[tuple[int, Watch], None]:
        if kind is WatchKind.children:
            return self._on_children.pop(path, {})
        found = self._on_node.pop(path, {})
        if kind is WatchKind.deleted:
            # Who watches both the node and its children is told of the deletion once.
            found |= self._on_children.pop(path, {})
        return found
