"""Everything outside the process, as narrow protocols.

`world.real` implements them with the operating system, `world.sim` from a seed and with
faults; one body of contract tests runs against both. Adapters raise `OSError` with the
errno the system would give; nothing above them catches it but the log, which turns it
into one clear error and takes the log dir offline.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Literal, Protocol, TypeVar

Buffer = bytes | bytearray | memoryview

QUIET_MS_MAX: Final = 2

OpenMode = Literal["read", "write", "create"]


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock time since 1970. It may jump; use it for timestamps only."""

    def monotonic_ms(self) -> int:
        """Time that never goes back, for timeouts and delays."""

    def monotonic_us(self) -> int:
        """The same, finer, to measure how long something took."""

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
        """Cuts the file, or extends it with zeros. Room that was reserved beyond is given back."""

    def reserve(self, size: int, offset: int) -> None:
        """Has the disk find room there before something is written, where it can. The file is as
        large as before."""

    def sync(self) -> None:
        """Makes the content durable. After an error here, nothing may be assumed durable."""

    def close(self) -> None: ...

    def resident(self, offset: int, size: int) -> bool:
        """Whether a range can be read without waiting for the disk, as far as one can tell."""


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

    def usage(self, path: str) -> tuple[int, int]:
        """The size of the volume a path lies on, and how much of it is free, in bytes."""

    def lock(self, path: str) -> Lock:
        """Takes a file as a lock that dies with the process; BlockingIOError if it is held."""


class Level(IntEnum):
    """How far the disk is behind those who write files."""

    low = 0
    high = 1
    """The system is about to make them wait."""
    limit = 2
    """It makes them wait, also for a few bytes."""


class Pressure(Protocol):
    def level(self) -> Level: ...

    def waits(self) -> int:
        """How often this thread has waited for anything. Having to give its core to others,
        when it could have gone on, is no wait."""

    def favour(self) -> None:
        """Has what this thread writes from now on wait at the limit later than what others write,
        if the system grants that."""


class Job(Protocol):
    def result(self) -> dict[str, Any]:
        """Waits for the end; raises what went wrong."""


class Workers(Protocol):
    """Work that burns CPU, run in a child process. Arguments and results are JSON."""

    def start(self, task: str, argument: Mapping[str, Any]) -> Job: ...


Result = TypeVar("Result")


class Timer(Protocol):
    def cancel(self) -> None:
        """Does nothing if the callback has run."""


class Loop(Protocol):
    """What runs a broker: one callback at a time, so that no state needs a lock."""

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> Timer:
        """Runs a callback at that time of the monotonic clock or later, never before."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Runs a callback after the one that is running, in the same turn of the loop."""

    def call_when_quiet(self, callback: Callable[[], None]) -> None:
        """Runs a callback in the first turn that finds nothing else to do, but not much later
        than in `QUIET_MS_MAX`: what more will come by then can be taken along."""

    def offload(
        self,
        lane: str,
        work: Callable[[], Result],
        done: Callable[[Result | Exception], None],
    ) -> None:
        """Runs `work`, which waits in system calls and does little else, beside the loop; then
        `done` in the loop, with its result or what it raised. Work of one lane is done one at a
        time, in order."""


class Receiver(Protocol):
    """The broker's end of a connection: what the network calls."""

    def buffer(self) -> memoryview:
        """Where the next bytes are to be put. It is asked for before every read, so one buffer
        can serve all connections. Room for more than `RECEIVED_BYTES_MAX` says that so much is
        missing of something that can be used only as a whole."""

    def received(self, size: int) -> None:
        """So many bytes have been put there."""

    def closed(self, why: str) -> None:
        """The connection is gone; called once, whoever closed it."""


class Connection(Protocol):
    """The network's end of a connection. What is sent leaves in order, at the end of the turn.
    While something waits to be sent, nothing is read: a peer that does not read its answers
    cannot ask for more."""

    @property
    def peer(self) -> str:
        """The other side's address, as `host:port`."""

    @property
    def queued_bytes(self) -> int:
        """How much waits to be sent, bytes and file ranges."""

    def send(self, data: Buffer) -> None:
        """Queues bytes. They must not change afterwards."""

    def send_file(self, file: File, position: int, size: int) -> None:
        """Queues a range of a file, which is held open until it was sent. Its pages are sent as
        they are then, not as they are now."""

    def pause(self) -> None:
        """Reads nothing until `resume`."""

    def resume(self) -> None: ...

    def close(self) -> None:
        """Sends what is queued, as far as the peer takes it at once, and closes."""

    def abort(self) -> None:
        """Closes at once; what is queued, or sent and not received yet, is not to arrive."""


class Listener(Protocol):
    @property
    def port(self) -> int:
        """The port that was taken: of use where 0 was asked for."""

    def close(self) -> None:
        """Accepts no more. Connections stay."""


class Network(Protocol):
    def listen(
        self, host: str, port: int, accept: Callable[[Connection], Receiver | None]
    ) -> Listener:
        """Takes connections. `accept` returns who receives what comes, or None to refuse."""

    def connect(
        self, host: str, port: int, opened: Callable[["Connection | OSError"], Receiver | None]
    ) -> None:
        """Opens a connection; `opened` is told, in a later turn, of it or of what went wrong."""
