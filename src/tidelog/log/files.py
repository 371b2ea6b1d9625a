"""The names of a log's files, and how a small file is replaced whole.

A segment is named by its first offset in 20 digits. A file on its way out carries
`.deleted` behind its name, one that compaction has written `.cleaned`, one that is about
to take its place `.swap`; so what a crash left behind can be told by its name.
"""

from collections import deque
from typing import Any, Final

from tidelog.base.ports import Buffer, Disk, File

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
SEGMENT_KINDS: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
REBUILT: Final = ".rebuilt"
TEMPORARY: Final = ".tmp"
CHECKPOINTING: Final = ".checkpointing"
"""Keeps the temporary files of checkpoints that are written in steps apart from those of
somebody who does not go in steps; and below, those of leader epochs, and of snapshots."""
FLUSHING: Final = ".flushing"
SNAPSHOTTING: Final = ".snapshotting"

BLOCKS_MAX: Final = 12_288
OPEN_FILES_MAX: Final = 512
"""Of the closed segments of a log dir."""
_OPEN_FILES_SHARE: Final = 8
_SPARE_FILES: Final = 16


def file_name(base_offset: int, kind: str) -> str:
    return f"{base_offset:020d}{kind}"


def base_offset_of(name: str, kind: str) -> int | None:
    """The offset in a file's name; None if it is not a file of that kind."""
    digits = name.removesuffix(kind)
    if name.endswith(kind) and len(digits) == 20 and digits.isascii() and digits.isdigit():
        return int(digits)
    return None


def read_whole(disk: Disk, path: str) -> bytes:
    file = disk.open(path, "read")
    return file.pread(file.size(), 0)


def open_empty(disk: Disk, path: str) -> File:
    """A file to be written from its start. One that is empty is not cut: what is cut to nothing is
    about to be replaced, in ext4's view, which writes all of it out when it is closed. Whoever
    closes a segment of a gigabyte would wait for the disk."""
    file = disk.open(path, "create")
    if file.size():
        file.truncate(0)
    return file


def write_whole(disk: Disk, path: str, data: Buffer, *, durable: bool = True) -> None:
    """Replaces a file by rename: after a crash it is the old one or the new one, never a mix."""
    write_temporary(disk, path, data, durable=durable)
    disk.rename(path + TEMPORARY, path)
    if durable:
        disk.sync_folder(path.rpartition("/")[0])


def write_temporary(disk: Disk, path: str, data: Buffer, *, durable: bool = True) -> None:
    """The first half of it: the new content, beside the file it is to replace."""
    file = disk.open(path + TEMPORARY, "create")
    file.truncate(0)
    file.pwrite(data, 0)
    if durable:
        file.sync()
    file.close()


def remove_if_there(disk: Disk, path: str) -> None:
    if disk.stat(path) is not None:
        disk.remove(path)


def open_files_max(limit: int, dirs: int) -> int:
    """How many of those there are to be in each dir, where a process may have `limit` files open:
    most of them are for active segments and for connections."""
    return min(OPEN_FILES_MAX, limit // (_OPEN_FILES_SHARE * dirs))


def replicas_left(opened: int, limit: int) -> int:
    """How many more may be made: each keeps a file open. Those of closed segments, checkpoints and
    clients find some too, and so does a start with all that were made."""
    return max(0, limit - opened - limit // _OPEN_FILES_SHARE - _SPARE_FILES)


Warmed = set[tuple[str, int]]
"""Paths and positions."""


class Cold(Exception):
    """A range of a file that is not in the page cache: it is to be read beside the loop, then what
    wanted it is to be tried again."""

    def __init__(self, path: str, file: File, position: int, size: int) -> None:
        super().__init__(f"{path}: {size} bytes at {position}")
        self.path = path
        self.file = file
        self.position = position
        self.size = size


class LazyFile:
    """A file that is opened when it is needed, and closed again if others need to be open more.
    Whoever still holds what `get` gave is not disturbed by that."""

    __slots__ = ("_file", "_files", "path")

    def __init__(self, files: "OpenFiles", path: str) -> None:
        self._files = files
        self._file: File | None = None
        self.path = path

    def get(self) -> File:
        return self._file or self._open()

    def pread(self, size: int, offset: int) -> bytes:
        """As the file's; raises `Cold` where one would have to wait for the disk, and must not."""
        file = self._file or self._open()
        warmed = self._files.warmed
        if (
            warmed is not None
            and (self.path, offset) not in warmed
            and not file.resident(offset, size)
        ):
            raise Cold(self.path, file, offset, size)
        return file.pread(size, offset)

    def _open(self) -> File:
        self._file = self._files.open(self)
        return self._file

    def let_go(self) -> None:
        self._file = None

    def moved(self, path: str) -> None:
        self._file = None
        self.path = path


class OpenFiles:
    """Opens files, at most `capacity` at a time: the one that was opened first is let go. Also
    counts the blocks of closed indexes that are kept decoded."""

    def __init__(self, disk: Disk, capacity: int) -> None:
        self._disk = disk
        self._capacity = capacity
        self._opened: deque[LazyFile] = deque()
        self.warmed: Warmed | None = None
        """While nobody may wait for the disk: where somebody has read beside the loop."""
        self._blocks: list[dict[int, Any]] = []

    def open(self, lazy: LazyFile) -> File:
        file = self._disk.open(lazy.path, "write")
        self._opened.append(lazy)
        if len(self._opened) > self._capacity:
            self._opened.popleft().let_go()
        return file

    def count_block(self, blocks: dict[int, Any]) -> None:
        """To be called with the blocks of an index when one is added. Beyond the limit all are
        let go, of every index: they come back with one read each."""
        self._blocks.append(blocks)
        if len(self._blocks) > BLOCKS_MAX:
            for each in self._blocks:
                each.clear()
            self._blocks.clear()
