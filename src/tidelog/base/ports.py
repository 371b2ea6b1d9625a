"""Everything outside the process, as narrow protocols.

`world.real` implements them with the operating system, `world.sim` from a seed and with
faults; one body of contract tests runs against both. Adapters raise `OSError` with the
errno the system would give; nothing above them catches it but the log, which turns it
into one clear error and takes the log dir offline.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Buffer = bytes | bytearray | memoryview

OpenMode = Literal["read", "write", "create"]


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock time since 1970. It may jump; use it for timestamps only."""

    def monotonic_ms(self) -> int:
        """Time that never goes back, for timeouts and delays."""

    def boot_id(self) -> str:
        """A name of this boot of the machine: while it stays, the page cache has stayed too."""


class Entropy(Protocol):
    def random_bytes(self, count: int) -> bytes: ...


class File(Protocol):
    """An open file. Dropping the last reference closes it; so whoever still has a range to
    send holds its file open, whatever happens to the name."""

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes; fewer only where the file ends."""

    def pwrite(self, data: Buffer, offset: int) -> None:
        """All of `data`, or an error that may have left part of it behind."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None:
        """Cuts the file, or extends it with zeros."""

    def sync(self) -> None:
        """Makes the content durable. After an error here, nothing may be assumed durable."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    size: int
    modified_ms: int
    is_folder: bool


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    def open(self, path: str, mode: OpenMode) -> File:
        """`read` and `write` want a file that is there; `create` makes an empty one if not."""

    def list(self, folder: str) -> list[str]:
        """The names in a folder, sorted."""

    def stat(self, path: str) -> FileInfo | None:
        """None if there is nothing by that name."""

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces a file that is there. Durable only after `sync_folder`."""

    def remove(self, path: str) -> None:
        """Removes a file or an empty folder."""

    def make_folder(self, path: str) -> None:
        """With its parents; fine if it is there."""

    def sync_folder(self, path: str) -> None:
        """Makes the names in a folder durable."""

    def lock(self, path: str) -> Lock:
        """Takes a file as a lock that dies with the process; BlockingIOError if it is held."""


class Job(Protocol):
    def result(self) -> dict[str, Any]:
        """Waits for the end; raises what went wrong."""


class Workers(Protocol):
    """Work that burns CPU, run in a child process. Arguments and results are JSON."""

    def start(self, task: str, argument: Mapping[str, Any]) -> Job: ...
