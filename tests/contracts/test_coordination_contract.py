"""What every coordination does: one body for ZooKeeper, the embedded tree and the simulated one.

Only what ZooKeeper itself guarantees is asserted: T4's layout must work on either.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.coordinated import Asking, Embedded, RealEmbedded, RealZooKeeper, Seen, Simulated
from support.zookeepers import new_connect
from tidelog.base.coordination import (
    ANY_VERSION,
    Check,
    CoordinationError,
    Create,
    Delete,
    Operation,
    SetData,
    Stat,
    Trouble,
)

Place = Embedded | RealEmbedded | RealZooKeeper | Simulated


@pytest.fixture(params=["ZooKeeper", "embedded", "embedded on a simulated disk", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made: Place
    match request.param:
        case "ZooKeeper":
            made = RealZooKeeper(new_connect())
        case "embedded":
            made = RealEmbedded(tmp_path)
        case "simulated":
            made = Simulated()
        case _:
            made = Embedded()
    made.write(Create(path="/t", data=b"root"))
    yield made
    made.release()


def trouble(place: Asking, *operations: Operation) -> tuple[Trouble, str]:
    with pytest.raises(CoordinationError) as caught:
        place.write(*operations)
    return caught.value.trouble, caught.value.path


# Nodes.


def test_a_node_is_read_back_with_its_data_and_stat(place: Place) -> None:
    assert place.write(Create(path="/t/a", data=b"one")) == ["/t/a"]
    node = place.get("/t/a")
    assert node.data == b"one"
    assert node.stat.version == node.stat.children_version == 0
    assert node.stat.ephemeral_owner == node.stat.children_count == 0
    assert node.stat.created_zxid == node.stat.modified_zxid > 0
    assert node.stat.created_ms == node.stat.modified_ms > 0
    assert place.exists("/t/a") == node.stat


def test_data_may_be_empty_and_hold_any_bytes(place: Place) -> None:
    everything = bytes(range(256)) * 40
    place.write(Create(path="/t/empty"), Create(path="/t/full", data=everything))
    assert place.get("/t/empty").data == b""
    assert place.get("/t/full").data == everything


def test_names_may_be_in_any_script(place: Place) -> None:
    place.write(Create(path="/t/größe"), Create(path="/t/数据"), Create(path="/t/<default>"))
    assert place.children("/t") == ["<default>", "größe", "数据"]


def test_missing_nodes_are_answered_as_missing(place: Place) -> None:
    for ask in (place.get, place.children):
        with pytest.raises(CoordinationError) as caught:
            ask("/t/no/such")
        assert (caught.value.trouble, caught.value.path) == (Trouble.no_node, "/t/no/such")
    assert place.exists("/t/no") is None


def test_creating_needs_a_parent_and_a_free_name(place: Place) -> None:
    assert trouble(place, Create(path="/t/a/b")) == (Trouble.no_node, "/t/a/b")
    assert trouble(place, Create(path="/t")) == (Trouble.node_exists, "/t")


def test_setting_data_raises_the_version_and_answers_with_the_stat(place: Place) -> None:
    place.write(Create(path="/t/a", data=b"0"))
    before = place.get("/t/a").stat
    (stat,) = place.write(SetData(path="/t/a", data=b"1"))
    assert isinstance(stat, Stat)
    assert (stat.version, stat.created_zxid) == (1, before.created_zxid)
    assert stat.modified_zxid > before.modified_zxid
    assert place.get("/t/a").data == b"1"
    assert place.get("/t/a").stat == stat
    assert trouble(place, SetData(path="/t/no", data=b"")) == (Trouble.no_node, "/t/no")


def test_writes_may_insist_on_a_version(place: Place) -> None:
    place.write(Create(path="/t/a", data=b"0"))
    place.write(SetData(path="/t/a", data=b"1", version=0))
    for stale in (0, 2):
        for operation in (
            SetData(path="/t/a", data=b"x", version=stale),
            Delete(path="/t/a", version=stale),
            Check(path="/t/a", version=stale),
        ):
            assert trouble(place, operation) == (Trouble.bad_version, "/t/a")
    assert place.get("/t/a").data == b"1"
    place.write(SetData(path="/t/a", data=b"2", version=ANY_VERSION))
    place.write(Check(path="/t/a", version=2), Delete(path="/t/a", version=2))
    assert place.exists("/t/a") is None


def test_a_node_made_again_begins_anew(place: Place) -> None:
    place.write(Create(path="/t/a"))
    place.write(SetData(path="/t/a", data=b"1"))
    before = place.get("/t/a").stat
    place.write(Delete(path="/t/a"))
    place.write(Create(path="/t/a"))
    after = place.get("/t/a").stat
    assert after.version == 0
    assert after.created_zxid > before.modified_zxid


def test_only_a_node_without_children_can_be_deleted(place: Place) -> None:
    place.write(Create(path="/t/a"), Create(path="/t/a/b"))
    assert trouble(place, Delete(path="/t/a")) == (Trouble.not_empty, "/t/a")
    place.write(Delete(path="/t/a/b"), Delete(path="/t/a"))
    assert trouble(place, Delete(path="/t/a")) == (Trouble.no_node, "/t/a")


def test_children_are_names_in_order_and_change_the_children_version(place: Place) -> None:
    place.write(*(Create(path=f"/t/{name}") for name in ("b", "a", "c")))
    before = place.get("/t").stat
    assert place.children("/t") == ["a", "b", "c"]
    assert before.children_count == 3
    place.write(Delete(path="/t/b"))
    after = place.get("/t").stat
    assert after.children_version > before.children_version
    assert (after.children_count, after.version) == (2, before.version)
    assert after.modified_zxid == before.modified_zxid
    place.write(SetData(path="/t/a", data=b"x"))
    assert place.get("/t").stat == after


@pytest.mark.parametrize(
    "path", ["", "t", "t/a", "/t/", "//t", "/t//a", "/t/.", "/t/../t", "/t/a\0b", "/t/\x1f"]
)
def test_paths_that_cannot_be_are_refused(place: Place, path: str) -> None:
    """As ZooKeeper's server does; its Python client would make other paths of them first."""
    assert trouble(place, Create(path=path))[0] is Trouble.bad_arguments


