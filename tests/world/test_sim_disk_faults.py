"""Errors of the simulated disk: EIO, a full disk, failed syncs, flipped bits (X26, F9-F12)."""

import errno
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.base.ports import File
from tidelog.world.sim.choices import Choices
from tidelog.world.sim.contents import FileNode
from tidelog.world.sim.disk import SimDisk


def durable_file(disk: SimDisk, path: str, content: bytes) -> File:
    file = disk.open(path, "create")
    file.pwrite(content, 0)
    file.sync()
    disk.sync_folder("/")
    return file


def fails(number: int, action: Callable[[], object]) -> None:
    with pytest.raises(OSError, check=lambda error: error.errno == number):
        action()


# Errors on demand.


def test_the_nth_operation_fails_and_the_next_goes_well() -> None:
    """X26: an error, then success; what the log makes of it is the log's affair."""
    disk = SimDisk()
    file = durable_file(disk, "/file", b"")
    disk.fail(errno.EIO, skip=2)
    file.pwrite(b"a", 0)
    file.pwrite(b"b", 1)
    fails(errno.EIO, lambda: file.pwrite(b"c", 2))
    assert file.pread(10, 0) == b"ab"
    file.pwrite(b"d", 2)
    assert file.pread(10, 0) == b"abd"


def test_a_fault_is_bound_to_operations_and_paths() -> None:
    disk = SimDisk()
    disk.make_folder("/bad")
    disk.fail(errno.EIO, operations=["pwrite"], path="/bad/*.log", times=None)
    good, other, bad = (
        disk.open(path, "create") for path in ("/a.log", "/bad/a.index", "/bad/a.log")
    )
    for _ in range(3):
        good.pwrite(b"x", 0)
        other.pwrite(b"x", 0)
        fails(errno.EIO, lambda: bad.pwrite(b"x", 0))
    disk.heal()
    bad.pwrite(b"x", 0)
    assert disk.view() == {"/a.log": b"x", "/bad/a.index": b"x", "/bad/a.log": b"x"}


@pytest.mark.parametrize(
    ("operation", "use"),
    [
        ("create", lambda disk, _: disk.open("/new", "create")),
        ("open", lambda disk, _: disk.open("/file", "read")),
        ("pread", lambda _, file: file.pread(1, 0)),
        ("pwrite", lambda _, file: file.pwrite(b"x", 0)),
        ("size", lambda _, file: file.size()),
        ("truncate", lambda _, file: file.truncate(0)),
        ("sync", lambda _, file: file.sync()),
        ("list", lambda disk, _: disk.list("/")),
        ("stat", lambda disk, _: disk.stat("/file")),
        ("rename", lambda disk, _: disk.rename("/file", "/new")),
        ("remove", lambda disk, _: disk.remove("/file")),
        ("make_folder", lambda disk, _: disk.make_folder("/new")),
        ("sync_folder", lambda disk, _: disk.sync_folder("/")),
        ("lock", lambda disk, _: disk.lock("/file")),
    ],
)
def test_every_operation_can_fail_and_then_does_nothing(
    operation: str, use: Callable[[SimDisk, File], object]
) -> None:
    disk = SimDisk()
    file = durable_file(disk, "/file", b"tide")
    disk.fail(errno.EIO, operations=[operation])
    fails(errno.EIO, lambda: use(disk, file))
    assert disk.list("/") == ["file"]
    assert disk.view() == disk.durable_view() == {"/file": b"tide"}
    use(disk, file)


def test_reads_do_not_fail_unless_asked_to() -> None:
    disk = SimDisk()
    file = durable_file(disk, "/file", b"tide")
    disk.fail(errno.EIO, times=None)
    assert file.pread(4, 0) == b"tide"
    assert disk.list("/") == ["file"]


def test_a_failing_write_may_leave_part_of_itself_behind() -> None:
    disk = SimDisk()
    file = durable_file(disk, "/file", b"")
    disk.fail(errno.EIO, operations=["pwrite"], part=0.75)
    fails(errno.EIO, lambda: file.pwrite(b"tidelog!", 0))
    assert file.pread(10, 0) == b"tidelo"


def test_faults_of_the_medium_outlive_the_process() -> None:
    disk = SimDisk()
    disk.fail(errno.EROFS, operations=["create"], times=None)
    disk.process_dies()
    fails(errno.EROFS, lambda: disk.open("/file", "create"))


# A full disk.


def test_a_full_disk_takes_what_fits_and_refuses_the_rest() -> None:
    """F9 and X26: a short write comes before the error."""
    disk = SimDisk()
    first, second = durable_file(disk, "/a", b"aaaa"), durable_file(disk, "/b", b"bb")
    disk.limit(10)
    first.pwrite(b"cc", 4)
    fails(errno.ENOSPC, lambda: second.pwrite(b"dddddd", 2))
    assert disk.view() == {"/a": b"aaaacc", "/b": b"bbdd"}
    fails(errno.ENOSPC, lambda: second.pwrite(b"e", 4))


def test_a_full_disk_still_overwrites() -> None:
    disk = SimDisk()
    file = durable_file(disk, "/a", b"aaaa")
    disk.limit(4)
    file.pwrite(b"bbbb", 0)
    fails(errno.ENOSPC, lambda: file.pwrite(b"cccc", 2))
    assert file.pread(10, 0) == b"bbcc"


