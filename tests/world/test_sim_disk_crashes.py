"""What the simulated disk keeps and loses when a process or the machine dies.

A process that dies loses nothing it wrote. A machine that dies loses, tears or keeps what
was not synced: V18's durable prefix is what `sync` and `sync_folder` have covered.
"""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.base.ports import File
from tidelog.world.sim.disk import Crashed, SimDisk, When

SEEDS = range(200)
OLD, NEW = b"o" * 2000, b"n" * 2000


def durable_file(disk: SimDisk, path: str, content: bytes) -> File:
    file = disk.open(path, "create")
    file.pwrite(content, 0)
    file.sync()
    disk.sync_folder("/")
    return file


def outcomes(prepare: Callable[[SimDisk], object]) -> list[dict[str, bytes]]:
    """What is there after power loss, for many seeds."""
    prepared = SimDisk()
    prepare(prepared)
    found = []
    for seed in SEEDS:
        disk = prepared.fork(seed)
        disk.machine_dies()
        found.append(disk.view())
    return found


# A process dies.


def test_a_dead_process_loses_nothing() -> None:
    disk = SimDisk()
    disk.make_folder("/a")
    disk.open("/a/file", "create").pwrite(b"tide", 0)
    disk.process_dies()
    assert disk.view() == {"/a/file": b"tide"}
    assert disk.durable_view() == {}


def test_files_of_a_dead_process_cannot_be_used() -> None:
    disk = SimDisk()
    file = disk.open("/file", "create")
    disk.process_dies()
    for use in (
        lambda: file.pread(1, 0),
        lambda: file.pwrite(b"x", 0),
        lambda: file.truncate(0),
        file.size,
        file.sync,
    ):
        with pytest.raises(AssertionError, match="/file was opened by a process that has died"):
            use()
    file.close()
    assert disk.open("/file", "read").size() == 0


def test_locks_die_with_the_process() -> None:
    disk = SimDisk()
    old = disk.lock("/.lock")
    disk.process_dies()
    disk.lock("/.lock")
    old.release()
    with pytest.raises(BlockingIOError):
        disk.lock("/.lock")


def test_the_boot_id_changes_with_the_machine_only() -> None:
    disk = SimDisk()
    boot_id = disk.clock.boot_id()
    disk.process_dies()
    assert disk.clock.boot_id() == boot_id
    disk.machine_dies()
    assert disk.clock.boot_id() != boot_id


# The machine dies: content.


def test_synced_content_under_a_synced_name_always_survives() -> None:
    def prepare(disk: SimDisk) -> None:
        durable_file(disk, "/file", OLD).pwrite(NEW, 2000)

    for found in outcomes(prepare):
        assert found["/file"][:2000] == OLD


def test_an_unsynced_write_is_kept_lost_torn_or_left_as_zeros() -> None:
    def prepare(disk: SimDisk) -> None:
        durable_file(disk, "/file", OLD).pwrite(NEW, 2000)

    tails = {found["/file"][2000:] for found in outcomes(prepare)}
    assert {NEW, b"", bytes(2000)} <= tails
    prefixes = {len(tail) for tail in tails if tail and tail == NEW[: len(tail)]} - {2000}
    at_sectors = {length for length in prefixes if (2000 + length) % 512 == 0}
    assert at_sectors, "torn at a sector of the file"
    assert prefixes - at_sectors, "torn at any byte"
    assert any(b"\0n" in tail for tail in tails), "a later sector without an earlier one"


def test_a_lost_overwrite_leaves_the_old_bytes() -> None:
    def prepare(disk: SimDisk) -> None:
        durable_file(disk, "/file", OLD).pwrite(NEW, 0)

    contents = {found["/file"] for found in outcomes(prepare)}
    assert {OLD, NEW} <= contents
    assert all(len(content) == 2000 for content in contents)
    assert any(b"no" in content for content in contents), "torn: new bytes before old ones"
    assert any(b"on" in content for content in contents), "torn: old sectors before new ones"


def test_a_later_write_may_survive_an_earlier_one() -> None:
    def prepare(disk: SimDisk) -> None:
        file = durable_file(disk, "/file", b"")
        file.pwrite(b"a" * 10, 0)
        file.pwrite(b"b" * 10, 10)

    contents = {found["/file"] for found in outcomes(prepare)}
    assert bytes(10) + b"b" * 10 in contents
    assert {b"", b"a" * 10, b"a" * 10 + b"b" * 10} <= contents


