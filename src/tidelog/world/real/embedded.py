"""Coordination inside the process: a znode tree with a journal on disk, for a single node.

It behaves as a ZooKeeper session does. A write changes the tree at once and its answer waits
until the journal holds it; whatever is asked later, and could show it, waits behind it. So
answers and watches leave one queue in order, and nobody is told of anything a crash could take
back. Whoever opens it must hold the folder's lock: the log dir's.

After an error of the disk everything is answered with `Trouble.storage`, reads too, since what
the tree shows by then may or may not be on disk; listeners hear that the session is suspended.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from tidelog.base.coordination import (
    CoordinationError,
    Done,
    Node,
    Operation,
    SessionState,
    Stat,
    Trouble,
    Watch,
    Written,
)
from tidelog.world.real.group_commit import GroupCommit
from tidelog.world.real.outbox import Outbox
from tidelog.world.real.snapshotting import Place, Snapshotting
from tidelog.world.watches import Watches
from tidelog.world.znode_files import OpenJournal, encode_snapshot, load, start_anew
from tidelog.world.znode_paths import ROOT, split_path
from tidelog.world.znode_records import encode_transaction
from tidelog.world.znode_tree import Outcome, When, ZnodeTree

_COUNTER_BITS: Final = 32

Answer = TypeVar("Answer")


def open_embedded(place: Place) -> "EmbeddedCoordination":
    """Reads the tree, or begins one, in a new epoch: the upper half of every zxid from here on.

    Everything that was read is written again as a new snapshot. A process that died may have
    left bytes that were never synced, and a sync that failed may have left some that never will
    be: those must not be built upon. Damage is refused as a `BadValue`.
    """
    disk, folder = place.disk, place.folder
    disk.make_folder(folder)
    disk.sync_folder(split_path(folder)[0])
    loaded = load(disk, folder)
    tree = loaded.tree
    epoch = 1 + (loaded.zxid_max >> _COUNTER_BITS)
    _remove_ephemerals(tree, When(epoch << _COUNTER_BITS, place.clock.now_ms()))
    parts = list(encode_snapshot(tree))
    journal = start_anew(disk, folder, tree.zxid, parts)
    opened = EmbeddedCoordination(place, tree, journal, sum(map(len, parts)))
    opened.unfinished_bytes = loaded.unfinished_bytes
    return opened


def _remove_ephemerals(tree: ZnodeTree, when: When) -> None:
    """The sessions of an earlier process ended with it."""
    sessions = list(tree.ephemerals)
    tree.write([gone for session_id in sessions for gone in tree.end_session(session_id)], when)
    tree.zxid = when.zxid


class EmbeddedCoordination:
    """The one session of this process. Made by `open_embedded`."""

    def __init__(
        self, place: Place, tree: ZnodeTree, journal: OpenJournal, snapshot_bytes: int
    ) -> None:
        self._clock = place.clock
        self._tree = tree
        self._watches = Watches()
        self._journal = GroupCommit(place.loop, journal, self._progress)
        self._outbox = Outbox(place.loop, self._journal)
        self._snapshotting = Snapshotting(place, tree, self._journal, snapshot_bytes)
        self._session_id = tree.zxid
        self._listeners: list[Callable[[SessionState], None]] = []
        self._has_failed = False
        self._is_closed = False
        self.unfinished_bytes = 0
        """How much of a write that nobody was told about was found at the journal's end."""

    # The port.

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def failure(self) -> Exception | None:
        """What the disk said when it failed, if it did."""
        return self._journal.failure

    def get(self, path: str, done: Done[Node], watch: Watch | None = None) -> None:
        self._ask(path, done, partial(self._get, path, watch))

    def children(self, path: str, done: Done[list[str]], watch: Watch | None = None) -> None:
        self._ask(path, done, partial(self._children, path, watch))

    def exists(self, path: str, done: Done[Stat | None], watch: Watch | None = None) -> None:
        self._ask(path, done, partial(self._exists, path, watch))

    def write(self, operations: Sequence[Operation], done: Done[list[Written]]) -> None:
        wanted = tuple(operations)
        path = wanted[0].path if wanted else ROOT
        self._ask(path, done, partial(self._write, wanted))

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def close(self) -> None:
        """What was asked for before is still done and answered."""
        self._run(self._close)

    def after_all(self, callback: Callable[[], None]) -> None:
        """Runs a callback once everything asked for so far has been answered."""
        self._run(partial(self._outbox.put, callback, callback))

    # Inside.

    def _run(self, action: Callable[[], None]) -> None:
        if self._snapshotting.is_under_way:
            self._snapshotting.hold(action)
        else:
            action()

    def _ask(self, path: str, done: Done[Answer], look: Callable[[], Answer]) -> None:
        self._run(partial(self._look, path, done, look))

    def _look(self, path: str, done: Done[Answer], look: Callable[[], Answer]) -> None:
        answer: Answer | CoordinationError
        storage = CoordinationError(Trouble.storage, path)
        if self._journal.failure is not None:
            answer = storage
        elif self._is_closed:
            answer = CoordinationError(Trouble.session_expired, path)
        else:
            try:
                answer = look()
            except CoordinationError as error:
                answer = error
        self._outbox.put(partial(done, answer), partial(done, storage))

    def _get(self, path: str, watch: Watch | None) -> Node:
        node = self._tree.get(path)
        if watch is not None:
            self._watches.on_node(path, self._session_id, watch)
        return node

    def _children(self, path: str, watch: Watch | None) -> list[str]:
        names = self._tree.children(path)
        if watch is not None:
            self._watches.on_children(path, self._session_id, watch)
        return names

    def _exists(self, path: str, watch: Watch | None) -> Stat | None:
        stat = self._tree.exists(path)
        if watch is not None:
            self._watches.on_node(path, self._session_id, watch)
        return stat

    def _write(self, operations: Sequence[Operation]) -> list[Written]:
        when = When(self._tree.zxid + 1, self._clock.now_ms(), self._session_id)
        outcome = self._tree.write(operations, when)
        self._commit(when, outcome)
        return outcome.answers

    def _commit(self, when: When, outcome: Outcome) -> None:
        if outcome.changes:
            self._journal.append(encode_transaction(when, outcome.changes))
        for _, watch, kind, path in self._watches.take(outcome.events):
            self._outbox.put(partial(watch, kind, path), None)

    def _close(self) -> None:
        if self._is_closed:
            return
        self._watches.forget(self._session_id)
        if self._journal.failure is None:
            self._write(self._tree.end_session(self._session_id))
        self._is_closed = True
        self._outbox.put(self._journal.close, self._journal.close)

    def _progress(self) -> None:
        if self._journal.failure is not None and not self._has_failed:
            self._has_failed = True
            self._tell(SessionState.suspended)
        if not self._is_closed:
            self._snapshotting.consider()
        self._outbox.release()

    def _tell(self, state: SessionState) -> None:
        for listener in self._listeners:
            told = partial(listener, state)
            self._outbox.put(told, told)