def test_the_root_is_there_and_stays(place: Place) -> None:
    assert "t" in place.children("/")
    assert trouble(place, Create(path="/")) == (Trouble.node_exists, "/")
    assert trouble(place, Delete(path="/"))[0] is Trouble.bad_arguments


# Sequences and ephemerals.


def test_sequence_nodes_get_ten_digits_that_only_rise(place: Place) -> None:
    wanted = Create(path="/t/n-", sequence=True, data=b"x")
    (first,) = place.write(wanted)
    (second,) = place.write(wanted)
    assert isinstance(first, str)
    assert isinstance(second, str)
    assert len(first) == len("/t/n-") + 10
    assert int(second[-10:]) > int(first[-10:])
    place.write(Delete(path=second))
    (third,) = place.write(wanted)
    assert isinstance(third, str)
    assert int(third[-10:]) > int(second[-10:]), "a number is not given twice"
    assert place.get(third).data == b"x"


def test_several_sequence_nodes_of_one_write_differ(place: Place) -> None:
    wanted = Create(path="/t/n", sequence=True)
    paths = place.write(wanted, wanted, wanted)
    assert len(set(paths)) == 3
    assert [f"/t/{name}" for name in place.children("/t")] == paths


def test_an_ephemeral_node_belongs_to_its_session_and_has_no_children(place: Place) -> None:
    place.write(Create(path="/t/e", ephemeral=True))
    stat = place.get("/t/e").stat
    assert stat.ephemeral_owner == place.coordination.session_id != 0
    refused = Trouble.no_children_for_ephemerals, "/t/e/a"
    assert trouble(place, Create(path="/t/e/a")) == refused