def test_a_truncate_is_kept_or_lost() -> None:
    def prepare(disk: SimDisk) -> None:
        durable_file(disk, "/file", b"tidelog").truncate(4)

    assert {found["/file"] for found in outcomes(prepare)} == {b"tide", b"tidelog"}


def test_files_lose_independently() -> None:
    def prepare(disk: SimDisk) -> None:
        for path in ("/a", "/b"):
            durable_file(disk, path, b"").pwrite(b"tide", 0)

    pairs = {(found["/a"], found["/b"]) for found in outcomes(prepare)}
    assert {(b"tide", b""), (b"", b"tide"), (b"tide", b"tide"), (b"", b"")} <= pairs


def test_what_a_sync_covered_is_not_lost_by_changes_after_it() -> None:
    disk = SimDisk()
    file = durable_file(disk, "/file", b"one")
    file.pwrite(b"two", 3)
    file.truncate(4)
    file.pwrite(b"THREE", 2)
    disk.machine_dies("all")
    assert disk.view() == {"/file": b"one"}


# The machine dies: names.


def test_a_synced_file_may_vanish_when_its_folder_was_not_synced() -> None:
    """X27: a new segment vanishes without a sync of its directory."""

    def prepare(disk: SimDisk) -> None:
        file = disk.open("/file", "create")
        file.pwrite(b"tide", 0)
        file.sync()

    found = outcomes(prepare)
    assert {} in found
    assert {"/file": b"tide"} in found
    assert all(there in ({}, {"/file": b"tide"}) for there in found)


def test_a_synced_name_does_not_make_the_content_durable() -> None:
    def prepare(disk: SimDisk) -> None:
        disk.open("/file", "create").pwrite(b"tide", 0)
        disk.sync_folder("/")

    contents = {found["/file"] for found in outcomes(prepare)}
    assert {b"", b"tide"} <= contents


def test_a_rename_without_any_sync_leaves_old_new_or_an_empty_file() -> None:
    """X27: a checkpoint renamed into place without syncing it first."""

    def prepare(disk: SimDisk) -> None:
        durable_file(disk, "/checkpoint", b"old")
        disk.open("/checkpoint.tmp", "create").pwrite(b"new", 0)
        disk.rename("/checkpoint.tmp", "/checkpoint")

    contents = {found["/checkpoint"] for found in outcomes(prepare)}
    assert {b"old", b"new", b""} <= contents


def test_a_rename_of_a_synced_file_leaves_old_or_new() -> None:
    def prepare(disk: SimDisk) -> None:
        durable_file(disk, "/checkpoint", b"old")
        durable_file(disk, "/checkpoint.tmp", b"new")
        disk.rename("/checkpoint.tmp", "/checkpoint")

    found = outcomes(prepare)
    before = {"/checkpoint": b"old", "/checkpoint.tmp": b"new"}
    assert before in found
    assert {"/checkpoint": b"new"} in found
    assert all(there in (before, {"/checkpoint": b"new"}) for there in found)


def test_a_rename_is_certain_once_its_folder_is_synced() -> None:
    def prepare(disk: SimDisk) -> None:
        durable_file(disk, "/checkpoint", b"old")
        durable_file(disk, "/checkpoint.tmp", b"new")
        disk.rename("/checkpoint.tmp", "/checkpoint")
        disk.sync_folder("/")

    assert all(found == {"/checkpoint": b"new"} for found in outcomes(prepare))


def test_a_removed_file_may_come_back() -> None:
    def prepare(disk: SimDisk) -> None:
        durable_file(disk, "/file", b"tide")
        disk.remove("/file")

    found = outcomes(prepare)
    assert {} in found
    assert {"/file": b"tide"} in found


def test_a_file_made_anew_under_a_removed_name_is_the_old_the_new_or_gone() -> None:
    def prepare(disk: SimDisk) -> None:
        durable_file(disk, "/file", b"old")
        disk.remove("/file")
        file = disk.open("/file", "create")
        file.pwrite(b"new", 0)
        file.sync()

    found = outcomes(prepare)
    for there in ({"/file": b"old"}, {"/file": b"new"}, {}):
        assert there in found


