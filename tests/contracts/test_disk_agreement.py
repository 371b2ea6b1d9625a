"""The same random operations on the real and the simulated disk give the same answers.

Answers are results or errnos; after every step the trees and contents are equal too. This
finds differences nobody thought of writing a contract test for.
"""

import errno
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from tidelog.base.ports import Disk, File, OpenMode
from tidelog.world.real.disk import RealDisk
from tidelog.world.sim.disk import SimDisk

NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
SIZES = st.sampled_from([-1, 0, 1, 3, 511, 512, 513, 1500])
DATA = st.binary(max_size=8) | st.sampled_from([b"x" * 512, b"y" * 700])
MODES: st.SearchStrategy[OpenMode] = st.sampled_from(["read", "write", "create"])


def outcome(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def tree(disk: Disk, folder: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in disk.list(folder):
        info = disk.stat(f"{folder}/{name}")
        assert info is not None
        if info.is_folder:
            found[name] = tree(disk, f"{folder}/{name}")
        else:
            file = disk.open(f"{folder}/{name}", "read")
            found[name] = file.pread(info.size + 10, 0)
            file.close()
    return found


def locked_twice(disk: Disk, path: str) -> list[str]:
    """What the first and the second to lock a file get."""
    locks = [outcome(partial(disk.lock, path)) for _ in range(2)]
    for lock in locks:
        if not isinstance(lock, str):
            lock.release()
    return [lock if isinstance(lock, str) else "a lock" for lock in locks]


class BothDisks(RuleBasedStateMachine):
    files: Bundle[tuple[File, File]] = Bundle("files")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="tidelog-")
        self.real = RealDisk()
        self.simulated = SimDisk()

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def agree(self, operation: str, *paths: str) -> None:
        real_paths = [f"{self.folder}/{path}" for path in paths]
        sim_paths = [f"/{path}" for path in paths]
        expected = outcome(partial(getattr(self.real, operation), *real_paths))
        found = outcome(partial(getattr(self.simulated, operation), *sim_paths))
        assert found == expected, f"{operation} {paths}: real {expected}, simulated {found}"

    def agree_on_file(self, pair: tuple[File, File], operation: str, *arguments: Any) -> None:
        real, simulated = (outcome(partial(getattr(file, operation), *arguments)) for file in pair)
        assert simulated == real, f"{operation} {arguments}: real {real}, simulated {simulated}"

    @rule(target=files, path=PATHS, mode=MODES)
    def open(self, path: str, mode: OpenMode) -> tuple[File, File] | Any:
        real = outcome(partial(self.real.open, f"{self.folder}/{path}", mode))
        simulated = outcome(partial(self.simulated.open, f"/{path}", mode))
        if isinstance(real, str) or isinstance(simulated, str):
            assert simulated == real, f"open {path} {mode}: real {real}, simulated {simulated}"
            return multiple()
        return real, simulated

    @rule(pair=files, data=DATA, offset=SIZES)
    def pwrite(self, pair: tuple[File, File], data: bytes, offset: int) -> None:
        self.agree_on_file(pair, "pwrite", data, offset)

    @rule(pair=files, size=SIZES, offset=SIZES)
    def pread(self, pair: tuple[File, File], size: int, offset: int) -> None:
        self.agree_on_file(pair, "pread", size, offset)

    @rule(pair=files, size=SIZES)
    def truncate(self, pair: tuple[File, File], size: int) -> None:
        self.agree_on_file(pair, "truncate", size)

    @rule(pair=files, operation=st.sampled_from(["size", "sync"]))
    def use(self, pair: tuple[File, File], operation: str) -> None:
        self.agree_on_file(pair, operation)

    @rule(pair=consumes(files))
    def close(self, pair: tuple[File, File]) -> None:
        for file in pair:
            file.close()

    @rule(path=PATHS, operation=st.sampled_from(["list", "remove", "make_folder", "sync_folder"]))
    def use_name(self, path: str, operation: str) -> None:
        self.agree(operation, path)

    @rule(path=PATHS)
    def make_folder(self, path: str) -> None:
        self.agree("make_folder", path)

    @rule(old=PATHS, new=PATHS)
    def rename(self, old: str, new: str) -> None:
        self.agree("rename", old, new)

    @rule(path=PATHS)
    def lock_twice(self, path: str) -> None:
        expected = locked_twice(self.real, f"{self.folder}/{path}")
        assert locked_twice(self.simulated, f"/{path}") == expected

    @invariant()
    def trees_are_equal(self) -> None:
        assert tree(self.simulated, "") == tree(self.real, self.folder)


BothDisks.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, derandomize=True
)
TestBothDisks = BothDisks.TestCase
