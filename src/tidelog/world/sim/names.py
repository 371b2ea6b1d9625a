"""The folders of the simulated disk: what programs see, and which names the medium holds.

`live` are the names programs see, `durable` those that certainly survive a power loss, and
`unsynced` the changes between them in order. A rename is one change, so it is never seen
half done. A file or folder has at most one name; hard links do not exist here.
"""

import errno
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import TypeAlias, Union

from tidelog.world.sim.contents import FileNode, Loss
from tidelog.world.sim.faults import os_error

Node: TypeAlias = Union["FileNode", "FolderNode"]
Place: TypeAlias = tuple["FolderNode", str]

VOLUME_BYTES = 1 << 40
"""How large a disk without a limit says it is."""


@lru_cache(maxsize=4096)
def split_path(path: str) -> tuple[str, ...]:
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    assert ".." not in parts, f"the simulated disk does not follow '..' in {path}"
    return parts


class FolderNode:
    __slots__ = ("durable", "live", "modified_ms", "unsynced")

    def __init__(self, modified_ms: int) -> None:
        self.live: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.modified_ms = modified_ms
        self.unsynced: list[NameChange] = []


@dataclass(frozen=True, slots=True, eq=False)
class NameChange:
    """A node gets a name (no source), loses it (no target), or is renamed (both)."""

    sequence: int
    node: Node
    source: Place | None
    target: Place | None

    def folders(self) -> list[FolderNode]:
        places = [place for place in (self.source, self.target) if place is not None]
        return list(dict.fromkeys(folder for folder, _ in places))


class Names:
    """Makes, syncs and loses name changes for all folders under one root."""

    def __init__(self, root: FolderNode) -> None:
        self.root = root
        self._durable_places: dict[Node, Place] = {}
        self._sequence = 0

    def find(self, path: str) -> Node:
        return self._walk(split_path(path), path)

    def find_folder(self, path: str) -> FolderNode:
        return _need_folder(self.find(path), path)

    def find_parent(self, path: str) -> Place:
        """The folder that has, or would have, this name."""
        parts = split_path(path)
        assert parts, "the root has no parent"
        return _need_folder(self._walk(parts[:-1], path), path), parts[-1]

    def usage(self, path: str, capacity: int | None) -> tuple[int, int]:
        """The size of the whole disk and what is free of it, for a path that is there."""
        self.find(path)
        total = VOLUME_BYTES if capacity is None else capacity
        used = sum(len(file.live) for file in self.files().values())
        return total, max(0, total - used)

    def _walk(self, parts: tuple[str, ...], path: str) -> Node:
        node: Node = self.root
        for name in parts:
            children = _need_folder(node, path).live
            if name not in children:
                raise os_error(errno.ENOENT, path)
            node = children[name]
        return node

    def change(self, node: Node, source: Place | None, target: Place | None) -> None:
        self._sequence += 1
        change = NameChange(self._sequence, node, source, target)
        for folder in change.folders():
            folder.unsynced.append(change)
        if source is not None:
            del source[0].live[source[1]]
        if target is not None:
            target[0].live[target[1]] = node

    def sync(self, folder: FolderNode) -> None:
        while folder.unsynced:
            self._settle(folder.unsynced[0])

    def _settle(self, change: NameChange) -> None:
        """A rename between two folders belongs to both; what came before it in the other
        becomes durable with it, as in a journal."""
        for folder in change.folders():
            while folder.unsynced[0] is not change:
                self._settle(folder.unsynced[0])
        for folder in change.folders():
            folder.unsynced.pop(0)
        self._make_durable(change)

    def _make_durable(self, change: NameChange) -> None:
        if change.target is None:
            if self._durable_places.get(change.node) == change.source:
                self._forget(change.node)
            return
        self._forget(change.node)
        folder, name = change.target
        displaced = folder.durable.get(name)
        if displaced is not None:
            self._forget(displaced)
        folder.durable[name] = change.node
        self._durable_places[change.node] = change.target

    def _forget(self, node: Node) -> None:
        place = self._durable_places.pop(node, None)
        if place is not None:
            folder, name = place
            del folder.durable[name]

    def lose_power(self, loss: Loss, draws: Random) -> None:
        folders = [node for node in self.nodes() if isinstance(node, FolderNode)]
        waiting = {change for folder in folders for change in folder.unsynced}
        changes = sorted(waiting, key=lambda change: change.sequence)
        for change in _draw_survivors(changes, loss, draws):
            self._make_durable(change)
        for folder in folders:
            folder.unsynced.clear()
            folder.live = dict(folder.durable)

    def nodes(self) -> list[Node]:
        """Everything a program sees, or that might be seen after a power loss."""
        found: dict[Node, None] = {self.root: None}
        waiting: list[Node] = [self.root]
        while waiting:
            node = waiting.pop()
            if isinstance(node, FolderNode):
                for child in _children(node):
                    if child not in found:
                        found[child] = None
                        waiting.append(child)
        return list(found)

    def files(self, folder: FolderNode | None = None, path: str = "") -> dict[str, FileNode]:
        """What programs see, by path."""
        found: dict[str, FileNode] = {}
        for name, node in sorted((folder or self.root).live.items()):
            if isinstance(node, FileNode):
                found[f"{path}/{name}"] = node
            else:
                found |= self.files(node, f"{path}/{name}")
        return found

    def copy(self) -> "Names":
        originals = self.nodes()
        twins: dict[Node, Node] = {
            node: node.copy() if isinstance(node, FileNode) else FolderNode(node.modified_ms)
            for node in originals
        }

        def place(original: Place | None) -> Place | None:
            return None if original is None else (_folder(twins[original[0]]), original[1])

        changes: dict[NameChange, NameChange] = {}
        for node in originals:
            if isinstance(node, FolderNode):
                twin = _folder(twins[node])
                twin.live = {name: twins[child] for name, child in node.live.items()}
                twin.durable = {name: twins[child] for name, child in node.durable.items()}
                for change in node.unsynced:
                    if change not in changes:
                        changes[change] = NameChange(
                            change.sequence,
                            twins[change.node],
                            place(change.source),
                            place(change.target),
                        )
                    twin.unsynced.append(changes[change])
        copied = Names(_folder(twins[self.root]))
        copied._sequence = self._sequence
        for folder in [node for node in twins.values() if isinstance(node, FolderNode)]:
            for name, child in folder.durable.items():
                copied._durable_places[child] = (folder, name)
        return copied


