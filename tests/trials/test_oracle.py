"""The explorer's oracle by hand: each invariant, kept and broken."""

from contextlib import nullcontext

import pytest

from support.watched import Watched, number
from tidelog.cluster.znodes import Assignment, State
from tidelog.replication.isr import Committed, PendingExpand
from tidelog.replication.remote import Remote
from tidelog.trials.clients import VALUES_EACH
from tidelog.trials.history import look_at_end
from tidelog.trials.oracle import Oracle
from tidelog.trials.violation import Violation
from tidelog.trials.world import World

LATE, FIRST, SECOND, REFUSED = range(VALUES_EACH, VALUES_EACH + 4)
"""Of one writer, in this order."""


def led(min_isr: int = 1) -> Watched:
    """A leads, B follows, m1 is committed and acknowledged."""
    machines = Watched("AB", min_isr)
    machines.lead("A", isr="AB")
    machines.write("A", 1)
    machines.settle("B")
    machines.acknowledge("A", 1)
    return machines


def violated(invariant: str) -> "pytest.RaisesExc[Violation]":
    return pytest.raises(Violation, match=rf"^{invariant}:")


def test_records_that_are_not_the_committed_ones_are_noticed_below_the_watermark() -> None:
    """V1."""
    machines = led()
    machines["B"].log.records[0] = (1, 99)
    machines.hold("B", "e1:m99", high_watermark=1)
    with violated("V1"):
        machines.oracle.touched(number("B"))


def test_leader_without_what_is_committed_is_noticed() -> None:
    """V2."""
    machines = led()
    machines.restart("B", lost=1)
    epoch = machines.live.pop(2)
    machines.lead("B", isr="B", told="")
    machines.live[2] = epoch
    with violated("V2"):
        machines.tell("B", "B", "B")


def test_value_that_is_acknowledged_and_not_committed_is_noticed() -> None:
    """V2."""
    machines = led()
    machines.write("A", 2)
    with violated("V2"):
        machines.oracle.acked(1, 2, 0)


def test_candidate_that_drops_what_is_committed_is_noticed() -> None:
    """V3."""
    machines = led()
    machines["B"].log.truncate_suffix(0)
    machines.replica("B").was_cut()
    with violated("V3"):
        machines.oracle.cut(number("B"), 0)


def test_member_that_lacks_what_is_committed_is_noticed_when_it_is_put_into_the_set() -> None:
    """V3; one that is not registered as recorded, or not registered, is no candidate."""
    machines = led()
    machines.copies[3] = machines["B"]
    machines.oracle.logs[number("B")].truncate_suffix(0)
    epochs = {1: machines.live[1], 2: machines.live[2]}
    state = State(leader=1, leader_epoch=1, isr=(1, 2), controller_epoch=1, broker_epochs=epochs)
    with violated("V3"):
        machines.oracle.state_written(state, 2)
    machines.live[2] += 10
    machines.oracle.state_written(state, 3)


def test_leader_that_does_not_count_a_member_is_noticed() -> None:
    """V4."""
    machines = led()
    machines.replica("A").isr = Committed((1,))
    with violated("V4"):
        machines.oracle.look_at_set(1)


def test_watermark_beyond_what_a_candidate_has_is_noticed() -> None:
    """V5."""
    machines = led()
    machines["A"].log.append([(1, 2)])
    remote = machines.replica("A").remotes[2]
    remote.log_end_offset = 2
    machines.replica("A").advance()
    with violated("V5"):
        machines.oracle.touched(1)


@pytest.mark.parametrize("entry", [(0, 0), (2, 0), (2, 5)])
def test_epochs_that_do_not_fit_the_records_are_noticed(entry: tuple[int, int]) -> None:
    """V6."""
    machines = led()
    epochs = machines["B"].log.epochs
    epochs._epochs.append(entry[0])
    epochs._starts.append(entry[1])
    with violated("V6"):
        machines.oracle.look_at_epochs(2)


