"""The znode tree against a plain dict: any writes, of any operations, done or refused alike."""

from copy import deepcopy
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tidelog.base.coordination import (
    ANY_VERSION,
    Check,
    CoordinationError,
    Create,
    Delete,
    Operation,
    SetData,
    Trouble,
    WatchKind,
)
from tidelog.world.watches import Watches
from tidelog.world.znode_files import encode_snapshot
from tidelog.world.znode_paths import check_path
from tidelog.world.znode_tree import Event, When, ZnodeTree

NAMES = st.sampled_from(["a", "b"])
PATHS = st.lists(NAMES, max_size=2).map(lambda names: "/" + "/".join(names))
VERSIONS = st.sampled_from([ANY_VERSION, 0, 0, 1, 2])
DATA = st.binary(max_size=3)
OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    st.builds(
        Create,
        path=PATHS,
        data=DATA,
        ephemeral=st.booleans(),
        sequence=st.sampled_from([False, False, True]),
    ),
    st.builds(SetData, path=PATHS, data=DATA, version=VERSIONS),
    st.builds(Delete, path=PATHS, version=VERSIONS),
    st.builds(Check, path=PATHS, version=VERSIONS),
)


@dataclass(slots=True)
class Entry:
    """What the model knows of a node."""

    data: bytes
    owner: int
    created_zxid: int
    modified_zxid: int
    version: int = 0
    made: int = 0
    removed: int = 0


class Refused(Exception):
    """The model's word for an operation that cannot be done."""


class Model:
    """A dict of paths. A write works on a copy of it, so a refused one has done nothing."""

    def __init__(self) -> None:
        self.nodes = {"/": Entry(b"", 0, 0, 0)}
        self.zxid = 0
        self.session_id = 0

    def write(self, operations: list[Operation], zxid: int, session_id: int) -> list[str | None]:
        before = deepcopy(self.nodes)
        self.zxid, self.session_id = zxid, session_id
        try:
            return [self.do(operation) for operation in operations]
        except Refused:
            self.nodes = before
            raise

    def do(self, operation: Operation) -> str | None:
        if isinstance(operation, Create):
            return self.create(operation)
        entry = self.nodes.get(operation.path)
        if entry is None:
            raise Refused(Trouble.no_node)
        if isinstance(operation, Delete) and operation.path == "/":
            raise Refused(Trouble.bad_arguments)
        if operation.version not in (ANY_VERSION, entry.version):
            raise Refused(Trouble.bad_version)
        if isinstance(operation, SetData):
            entry.data, entry.version = operation.data, entry.version + 1
            entry.modified_zxid = self.zxid
        elif isinstance(operation, Delete):
            if self.children(operation.path):
                raise Refused(Trouble.not_empty)
            del self.nodes[operation.path]
            self.nodes[parent_of(operation.path)].removed += 1
        return None

    def create(self, operation: Create) -> str:
        path = operation.path
        parent = self.nodes.get(parent_of(path))
        if parent is None:
            raise Refused(Trouble.no_node)
        if operation.sequence:
            path += str(parent.made).zfill(10)
        if path in self.nodes:
            raise Refused(Trouble.node_exists)
        if parent.owner:
            raise Refused(Trouble.no_children_for_ephemerals)
        parent.made += 1
        owner = self.session_id if operation.ephemeral else 0
        self.nodes[path] = Entry(operation.data, owner, self.zxid, self.zxid)
        return path

    def children(self, path: str) -> list[str]:
        return sorted(
            other.rpartition("/")[2]
            for other in self.nodes
            if other != "/" and parent_of(other) == path
        )


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class TreeAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.tree = ZnodeTree()
        self.model = Model()
        self.zxid = 0

    @rule(operations=st.lists(OPERATIONS, min_size=1, max_size=5), session=st.integers(1, 2))
    def write(self, operations: list[Operation], session: int) -> None:
        self.zxid += 1
        before = self.tree.zxid
        found: object
        try:
            expected: object = self.model.write(operations, self.zxid, session)
        except Refused as refused:
            expected = refused.args[0]
        changes: list[Operation] = []
        try:
            outcome = self.tree.write(operations, When(self.zxid, 7, session))
            changes.extend(outcome.changes)
            found = [answer if isinstance(answer, str) else None for answer in outcome.answers]
        except CoordinationError as error:
            found = error.trouble
        assert found == expected
        assert self.tree.zxid == (self.zxid if changes else before)

    @rule(operations=st.lists(OPERATIONS, min_size=1, max_size=4), session=st.integers(1, 2))
    def write_what_fails_at_its_end(self, operations: list[Operation], session: int) -> None:
        self.write([*operations, Check(path="/", version=99)], session)

    @rule(session=st.integers(1, 2))
    def end_session(self, session: int) -> None:
        self.zxid += 1
        gone = self.tree.end_session(session)
        self.model.write(gone, self.zxid, session)
        self.tree.write(gone, When(self.zxid, 7, session))
        assert all(entry.owner != session for entry in self.model.nodes.values())

    @invariant()
    def they_agree(self) -> None:
        walked = dict(self.tree.walk())
        assert set(walked) == set(self.model.nodes)
        assert len(walked) == self.tree.count
        for path, entry in self.model.nodes.items():
            node = self.tree.get(path)
            names = self.model.children(path)
            assert self.tree.children(path) == names
            assert (node.data, node.stat.version) == (entry.data, entry.version)
            assert node.stat.ephemeral_owner == entry.owner
            assert node.stat.created_zxid == entry.created_zxid
            assert node.stat.modified_zxid == entry.modified_zxid
            assert node.stat.children_version == entry.made + entry.removed
            assert node.stat.children_count == len(names)

    @invariant()
    def ephemerals_are_known_by_session(self) -> None:
        owned: dict[int, set[str]] = {}
        for path, entry in self.model.nodes.items():
            if entry.owner:
                owned.setdefault(entry.owner, set()).add(path)
        assert self.tree.ephemerals == owned


