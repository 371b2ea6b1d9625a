"""When the journal has grown long: a new snapshot, made in slices so that the loop goes on.

The tree must not change between the first slice and the new journal, so whatever is asked of it
meanwhile is held and asked again afterwards, in order. A slice is a frame of nodes and
takes half a millisecond; the files are written beside the loop.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from tidelog.base.ports import Clock, Disk, Loop
from tidelog.world.real.group_commit import LANE, GroupCommit
from tidelog.world.znode_files import OpenJournal, encode_snapshot, start_anew
from tidelog.world.znode_tree import ZnodeTree

JOURNAL_BYTES_MAX: Final = 1 << 20
SNAPSHOTS_MAX: Final = 4
"""A journal may become 1 MB long, or four times as long as its snapshot: reading it again at a
start then takes a tenth of a second, and writing snapshots is a small part of all writing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a tree lives, and what drives it."""

    disk: Disk
    loop: Loop
    clock: Clock
    folder: str
    journal_bytes_max: int = JOURNAL_BYTES_MAX


class Snapshotting:
    def __init__(
        self, place: Place, tree: ZnodeTree, journal: GroupCommit, snapshot_bytes: int
    ) -> None:
        self._place = place
        self._tree = tree
        self._journal = journal
        self._snapshot_bytes = snapshot_bytes
        self._held: list[Callable[[], None]] = []
        self._parts: list[bytes] = []
        self._is_encoding = False
        self.is_under_way = False

    def hold(self, action: Callable[[], None]) -> None:
        """Runs an action when the snapshot is made; there must be one under way."""
        assert self.is_under_way
        self._held.append(action)

    def consider(self) -> None:
        """To be called when the journal has got on: begins when it is long, goes on when all that
        was appended is durable."""
        if self._journal.failure is not None:
            self._let_go()
            return
        longest = max(self._place.journal_bytes_max, SNAPSHOTS_MAX * self._snapshot_bytes)
        if self._journal.size > longest:
            self.is_under_way = True
        if self.is_under_way and not self._is_encoding and self._journal.is_idle:
            self._is_encoding = True
            self._encode(encode_snapshot(self._tree))

    def _encode(self, parts: Iterator[bytes]) -> None:
        part = next(parts, None)
        if part is not None:
            self._parts.append(part)
            now_ms = self._place.clock.monotonic_ms()
            self._place.loop.call_at(now_ms + 1, partial(self._encode, parts))
            return
        place = self._place
        work = partial(start_anew, place.disk, place.folder, self._tree.zxid, self._parts)
        place.loop.offload(LANE, work, self._written)

    def _written(self, result: OpenJournal | Exception) -> None:
        if isinstance(result, Exception):
            self._journal.fail(result)
        else:
            self._journal.go_on_in(result)
            self._snapshot_bytes = sum(map(len, self._parts))
        self._let_go()

    def _let_go(self) -> None:
        self.is_under_way = self._is_encoding = False
        self._parts = []
        held, self._held = self._held, []
        for action in held:
            action()
