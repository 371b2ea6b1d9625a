"""Watches that a client has left at ZooKeeper: whom to tell, and what to leave again.

The server tells a connection once that something happened to a path; who wants to know it is
kept here. A watch waits for a node that is there, for one that is not, or for children. When a
connection is lost the server has forgotten them, and `lists` says what to ask for again.
"""

from collections.abc import Iterator
from typing import Final

from tidelog.base.coordination import Watch, WatchKind

_LIST_BYTES_MAX: Final = 100_000
"""Of paths in one request: far below what ZooKeeper takes."""

_Waiting = dict[str, dict[Watch, None]]
Lists = tuple[list[str], list[str], list[str]]


class LeftWatches:
    def __init__(self) -> None:
        self._on_node: _Waiting = {}
        self._on_missing: _Waiting = {}
        self._on_children: _Waiting = {}

    def on_node(self, path: str, watch: Watch) -> None:
        self._on_node.setdefault(path, {})[watch] = None

    def on_missing(self, path: str, watch: Watch) -> None:
        self._on_missing.setdefault(path, {})[watch] = None

    def on_children(self, path: str, watch: Watch) -> None:
        self._on_children.setdefault(path, {})[watch] = None

    def take(self, kind: WatchKind, path: str) -> dict[Watch, None]:
        """Whom an event concerns; who is told has no watch there any more. The same callback is
        told once, whatever it waited for."""
        if kind is WatchKind.children:
            return self._on_children.pop(path, {})
        found = self._on_node.pop(path, {}) | self._on_missing.pop(path, {})
        if kind is WatchKind.deleted:
            found |= self._on_children.pop(path, {})
        return found

    def clear(self) -> None:
        for waiting in (self._on_node, self._on_missing, self._on_children):
            waiting.clear()

    def lists(self) -> Iterator[Lists]:
        """All paths, in portions: of nodes that are there, that are not, that have children."""
        portion: Lists = ([], [], [])
        size = 0
        for number, waiting in enumerate((self._on_node, self._on_missing, self._on_children)):
            for path in waiting:
                portion[number].append(path)
                size += len(path.encode())
                if size > _LIST_BYTES_MAX:
                    yield portion
                    portion, size = ([], [], []), 0
        if size:
            yield portion
