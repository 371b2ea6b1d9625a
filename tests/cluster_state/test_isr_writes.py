"""A leader's ISR change is written once, refused for certain, or its leader is told to go (X15).

The simulated ensemble is shared by the leader's session and one of the controller's.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tidelog.base.coordination import (
    CoordinationError,
    Create,
    Delete,
    Done,
    Node,
    Operation,
    SetData,
    Trouble,
    Watch,
    Written,
)
from tidelog.base.ids import TopicIdPartition
from tidelog.cluster import paths
from tidelog.cluster.image import PartitionInfo
from tidelog.cluster.isr_change import expanded, shrunk
from tidelog.cluster.isr_writes import Gone, IsrWriter, Outcome, Refused, Wrote
from tidelog.cluster.topic_nodes import state_data, written
from tidelog.cluster.znodes import id_text
from tidelog.world.sim.coordination import CoordinationFaults, SimCoordination
from tidelog.world.sim.ensemble import SimEnsemble
from tidelog.world.sim.loop import SimLoop

STATE = paths.state("t", 0)
NAME = TopicIdPartition(bytes(15) + b"\1", "t", 0)
MADE_AGAIN = TopicIdPartition(bytes(15) + b"\2", "t", 0)
FIRST = PartitionInfo(
    replicas=(1, 2, 3),
    isr=(1, 2),
    leader=1,
    leader_epoch=5,
    state_version=0,
    controller_epoch=1,
    broker_epochs={1: 10, 2: 20},
)
LARGER = expanded(FIRST, 3, 30, 2)
SMALLER = shrunk(FIRST, [2], 2)
OTHER_LEADER = replace(shrunk(replace(FIRST, leader=2), [1], 1), leader_epoch=6, controller_epoch=2)


class StaleReads(SimCoordination):
    """Reads at a server that is behind: so many reads show the node as it was first."""

    stale: Node | None = None
    stale_reads = 0

    def get(self, path: str, done: Done[Node], watch: Watch | None = None) -> None:
        if self.stale is None or self.stale_reads == 0:
            super().get(path, done, watch)
        else:
            self.stale_reads -= 1
            old = self.stale
            super().get(path, lambda _: done(old), watch)


class FailingJournal(SimCoordination):
    """A coordinator in the broker's own process whose disk is full."""

    def write(self, operations: Sequence[Operation], done: Done[list[Written]]) -> None:
        error = CoordinationError(Trouble.storage, operations[0].path)
        self.exists("/", lambda _: done(error))


class World:
    def __init__(self, seed: int = 0, faults: CoordinationFaults | None = None) -> None:
        self.loop = SimLoop(seed=seed)
        self.ensemble = SimEnsemble(self.loop.clock)
        self.coordination = StaleReads(self.loop, self.ensemble, faults)
        self.controller = self.ensemble.begin_session(lambda *_: None)
        self.writer = IsrWriter(self.coordination)
        for path in ("/brokers", "/brokers/topics"):
            self.ensemble.write(self.controller, [Create(path=path)])
        self.create(NAME, FIRST)

    def create(self, name: TopicIdPartition, state: PartitionInfo) -> None:
        nodes = [Create(path=path) for path in _parents(name)]
        state_node = Create(path=STATE, data=state_data(state))
        self.ensemble.write(self.controller, [*nodes, state_node])

    def delete(self, name: TopicIdPartition) -> None:
        nodes = [Delete(path=path) for path in reversed([*_parents(name), STATE])]
        self.ensemble.write(self.controller, nodes)

    def put(self, state: PartitionInfo) -> None:
        """What the controller writes."""
        self.ensemble.write(self.controller, [SetData(path=STATE, data=state_data(state))])

    def write(self, before: PartitionInfo, after: PartitionInfo) -> Outcome:
        outcomes: list[Outcome] = []
        self.writer.write(NAME, before, after, outcomes.append)
        assert not outcomes, "an answer never comes inside the call"
        assert self.writer.is_writing(NAME)
        assert self.loop.run_until(lambda: bool(outcomes))
        assert not self.writer.is_writing(NAME)
        self.loop.run_for(5000)
        assert len(outcomes) == 1
        return outcomes[0]

    def isr(self) -> list[int]:
        found = json.loads(self.ensemble.tree.get(STATE).data)
        assert isinstance(found["isr"], list)
        return found["isr"]