def test_name_changes_may_survive_out_of_order() -> None:
    def prepare(disk: SimDisk) -> None:
        for name in ("a", "b"):
            durable_file(disk, f"/{name}", b"").sync()
        disk.rename("/a", "/a.deleted")
        disk.rename("/b", "/b.deleted")

    names = {tuple(sorted(found)) for found in outcomes(prepare)}
    assert ("/a", "/b.deleted") in names


def test_no_file_ever_has_two_names() -> None:
    def prepare(disk: SimDisk) -> None:
        durable_file(disk, "/a", b"tide")
        disk.rename("/a", "/b")
        disk.rename("/b", "/c")

    names = {tuple(found) for found in outcomes(prepare)}
    assert names == {("/a",), ("/b",), ("/c",)}


def test_a_folder_that_vanishes_takes_its_files_along() -> None:
    def prepare(disk: SimDisk) -> None:
        disk.make_folder("/a")
        file = disk.open("/a/file", "create")
        file.sync()
        disk.sync_folder("/a")

    found = outcomes(prepare)
    assert {} in found
    assert {"/a/file": b""} in found


def test_a_rename_between_folders_never_loses_nor_doubles_the_file() -> None:
    def prepare(disk: SimDisk) -> None:
        disk.make_folder("/from")
        disk.make_folder("/to")
        disk.sync_folder("/")
        disk.open("/from/file", "create").sync()
        disk.sync_folder("/from")
        disk.rename("/from/file", "/to/file")

    names = {tuple(found) for found in outcomes(prepare)}
    assert names == {("/from/file",), ("/to/file",)}


@pytest.mark.parametrize("synced", ["/from", "/to"])
def test_a_rename_between_folders_is_certain_once_either_is_synced(synced: str) -> None:
    def prepare(disk: SimDisk) -> None:
        disk.make_folder("/from")
        disk.make_folder("/to")
        disk.sync_folder("/")
        disk.open("/from/file", "create").sync()
        disk.rename("/from/file", "/to/file")
        disk.sync_folder(synced)

    assert {tuple(found) for found in outcomes(prepare)} == {("/to/file",)}


# Seeds, and losses that are not drawn.


def test_one_seed_gives_one_outcome_and_seeds_differ() -> None:
    disk = SimDisk()
    for number in range(5):
        durable_file(disk, f"/{number}", OLD).pwrite(NEW, 1000)

    def after(seed: int) -> dict[str, bytes]:
        twin = disk.fork(seed)
        twin.machine_dies()
        return twin.view()

    assert all(after(seed) == after(seed) for seed in range(20))
    assert len({tuple(after(seed).values()) for seed in range(20)}) > 10


def test_all_or_nothing_can_be_lost_for_certain() -> None:
    disk = SimDisk()
    durable_file(disk, "/file", b"old").pwrite(b"new", 0)
    disk.open("/other", "create")
    lossless = disk.fork()
    lossless.machine_dies("none")
    assert lossless.view() == disk.view() == {"/file": b"new", "/other": b""}
    lossless.machine_dies("all")
    assert lossless.view() == {"/file": b"new", "/other": b""}
    assert disk.durable_view() == {"/file": b"old"}
    disk.machine_dies("all")
    assert disk.view() == {"/file": b"old"}


def test_a_fork_and_its_origin_go_separate_ways() -> None:
    disk = SimDisk()
    disk.make_folder("/a")
    file = disk.open("/a/file", "create")
    file.pwrite(b"tide", 0)
    disk.rename("/a/file", "/file")
    twin = disk.fork()
    file.pwrite(b"XXXX", 0)
    twin.open("/file", "write").pwrite(b"log", 4)
    twin.remove("/a")
    twin.clock.advance(10)
    assert disk.view() == {"/file": b"XXXX"}
    assert twin.view() == {"/file": b"tidelog"}
    assert disk.list("/") == ["a", "file"]
    assert twin.clock.now_ms() == disk.clock.now_ms() + 10
    twin.open("/file", "read").sync()
    twin.sync_folder("/")
    assert twin.durable_view() == {"/file": b"tidelog"}
    assert disk.durable_view() == {}


def test_a_fork_of_a_disk_with_a_removed_folder_in_its_past_is_whole() -> None:
    disk = SimDisk()
    disk.make_folder("/gone/inner")
    disk.open("/gone/inner/file", "create")
    disk.rename("/gone/inner/file", "/file")
    disk.remove("/gone/inner")
    disk.remove("/gone")
    twin = disk.fork().fork()
    twin.machine_dies("none")
    assert twin.view() == {"/file": b""}