def check_rename(node: Node, there: Node | None, source: str, target: str) -> None:
    """Refuses a rename of `node` onto what is there, in the order in which Linux checks."""
    source_parts, target_parts = split_path(source), split_path(target)
    if source_parts != target_parts:
        if target_parts[: len(source_parts)] == source_parts:
            raise os_error(errno.EINVAL, source)
        if source_parts[: len(target_parts)] == target_parts:
            raise os_error(errno.ENOTEMPTY, source)
    if there is None or there is node:
        return
    if isinstance(node, FolderNode) != isinstance(there, FolderNode):
        is_folder = isinstance(node, FolderNode)
        raise os_error(errno.ENOTDIR if is_folder else errno.EISDIR, source)
    if isinstance(there, FolderNode) and there.live:
        raise os_error(errno.ENOTEMPTY, source)


def _need_folder(node: Node, path: str) -> FolderNode:
    if not isinstance(node, FolderNode):
        raise os_error(errno.ENOTDIR, path)
    return node


def _folder(node: Node) -> FolderNode:
    assert isinstance(node, FolderNode)
    return node


def _children(folder: FolderNode) -> list[Node]:
    """With the other folder of each rename between two."""
    return [
        *folder.live.values(),
        *folder.durable.values(),
        *(change.node for change in folder.unsynced),
        *(other for change in folder.unsynced for other in change.folders()),
    ]


def _draw_survivors(changes: list[NameChange], loss: Loss, draws: Random) -> list[NameChange]:
    if loss == "all":
        return []
    if loss == "none":
        return changes
    match draws.choice(("all", "none", "prefix", "each", "each")):
        case "all":
            return changes
        case "none":
            return []
        case "prefix":
            return changes[: draws.randint(0, len(changes))]
    return [change for change in changes if draws.random() < 0.5]