@pytest.mark.parametrize(
    "free", [lambda disk: disk.remove("/a"), lambda disk: disk.open("/a", "write").truncate(0)]
)
def test_freed_space_can_be_used_again(free: Callable[[SimDisk], None]) -> None:
    disk = SimDisk()
    durable_file(disk, "/a", b"aaaa")
    file = durable_file(disk, "/b", b"")
    disk.limit(4)
    fails(errno.ENOSPC, lambda: file.pwrite(b"bbbb", 0))
    free(disk)
    file.pwrite(b"bbbb", 0)
    assert file.size() == 4


# Failed syncs.


def test_a_failed_sync_loses_what_the_next_one_seems_to_save() -> None:
    """X26: after a failed sync, a later success proves nothing about the bytes before it."""
    disk = SimDisk()
    file = durable_file(disk, "/file", b"safe")
    file.pwrite(b"lost", 4)
    disk.fail(errno.EIO, operations=["sync"])
    fails(errno.EIO, file.sync)
    file.pwrite(b"kept", 8)
    file.sync()
    assert file.pread(100, 0) == b"safelostkept", "the page cache still shows them"
    assert disk.durable_view() == {"/file": b"safe\0\0\0\0kept"}
    disk.evict("/file")
    assert file.pread(100, 0) == b"safe\0\0\0\0kept"
    file.pwrite(b"redo", 4)
    file.sync()
    assert disk.durable_view() == {"/file": b"saferedokept"}


def test_the_bytes_of_a_failed_sync_may_still_have_been_written() -> None:
    disk = SimDisk()
    file = durable_file(disk, "/file", b"")
    file.pwrite(b"tide", 0)
    disk.fail(errno.EIO, operations=["sync"])
    fails(errno.EIO, file.sync)
    contents = set()
    for seed in range(100):
        twin = disk.fork(seed)
        twin.machine_dies()
        contents.add(twin.view()["/file"])
    assert {b"", b"tide"} <= contents


def test_syncs_can_be_made_to_lie() -> None:
    disk = SimDisk()
    disk.syncs_lie = True
    durable_file(disk, "/file", b"tide")
    assert disk.durable_view() == {}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 30), st.binary(min_size=1, max_size=20)),
        st.tuples(st.just("truncate"), st.integers(0, 30), st.just(b"")),
        st.tuples(st.sampled_from(["sync", "fail"]), st.just(0), st.just(b"")),
    ),
    max_size=12,
)


@settings(max_examples=200, deadline=None)
@given(steps=STEPS)
def test_eviction_shows_the_changes_that_no_failed_sync_covered(
    steps: list[tuple[str, int, bytes]],
) -> None:
    """Against a file that never saw the lost changes at all."""
    file = FileNode(0)
    waiting: list[tuple[str, int, bytes]] = []
    surviving: list[tuple[str, int, bytes]] = []
    for step in steps:
        if step[0] in ("write", "truncate"):
            waiting.append(step)
            apply(file, step)
        else:
            surviving += waiting if step[0] == "sync" else []
            waiting = []
            (file.sync if step[0] == "sync" else file.fail_sync)()
    expected = FileNode(0)
    for step in [*surviving, *waiting]:
        apply(expected, step)
    file.evict()
    assert file.live == expected.live


def apply(file: FileNode, step: tuple[str, int, bytes]) -> None:
    kind, place, data = step
    if kind == "write":
        file.write(data, place)
    else:
        file.resize(place)


# Silent damage.


def test_a_flipped_bit_is_seen_by_readers_and_survives_every_crash() -> None:
    """F12."""
    disk = SimDisk()
    file = durable_file(disk, "/file", b"aaa")
    disk.flip_bit("/file", 1, bit=1)
    assert file.pread(3, 0) == b"aca"
    disk.process_dies()
    disk.machine_dies()
    assert disk.view() == {"/file": b"aca"}


# Choices.


def test_streams_of_choices_do_not_shift_each_other() -> None:
    alone, together = Choices(7), Choices(7)
    together.stream("faults").random()
    together.stream("workload").random()
    draws = [alone.stream("crash").random() for _ in range(5)]
    assert [together.stream("crash").random() for _ in range(5)] == draws
    assert Choices(8).stream("crash").random() != draws[0]
    assert Choices(7).stream("faults").random() != draws[0]


def test_draws_at_power_loss_are_the_same_on_every_run() -> None:
    """A stored seed keeps its meaning: these bytes may only change on purpose."""
    disk = SimDisk(seed=3)
    for name in "abc":
        durable_file(disk, f"/{name}", b"....").pwrite(b"tide", 4)
    disk.machine_dies()
    first = disk.view()
    again = SimDisk(seed=3)
    for name in "abc":
        durable_file(again, f"/{name}", b"....").pwrite(b"tide", 4)
    again.machine_dies()
    assert again.view() == first


def test_modification_times_come_from_the_clock() -> None:
    disk = SimDisk()
    file = durable_file(disk, "/file", b"tide")
    disk.clock.advance(1000)
    file.truncate(0)
    info = disk.stat("/file")
    assert info is not None
    assert info.modified_ms == disk.clock.now_ms()
