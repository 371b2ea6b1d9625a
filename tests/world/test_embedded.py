"""The embedded coordination on its disk: what a restart keeps, group commit, snapshots, errors."""

import errno
from functools import partial

import pytest

from support.coordinated import FOLDER, Embedded, Seen
from tidelog.base.coordination import (
    CoordinationError,
    Create,
    Delete,
    Operation,
    SessionState,
    SetData,
    Trouble,
    Watch,
)
from tidelog.world.sim.disk import SimDisk
from tidelog.world.znode_files import load


def journal(disk: SimDisk) -> str:
    (name,) = [name for name in disk.list(FOLDER) if name.startswith("journal-")]
    return f"{FOLDER}/{name}"


def shown(place: Embedded) -> dict[str, tuple[bytes, object]]:
    """All that clients can see of a tree."""
    tree = place.coordination._tree
    return {path: (node.data, node.stat()) for path, node in tree.walk()}


# What stays.


def test_a_restart_keeps_every_node_with_its_stat() -> None:
    place = Embedded()
    place.write(Create(path="/a", data=b"1"), Create(path="/a/b"))
    place.disk.clock.advance(5_000)
    place.write(SetData(path="/a", data=b"2"), Create(path="/a/n", sequence=True))
    place.write(Delete(path="/a/b"))
    before = shown(place)
    for _ in range(3):
        place.reopen()
        assert shown(place) == before
    (path,) = place.write(Create(path="/a/n", sequence=True))
    assert path == "/a/n0000000002", "the numbers go on"


def test_ephemeral_nodes_of_a_process_that_died_are_gone_and_that_is_on_disk() -> None:
    place = Embedded()
    place.write(Create(path="/e", ephemeral=True), Create(path="/stays"))
    first_session = place.coordination.session_id
    place.disk.process_dies()
    second = Embedded(place.disk)
    assert second.children("/") == ["stays"]
    assert second.coordination.session_id != first_session
    place.disk.machine_dies("all")
    assert load(place.disk, FOLDER).tree.children("/") == ["stays"]


def test_every_open_has_a_new_epoch_in_its_zxids() -> None:
    place = Embedded()
    epochs = []
    for _ in range(4):
        place.write(Create(path="/n", sequence=True))
        zxid = place.coordination._tree.zxid
        epochs.append((zxid >> 32, zxid & 0xFFFF_FFFF))
        place.reopen()
    assert epochs == [(1, 1), (2, 1), (3, 1), (4, 1)]


def test_an_open_that_wrote_nothing_has_used_up_its_epoch_too() -> None:
    place = Embedded()
    for _ in range(3):
        place.disk.process_dies()
        place = Embedded(place.disk)
    place.write(Create(path="/a"))
    assert place.get("/a").stat.created_zxid == (4 << 32) + 1


# What is told when.


def test_nothing_is_told_before_the_journal_is_synced() -> None:
    """Nor is a read answered that would show it, nor a refusal that comes of it."""
    place = Embedded()
    place.write(Create(path="/a"))
    seen, coordination = Seen(), place.coordination
    place.get("/a", seen.watch)
    place.children("/", seen.watch)
    trace = place.disk.trace()
    coordination.write([SetData(path="/a", data=b"1"), Create(path="/b")], seen.note("written"))
    coordination.get("/b", seen.note("read"))
    coordination.write([Create(path="/b")], seen.note("refused"))
    place.loop.call_soon(lambda: None)
    while ("sync", journal(place.disk)) not in trace:
        assert seen.events == []
        place.turn()
    place.wait(lambda: len(seen.events) == 5)
    assert seen.events == [("changed", "/a"), ("children", "/"), "written", "read", "refused"]


def test_writes_that_wait_share_one_sync() -> None:
    place = Embedded()
    trace, seen = place.disk.trace(), Seen()
    for number in range(50):
        place.coordination.write([Create(path=f"/{number}")], seen.note("written"))
    place.wait(lambda: len(seen.events) == 50)
    assert [operation for operation, _ in trace] == ["pwrite", "sync"]


def test_writes_that_come_while_the_disk_works_share_the_next_sync() -> None:
    place = Embedded()
    trace, seen = place.disk.trace(), Seen()
    place.coordination.write([Create(path="/first")], seen.note("first"))
    place.wait(lambda: len(trace) > 0)
    for number in range(20):
        place.coordination.write([Create(path=f"/{number}")], seen.note("later"))
    place.wait(lambda: len(seen.events) == 21)
    assert [operation for operation, _ in trace] == ["pwrite", "sync"] * 2