def test_last_record_of_another_epoch_than_the_vector_says_is_noticed() -> None:
    """V6."""
    machines = led()
    machines["B"].log.records[-1] = (3, 1)
    with violated("V6"):
        machines.oracle.touched(2)


def test_watermark_that_falls_or_leaves_the_log_is_noticed() -> None:
    """V7."""
    machines = led()
    machines.replica("B").high_watermark = 2
    with violated("V7"):
        machines.oracle.touched(2)
    machines.replica("A").high_watermark = 0
    with violated("V7"):
        machines.oracle.touched(1)


@pytest.mark.parametrize("reason", ["too few", "not fetched", "behind"])
def test_watermark_that_moves_without_the_set_is_noticed(reason: str) -> None:
    """V7."""
    machines = led()
    machines["A"].log.append([(1, 2)])
    replica = machines.replica("A")
    replica.high_watermark = 2
    remote = replica.remotes[2] = Remote(0)
    remote.log_end_offset, remote.has_fetched = 2, True
    if reason == "too few":
        replica.min_isr = 3
    elif reason == "not fetched":
        remote.has_fetched = False
    else:
        remote.log_end_offset = 1
    with violated("V7"):
        machines.oracle.touched(1)


def test_reader_that_sees_something_else_is_noticed() -> None:
    """V8."""
    machines = led()
    machines.oracle.read(0, [(1, 1)])
    with violated("V8"):
        machines.oracle.read(0, [(1, 2)])
    with violated("V8"):
        machines.oracle.read(1, [(1, 1)])


def test_two_leaders_in_one_epoch_are_noticed() -> None:
    """V9."""
    machines = led()
    machines.replica("B").become_leader((1, 1), (1, 2), (1, 2), 0)
    with violated("V9"):
        machines.oracle.leads(2)


def test_incarnation_that_leads_in_the_epoch_of_the_one_before_is_noticed() -> None:
    """V9, D9."""
    machines = led()
    machines.restart("A")
    machines.replica("A").become_leader((1, 1), (1, 2), (1, 2), 0)
    with violated("V9"):
        machines.oracle.leads(1)


@pytest.mark.parametrize(("epoch", "version"), [(0, 2), (1, 1), (1, 0)])
def test_epochs_and_versions_of_the_state_that_do_not_grow_are_noticed(
    epoch: int, version: int
) -> None:
    """V9."""
    machines = led()
    with violated("V9"):
        machines.oracle.state_written(
            State(leader=1, leader_epoch=epoch, isr=(1,), controller_epoch=1), version
        )


@pytest.mark.parametrize("isr", [(), (2,)])
def test_set_without_its_leader_is_noticed(isr: tuple[int, ...]) -> None:
    """V10."""
    machines = led()
    with violated("V10"):
        machines.oracle.state_written(
            State(leader=1, leader_epoch=1, isr=isr, controller_epoch=1), 2
        )


def test_member_of_set_or_elr_that_is_no_replica_is_noticed() -> None:
    """V10."""
    machines = led()
    machines.oracle.assigned(Assignment(replicas=(1, 3), adding=(3,)))
    with violated("V10"):
        machines.oracle.look_at_members()
    machines.oracle.assigned(Assignment(replicas=(1, 2, 3), adding=(3,)))
    machines.oracle.look_at_members()
    outside = State(leader=1, leader_epoch=2, isr=(1,), controller_epoch=1, elr=(4,))
    with violated("V10"):
        machines.oracle.state_written(outside, 2)


def test_replica_that_is_removed_while_too_few_others_have_everything_is_noticed() -> None:
    """V11; one is enough where no more replicas are left."""
    machines = led(min_isr=2)
    machines.hold("C", "")
    machines.oracle.removed(number("C"))
    with violated("V11"):
        machines.oracle.removed(number("B"))
    alone = led(min_isr=2)
    alone.oracle.assigned(Assignment(replicas=(1,)))
    alone.oracle.removed(number("B"))