TreeAgainstModel.TestCase.settings = settings(
    max_examples=60, stateful_step_count=20, deadline=None
)
TestTreeAgainstModel = TreeAgainstModel.TestCase


def tree_of(*operations: Operation) -> ZnodeTree:
    tree = ZnodeTree()
    tree.write(operations, When(1, 7, 5))
    return tree


def test_the_changes_of_a_write_do_the_same_again_on_another_tree() -> None:
    """What a journal keeps: numbers are given, versions were checked, checks are left out."""
    tree, twin = tree_of(Create(path="/a")), tree_of(Create(path="/a"))
    outcome = tree.write(
        [
            Create(path="/a/n-", sequence=True, ephemeral=True),
            Check(path="/a", version=0),
            SetData(path="/a", data=b"1", version=0),
            Create(path="/a/", sequence=True),
            Delete(path="/a/n-0000000000", version=0),
        ],
        When(2, 8, 5),
    )
    assert len(outcome.changes) == 4
    twin.write(outcome.changes, When(2, 8, 5))
    assert b"".join(encode_snapshot(twin)) == b"".join(encode_snapshot(tree))


def test_events_are_those_of_the_operations_in_their_order() -> None:
    outcome = ZnodeTree().write(
        [Create(path="/a"), Create(path="/a/b"), SetData(path="/a", data=b""), Delete(path="/a/b")],
        When(1, 7),
    )
    assert outcome.events == [
        (WatchKind.created, "/a"),
        (WatchKind.children, "/"),
        (WatchKind.created, "/a/b"),
        (WatchKind.children, "/a"),
        (WatchKind.changed, "/a"),
        (WatchKind.deleted, "/a/b"),
        (WatchKind.children, "/a"),
    ]