# Crashing at an operation.


def write_a_checkpoint(disk: SimDisk) -> None:
    file = disk.open("/checkpoint.tmp", "create")
    file.pwrite(b"new-checkpoint", 0)
    file.sync()
    disk.rename("/checkpoint.tmp", "/checkpoint")
    disk.sync_folder("/")


def test_every_operation_is_counted_and_traced() -> None:
    disk = SimDisk()
    trace = disk.trace()
    write_a_checkpoint(disk)
    assert disk.operations == len(trace) == 5
    assert trace == [
        ("create", "/checkpoint.tmp"),
        ("pwrite", "/checkpoint.tmp"),
        ("sync", "/checkpoint.tmp"),
        ("rename", "/checkpoint.tmp"),
        ("sync_folder", "/"),
    ]


@pytest.mark.parametrize("when", ["before", "middle", "after"])
def test_a_checkpoint_is_old_or_new_whichever_operation_crashes(when: When) -> None:
    seen = set()
    for number in range(5):
        for seed in range(30):
            disk = SimDisk(seed)
            durable_file(disk, "/checkpoint", b"old")
            disk.crash_at(number, when)
            with pytest.raises(Crashed, match=f"{when} "):
                write_a_checkpoint(disk)
            disk.machine_dies()
            content = disk.view()["/checkpoint"]
            assert content in (b"old", b"new-checkpoint")
            seen.add(content)
    assert len(seen) == 2


def test_a_crash_lands_before_in_the_middle_of_or_after_the_write() -> None:
    contents = []
    for when in ("before", "middle", "after"):
        disk = SimDisk()
        disk.crash_at(1, when)
        with pytest.raises(Crashed):
            write_a_checkpoint(disk)
        disk.process_dies()
        contents.append(disk.view()["/checkpoint.tmp"])
    assert contents == [b"", b"new-che", b"new-checkpoint"]


def test_nothing_a_crashed_process_does_while_it_unwinds_takes_effect() -> None:
    disk = SimDisk()
    file = durable_file(disk, "/file", b"tide")
    disk.crash_at(0)
    with pytest.raises(Crashed):
        file.truncate(0)
    for use in (
        lambda: file.pwrite(b"x", 0),
        file.sync,
        lambda: file.pread(1, 0),
        lambda: disk.open("/new", "create"),
        lambda: disk.rename("/no", "/new"),
        lambda: disk.remove("/file"),
        lambda: disk.make_folder("/folder"),
        lambda: disk.sync_folder("/"),
        lambda: disk.stat("/file"),
        lambda: disk.list("/"),
        lambda: disk.lock("/lock"),
    ):
        with pytest.raises(Crashed, match="after the crash"):
            use()
    file.close()
    disk.process_dies()
    assert disk.view() == {"/file": b"tide"}


def test_no_handler_of_exceptions_swallows_a_crash() -> None:
    assert not issubclass(Crashed, Exception)


def test_a_planned_crash_can_be_taken_back() -> None:
    disk = SimDisk()
    disk.crash_at(0)
    disk.crash_at(None)
    write_a_checkpoint(disk)
    assert disk.view() == {"/checkpoint": b"new-checkpoint"}


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 1500), st.binary(min_size=1, max_size=600)),
        st.tuples(st.just("truncate"), st.integers(0, 1500), st.just(b"")),
        st.tuples(st.just("sync"), st.just(0), st.just(b"")),
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(changes=CHANGES)
def test_losing_everything_gives_the_content_of_the_last_sync(
    changes: list[tuple[str, int, bytes]],
) -> None:
    """Undoing changes is checked against plain copies."""
    disk = SimDisk()
    file = durable_file(disk, "/file", b"")
    durable = live = b""
    for kind, place, data in changes:
        if kind == "write":
            file.pwrite(data, place)
            live = live.ljust(place, b"\0")[:place] + data + live[place + len(data) :]
        elif kind == "truncate":
            file.truncate(place)
            live = live[:place].ljust(place, b"\0")
        else:
            file.sync()
            durable = live
    assert file.pread(10_000, 0) == live
    assert disk.durable_view() == {"/file": durable}
    disk.machine_dies("none")
    assert disk.view() == {"/file": live}
