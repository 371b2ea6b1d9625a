"""The embedded coordination is killed at every single disk operation, process or machine, and
opened again: every write that was answered is there, and no zxid is ever used twice."""

from typing import Literal

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from support.coordinated import Embedded
from tidelog.base.coordination import CoordinationError, Create, Delete, Operation, SetData
from tidelog.world.sim.disk import Crashed, Loss, SimDisk, When
from tidelog.world.znode_tree import When as WrittenWhen
from tidelog.world.znode_tree import ZnodeTree

Death = Literal["process", "all", "some", "none"]
Write = list[Operation]
View = dict[str, tuple[bytes, int, int]]
"""By path: data, version, children version."""

JOURNAL_BYTES_MAX = 700
DEATHS: tuple[Death, ...] = ("process", "all", "some", "none")
BASE: list[Write] = [
    [Create(path="/brokers"), Create(path="/brokers/ids"), Create(path="/topics", data=b"base")],
    [Create(path="/brokers/ids/0", data=b"{}", ephemeral=True)],
]


def some_write(number: int) -> Write:
    """Nodes come, change and go; some belong to the session."""
    path = f"/topics/t{number // 3}"
    match number % 3:
        case 0:
            return [Create(path=path, data=b"x" * (number % 50)), Create(path=f"{path}/state")]
        case 1:
            return [
                SetData(path=f"{path}/state", data=b"state %d" % number),
                Create(path="/topics/e-", ephemeral=True, sequence=True),
            ]
        case _:
            return [Delete(path=f"{path}/state")] if number % 2 else [SetData(path="/", data=b"2")]


def view(tree: ZnodeTree) -> View:
    stats = ((path, node.data, node.stat()) for path, node in tree.walk())
    return {path: (data, stat.version, stat.children_version) for path, data, stat in stats}


class Story:
    """A tree that is written, killed and opened, beside the writes that must be seen in it."""

    def __init__(self, seed: int = 0) -> None:
        self.disk = SimDisk(seed)
        self.history: list[Write | None] = []
        """None where a session ended."""
        self.pending: list[Write] = []
        """Asked for and not answered: any number of them, from the front, may have been done."""
        self.zxid_max = 0
        self.place = self.open()
        for write in BASE:
            self.place.write(*write)
            self.history.append(write)

    def open(self) -> Embedded:
        """V18: what is there is what was there."""
        place = Embedded(self.disk, self.disk.choices.seed, JOURNAL_BYTES_MAX)
        found = view(place.coordination._tree)
        may_be = [self.view_after(count) for count in range(len(self.pending) + 1)]
        assert found in may_be, "an answered write is lost, or half of one is there"
        self.history += [*self.pending[: may_be.index(found)], None]
        self.pending = []
        self.note_zxid(place, is_new=True)
        return place

    def view_after(self, count: int) -> View:
        """As the tree is seen after so many of the pending writes, when its session has ended."""
        tree = ZnodeTree()
        for number, write in enumerate([*self.history, *self.pending[:count], None]):
            when = WrittenWhen(number + 1, 0, 1)
            tree.write(tree.end_session(1) if write is None else write, when)
        return view(tree)

    def note_zxid(self, place: Embedded, *, is_new: bool = False) -> None:
        zxid = place.coordination._tree.zxid
        assert not is_new or zxid > self.zxid_max, "a zxid was given twice"
        self.zxid_max = max(self.zxid_max, zxid)

    def write(self, numbers: list[int], group_size: int) -> None:
        """In groups that are asked for at once."""
        for start in range(0, len(numbers), group_size):
            self.pending = [some_write(number) for number in numbers[start : start + group_size]]
            for write in self.pending:
                self.place.coordination.write(write, self.answered)
            self.place.wait(lambda: not self.pending)
            self.note_zxid(self.place)

    def answered(self, answer: object) -> None:
        assert not isinstance(answer, CoordinationError)
        self.history.append(self.pending.pop(0))

    def die(self, death: Death) -> None:
        self.note_zxid(self.place)
        if death == "process":
            self.disk.process_dies()
        else:
            losses: dict[Death, Loss] = {"all": "all", "some": "some", "none": "none"}
            self.disk.machine_dies(losses[death])

    def write_and_die(self, plan: tuple[list[int], int], number: int, when: When) -> bool:
        """False if the plan had fewer disk operations."""
        self.disk.crash_at(number, when)
        try:
            self.write(*plan)
            self.place.loop.run_for(100)
        except Crashed:
            return True
        self.disk.crash_at(None)
        return False


