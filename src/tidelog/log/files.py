"""The names of a log's files, and how a small file is replaced whole.

A segment is named by its first offset in 20 digits. A file on its way out carries
`.deleted` behind its name, one that compaction has written `.cleaned`, one that is about
to take its place `.swap`; so what a crash left behind can be told by its name.
"""

from collections import OrderedDict
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

BLOCKS_MAX: Final = 16_384


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


def write_whole(disk: Disk, path: str, data: Buffer, *, durable: bool = True) -> None:
    """Replaces a file by rename: after a crash it is the old one or the new one, never a mix."""
    temporary = path + TEMPORARY
    file = disk.open(temporary, "create")
    file.truncate(0)
    file.pwrite(data, 0)
    if durable:
        file.sync()
    file.close()
    disk.rename(temporary, path)
    if durable:
        disk.sync_folder(path.rpartition("/")[0])


def remove_if_there(disk: Disk, path: str) -> None:
    if disk.stat(path) is not None:
        disk.remove(path)


class OpenFiles:
    """The files that were used last, open; at most `capacity` of them. Also counts the blocks of
    closed indexes that are kept decoded.

    Dropping a file from here does not close it under whoever still holds it.
    """

    def __init__(self, disk: Disk, capacity: int) -> None:
        self._disk = disk
        self._capacity = capacity
        self._files: OrderedDict[str, File] = OrderedDict()
        self._blocks: list[dict[int, Any]] = []

    def get(self, path: str) -> File:
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return file
        file = self._files[path] = self._disk.open(path, "write")
        if len(self._files) > self._capacity:
            self._files.popitem(last=False)
        return file

    def forget(self, path: str) -> None:
        """To be called when a name is removed or given to another file."""
        self._files.pop(path, None)

    def count_block(self, blocks: dict[int, Any]) -> None:
        """To be called with the blocks of an index when one is added. Beyond the limit all are
        let go, of every index: they come back with one read each."""
        self._blocks.append(blocks)
        if len(self._blocks) > BLOCKS_MAX:
            for each in self._blocks:
                each.clear()
            self._blocks.clear()
