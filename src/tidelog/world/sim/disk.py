"""A disk in memory that can lose power, tear writes, fill up and fail, all from a seed.

`process_dies` keeps everything, as the page cache does, but kills open files and releases
locks; `machine_dies` loses what was not synced: content by `File.sync`, names by
`sync_folder`. `crash_at(n)` ends the process at the n-th operation, `fail` makes operations
raise; `operations` counts those that change the disk. `fork` copies it all.
"""

import errno
from collections.abc import Callable, Iterable
from functools import partial

from tidelog.base.ports import Buffer, File, FileInfo, Lock, OpenMode
from tidelog.world.sim.choices import Choices
from tidelog.world.sim.clock import SimClock
from tidelog.world.sim.contents import FileNode, Loss
from tidelog.world.sim.faults import CHANGES, Crashed, Fault, Faults, When, os_error
from tidelog.world.sim.names import FolderNode, Names, Node, Place, check_rename, split_path

__all__ = ["Crashed", "Loss", "SimDisk", "When"]

Trace = list[tuple[str, str]]


class SimFile:
    __slots__ = ("_closed", "_disk", "_life", "_node", "_path", "_writable")

    def __init__(self, disk: "SimDisk", node: FileNode, path: str, writable: bool) -> None:
        self._disk = disk
        self._life = disk.life
        self._node = node
        self._path = path
        self._writable = writable
        self._closed = False

    def pread(self, size: int, offset: int) -> bytes:
        self._use("pread")
        if size < 0 or offset < 0:
            raise os_error(errno.EINVAL, self._path)
        return bytes(self._node.live[offset : offset + size])

    def pwrite(self, data: Buffer, offset: int) -> None:
        self._use("")
        if offset < 0:
            raise os_error(errno.EINVAL, self._path)
        if not self._writable:
            raise os_error(errno.EBADF, self._path)
        new = bytes(data)
        if not new:
            return
        disk = self._disk
        disk.operations += 1
        if disk.alert:
            disk.write_under_faults(self._node, new, offset, self._path)
        else:
            self._node.write(new, offset)
        self._node.modified_ms = disk.clock.now_ms()

    def size(self) -> int:
        self._use("size")
        return len(self._node.live)

    def truncate(self, size: int) -> None:
        self._use("")
        if not self._writable or size < 0:
            raise os_error(errno.EINVAL, self._path)
        self._disk.change("truncate", self._path, partial(self._node.resize, size))
        self._node.modified_ms = self._disk.clock.now_ms()

    def reserve(self, size: int, offset: int) -> None:
        self._use("reserve")
        del size, offset

    def sync(self) -> None:
        self._use("")
        self._disk.sync_file(self._node, self._path)

    def resident(self, offset: int, size: int) -> bool:
        self._use("resident")
        if size < 0 or offset < 0:
            raise os_error(errno.EINVAL, self._path)
        disk = self._disk
        return disk.choices.stream("resident").random() >= disk.cold_share

    def close(self) -> None:
        self._closed = True

    def _use(self, reading: str) -> None:
        disk = self._disk
        if self._life != disk.life:
            raise AssertionError(f"{self._path} was opened by a process that has died")
        if self._closed:
            raise os_error(errno.EBADF, self._path)
        if reading and disk.alert:
            disk.read(reading, self._path)


class SimLock:
    __slots__ = ("_held", "_node")

    def __init__(self, held: dict[FileNode, "SimLock"], node: FileNode) -> None:
        self._held = held
        self._node = node
        held[node] = self

    def release(self) -> None:
        if self._held.get(self._node) is self:
            del self._held[self._node]