def _parents(name: TopicIdPartition) -> list[str]:
    id_node = paths.incarnation("t", id_text(name.topic_id))
    return [paths.topic("t"), id_node, paths.partitions("t"), paths.partition("t", 0)]


@pytest.mark.parametrize("after", [LARGER, SMALLER])
def test_a_change_is_written_on_condition_of_the_version(after: PartitionInfo) -> None:
    """V10."""
    world = World()
    assert world.write(FIRST, after) == Wrote(state=written(after))
    assert world.isr() == list(after.isr)
    assert world.ensemble.tree.get(STATE).stat.version == 1


def test_a_leader_that_is_no_longer_one_changes_nothing() -> None:
    """X15."""
    world = World()
    world.put(OTHER_LEADER)
    assert world.write(FIRST, SMALLER) == Gone(state=replace(OTHER_LEADER, state_version=1))
    assert world.isr() == [2]


def test_a_leader_of_an_earlier_epoch_changes_nothing() -> None:
    """X15: the same broker leads again, but not on from what it was."""
    world = World()
    again = replace(FIRST, leader_epoch=6)
    world.put(again)
    assert world.write(FIRST, SMALLER) == Gone(state=replace(again, state_version=1))


def test_a_leader_that_missed_a_change_goes_on_from_it() -> None:
    """X15, H6: otherwise it would try with the old version for ever."""
    world = World()
    world.put(SMALLER)
    missed = replace(SMALLER, state_version=1)
    assert world.write(FIRST, LARGER) == Refused(state=missed)
    larger = expanded(missed, 3, 30, 2)
    assert world.write(missed, larger) == Wrote(state=replace(larger, state_version=2))


def lose(world: World, *, after: bool) -> Callable[[float], None]:
    def set_rate(rate: float) -> None:
        faults = world.coordination.faults
        if after:
            faults.lost_after = rate
        else:
            faults.lost_before = rate

    return set_rate


def write_and_lose(world: World, after: PartitionInfo, *, done: bool) -> Outcome:
    """The connection is lost over the first write only."""
    outcomes: list[Outcome] = []
    set_rate = lose(world, after=done)
    set_rate(1.0)
    world.writer.write(NAME, FIRST, after, outcomes.append)
    world.loop.run_for(20)
    set_rate(0.0)
    assert world.loop.run_until(lambda: bool(outcomes))
    return outcomes[0]


def test_a_change_whose_answer_was_lost_is_known_to_stand_there() -> None:
    """X15: a lost answer must not leave the leader with an old version."""
    world = World()
    assert write_and_lose(world, LARGER, done=True) == Wrote(state=written(LARGER))
    assert world.isr() == [1, 2, 3]


def test_a_change_that_was_lost_on_its_way_is_known_not_to_stand_there() -> None:
    """X15."""
    world = World()
    assert write_and_lose(world, LARGER, done=False) == Refused(state=FIRST)
    assert world.isr() == [1, 2]


def test_a_read_that_is_behind_does_not_pass_for_a_refusal() -> None:
    """X13, X22: else a leader would commit without a member that is in the ISR."""
    world = World()
    world.coordination.stale = world.ensemble.tree.get(STATE)
    world.coordination.stale_reads = 2
    assert write_and_lose(world, LARGER, done=True) == Wrote(state=written(LARGER))
    assert world.coordination.stale_reads == 0


def test_a_session_that_expired_ends_the_leadership() -> None:
    """X22."""
    world = World()
    outcomes: list[Outcome] = []
    world.writer.write(NAME, FIRST, LARGER, outcomes.append)
    world.coordination.expire()
    assert world.loop.run_until(lambda: bool(outcomes))
    assert outcomes == [Gone(state=None)]
    assert not world.writer.is_writing(NAME)


def test_a_session_that_expired_after_the_connection_was_lost_ends_the_leadership() -> None:
    """X22: the node still names this broker, but as the one it was."""
    world = World()
    outcomes: list[Outcome] = []
    world.coordination.faults.lost_before = 1.0
    world.coordination.faults.away_ms_max = 1
    world.writer.write(NAME, FIRST, LARGER, outcomes.append)
    world.loop.run_for(50)
    assert not outcomes
    world.coordination.faults.lost_before = 0.0
    world.coordination.expire()
    assert world.loop.run_until(lambda: bool(outcomes))
    assert outcomes == [Gone(state=None)]


