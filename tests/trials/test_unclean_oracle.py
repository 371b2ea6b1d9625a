"""The explorer's oracle where elections may be unclean: what is lost with one is given up, and
everything else holds as ever (E3)."""

from collections.abc import Iterable

import pytest

from support.watched import Watched, number
from tidelog.cluster.image import NO_LEADER
from tidelog.cluster.znodes import Assignment, State
from tidelog.trials.unclean import UncleanOracle
from tidelog.trials.violation import Violation


class Unclean(Watched):
    """A and B are in sync and have two records, C has the first."""

    def __init__(self, min_isr: int = 1) -> None:
        self.is_allowed = True
        self.gone: set[int] = set()
        self.elected = 0
        self.lost: list[int] = []
        self.known_ends: list[int] = []
        super().__init__("ABC", min_isr)
        self.oracle.assigned(Assignment(replicas=(1, 2, 3)))
        self.lead("A", isr="AB")
        self.write("A", 1, 2)
        self.settle("B")
        self.acknowledge("A", 1)
        self.acknowledge("A", 2)
        self["C"].log.append([(1, 1)])

    def _oracle(self, min_isr: int) -> UncleanOracle:
        return UncleanOracle(0, min_isr, self)

    def may_be_unclean(self) -> bool:
        return self.is_allowed

    def elected_uncleanly(self) -> None:
        self.elected += 1

    def went_back(self, _index: int, end: int) -> None:
        self.known_ends.append(end)

    def gave_up(self, values: Iterable[int]) -> None:
        self.lost += values

    def leave(self, *names: str) -> None:
        """They are not registered any more, and do not know it."""
        self.gone.update(map(number, names))

    def live_epoch(self, broker_id: int) -> int | None:
        return None if broker_id in self.gone else super().live_epoch(broker_id)


def violated(invariant: str) -> "pytest.RaisesExc[Violation]":
    return pytest.raises(Violation, match=rf"^{invariant}:")


def test_what_an_unclean_leader_lacks_is_given_up_and_its_offsets_are_given_again() -> None:
    machines = Unclean()
    machines.leave("A", "B")
    machines.lead("C", isr="C", told="C")
    assert (machines.elected, machines.lost, machines.known_ends) == (1, [2], [1])
    machines.write("C", 3)
    machines.acknowledge("C", 3)
    assert machines.oracle.acknowledged == {0: 1, 1: 3}
    assert machines.oracle.committed == machines["C"].log.records


def test_what_it_has_is_not_given_up() -> None:
    machines = Unclean()
    machines.leave("A", "B")
    machines.lead("C", isr="C", told="C")
    machines["C"].log.truncate_suffix(0)
    machines.replica("C").was_cut()
    with violated("V3"):
        machines.oracle.cut(number("C"), 0)


def test_follower_of_a_deposed_leader_reads_on_in_what_was_committed_there() -> None:
    machines = Unclean()
    machines.leave("A", "B")
    machines.lead("C", isr="C", told="C")
    machines.write("C", 3)
    machines.write("A", 4)
    machines.settle("B")
    machines.acknowledge("A", 4)
    assert machines.lost == [2, 4]
    machines.oracle.read(0, machines["B"].log.records)
    machines.oracle.read(0, machines["C"].log.records)
    assert machines.oracle.known_end == 2, "what is given up is not known"
    with violated("V8"):
        machines.oracle.read(1, [(1, 99)])


def test_replica_that_matches_its_log_with_the_new_leaders_has_what_is_committed_there() -> None:
    machines = Unclean()
    machines.leave("A", "B")
    machines.lead("C", isr="C")
    machines.write("C", 3)
    for name in "AB":
        machines.settle(name)
        assert machines.values(name) == [1, 3]
    machines["A"].log.records[1] = (2, 99)
    machines.oracle._seen[1].checked = 0
    with violated("V1"):
        machines.oracle.touched(1)


def test_deposed_leader_that_acknowledges_what_it_has_not_committed_is_noticed() -> None:
    """V2."""
    machines = Unclean()
    machines.leave("A", "B")
    machines.lead("C", isr="C", told="C")
    machines.write("A", 4)
    with violated("V2"):
        machines.oracle.acked(2, 4, 0, machines.replica("A").leader_epoch)


def test_leader_that_began_anew_beyond_all_that_its_line_had_keeps_its_offsets() -> None:
    """It was given a place of the line before its own, of which it has nothing yet."""
    machines = Unclean()
    machines.leave("A", "B")
    machines.lead("C", isr="C", told="C")
    machines.write("C", 3, 4)
    assert len(machines.oracle.committed) == 3
    machines["B"].log.begin_at(3)
    machines.replica("B").was_cut()
    machines.oracle.cut(number("B"), 3)
    machines.gone = {number("A"), number("C")}
    machines.lead("B", isr="B", told="B")
    machines.write("B", 5)
    assert machines.oracle.committed[3:] == machines["B"].log.records


def test_nobody_leads_uncleanly_where_it_is_not_allowed() -> None:
    machines = Unclean()
    machines.is_allowed = False
    machines.leave("A", "B")
    with violated("E3"):
        machines.lead("C", isr="C", told="")


def test_nobody_leads_uncleanly_while_one_of_the_set_is_there() -> None:
    machines = Unclean()
    machines.leave("A")
    with violated("E3"):
        machines.lead("C", isr="C", told="")


def test_one_of_several_leads_uncleanly_if_the_others_count_no_more_and_two_have_to() -> None:
    """With a min ISR of two one alone may have lost something; not if it was alone before."""
    machines = Unclean(min_isr=2)
    machines.leave("A", "B")
    machines.lead("B", isr="B", told="B")
    assert (machines.elected, machines.oracle.is_exposed) == (1, True)
    machines.lead("B", isr="B", told="B")
    assert machines.elected == 1


def test_member_that_leads_while_the_others_stay_eligible_is_elected_cleanly() -> None:
    machines = Unclean(min_isr=2)
    machines.leave("A", "B")
    state = State(leader=2, leader_epoch=5, isr=(2,), elr=(1,), controller_epoch=1)
    machines.oracle.state_written(state, 5)
    assert machines.elected == 0
    state = State(leader=NO_LEADER, leader_epoch=6, isr=(2,), elr=(1,), controller_epoch=1)
    machines.oracle.state_written(state, 6)
    assert machines.elected == 0


def test_leader_that_begins_after_the_next_has_a_line_of_its_own() -> None:
    """B was elected uncleanly and hears of it when C, elected after it, leads already."""
    machines = Unclean(min_isr=1)
    machines.leave("A", "B", "C")
    state = State(leader=3, leader_epoch=2, isr=(3,), controller_epoch=1)
    machines.oracle.state_written(state, 2)
    machines.partition_epoch, machines.epoch = 2, 2
    machines.lead("B", isr="B", told="B")
    machines.write("B", 3)
    machines.epoch = 2
    machines.tell("C", "C", "C")
    machines.write("C", 4)
    machines.oracle.acked(1, 4, 0, 2)
    assert machines.elected == 2
    assert 4 in machines.lost
    assert [value for _, value in machines.oracle.committed] == [1, 2, 3]