def test_closing_a_session_takes_its_ephemeral_nodes_and_nothing_else(place: Place) -> None:
    place.write(
        Create(path="/t/stays"),
        Create(path="/t/goes", ephemeral=True),
        Create(path="/t/also-", ephemeral=True, sequence=True),
        Create(path="/t/stays/goes", ephemeral=True),
    )
    first = place.coordination.session_id
    place.reopen()
    assert place.coordination.session_id != first
    assert place.children("/t") == ["stays"]
    assert place.children("/t/stays") == []


def test_what_is_asked_before_a_close_is_done_and_after_it_is_refused(place: Place) -> None:
    coordination = place.coordination
    answers: list[object] = []
    coordination.write([Create(path="/t/a")], answers.append)
    coordination.close()
    coordination.get("/t", answers.append)
    place.wait(lambda: len(answers) == 2)
    assert answers[0] == ["/t/a"]
    assert isinstance(answers[1], CoordinationError)
    assert answers[1].trouble is Trouble.session_expired


# Writes of several operations.


def test_a_write_of_several_operations_answers_each(place: Place) -> None:
    answers = place.write(
        Create(path="/t/a"),
        SetData(path="/t/a", data=b"1"),
        Check(path="/t/a", version=1),
        Create(path="/t/a/b"),
        Delete(path="/t/a/b"),
    )
    assert answers[0] == "/t/a"
    assert isinstance(answers[1], Stat)
    assert answers[2] is None
    assert answers[3] == "/t/a/b"
    assert answers[4] is None
    stat = place.get("/t/a").stat
    assert stat.created_zxid == stat.modified_zxid, "one write has one zxid"


@pytest.mark.parametrize(
    ("failing", "expected"),
    [
        (Create(path="/t/x"), Trouble.node_exists),
        (Create(path="/t/no/x"), Trouble.no_node),
        (SetData(path="/t/x", data=b"", version=7), Trouble.bad_version),
        (Delete(path="/t/d/e"), Trouble.no_node),
        (Check(path="/t/x", version=9), Trouble.bad_version),
        (Delete(path="/t/d", version=3), Trouble.bad_version),
    ],
)
def test_one_failing_operation_undoes_all_and_is_named(
    place: Place, failing: Operation, expected: Trouble
) -> None:
    place.write(Create(path="/t/x", data=b"x"), Create(path="/t/d"), Create(path="/t/d/e"))
    before = {path: place.get(path) for path in ("/t", "/t/x", "/t/d", "/t/d/e")}
    assert trouble(
        place,
        SetData(path="/t/x", data=b"y"),
        Create(path="/t/new"),
        Create(path="/t/n-", sequence=True),
        Create(path="/t/gone", ephemeral=True),
        Delete(path="/t/d/e"),
        failing,
        Create(path="/t/later"),
    ) == (expected, failing.path)
    assert {path: place.get(path) for path in before} == before
    assert place.children("/t") == ["d", "x"]


def test_an_operation_sees_what_those_before_it_in_the_write_did(place: Place) -> None:
    place.write(Create(path="/t/a", data=b"0"))
    place.write(Delete(path="/t/a"), Create(path="/t/a", data=b"1"), Create(path="/t/a/b"))
    assert place.get("/t/a").data == b"1"
    assert place.children("/t/a") == ["b"]


# Order.


def test_answers_come_in_the_order_of_the_questions(place: Place) -> None:
    seen, coordination = Seen(), place.coordination
    coordination.write([Create(path="/t/a")], seen.note("created"))
    coordination.get("/t/a", seen.note("read"))
    coordination.write([Create(path="/t/a")], seen.note("refused"))
    coordination.children("/t", seen.note("listed"))
    coordination.write([Check(path="/t/a", version=0)], seen.note("checked"))
    coordination.exists("/t/a", seen.note("looked"))
    place.wait(lambda: len(seen.events) == 6)
    assert seen.events == ["created", "read", "refused", "listed", "checked", "looked"]