NUMBERS = list(range(24))


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("group_size", [1, 5])
def test_every_answered_write_outlives_a_crash_at_any_disk_operation(
    group_size: int, death: Death
) -> None:
    """The journal is short, so that snapshots are made on the way. Only a write has a middle to
    die in."""
    number = 0
    while died_at := outlived_crash(number, "before", group_size, death):
        if died_at == "pwrite":
            assert outlived_crash(number, "middle", group_size, death) == died_at
        assert outlived_crash(number, "after", group_size, death) == died_at
        number += 1
    assert number > 20, "there are disk operations to die in"


def outlived_crash(number: int, when: When, group_size: int, death: Death) -> str | None:
    """The disk operation it died at; None if there are fewer."""
    story = Story(number)
    trace = story.disk.trace()
    if not story.write_and_die((NUMBERS, group_size), number, when):
        return None
    story.die(death)
    story.place = story.open()
    story.write([99, 100, 101, 102], 2)
    story.die("some" if death == "process" else "process")
    story.place = story.open()
    return trace[number][0]


def test_the_story_makes_snapshots_on_the_way() -> None:
    story = Story()
    trace = story.disk.trace()
    story.write(NUMBERS, 5)
    story.place.loop.run_for(100)
    assert sum(operation == "rename" for operation, _ in trace) >= 1


@pytest.mark.parametrize("second_death", DEATHS)
@pytest.mark.parametrize("first_death", ["process", "some"])
def test_a_crash_while_opening_is_recovered_from(first_death: Death, second_death: Death) -> None:
    """At any disk operation of the open, and with an unfinished write in the journal."""
    crashes = 0
    for when in ("before", "middle", "after"):
        number = 0
        while True:
            story = Story(number)
            story.write(NUMBERS[:7], 3)
            assert story.write_and_die(([9, 10, 12], 3), 0, "middle")
            story.die(first_death)
            story.disk.crash_at(number, when)
            try:
                story.place = story.open()
                break
            except Crashed:
                story.die(second_death)
            story.place = story.open()
            number += 1
        crashes += number
    assert crashes > 20


@pytest.mark.parametrize("seed", range(40))
def test_a_new_snapshot_is_never_there_without_its_journal(seed: int) -> None:
    """Power fails when the snapshot has its name and nothing has made that durable: the disk
    may keep the name and drop what was named before it."""
    story = Story(seed)
    story.die("process")
    rehearsal = story.disk.fork()
    trace = rehearsal.trace()
    Embedded(rehearsal)
    renamed = [operation for operation, _ in trace].index("rename")
    story.disk.crash_at(renamed, "after")
    with pytest.raises(Crashed):
        story.open()
    story.die("some")
    story.place = story.open()


@settings(
    deadline=None,
    max_examples=100,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    st.integers(0, 9_999),
    st.lists(
        st.tuples(
            st.integers(1, 12),
            st.integers(1, 6),
            st.integers(0, 40),
            st.sampled_from(["before", "middle", "after"]),
            st.sampled_from(DEATHS),
        ),
        min_size=1,
        max_size=5,
    ),
)
def test_any_number_of_deaths_in_a_row_loses_nothing_answered(
    seed: int, lives: list[tuple[int, int, int, When, Death]]
) -> None:
    story = Story(seed)
    first = 0
    for count, group_size, number, when, death in lives:
        numbers = list(range(first, first + 3 * count))
        # Each life has topics of its own: which writes of the one before were done is open.
        first += 3 * count
        story.write_and_die((numbers, group_size), number, when)
        story.die(death)
        story.place = story.open()


@pytest.mark.parametrize("death", DEATHS)
def test_a_clean_stop_outlives_whatever_comes_next(death: Death) -> None:
    story = Story()
    story.write(NUMBERS, 4)
    story.place.coordination.close()
    story.place.wait_for_all()
    story.die(death)
    story.place = story.open()
