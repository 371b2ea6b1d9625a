"""What every disk does, whether of this machine or simulated: one body for both.

Each test gets the disk and an empty folder on it. Errors are told apart by errno, and name
the file they are about.
"""

import errno
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tidelog.base.ports import Disk, File, FileInfo
from tidelog.world.real.disk import RealDisk
from tidelog.world.sim.disk import SimDisk


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A disk, and a folder of its own for one test."""

    disk: Disk
    folder: str

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def create(self, name: str, content: bytes = b"") -> File:
        file = self.disk.open(self.path(name), "create")
        file.pwrite(content, 0)
        return file

    def content(self, name: str) -> bytes:
        file = self.disk.open(self.path(name), "read")
        return file.pread(1 << 20, 0)


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "real":
        return Place(disk=RealDisk(), folder=str(tmp_path))
    disk = SimDisk()
    disk.make_folder("/a/test")
    return Place(disk=disk, folder="/a/test")


def raises(number: int, path: str, action: Callable[..., Any], *arguments: Any) -> None:
    with pytest.raises(OSError, check=lambda error: error.errno == number) as caught:
        action(*arguments)
    assert caught.value.filename == path, "an error names the file it is about"


# Reading and writing.


def test_what_was_written_is_read(place: Place) -> None:
    file = place.create("file", b"tidelog")
    assert file.pread(4, 0) == b"tide"
    assert file.pread(3, 4) == b"log"
    assert file.size() == 7


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_every_kind_of_buffer_is_written(place: Place, wrap: Callable[[bytes], Any]) -> None:
    file = place.create("file")
    file.pwrite(wrap(b"tide"), 0)
    assert file.pread(10, 0) == b"tide"


def test_a_buffer_of_wider_items_is_written_as_its_bytes(place: Place) -> None:
    file = place.create("file")
    file.pwrite(memoryview(b"tidelog!").cast("I"), 0)
    assert file.pread(10, 0) == b"tidelog!"


def test_a_written_buffer_belongs_to_its_owner_again(place: Place) -> None:
    file = place.create("file")
    buffer = bytearray(b"tide")
    file.pwrite(buffer, 0)
    buffer[:] = b"XXXXXXXX"
    assert file.pread(4, 0) == b"tide"


def test_a_read_ends_where_the_file_ends(place: Place) -> None:
    file = place.create("file", b"tide")
    assert file.pread(100, 2) == b"de"
    assert file.pread(100, 4) == b""
    assert file.pread(100, 1000) == b""
    assert file.pread(0, 0) == b""


def test_a_write_replaces_in_the_middle(place: Place) -> None:
    file = place.create("file", b"aaaaaaaa")
    file.pwrite(b"bb", 3)
    assert file.pread(100, 0) == b"aaabbaaa"


def test_a_hole_reads_as_zeros(place: Place) -> None:
    file = place.create("file", b"a")
    file.pwrite(b"b", 4)
    assert file.pread(100, 0) == b"a\0\0\0b"


def test_writing_nothing_changes_nothing(place: Place) -> None:
    file = place.create("file", b"tide")
    file.pwrite(b"", 100)
    assert file.size() == 4


def test_truncate_cuts_and_what_was_cut_does_not_come_back(place: Place) -> None:
    file = place.create("file", b"tidelog")
    file.truncate(4)
    file.truncate(6)
    assert file.pread(100, 0) == b"tide\0\0"


def test_two_handles_see_one_file(place: Place) -> None:
    writer = place.create("file", b"tide")
    reader = place.disk.open(place.path("file"), "read")
    writer.pwrite(b"log", 4)
    assert reader.pread(100, 0) == b"tidelog"


def test_sync_is_allowed_on_every_handle(place: Place) -> None:
    place.create("file", b"tide").sync()
    place.disk.open(place.path("file"), "read").sync()
    assert place.content("file") == b"tide"


def test_negative_sizes_and_offsets_are_refused(place: Place) -> None:
    file = place.create("file", b"tide")
    path = place.path("file")
    raises(errno.EINVAL, path, file.pread, -1, 0)
    raises(errno.EINVAL, path, file.pread, 1, -1)
    raises(errno.EINVAL, path, file.pwrite, b"x", -1)
    raises(errno.EINVAL, path, file.truncate, -1)
    assert file.pread(100, 0) == b"tide"


def test_a_file_opened_to_read_cannot_be_changed(place: Place) -> None:
    place.create("file", b"tide")
    file = place.disk.open(place.path("file"), "read")
    raises(errno.EBADF, place.path("file"), file.pwrite, b"x", 0)
    raises(errno.EINVAL, place.path("file"), file.truncate, 0)
    assert place.content("file") == b"tide"


def test_a_closed_file_cannot_be_used(place: Place) -> None:
    file = place.create("file", b"tide")
    file.close()
    file.close()
    path = place.path("file")
    raises(errno.EBADF, path, file.pread, 1, 0)
    raises(errno.EBADF, path, file.pwrite, b"x", 0)
    raises(errno.EBADF, path, file.size)
    raises(errno.EBADF, path, file.sync)


# Opening.


def test_create_makes_an_empty_file_and_keeps_one_that_is_there(place: Place) -> None:
    assert place.create("file").size() == 0
    place.create("file", b"tide")
    assert place.disk.open(place.path("file"), "create").size() == 4


@pytest.mark.parametrize("mode", ["read", "write"])
def test_only_create_makes_a_file(place: Place, mode: Any) -> None:
    raises(errno.ENOENT, place.path("no"), place.disk.open, place.path("no"), mode)
    assert place.disk.list(place.folder) == []


@pytest.mark.parametrize("mode", ["read", "write", "create"])
def test_a_folder_cannot_be_opened(place: Place, mode: Any) -> None:
    raises(errno.EISDIR, place.folder, place.disk.open, place.folder, mode)


@pytest.mark.parametrize("mode", ["read", "write", "create"])
def test_a_path_through_nothing_or_through_a_file_is_refused(place: Place, mode: Any) -> None:
    place.create("file")
    nothing, through = place.path("no/file"), place.path("file/file")
    raises(errno.ENOENT, nothing, place.disk.open, nothing, mode)
    raises(errno.ENOTDIR, through, place.disk.open, through, mode)


# Names.


def test_names_are_listed_sorted(place: Place) -> None:
    for name in ("b", "a", "c.log", "C"):
        place.create(name)
    place.disk.make_folder(place.path("aa"))
    assert place.disk.list(place.folder) == ["C", "a", "aa", "b", "c.log"]


def test_only_a_folder_is_listed(place: Place) -> None:
    place.create("file")
    raises(errno.ENOTDIR, place.path("file"), place.disk.list, place.path("file"))
    raises(errno.ENOENT, place.path("no"), place.disk.list, place.path("no"))


def test_stat_tells_files_from_folders_from_nothing(place: Place) -> None:
    place.create("file", b"tide")
    file, folder = place.disk.stat(place.path("file")), place.disk.stat(place.folder)
    assert file is not None
    assert folder is not None
    assert file == FileInfo(size=4, modified_ms=file.modified_ms, is_folder=False)
    assert folder == FileInfo(size=0, modified_ms=folder.modified_ms, is_folder=True)
    assert file.modified_ms > 1_600_000_000_000
    assert place.disk.stat(place.path("no")) is None
    assert place.disk.stat(place.path("no/file")) is None
    assert place.disk.stat(place.path("file/file")) is None


def test_rename_moves_a_file(place: Place) -> None:
    place.create("old", b"tide")
    place.disk.rename(place.path("old"), place.path("new"))
    assert place.disk.list(place.folder) == ["new"]
    assert place.content("new") == b"tide"


def test_rename_replaces_a_file(place: Place) -> None:
    place.create("old", b"tide")
    place.create("new", b"replaced")
    place.disk.rename(place.path("old"), place.path("new"))
    assert place.disk.list(place.folder) == ["new"]
    assert place.content("new") == b"tide"


def test_rename_onto_itself_changes_nothing(place: Place) -> None:
    place.create("file", b"tide")
    place.disk.rename(place.path("file"), place.path("file"))
    assert place.content("file") == b"tide"


def test_rename_moves_a_folder_with_what_is_in_it(place: Place) -> None:
    place.disk.make_folder(place.path("old"))
    place.create("old/file", b"tide")
    place.disk.rename(place.path("old"), place.path("new"))
    assert place.disk.list(place.folder) == ["new"]
    assert place.content("new/file") == b"tide"


def test_rename_moves_between_folders(place: Place) -> None:
    place.disk.make_folder(place.path("from"))
    place.disk.make_folder(place.path("to"))
    place.create("from/file", b"tide")
    place.disk.rename(place.path("from/file"), place.path("to/file"))
    assert place.disk.list(place.path("from")) == []
    assert place.content("to/file") == b"tide"


def test_rename_is_refused_where_it_makes_no_sense(place: Place) -> None:
    place.create("file")
    place.disk.make_folder(place.path("folder/inner"))
    place.disk.make_folder(place.path("empty"))
    for number, source, target in (
        (errno.ENOENT, "no", "new"),
        (errno.ENOENT, "file", "no/new"),
        (errno.ENOTDIR, "file", "file/new"),
        (errno.EISDIR, "file", "empty"),
        (errno.ENOTDIR, "empty", "file"),
        (errno.ENOTEMPTY, "empty", "folder"),
        (errno.EINVAL, "folder", "folder/inner/new"),
        (errno.ENOTEMPTY, "folder/inner", "folder"),
    ):
        raises(
            number, place.path(source), place.disk.rename, place.path(source), place.path(target)
        )
    assert place.disk.list(place.folder) == ["empty", "file", "folder"]


def test_remove_takes_files_and_empty_folders(place: Place) -> None:
    place.create("file")
    place.disk.make_folder(place.path("folder"))
    place.disk.remove(place.path("file"))
    place.disk.remove(place.path("folder"))
    assert place.disk.list(place.folder) == []


def test_remove_refuses_full_folders_and_nothing(place: Place) -> None:
    place.disk.make_folder(place.path("folder"))
    place.create("folder/file", b"tide")
    full, nothing = place.path("folder"), place.path("no")
    through = place.path("folder/file/x")
    raises(errno.ENOTEMPTY, full, place.disk.remove, full)
    raises(errno.ENOENT, nothing, place.disk.remove, nothing)
    raises(errno.ENOTDIR, through, place.disk.remove, through)
    assert place.content("folder/file") == b"tide"


def test_make_folder_makes_parents_and_is_fine_when_it_is_there(place: Place) -> None:
    place.disk.make_folder(place.path("a/b/c"))
    place.create("a/b/c/file", b"tide")
    place.disk.make_folder(place.path("a/b/c"))
    assert place.content("a/b/c/file") == b"tide"


def test_make_folder_refuses_a_file_in_its_way(place: Place) -> None:
    place.create("file")
    itself, through = place.path("file"), place.path("file/inner")
    raises(errno.EEXIST, itself, place.disk.make_folder, itself)
    raises(errno.ENOTDIR, through, place.disk.make_folder, through)


def test_sync_folder_wants_a_folder(place: Place) -> None:
    place.create("file")
    place.disk.sync_folder(place.folder)
    raises(errno.ENOTDIR, place.path("file"), place.disk.sync_folder, place.path("file"))
    raises(errno.ENOENT, place.path("no"), place.disk.sync_folder, place.path("no"))


# A handle belongs to the file, not to its name.


def test_a_handle_survives_renaming(place: Place) -> None:
    file = place.create("old", b"tide")
    place.disk.rename(place.path("old"), place.path("new"))
    file.pwrite(b"log", 4)
    assert place.content("new") == b"tidelog"


def test_a_handle_survives_removing(place: Place) -> None:
    file = place.create("file", b"tide")
    place.disk.remove(place.path("file"))
    file.pwrite(b"log", 4)
    file.sync()
    assert file.pread(100, 0) == b"tidelog"
    assert file.size() == 7
    assert place.disk.list(place.folder) == []


def test_a_handle_survives_being_replaced(place: Place) -> None:
    old = place.create("file", b"old")
    place.create("new", b"new")
    place.disk.rename(place.path("new"), place.path("file"))
    assert old.pread(100, 0) == b"old"
    assert place.content("file") == b"new"


# Locks.


def test_a_lock_excludes_others_until_released(place: Place) -> None:
    path = place.path(".lock")
    lock = place.disk.lock(path)
    with pytest.raises(BlockingIOError) as caught:
        place.disk.lock(path)
    assert caught.value.filename == path
    lock.release()
    again = place.disk.lock(path)
    lock.release()
    with pytest.raises(BlockingIOError):
        place.disk.lock(path)
    again.release()


def test_locks_of_different_files_do_not_meet(place: Place) -> None:
    first, second = place.disk.lock(place.path("a")), place.disk.lock(place.path("b"))
    first.release()
    with pytest.raises(BlockingIOError):
        place.disk.lock(place.path("b"))
    second.release()


def test_a_lock_makes_its_file_and_keeps_what_is_in_it(place: Place) -> None:
    place.disk.lock(place.path("new")).release()
    place.create("file", b"tide")
    place.disk.lock(place.path("file")).release()
    assert place.disk.list(place.folder) == ["file", "new"]
    assert place.content("file") == b"tide"


def test_a_folder_cannot_be_locked(place: Place) -> None:
    raises(errno.EISDIR, place.folder, place.disk.lock, place.folder)


# Room.


def test_room_that_is_reserved_changes_nothing_that_can_be_read(place: Place) -> None:
    file = place.create("file", b"tide")
    file.reserve(1 << 20, 4)
    assert (file.size(), place.content("file")) == (4, b"tide")
    file.pwrite(b"log", 4)
    file.truncate(7)
    file.sync()
    assert (file.size(), place.content("file")) == (7, b"tidelog")


def test_the_room_on_a_volume_is_known_for_every_path_that_is_there(place: Place) -> None:
    place.create("file", b"tide")
    total_bytes, free_bytes = place.disk.usage(place.folder)
    assert 0 < free_bytes <= total_bytes
    assert place.disk.usage(place.path("file"))[0] == total_bytes
    raises(errno.ENOENT, place.path("missing"), place.disk.usage, place.path("missing"))