def test_what_is_refused_at_once_is_answered_in_its_turn(place: Place) -> None:
    seen, coordination = Seen(), place.coordination
    for number in range(3):
        coordination.write([SetData(path="/t", data=b"1")], seen.note(f"written {number}"))
        coordination.get("t//", seen.note(f"refused {number}"))
    place.wait(lambda: len(seen.events) == 6)
    wanted = [(f"written {number}", f"refused {number}") for number in range(3)]
    assert seen.events == [each for pair in wanted for each in pair]


def test_a_write_of_nothing_does_nothing(place: Place) -> None:
    assert place.write() == []


def test_a_write_may_have_thousands_of_operations(place: Place) -> None:
    paths = [f"/t/{number:05d}" for number in range(3_000)]
    assert place.write(*(Create(path=path, data=b"x" * 20) for path in paths)) == paths
    assert [f"/t/{name}" for name in place.children("/t")] == paths
    assert trouble(place, *(Delete(path=path) for path in paths), Delete(path="/t/no")) == (
        Trouble.no_node,
        "/t/no",
    )
    place.write(*(Delete(path=path) for path in paths))
    assert place.children("/t") == []


def test_reads_see_the_writes_that_were_asked_for_before_them(place: Place) -> None:
    answers: list[object] = []
    place.coordination.write([SetData(path="/t", data=b"1")], answers.append)
    place.coordination.get("/t", lambda node: answers.append(getattr(node, "data", node)))
    place.coordination.write([SetData(path="/t", data=b"2")], answers.append)
    place.wait(lambda: len(answers) == 3)
    assert answers[1] == b"1"


def test_zxids_rise_from_write_to_write(place: Place) -> None:
    zxids: list[int] = []
    for number in range(5):
        place.write(SetData(path="/t", data=b"%d" % number))
        zxids.append(place.get("/t").stat.modified_zxid)
    place.reopen()
    place.write(SetData(path="/t", data=b"later"))
    zxids.append(place.get("/t").stat.modified_zxid)
    assert zxids == sorted(set(zxids))


def test_a_callback_may_ask_on(place: Place) -> None:
    """Many steps are written as one answer asking the next question."""
    answers: list[object] = []

    def next_one(answer: object) -> None:
        answers.append(answer)
        if len(answers) < 5:
            wanted = [Create(path="/t/n", sequence=True)]
            place.coordination.write(wanted, next_one)

    place.coordination.write([Create(path="/t/n", sequence=True)], next_one)
    place.wait(lambda: len(answers) == 5)
    assert len(place.children("/t")) == 5


# Watches.


def test_a_watch_is_told_once_and_before_the_answer_that_shows_the_change(place: Place) -> None:
    place.write(Create(path="/t/a"))
    seen, coordination = Seen(), place.coordination
    place.get("/t/a", seen.watch)
    coordination.write([SetData(path="/t/a", data=b"1")], seen.note("written"))
    coordination.get("/t/a", seen.note("read"))
    coordination.write([SetData(path="/t/a", data=b"2")], seen.note("written again"))
    place.wait(lambda: "written again" in seen.events)
    assert seen.events == [("changed", "/t/a"), "written", "read", "written again"]


def test_a_watch_left_while_a_write_is_under_way_sees_only_what_comes_later(place: Place) -> None:
    seen, coordination = Seen(), place.coordination
    coordination.write([SetData(path="/t", data=b"1")], seen.note("first"))
    coordination.get("/t", seen.note("read"), seen.watch)
    coordination.write([SetData(path="/t", data=b"2")], seen.note("second"))
    place.wait(lambda: "second" in seen.events)
    assert seen.events == ["first", "read", ("changed", "/t"), "second"]