def test_reads_alone_touch_no_disk() -> None:
    place = Embedded()
    trace = place.disk.trace()
    place.get("/")
    place.children("/")
    place.exists("/no")
    assert trace == []


def test_a_callback_that_fails_costs_no_other_its_answer() -> None:
    place, seen = Embedded(), Seen()

    def fail(_answer: object) -> None:
        raise ZeroDivisionError

    errors: list[Exception] = []
    place.loop.on_error = lambda _what, error: errors.append(error)
    place.coordination.get("/", seen.note("before"))
    place.coordination.get("/", fail)
    place.coordination.get("/", seen.note("after"))
    place.wait(lambda: len(seen.events) == 2)
    assert [type(error) for error in errors] == [ZeroDivisionError]


# Errors of the disk.


@pytest.mark.parametrize("operation", ["pwrite", "sync"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_after_an_error_of_the_disk_everything_is_refused(operation: str, number: int) -> None:
    place, seen = Embedded(), Seen()
    place.write(Create(path="/a"))
    place.get("/a", seen.watch)
    states: list[SessionState] = []
    place.coordination.on_session(states.append)
    place.disk.fail(number, operations=[operation], part=0.5)
    answers: list[object] = []
    place.coordination.get("/a", answers.append)
    for wanted in (SetData(path="/a", data=b"1"), Create(path="/b")):
        place.coordination.write([wanted], answers.append)
    place.coordination.get("/a", answers.append)
    place.wait(lambda: len(answers) == 4)
    assert not isinstance(answers[0], CoordinationError), "it was asked before, and shows nothing"
    troubles = [(error.trouble, error.path) for error in errors_of(answers[1:])]
    assert troubles == [(Trouble.storage, path) for path in ("/a", "/b", "/a")]
    assert seen.events == [], "no watch is told of what may not have happened"
    for ask in (place.get, place.children, place.exists):
        with pytest.raises(CoordinationError, match="journal could not be written"):
            ask("/a")
    with pytest.raises(CoordinationError, match="journal could not be written"):
        place.write(Create(path="/c"))
    assert states == [SessionState.suspended]


def errors_of(answers: list[object]) -> list[CoordinationError]:
    found = [answer for answer in answers if isinstance(answer, CoordinationError)]
    assert len(found) == len(answers)
    return found


@pytest.mark.parametrize("loss", ["all", "none"])
def test_what_a_failed_sync_lost_is_settled_by_the_next_open(loss: str) -> None:
    """The failed bytes are still in the page cache, and a later sync of that file would lie."""
    place = Embedded()
    place.write(Create(path="/kept"))
    place.disk.fail(errno.EIO, operations=["sync"])
    with pytest.raises(CoordinationError):
        place.write(Create(path="/doubtful"))
    place.disk.process_dies()
    second = Embedded(place.disk)
    found = second.children("/")
    second.write(Create(path="/later"))
    place.disk.machine_dies("all" if loss == "all" else "none")
    third = Embedded(place.disk)
    assert set(third.children("/")) == {*found, "later"}
    assert {"kept", "later"} <= set(third.children("/"))


def test_closing_after_an_error_still_answers_and_ends() -> None:
    place = Embedded()
    place.disk.fail(errno.EIO, operations=["sync"])
    answers: list[object] = []
    place.coordination.write([Create(path="/e", ephemeral=True)], answers.append)
    place.wait(lambda: bool(answers))
    place.coordination.close()
    place.wait_for_all()
    assert isinstance(answers[0], CoordinationError)


def test_an_error_while_opening_is_raised() -> None:
    place = Embedded()
    place.disk.process_dies()
    place.disk.fail(errno.ENOSPC, operations=["pwrite"])
    with pytest.raises(OSError, match="No space left"):
        Embedded(place.disk)


# Snapshots.


def fill(place: Embedded, count: int, first: int = 0) -> None:
    answers: list[object] = []
    for number in range(first, first + count):
        wanted: list[Operation] = [Create(path=f"/n{number}", data=b"x" * 100)]
        place.coordination.write(wanted, answers.append)
    place.wait(lambda: len(answers) == count)
    assert not any(isinstance(answer, CoordinationError) for answer in answers)


def test_a_long_journal_becomes_a_snapshot_and_the_tree_stays() -> None:
    place = Embedded(journal_bytes_max=2_000)
    first = journal(place.disk)
    for number in range(0, 300, 3):
        fill(place, 3, number)
    place.wait_for_all()
    place.loop.run_for(1_000)
    assert journal(place.disk) != first, "the old journal is gone"
    sizes = {path: len(data) for path, data in place.disk.view().items() if FOLDER in path}
    assert sizes[journal(place.disk)] < 4 * sizes[f"{FOLDER}/snapshot"] + 2_000
    before = shown(place)
    assert len(before) == 301
    place.disk.machine_dies("all")
    assert shown(Embedded(place.disk)) == before


def test_what_is_asked_while_a_snapshot_is_made_is_answered_in_order() -> None:
    place, seen = Embedded(journal_bytes_max=2_000), Seen()
    place.get("/", seen.watch)
    fill(place, 30)
    place.wait(lambda: place.coordination._snapshotting.is_under_way)
    coordination = place.coordination
    coordination.write([SetData(path="/", data=b"1")], seen.note("written"))
    coordination.get("/", seen.note("read"))
    coordination.children("/", seen.note("listed"))
    coordination.after_all(partial(seen.events.append, "all"))
    assert place.coordination._snapshotting.is_under_way
    place.wait(lambda: "all" in seen.events)
    assert seen.events == [("changed", "/"), "written", "read", "listed", "all"]


def test_a_session_closed_while_a_snapshot_is_made_is_closed() -> None:
    place = Embedded(journal_bytes_max=2_000)
    place.write(Create(path="/e", ephemeral=True))
    fill(place, 30)
    place.wait(lambda: place.coordination._snapshotting.is_under_way)
    place.coordination.close()
    place.wait_for_all()
    assert "e" not in load(place.disk, FOLDER).tree.children("/")


@pytest.mark.parametrize("operation", ["create", "pwrite", "sync", "rename", "sync_folder"])
def test_an_error_while_a_snapshot_is_made_refuses_what_comes_later(operation: str) -> None:
    place = Embedded(journal_bytes_max=2_000)
    fill(place, 30)
    before = shown(place)
    place.wait(lambda: place.coordination._snapshotting.is_under_way)
    place.disk.fail(errno.EIO, operations=[operation])
    with pytest.raises(CoordinationError, match="journal could not be written"):
        place.write(Create(path="/later"))
    place.disk.process_dies()
    assert shown(Embedded(place.disk)) == before


def test_the_loop_goes_on_while_a_large_tree_is_encoded() -> None:
    place = Embedded(journal_bytes_max=20_000)
    snapshotting, seen = place.coordination._snapshotting, Seen()
    wanted = [Create(path=f"/n{number}") for number in range(3_000)]
    place.coordination.write(wanted, seen.note("written"))
    place.wait(lambda: snapshotting.is_under_way)
    started_ms = place.loop.clock.monotonic_ms()
    place.wait(lambda: not snapshotting.is_under_way)
    slices_ms = place.loop.clock.monotonic_ms() - started_ms
    assert slices_ms > 6, "each slice leaves the loop to others for a while"
    assert len(shown(place)) == 3_001


def test_no_snapshot_is_made_of_a_write_that_is_still_under_way() -> None:
    """If it fails, it must not be found in a snapshot."""
    place, answers = Embedded(journal_bytes_max=500), list[object]()
    place.coordination.write([Create(path="/long", data=b"x" * 1_000)], answers.append)
    place.disk.fail(errno.EIO, operations=["sync"], path="*/journal-*", skip=1)
    trace = place.disk.trace()
    place.wait(lambda: bool(trace))
    place.coordination.write([Create(path="/fails")], answers.append)
    place.wait(lambda: len(answers) == 2)
    place.loop.run_for(1_000)
    assert [isinstance(answer, CoordinationError) for answer in answers] == [False, True]
    assert "rename" not in [operation for operation, _ in trace]


def test_a_closed_session_makes_no_snapshot() -> None:
    place = Embedded(journal_bytes_max=15_000)
    place.write(*(Create(path=f"/{'e' * 50}{number}", ephemeral=True) for number in range(200)))
    trace = place.disk.trace()
    place.coordination.close()
    place.wait_for_all()
    place.loop.run_for(1_000)
    assert [operation for operation, _ in trace] == ["pwrite", "sync"]
    assert place.disk.open(journal(place.disk), "read").size() > 15_000


def test_a_closed_session_is_told_nothing_of_its_own_end() -> None:
    place, seen = Embedded(), Seen()
    place.write(Create(path="/e", ephemeral=True))
    place.get("/e", seen.watch)
    place.children("/", seen.watch)
    place.coordination.close()
    place.wait_for_all()
    assert seen.events == []


def test_a_watch_survives_a_snapshot() -> None:
    place, seen = Embedded(journal_bytes_max=1_000), Seen()
    watch: Watch = seen.watch
    place.exists("/later", watch)
    fill(place, 30)
    place.wait(lambda: not place.coordination._snapshotting.is_under_way)
    place.write(Create(path="/later"))
    assert seen.events == [("created", "/later")]
