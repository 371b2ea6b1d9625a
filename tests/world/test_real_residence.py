"""Whether a range of a real file is in memory: asked of the system, not guessed."""

import errno
import os
from pathlib import Path

import pytest

from tidelog.world.real.disk import RealDisk, RealFile

SIZE = 8 << 20


def evicted(path: Path) -> RealFile:
    """A file that was just written, of which the page cache was asked to keep nothing."""
    path.write_bytes(bytes(SIZE))
    file = RealDisk().open(str(path), "write")
    assert isinstance(file, RealFile)
    file.sync()
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if file.resident(0, SIZE):
        pytest.skip("this file system keeps its files in memory, or cannot say")
    # Asking makes the system begin to read; only a page that has come can be dropped again.
    file.pread(1, 0)
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return file


def test_what_is_not_in_memory_is_not_resident_until_it_was_read(tmp_path: Path) -> None:
    file = evicted(tmp_path / "file")
    file.pread(SIZE, 0)
    assert file.resident(0, SIZE)


@pytest.mark.parametrize("warm", [0, SIZE - 1])
def test_both_ends_of_a_range_must_be_in_memory(tmp_path: Path, warm: int) -> None:
    file = evicted(tmp_path / "file")
    file.pread(1, warm)
    assert file.resident(warm, 1)
    assert not file.resident(0, SIZE)


def test_what_lies_behind_the_end_can_be_read_without_waiting(tmp_path: Path) -> None:
    file = evicted(tmp_path / "file")
    assert file.resident(SIZE, 10)


def test_a_file_system_that_cannot_say_counts_as_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    file = RealDisk().open(str(tmp_path / "file"), "create")
    monkeypatch.setattr(os, "preadv", refuse)
    assert file.resident(0, 100)


def test_any_other_error_is_told_with_the_name_of_the_file(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    file = RealDisk().open(path, "create")
    file.close()
    with pytest.raises(OSError, check=lambda error: error.errno == errno.EBADF) as caught:
        file.resident(0, 1)
    assert caught.value.filename == path
