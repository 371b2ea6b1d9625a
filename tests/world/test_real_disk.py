"""What only the disk of this machine can show: descriptors, short counts, other processes."""

import errno
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.world.real.disk import RealDisk

LOCK_ELSEWHERE = """
import sys
from tidelog.world.real.disk import RealDisk
try:
    RealDisk().lock(sys.argv[1])
    print("got it", flush=True)
except BlockingIOError:
    print("held", flush=True)
if len(sys.argv) > 2:
    sys.stdin.read()
"""


def descriptors_in(folder: Path) -> set[int]:
    """Of this test alone: threads of others open and close theirs meanwhile."""
    return {number for number in range(1_024) if target(number).is_relative_to(folder)}


def target(descriptor: int) -> Path:
    try:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}"))
    except FileNotFoundError:
        return Path()


def test_dropping_the_last_reference_closes_the_file(tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "file"), "create")
    another_user = file
    del file
    another_user.pwrite(b"tide", 0)
    assert len(descriptors_in(tmp_path)) == 1
    del another_user
    gc.collect()
    assert not descriptors_in(tmp_path)


def test_refused_opens_and_locks_leave_no_descriptor_behind(tmp_path: Path) -> None:
    disk = RealDisk()
    lock = disk.lock(str(tmp_path / "lock"))
    before = descriptors_in(tmp_path)
    for mode in ("read", "write", "create"):
        with pytest.raises(IsADirectoryError):
            disk.open(str(tmp_path), mode)
    with pytest.raises(BlockingIOError):
        disk.lock(str(tmp_path / "lock"))
    disk.sync_folder(str(tmp_path))
    assert len(before) == 1
    assert descriptors_in(tmp_path) == before
    lock.release()
    assert not descriptors_in(tmp_path)


def test_descriptors_are_not_inherited(tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "file"), "create")
    lock = RealDisk().lock(str(tmp_path / "lock"))
    made = descriptors_in(tmp_path)
    assert len(made) == 2
    assert not any(os.get_inheritable(descriptor) for descriptor in made)
    file.close()
    lock.release()


def test_a_lock_holds_against_other_processes_and_dies_with_its_own(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    command = [sys.executable, "-c", LOCK_ELSEWHERE, path]
    lock = RealDisk().lock(path)
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"held\n"
    lock.release()
    with subprocess.Popen(
        [*command, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"got it\n"
        with pytest.raises(BlockingIOError):
            RealDisk().lock(path)
        holder.kill()
    RealDisk().lock(path).release()


def test_losing_the_lock_object_does_not_release_it(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    RealDisk().lock(path)
    gc.collect()
    with pytest.raises(BlockingIOError):
        RealDisk().lock(path)
    (descriptor,) = descriptors_in(tmp_path)
    os.close(descriptor)


def test_a_pipe_that_gives_and_takes_little_at_a_time_is_no_seekable_file(tmp_path: Path) -> None:
    """An error of the system is passed on with its errno and the name."""
    os.mkfifo(tmp_path / "pipe")
    file = RealDisk().open(str(tmp_path / "pipe"), "write")
    with pytest.raises(OSError, check=lambda error: error.errno == errno.ESPIPE) as caught:
        file.pread(1, 0)
    assert caught.value.filename == str(tmp_path / "pipe")
    with pytest.raises(OSError, check=lambda error: error.errno == errno.ESPIPE):
        file.pwrite(b"x", 0)


def test_a_write_past_the_size_limit_leaves_a_part_and_says_so(tmp_path: Path) -> None:
    """A real short write: the limit cuts the first call, the second says EFBIG (F10)."""
    script = """
import errno, resource, signal, sys
from tidelog.world.real.disk import RealDisk
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
file = RealDisk().open(sys.argv[1], "create")
try:
    file.pwrite(b"x" * 3000, 0)
except OSError as error:
    print(errno.errorcode[error.errno], error.filename == sys.argv[1], file.size())
"""
    command = [sys.executable, "-c", script, str(tmp_path / "file")]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert done.stdout == "EFBIG True 1000\n"


def test_a_full_disk_says_so() -> None:
    """`/dev/full` refuses every write with ENOSPC (F9)."""
    file = RealDisk().open("/dev/full", "write")
    with pytest.raises(OSError, check=lambda error: error.errno == errno.ENOSPC) as caught:
        file.pwrite(b"x", 0)
    assert caught.value.filename == "/dev/full"


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_short_counts_are_carried_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """No local file system gives short counts on demand, so the system calls are cut here."""
    path = tmp_path / "file"
    file = RealDisk().open(str(path), "create")
    pread, pwrite = os.pread, os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data)[:step], at))
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, step), at))
    content = bytes(range(256)) * 4
    file.pwrite(memoryview(content), 3)
    assert path.read_bytes() == b"\0\0\0" + content
    assert file.pread(len(content), 3) == content
    assert file.pread(5000, 3) == content


def test_a_write_that_takes_nothing_is_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RealDisk().open(str(tmp_path / "file"), "create")
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(OSError, check=lambda error: error.errno == errno.ENOSPC):
        file.pwrite(b"x", 0)