@pytest.mark.parametrize("start", [0, 2])
def test_start_that_moves_back_or_beyond_the_watermark_is_noticed(start: int) -> None:
    """V17."""
    machines = led()
    machines["A"].log.log_start_offset = 1
    machines.oracle.touched(1)
    assert machines.oracle.largest_start == 1
    machines["A"].log.append([(1, 2)])
    machines["A"].log.log_start_offset = start
    with violated("V17"):
        machines.oracle.touched(1)


@pytest.mark.parametrize("reason", ["elsewhere", "nobody asked", "restarted"])
def test_deletion_that_is_answered_too_early_is_noticed(reason: str) -> None:
    """S5; one that has restarted may start anywhere."""
    machines = led()
    leader = machines.replica("A")
    machines.oracle.deleted(leader, 0, machines.live.get)
    if reason == "elsewhere":
        leader.resign()
    elif reason == "restarted":
        machines.live[2] += 10
        machines.oracle.deleted(leader, 1, machines.live.get)
        return
    with violated("S5"):
        machines.oracle.deleted(leader, 1, machines.live.get)


def test_log_that_begins_above_what_was_deleted_has_everything() -> None:
    """V3; and one that begins there with other records has not."""
    machines = led()
    machines.write("A", 2)
    machines.settle("B")
    log = machines["B"].log
    log.begin_at(1)
    log.append([(1, 2)])
    machines.oracle.touched(2)
    state = State(leader=1, leader_epoch=1, isr=(1, 2), controller_epoch=1, broker_epochs={2: 2})
    machines.oracle.state_written(state, 2)
    log.records[0] = (1, 9)
    with violated("V3"):
        machines.oracle.state_written(state, 3)


@pytest.mark.parametrize("reason", ["behind", "restarted"])
def test_member_that_is_proposed_too_early_is_noticed(reason: str) -> None:
    """V10."""
    machines = led()
    replica = machines.replica("A")
    replica.isr = PendingExpand((1,), 2, machines.live[2] - (reason == "restarted"))
    if reason == "behind":
        replica.remotes[2].log_end_offset = 0
    with violated("V10"):
        machines.oracle.proposed(1, machines.live.get)


def test_acknowledgement_on_too_few_replicas_is_noticed() -> None:
    """V11; those that lost it with their power had it."""
    machines = led()
    machines.oracle.min_isr = 3
    with violated("V11"):
        machines.oracle.acked(0, 1, 0)
    machines.oracle.power_losses = 1
    machines.oracle.acked(0, 1, 0)


def test_offset_below_one_that_was_known_before_is_noticed() -> None:
    """V12."""
    machines = led()
    with violated("V12"):
        machines.oracle.acked(0, 1, 1)


def test_two_values_that_are_acknowledged_at_one_offset_are_noticed() -> None:
    """V12."""
    machines = led()
    machines.oracle.acknowledged[0] = 2
    with violated("V12"):
        machines.oracle.acked(0, 1, 0)


def test_value_that_is_appended_twice_is_noticed() -> None:
    """V13."""
    with violated("V13"):
        led().write("A", 1)


@pytest.mark.parametrize(
    ("committed", "invariant"),
    [
        ((FIRST, SECOND, FIRST), "V13"),
        ((SECOND, FIRST), "V13"),
        ((FIRST, REFUSED), "G1a"),
        ((SECOND,), "V2"),
        ((FIRST, SECOND, LATE), None),
    ],
)
def test_what_is_wrong_in_the_end_is_noticed(
    committed: tuple[int, ...], invariant: str | None
) -> None:
    """V2, V13: what is there twice or in another order than it was sent; what a writer has given up
    may come late. G1a: what was refused is nowhere."""
    world = World(1)
    world.refused.add(REFUSED)
    world.abandoned.add(LATE)
    oracle = Oracle(0, 1, world)
    oracle.committed += [(1, value) for value in committed]
    oracle.acknowledged[0] = FIRST if invariant == "V2" else committed[0]
    with violated(invariant) if invariant else nullcontext():
        look_at_end(world, oracle)
    world.loop.close()


def test_oracle_names_its_partition() -> None:
    machines = Watched("AB")
    assert str(Oracle(3, 1, machines)) == "partition 3:"
