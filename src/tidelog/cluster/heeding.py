"""What a controller watches in the tree: who is registered, and what brokers announce.

A watch is told once, so every look at the list leaves the next one: whatever changes after a
look is seen by the next. An announcement is deleted when it was acted on.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from tidelog.base.coordination import (
    Check,
    Coordination,
    CoordinationError,
    Delete,
    Node,
    Operation,
    Trouble,
    WatchKind,
    Written,
)
from tidelog.base.errors import BadValue
from tidelog.cluster.image import BrokerInfo
from tidelog.cluster.reading import Found, read_brokers
from tidelog.cluster.writing import Ask, gather, insist

_log = logging.getLogger(__name__)

Text = TypeVar("Text")
Broken = Callable[[CoordinationError], None]


class BrokerList:
    """Calls `changed` with all brokers that are registered: once at first, then at every change.
    A broker that went and came back between two looks has another epoch."""

    def __init__(
        self,
        coordination: Coordination,
        changed: Callable[[dict[int, BrokerInfo]], None],
        broken: Broken,
    ) -> None:
        self._coordination = coordination
        self._changed = changed
        self._broken = broken
        self._is_closed = False
        self._looks = 0

    def look(self) -> None:
        self._looks += 1
        ask = partial(read_brokers, self._coordination, self._told)
        insist(ask, partial(self._read, self._looks))

    def close(self) -> None:
        self._is_closed = True

    def _told(self, _kind: WatchKind, _path: str) -> None:
        if not self._is_closed:
            self.look()

    def _read(self, look: int, found: Found | CoordinationError) -> None:
        if self._is_closed:
            return
        if isinstance(found, CoordinationError):
            self._broken(found)
        elif look == self._looks:
            self._changed(found.brokers)


class Announcements:
    """Reads what stands under a node; `heard` gets the texts and says when they can go."""

    def __init__(
        self,
        coordination: Coordination,
        fence: Check,
        path: str,
        heard: Callable[[list[bytes], Callable[[], None]], None],
        broken: Broken,
    ) -> None:
        self._coordination = coordination
        self._fence = fence
        self._path = path
        self._heard = heard
        self._broken = broken
        self._is_closed = False
        self._is_looking = False
        self._is_told = False

    def look(self) -> None:
        """One look at a time; what is told meanwhile leads to the next."""
        if self._is_looking:
            self._is_told = True
            return
        self._is_looking = True
        self._is_told = False
        ask: Ask[list[str] | CoordinationError] = self._list
        insist(ask, self._listed)

    def close(self) -> None:
        self._is_closed = True

    def _list(self, done: Callable[[list[str] | CoordinationError], None]) -> None:
        self._coordination.children(self._path, done, self._told)

    def _told(self, _kind: WatchKind, _path: str) -> None:
        if not self._is_closed:
            self.look()

    def _listed(self, names: list[str] | CoordinationError) -> None:
        if self._is_closed:
            return
        if isinstance(names, CoordinationError):
            self._broken(names)
            return
        found = [f"{self._path}/{name}" for name in names]
        asks: list[Ask[Node | CoordinationError]] = [
            partial(insist, partial(self._coordination.get, path)) for path in found
        ]
        gather(asks, partial(self._got, found))

    def _got(self, found: list[str], nodes: list[Node | CoordinationError]) -> None:
        if self._is_closed:
            return
        there = [
            (path, node.data)
            for path, node in zip(found, nodes, strict=True)
            if isinstance(node, Node)
        ]
        if there:
            gone = partial(self._delete, [path for path, _ in there])
            self._heard([data for _, data in there], gone)
        else:
            self._end()

    def _delete(self, found: list[str]) -> None:
        if self._is_closed:
            return
        asks: list[Ask[None]] = [partial(self._delete_one, path) for path in found]
        gather(asks, lambda _: self._end())

    def _delete_one(self, path: str, done: Callable[[None], None]) -> None:
        operations: list[Operation] = [self._fence, Delete(path=path)]

        def deleted(result: list[Written] | CoordinationError) -> None:
            if isinstance(result, CoordinationError) and result.trouble is not Trouble.no_node:
                self._broken(result)
            done(None)

        insist(partial(self._coordination.write, operations), deleted)

    def _end(self) -> None:
        """Deleting tells the watch too, so the next look finds the list empty."""
        self._is_looking = False
        if self._is_told and not self._is_closed:
            self.look()


def readable(texts: list[bytes], decode: Callable[[bytes], Text]) -> list[Text]:
    """What can be understood of announcements; the others are reported and go with them."""
    found: list[Text] = []
    for text in texts:
        try:
            found.append(decode(text))
        except BadValue as error:
            _log.error("an announcement cannot be read: %s", error)
    return found