def test_a_journal_that_cannot_be_written_refuses_the_change() -> None:
    world = World()
    world.writer = IsrWriter(FailingJournal(world.loop, world.ensemble))
    assert world.write(FIRST, LARGER) == Refused(state=FIRST)


def test_a_topic_that_was_deleted_has_nothing_to_write() -> None:
    world = World()
    world.delete(NAME)
    assert world.write(FIRST, LARGER) == Gone(state=None)


def test_a_change_that_is_under_way_does_not_reach_a_topic_of_the_same_name() -> None:
    """X15: the new state node has the version that the write was meant for."""
    world = World()
    outcomes: list[Outcome] = []
    world.writer.write(NAME, FIRST, SMALLER, outcomes.append)
    world.delete(NAME)
    world.create(MADE_AGAIN, FIRST)
    assert world.loop.run_until(lambda: bool(outcomes))
    assert outcomes == [Gone(state=None)]
    assert world.isr() == [1, 2]


@pytest.mark.parametrize("made_again", [FIRST, LARGER])
def test_the_state_of_another_topic_of_that_name_does_not_answer_for_a_lost_change(
    made_again: PartitionInfo,
) -> None:
    """X15: neither as what the leader goes on from, nor as what it wrote."""
    world = World()
    outcomes: list[Outcome] = []
    world.coordination.faults.lost_before = 1.0
    world.writer.write(NAME, FIRST, LARGER, outcomes.append)
    world.loop.run_for(20)
    world.delete(NAME)
    world.create(MADE_AGAIN, made_again)
    world.coordination.faults.lost_before = 0.0
    assert world.loop.run_until(lambda: bool(outcomes))
    assert outcomes == [Gone(state=None)]


def test_a_topic_made_again_does_not_wait_for_a_change_of_its_predecessor() -> None:
    world = World()
    outcomes: list[Outcome] = []
    world.writer.write(NAME, FIRST, SMALLER, outcomes.append)
    world.delete(NAME)
    world.create(MADE_AGAIN, FIRST)
    world.writer.write(MADE_AGAIN, FIRST, LARGER, outcomes.append)
    assert world.loop.run_until(lambda: len(outcomes) == 2)
    assert outcomes == [Gone(state=None), Wrote(state=written(LARGER))]
    assert world.isr() == [1, 2, 3]


def test_a_node_that_cannot_be_understood_is_not_this_leaders_any_more() -> None:
    """Z15."""
    world = World()
    world.ensemble.write(world.controller, [SetData(path=STATE, data=b"nonsense")])
    assert world.write(FIRST, LARGER) == Gone(state=None)


def test_one_change_of_a_partition_is_under_way_at_a_time() -> None:
    world = World()
    world.writer.write(NAME, FIRST, LARGER, lambda _: None)
    with pytest.raises(AssertionError):
        world.writer.write(NAME, FIRST, SMALLER, lambda _: None)
    world.loop.run_for(1000)
    now = written(LARGER)
    assert isinstance(world.write(now, shrunk(now, [2], 2)), Wrote)


def test_a_leader_writes_its_own_leadership_only() -> None:
    world = World()
    with pytest.raises(AssertionError):
        world.writer.write(NAME, FIRST, OTHER_LEADER, lambda _: None)


@pytest.mark.parametrize("seed", range(60))
def test_an_outcome_is_true_whatever_is_lost(seed: int) -> None:
    """X15, H6: a leader that goes by the outcomes gets its changes through."""
    faults = CoordinationFaults(lost_before=0.3, lost_after=0.3, away_ms_max=20)
    world = World(seed, faults)
    known, wanted = FIRST, [3]
    for _ in range(200):
        member = wanted[-1]
        if member in known.isr:
            wanted.append(5 - member)
            after = shrunk(known, [member], 2)
        else:
            after = expanded(known, member, member * 10, 2)
        outcome = world.write(known, after)
        assert not isinstance(outcome, Gone)
        node = world.ensemble.tree.get(STATE)
        assert outcome.state.state_version == node.stat.version
        assert state_data(outcome.state) == node.data
        assert isinstance(outcome, Wrote) == (outcome.state.isr == after.isr)
        known = outcome.state
        if len(wanted) == 4:
            return
    pytest.fail("the leader's changes never came through")
