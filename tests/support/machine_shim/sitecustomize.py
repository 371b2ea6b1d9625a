"""A machine of its own around one process and its children, for tests; Python loads it at a start.

The wall clock is shifted by what stands in a file, the monotonic clock is not. The boot has the
name that a file says. And while there is a folder for it, whenever something in the log dir is
synced, what thereby becomes durable is kept there, for `power_loss` to go back to:

    content/<inode>     the bytes of a file when it was last synced
    names/<folder>      what stood in a folder when that was last synced: names and inodes
    inodes/<inode>      another name for each file, so that no number is used a second time

What is kept is looked at before the sync, so nothing that is written during it counts as durable.
Without the variables below in its environment a process is left as it is.
"""

import io
import json
import mmap
import os
import stat
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

CLOCK: Final = "TIDELOG_TEST_CLOCK"
BOOT: Final = "TIDELOG_TEST_BOOT"
DURABLE: Final = "TIDELOG_TEST_DURABLE"
LOG_DIR: Final = "TIDELOG_TEST_LOG_DIR"
SHIFT: Final = struct.Struct("=q")
"""Nanoseconds."""
FOLDER: Final = -1
"""In place of an inode: folders are not followed."""
_REAL_BOOT: Final = "/proc/sys/kernel/random/boot_id"


class Durable:
    """What of a log dir would survive."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def begin(self) -> None:
        for name in ("content", "names", "inodes"):
            (self.place / name).mkdir(parents=True, exist_ok=True)

    def note(self, path: str) -> None:
        """All of it is being made durable: the content of a file, or the names in a folder."""
        with suppress(FileNotFoundError):
            found = os.stat(path)
            if stat.S_ISDIR(found.st_mode):
                names = {entry.name: self._inode_of(entry) for entry in os.scandir(path)}
                self._put(self.place / "names" / quote(path, safe=""), json.dumps(names).encode())
            else:
                self._keep(path, found.st_ino)
                self._put(self.place / "content" / str(found.st_ino), Path(path).read_bytes())

    def names(self, path: Path) -> dict[str, int]:
        try:
            found: dict[str, int] = json.loads(
                (self.place / "names" / quote(str(path), safe="")).read_bytes()
            )
        except FileNotFoundError:
            return {}
        return found

    def content(self, inode: int) -> bytes:
        try:
            return (self.place / "content" / str(inode)).read_bytes()
        except FileNotFoundError:
            return b""

    def file(self, inode: int) -> Path:
        return self.place / "inodes" / str(inode)

    def _inode_of(self, entry: os.DirEntry[str]) -> int:
        if entry.is_dir():
            return FOLDER
        inode = entry.inode()
        with suppress(FileNotFoundError):
            self._keep(entry.path, inode)
        return inode

    def _keep(self, path: str, inode: int) -> None:
        with suppress(FileExistsError):
            os.link(path, self.file(inode))

    def _put(self, path: Path, data: bytes) -> None:
        beside = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
        beside.write_bytes(data)
        beside.replace(path)


def _shift_clock(path: str) -> None:
    real_time, real_time_ns = time.time, time.time_ns
    with open(path, "rb") as file:
        shift = mmap.mmap(file.fileno(), SHIFT.size, access=mmap.ACCESS_READ)

    def shift_ns() -> int:
        return int(SHIFT.unpack_from(shift)[0])

    time.time = lambda: real_time() + shift_ns() / 1e9
    time.time_ns = lambda: real_time_ns() + shift_ns()


def _name_boot(path: str) -> None:
    real_open: Any = io.open

    def opened(file: Any, *arguments: Any, **options: Any) -> Any:
        return real_open(path if str(file) == _REAL_BOOT else file, *arguments, **options)

    setattr(io, "open", opened)  # noqa: B010


def _note_syncs(place: str, log_dir: str) -> None:
    durable, real_fsync = Durable(Path(place)), os.fsync

    def fsync(fd: Any) -> None:
        number = fd if isinstance(fd, int) else fd.fileno()
        path = os.readlink(f"/proc/self/fd/{number}")
        if durable.place.is_dir() and f"{path}/".startswith(f"{log_dir}/"):
            durable.note(path)
        real_fsync(fd)

    os.fsync = fsync


def _begin(environment: "os._Environ[str]") -> None:
    if CLOCK in environment:
        _shift_clock(environment[CLOCK])
    if BOOT in environment:
        _name_boot(environment[BOOT])
    if DURABLE in environment:
        _note_syncs(environment[DURABLE], environment[LOG_DIR])


_begin(os.environ)