@pytest.mark.parametrize(
    "operations",
    [
        [SetData(path="/a", data=b"1"), SetData(path="/a", data=b"2")],
        [Delete(path="/a/b"), Create(path="/a/b", data=b"new")],
        [Delete(path="/a/b"), Delete(path="/a"), Create(path="/a", data=b"new")],
        [Create(path="/c"), Create(path="/c/d", ephemeral=True), SetData(path="/c", data=b"1")],
        [Create(path="/c", ephemeral=True), Delete(path="/c"), Create(path="/c")],
    ],
)
def test_a_write_that_fails_at_its_end_leaves_all_as_it_was(operations: list[Operation]) -> None:
    tree = tree_of(Create(path="/a"), Create(path="/a/b", ephemeral=True))
    before = b"".join(encode_snapshot(tree)), deepcopy(tree.ephemerals)
    with pytest.raises(CoordinationError):
        tree.write([*operations, Check(path="/", version=99)], When(2, 8, 6))
    assert (b"".join(encode_snapshot(tree)), tree.ephemerals) == before


def test_checks_alone_take_no_zxid() -> None:
    tree = tree_of(Create(path="/a"))
    tree.write([Check(path="/a", version=0)], When(9, 9))
    assert tree.zxid == 1


def test_an_empty_write_does_nothing() -> None:
    tree = ZnodeTree()
    assert tree.write([], When(1, 7)).answers == []
    assert tree.zxid == 0


@pytest.mark.parametrize("path", ["/", "/a", "/a/b.c", "/...", "/a/<default>", "/é", "/ "])
def test_paths_that_zookeeper_takes_are_taken(path: str) -> None:
    check_path(path)


@pytest.mark.parametrize(
    "path", ["", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/\0", "/\x7f", "/\ud800", "/\uffff"]
)
def test_paths_that_zookeeper_refuses_are_refused(path: str) -> None:
    with pytest.raises(CoordinationError) as caught:
        check_path(path)
    assert caught.value.trouble is Trouble.bad_arguments
    tree = ZnodeTree()
    for read in (tree.get, tree.children, tree.exists):
        with pytest.raises(CoordinationError) as caught:
            read(path)
        assert caught.value.trouble is Trouble.bad_arguments


@pytest.mark.parametrize(("path", "made"), [("/", "/0000000000"), ("/a", "/a0000000000")])
def test_a_sequence_node_may_be_right_below_the_root(path: str, made: str) -> None:
    assert ZnodeTree().write([Create(path=path, sequence=True)], When(1, 7)).answers == [made]


def test_a_walk_shows_parents_before_children_and_names_in_order() -> None:
    tree = tree_of(*(Create(path=path) for path in ("/b", "/a", "/a/z", "/a/y", "/c")))
    assert [path for path, _ in tree.walk()] == ["/", "/a", "/a/y", "/a/z", "/b", "/c"]
    assert [path for path, _ in tree.walk("/a")] == ["/a", "/a/y", "/a/z"]


# Watches.


def told(watches: Watches, *events: Event) -> list[tuple[int, str, str]]:
    return [(session_id, kind.name, path) for session_id, _, kind, path in watches.take(events)]


def test_watches_of_several_sessions_are_told_in_the_order_they_were_left() -> None:
    watches = Watches()
    for session_id in (2, 1):
        watches.on_node("/a", session_id, say_nothing)
    assert told(watches, (WatchKind.changed, "/a")) == [(2, "changed", "/a"), (1, "changed", "/a")]
    assert told(watches, (WatchKind.changed, "/a")) == []


def test_watches_of_a_session_that_is_over_are_forgotten() -> None:
    watches = Watches()
    watches.on_node("/a", 1, say_nothing)
    watches.on_node("/a", 2, say_nothing)
    watches.on_children("/b", 1, say_nothing)
    watches.forget(1)
    events = (WatchKind.deleted, "/a"), (WatchKind.children, "/b")
    assert told(watches, *events) == [(2, "deleted", "/a")]


def test_who_watches_a_node_and_its_children_is_told_of_its_deletion_once() -> None:
    watches = Watches()
    watches.on_node("/a", 1, say_nothing)
    watches.on_children("/a", 1, say_nothing)
    assert told(watches, (WatchKind.deleted, "/a")) == [(1, "deleted", "/a")]


def say_nothing(_kind: WatchKind, _path: str) -> None:
    """A watch nobody calls."""