def test_a_watch_of_a_missing_node_is_told_of_its_creation(place: Place) -> None:
    seen = Seen()
    assert place.exists("/t/a", seen.watch) is None
    place.write(Create(path="/t/a"))
    assert seen.events == [("created", "/t/a")]
    place.write(Delete(path="/t/a"))
    assert len(seen.events) == 1


@pytest.mark.parametrize("how", ["get", "exists"])
def test_watches_of_a_node_are_told_of_its_change_and_its_end(place: Place, how: str) -> None:
    place.write(Create(path="/t/a"))
    seen, ask = Seen(), getattr(place, how)
    ask("/t/a", seen.watch)
    place.write(Create(path="/t/a/b"))
    assert seen.events == [], "children are none of its business"
    place.write(SetData(path="/t/a", data=b"1"))
    ask("/t/a", seen.watch)
    place.write(Delete(path="/t/a/b"), Delete(path="/t/a"))
    assert seen.events == [("changed", "/t/a"), ("deleted", "/t/a")]


def test_a_get_of_a_missing_node_leaves_no_watch(place: Place) -> None:
    seen = Seen()
    for ask in (place.get, place.children):
        with pytest.raises(CoordinationError):
            ask("/t/a", seen.watch)
    place.write(Create(path="/t/a"))
    place.write(Create(path="/t/a/b"))
    assert seen.events == []


def test_a_watch_of_children_is_told_when_one_comes_or_goes(place: Place) -> None:
    seen = Seen()
    place.children("/t", seen.watch)
    place.write(SetData(path="/t", data=b"1"))
    assert seen.events == [], "data is none of its business"
    place.write(Create(path="/t/a"))
    place.children("/t", seen.watch)
    place.write(Create(path="/t/a/b"))
    place.write(SetData(path="/t/a", data=b"1"))
    assert seen.events == [("children", "/t")], "nor are grandchildren, nor a child's data"
    place.write(Delete(path="/t/a/b"), Delete(path="/t/a"))
    assert seen.events == [("children", "/t")] * 2


def test_a_watch_of_children_is_told_of_the_end_of_the_node(place: Place) -> None:
    place.write(Create(path="/t/a"))
    seen = Seen()
    place.children("/t/a", seen.watch)
    place.write(Delete(path="/t/a"))
    assert seen.events == [("deleted", "/t/a")]


def test_a_write_that_is_refused_tells_no_watch(place: Place) -> None:
    place.write(Create(path="/t/a"))
    seen = Seen()
    place.get("/t/a", seen.watch)
    place.children("/t", seen.watch)
    trouble(place, SetData(path="/t/a", data=b"1"), Delete(path="/t/a"), Delete(path="/t/a"))
    trouble(place, Create(path="/t/b"), Create(path="/t/a"))
    assert seen.events == []
    place.write(SetData(path="/t/a", data=b"2"))
    assert seen.events == [("changed", "/t/a")], "and leaves it in its place"


def test_one_write_tells_each_of_its_watches(place: Place) -> None:
    place.write(Create(path="/t/a"), Create(path="/t/b"))
    seen, children = Seen(), Seen()
    place.get("/t/a", seen.watch)
    place.get("/t/b", seen.watch)
    place.exists("/t/c", seen.watch)
    place.children("/t", children.watch)
    place.write(SetData(path="/t/a", data=b"1"), Delete(path="/t/b"), Create(path="/t/c"))
    assert seen.events == [("changed", "/t/a"), ("deleted", "/t/b"), ("created", "/t/c")]
    assert children.events == [("children", "/t")]


def test_the_same_callback_left_twice_is_told_once(place: Place) -> None:
    seen = Seen()
    for _ in range(2):
        place.get("/t", seen.watch)
    place.write(SetData(path="/t", data=b"1"))
    place.write(SetData(path="/t", data=b"2"))
    assert seen.events == [("changed", "/t")]
