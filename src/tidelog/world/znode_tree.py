"""The tree of znodes: what ZooKeeper's model says a write does and a read shows, without I/O.

`ZnodeTree.write` does all of a list of operations or none, and says what came of it: the
answers, the operations as a journal needs them to do the same again, and the events that
watches wait for. Zxids, times and sessions are handed in, so that the same writes always make
the same tree. The embedded coordination and the simulated one are this tree with something
around it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple

from tidelog.base.coordination import (
    ANY_VERSION,
    Check,
    CoordinationError,
    Create,
    Delete,
    Node,
    Operation,
    SetData,
    Stat,
    Trouble,
    WatchKind,
    Written,
)
from tidelog.world.znode_paths import ROOT, check_path, join_path, split_path

NO_SESSION: Final = 0

Event = tuple[WatchKind, str]
Change = Create | SetData | Delete


class Znode:
    """One node. It knows neither its name nor its parent: those are in the path."""

    __slots__ = (
        "children",
        "created_ms",
        "created_zxid",
        "creations",
        "data",
        "modified_ms",
        "modified_zxid",
        "owner",
        "version",
    )

    def __init__(self, data: bytes, when: "When", owner: int) -> None:
        self.data = data
        self.created_zxid = self.modified_zxid = when.zxid
        self.created_ms = self.modified_ms = when.now_ms
        self.owner = owner
        self.version = 0
        self.creations = 0
        """How many children were ever made: the number of the next one in a sequence."""
        self.children: dict[str, Znode] | None = None

    def stat(self) -> Stat:
        count = len(self.children or ())
        return Stat(
            created_zxid=self.created_zxid,
            modified_zxid=self.modified_zxid,
            version=self.version,
            # Every child was made once, and those that are not there were deleted once.
            children_version=2 * self.creations - count,
            ephemeral_owner=self.owner,
            created_ms=self.created_ms,
            modified_ms=self.modified_ms,
            children_count=count,
        )


class When(NamedTuple):
    """Under which number, when and for whom a write is done."""

    zxid: int
    now_ms: int
    session_id: int = NO_SESSION


@dataclass(slots=True)
class Outcome:
    """What a write did."""

    answers: list[Written] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    """The operations as they were done: the path of a Create has its number, and checks, which
    change nothing, are left out."""
    events: list[Event] = field(default_factory=list)


class ZnodeTree:
    __slots__ = ("_undo", "count", "ephemerals", "root", "zxid")

    def __init__(self) -> None:
        self.root = Znode(b"", When(0, 0), NO_SESSION)
        self.zxid = 0
        """That of the last write."""
        self.count = 1
        self.ephemerals: dict[int, set[str]] = {}
        """By session, which paths go with it."""
        self._undo: list[Callable[[], None]] = []

    # Reading.

    def find(self, path: str) -> Znode:
        node = self._find(path)
        if node is None:
            check_path(path)
            raise CoordinationError(Trouble.no_node, path)
        return node

    def get(self, path: str) -> Node:
        node = self.find(path)
        return Node(node.data, node.stat())

    def children(self, path: str) -> list[str]:
        return sorted(self.find(path).children or ())

    def exists(self, path: str) -> Stat | None:
        node = self._find(path)
        if node is None:
            check_path(path)
        return None if node is None else node.stat()

    def walk(self, path: str = ROOT) -> Iterator[tuple[str, Znode]]:
        """A node and all below it, parents before their children, names in order."""
        waiting = [(path, self.find(path))]
        while waiting:
            path, node = waiting.pop()
            yield path, node
            for name, child in sorted((node.children or {}).items(), reverse=True):
                waiting.append((join_path(path, name), child))

    # Writing.

    def write(self, operations: Sequence[Operation], when: When) -> Outcome:
        """Does all of it, or raises why not and has done nothing."""
        outcome = Outcome()
        try:
            for operation in operations:
                outcome.answers.append(self._do(operation, when, outcome))
        except CoordinationError:
            for take_back in reversed(self._undo):
                take_back()
            raise
        finally:
            self._undo.clear()
        if outcome.changes:
            self.zxid = when.zxid
        return outcome

    def end_session(self, session_id: int) -> list[Operation]:
        """What a write must do when a session ends: its nodes go."""
        return [Delete(path=path) for path in sorted(self.ephemerals.get(session_id, ()))]

    def add(self, path: str, node: Znode) -> None:
        """Puts a node where it was, as a snapshot says: after its parent, before its children."""
        if path == ROOT:
            self.root = node
            return
        parent_path, name = split_path(path)
        self._attach(self.find(parent_path), name, node, path)

    # Inside.

    def _find(self, path: str) -> Znode | None:
        if path == ROOT:
            return self.root
        above, *names = path.split("/")
        node: Znode | None = self.root if names and not above else None
        for name in names:
            if node is None or node.children is None:
                return None
            node = node.children.get(name)
        return node

    def _do(self, operation: Operation, when: When, outcome: Outcome) -> Written:
        match operation:
            case Create():
                return self._create(operation, when, outcome)
            case SetData():
                return self._set_data(operation, when, outcome)
            case Delete():
                self._delete(operation, outcome)
            case Check():
                _check_version(self.find(operation.path), operation)
        return None

    def _create(self, operation: Create, when: When, outcome: Outcome) -> str:
        path = operation.path
        check_path(path, sequence=operation.sequence)
        parent_path, name = split_path(path)
        parent = self._find(parent_path)
        if parent is None:
            raise CoordinationError(Trouble.no_node, path)
        if operation.sequence:
            number = f"{parent.creations:010d}"
            path, name = path + number, name + number
        if path == ROOT or name in (parent.children or ()):
            raise CoordinationError(Trouble.node_exists, operation.path)
        if parent.owner != NO_SESSION:
            raise CoordinationError(Trouble.no_children_for_ephemerals, operation.path)
        owner = when.session_id if operation.ephemeral else NO_SESSION
        self._attach(parent, name, Znode(operation.data, when, owner), path)
        parent.creations += 1
        self._undo.append(partial(_take_back_creation, self, parent, name, path))
        done = replace(operation, path=path, sequence=False) if operation.sequence else operation
        outcome.changes.append(done)
        outcome.events += (WatchKind.created, path), (WatchKind.children, parent_path)
        return path

    def _set_data(self, operation: SetData, when: When, outcome: Outcome) -> Stat:
        node = self.find(operation.path)
        _check_version(node, operation)
        before = (node.data, node.version, node.modified_zxid, node.modified_ms)
        self._undo.append(partial(_put_data, node, *before))
        _put_data(node, operation.data, node.version + 1, when.zxid, when.now_ms)
        outcome.changes.append(operation)
        outcome.events.append((WatchKind.changed, operation.path))
        return node.stat()

    def _delete(self, operation: Delete, outcome: Outcome) -> None:
        path = operation.path
        node = self.find(path)
        if path == ROOT:
            raise CoordinationError(Trouble.bad_arguments, path)
        _check_version(node, operation)
        if node.children:
            raise CoordinationError(Trouble.not_empty, path)
        parent_path, name = split_path(path)
        parent = self.find(parent_path)
        self._detach(parent, name, path)
        self._undo.append(partial(self._attach, parent, name, node, path))
        outcome.changes.append(operation)
        outcome.events += (WatchKind.deleted, path), (WatchKind.children, parent_path)

    def _attach(self, parent: Znode, name: str, node: Znode, path: str) -> None:
        if parent.children is None:
            parent.children = {}
        parent.children[name] = node
        self.count += 1
        if node.owner != NO_SESSION:
            self.ephemerals.setdefault(node.owner, set()).add(path)

    def _detach(self, parent: Znode, name: str, path: str) -> None:
        assert parent.children is not None
        node = parent.children.pop(name)
        self.count -= 1
        if node.owner != NO_SESSION:
            self.ephemerals[node.owner].discard(path)
            if not self.ephemerals[node.owner]:
                del self.ephemerals[node.owner]


def _take_back_creation(tree: ZnodeTree, parent: Znode, name: str, path: str) -> None:
    tree._detach(parent, name, path)
    parent.creations -= 1


def _put_data(node: Znode, data: bytes, version: int, zxid: int, now_ms: int) -> None:
    node.data = data
    node.version = version
    node.modified_zxid = zxid
    node.modified_ms = now_ms


def _check_version(node: Znode, operation: SetData | Delete | Check) -> None:
    if operation.version not in (ANY_VERSION, node.version):
        raise CoordinationError(Trouble.bad_version, operation.path)