class SimDisk:
    """One machine's disk. Paths are absolute or count from the root, which always exists."""

    def __init__(self, seed: int = 0, clock: SimClock | None = None) -> None:
        self.clock = SimClock() if clock is None else clock
        self.choices = Choices(seed)
        self.operations = 0
        self.life = 0
        self.alert = False
        self.syncs_lie = False
        self.cold_share = 0.2
        self._names = Names(FolderNode(self.clock.now_ms()))
        self._faults = Faults()
        self._locks: dict[FileNode, SimLock] = {}
        self._capacity: int | None = None
        self._trace: Trace | None = None

    # What programs use: the port.

    def open(self, path: str, mode: OpenMode) -> File:
        self.read("open", path)
        node = self._find_or_create(path) if mode == "create" else self._names.find(path)
        if isinstance(node, FolderNode):
            raise os_error(errno.EISDIR, path)
        return SimFile(self, node, path, mode != "read")

    def list(self, folder: str) -> list[str]:
        self.read("list", folder)
        return sorted(self._names.find_folder(folder).live)

    def stat(self, path: str) -> FileInfo | None:
        self.read("stat", path)
        try:
            node = self._names.find(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        is_folder = isinstance(node, FolderNode)
        size = 0 if isinstance(node, FolderNode) else len(node.live)
        return FileInfo(size=size, modified_ms=node.modified_ms, is_folder=is_folder)

    def rename(self, source: str, target: str) -> None:
        self._require_running(source)
        try:
            self._rename(source, target)
        except OSError as error:
            raise OSError(error.errno, error.strerror, source, None, target) from None

    def remove(self, path: str) -> None:
        self._require_running(path)
        node = self._names.find(path)
        if isinstance(node, FolderNode) and node.live:
            raise os_error(errno.ENOTEMPTY, path)
        place = self._names.find_parent(path)
        self.change("remove", path, partial(self._change_name, node, place, None))

    def make_folder(self, path: str) -> None:
        self._require_running(path)
        folder = self._names.root
        parts = split_path(path)
        for name in parts[:-1]:
            folder = self._enter_or_make(folder, name, path, errno.ENOTDIR)
        for name in parts[-1:]:
            self._enter_or_make(folder, name, path, errno.EEXIST)

    def sync_folder(self, path: str) -> None:
        self._require_running(path)
        folder = self._names.find_folder(path)
        effect = partial(self._names.sync, folder) if not self.syncs_lie else _do_nothing
        self.change("sync_folder", path, effect)

    def usage(self, path: str) -> tuple[int, int]:
        self.read("usage", path)
        return self._names.usage(path, self._capacity)

    def lock(self, path: str) -> Lock:
        self.read("lock", path)
        node = self._find_or_create(path)
        if isinstance(node, FolderNode):
            raise os_error(errno.EISDIR, path)
        if node in self._locks:
            raise os_error(errno.EWOULDBLOCK, path)
        return SimLock(self._locks, node)

    # What tests use: crashes.

    def crash_at(self, number: int | None, when: When = "before") -> None:
        """The operation `number` (0 is the next) raises `Crashed`; so does all that follows
        until `process_dies` or `machine_dies`. `middle` lands half of a write; what is not
        a write is then not done. None takes the plan back."""
        self._faults.plan_crash(number, when)
        self._set_alert()

    def process_dies(self) -> None:
        """Nothing is lost: the page cache belongs to the machine."""
        self.life += 1
        self._locks.clear()
        self._faults.revive()
        self._set_alert()

    def machine_dies(self, loss: Loss = "some") -> None:
        """Power loss. The clock gets a new boot id."""
        self.process_dies()
        self.clock.reboot()
        names = self._names
        before = names.nodes()
        names.lose_power(loss, self.choices.stream("names at power loss"))
        draws = self.choices.stream("contents at power loss")
        for node in before:
            if isinstance(node, FileNode):
                node.lose_power(loss, draws)

    def fork(self, seed: int | None = None) -> "SimDisk":
        """A copy with its own clock and no open files, locks or faults; `seed` for other draws."""
        twin = SimDisk(self.choices.seed if seed is None else seed, self.clock.copy())
        twin._names = self._names.copy()
        twin._capacity = self._capacity
        twin.syncs_lie = self.syncs_lie
        twin._set_alert()
        return twin

    def view(self) -> dict[str, bytes]:
        """The content of every file by path, as programs see it."""
        return {path: bytes(node.live) for path, node in self._names.files().items()}

    def durable_view(self) -> dict[str, bytes]:
        """What a power loss that takes all un-synced changes would leave."""
        twin = self.fork()
        twin.machine_dies("all")
        return twin.view()

    # What tests use: faults.

    def fail(
        self,
        error_number: int,
        *,
        operations: Iterable[str] = CHANGES,
        path: str = "*",
        skip: int = 0,
        times: int | None = 1,
        part: float = 0.0,
    ) -> None:
        """Matching operations raise: `skip` of them go well first, then `times` fail (None:
        all). `part` of a failing write lands. A failing sync loses what it should have saved."""
        self._faults.list.append(
            Fault(
                error_number=error_number,
                operations=frozenset(operations),
                path=path,
                skip=skip,
                times=times,
                part=part,
            )
        )
        self._set_alert()

    def heal(self) -> None:
        """Takes back all faults and planned crashes."""
        self._faults = Faults()
        self._set_alert()

    def limit(self, capacity: int | None) -> None:
        """Files may hold this many bytes together; a write past it lands as far as it fits."""
        self._capacity = capacity
        self._set_alert()

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Silently, in a byte that has reached the medium."""
        self._file(path).live[position] ^= 1 << bit

    def evict(self, path: str) -> None:
        """The page cache lets go of a file: bytes that a failed sync lost are seen to be gone."""
        self._file(path).evict()

    def trace(self) -> Trace:
        """A list that grows by (operation, path) with each operation from now on."""
        self._trace = []
        self._set_alert()
        return self._trace

    # What files use.

    def read(self, operation: str, path: str) -> None:
        if self.alert:
            verdict = self._faults.judge(operation, path)
            if verdict.error is not None:
                raise verdict.error

    def change(self, operation: str, path: str, effect: Callable[[], None]) -> None:
        self.operations += 1
        if not self.alert:
            effect()
            return
        self._note(operation, path)
        verdict = self._faults.judge(operation, path)
        if verdict.part == 1.0:
            effect()
        if verdict.error is not None:
            raise verdict.error

    def sync_file(self, node: FileNode, path: str) -> None:
        try:
            self.change("sync", path, node.sync if not self.syncs_lie else _do_nothing)
        except OSError:
            node.fail_sync()
            raise

    def write_under_faults(self, node: FileNode, new: bytes, offset: int, path: str) -> None:
        self._note("pwrite", path)
        verdict = self._faults.judge("pwrite", path)
        wanted = int(len(new) * verdict.part)
        landed = min(wanted, self._room(node, offset))
        if landed > 0:
            node.write(new[:landed], offset)
        if verdict.error is not None:
            raise verdict.error
        if landed < wanted:
            raise os_error(errno.ENOSPC, path)

    # Inside.

    def _require_running(self, path: str) -> None:
        """What a crashed process does while its stack unwinds never happened."""
        if self._faults.halted:
            raise Crashed(f"{path} after the crash")

    def _set_alert(self) -> None:
        self.alert = self._faults.armed or self._trace is not None or self._capacity is not None

    def _note(self, operation: str, path: str) -> None:
        if self._trace is not None and not self._faults.halted:
            self._trace.append((operation, path))

    def _room(self, node: FileNode, offset: int) -> int:
        """How many bytes from `offset` on the disk still takes."""
        size = len(node.live)
        if self._capacity is None:
            return 1 << 62
        used = sum(len(file.live) for file in self._names.files().values())
        return max(size - offset, 0) + max(self._capacity - used - max(offset - size, 0), 0)

    def _rename(self, source: str, target: str) -> None:
        old_place, new_place = self._names.find_parent(source), self._names.find_parent(target)
        node = self._names.find(source)
        folder, name = new_place
        there = folder.live.get(name)
        check_rename(node, there, source, target)
        if there is not node:
            effect = partial(self._change_name, node, old_place, new_place)
            self.change("rename", source, effect)

    def _file(self, path: str) -> FileNode:
        node = self._names.find(path)
        assert isinstance(node, FileNode), f"{path} is a folder"
        return node

    def _find_or_create(self, path: str) -> Node:
        if not split_path(path):
            return self._names.root
        folder, name = self._names.find_parent(path)
        if name not in folder.live:
            node = FileNode(self.clock.now_ms())
            self.change("create", path, partial(self._change_name, node, None, (folder, name)))
        return folder.live[name]

    def _enter_or_make(
        self, folder: FolderNode, name: str, path: str, otherwise: int
    ) -> FolderNode:
        if name not in folder.live:
            made = FolderNode(self.clock.now_ms())
            self.change("make_folder", path, partial(self._change_name, made, None, (folder, name)))
        node = folder.live[name]
        if not isinstance(node, FolderNode):
            raise os_error(otherwise, path)
        return node

    def _change_name(
        self,
        node: Node,
        source: Place | None,
        target: Place | None,
    ) -> None:
        self._names.change(node, source, target)
        for place in (source, target):
            if place is not None:
                place[0].modified_ms = self.clock.now_ms()


def _do_nothing() -> None:
    """A sync that lies."""
