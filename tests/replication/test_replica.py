"""The machine of a replica by itself: what each event does to it, and what it refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.machines import Machines, number
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.replication.isr import Committed, Isr, PendingExpand, PendingShrink
from tidelog.replication.remote import NEVER, NO_OFFSET, Remote
from tidelog.replication.replica import NOBODY, NOWHERE, Replica, Role
from tidelog.replication.verdicts import Verdict
from tidelog.trials.model_log import ModelLog


def isr_of(machines: Machines) -> Isr:
    return machines.replica("A").isr


def no_broker(_broker_id: int) -> int | None:
    return None


def test_replica_that_was_told_nothing_serves_nobody() -> None:
    """L6."""
    replica = Machines().replica("A")
    assert replica.role is Role.nobody
    with pytest.raises(KafkaError) as refused:
        replica.check_leads(0)
    assert refused.value.code is ErrorCode.not_leader_or_follower
    assert not replica.advance()
    replica.expire(1)
    assert replica.answered(-1, 0, None, 0) is Verdict.drop


@pytest.mark.parametrize(("saved", "taken"), [(0, 3), (4, 4), (9, 5), (-1, 3)])
def test_saved_watermark_lies_within_the_log(saved: int, taken: int) -> None:
    log = ModelLog([(0, 1), (0, 2)], log_start_offset=3)
    assert Replica(1, log, saved, no_broker).high_watermark == taken


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (-1, None),
        (2, None),
        (1, ErrorCode.fenced_leader_epoch),
        (3, ErrorCode.unknown_leader_epoch),
    ],
)
def test_leader_fences_requests_of_other_epochs(asked: int, code: ErrorCode | None) -> None:
    """L6."""
    machines = Machines()
    machines.epoch = 1
    machines.lead("A", isr="A")
    if code is None:
        machines.replica("A").check_leads(asked)
        return
    with pytest.raises(KafkaError) as refused:
        machines.replica("A").check_leads(asked)
    assert refused.value.code is code


def test_broker_that_holds_no_replica_is_refused_as_a_follower() -> None:
    machines = Machines("AB")
    machines.lead("A", isr="A")
    with pytest.raises(KafkaError) as refused:
        machines.replica("A").fetched(7, 1, (0, -1, 0), 0)
    assert refused.value.code is ErrorCode.not_leader_or_follower


def test_fetch_of_an_earlier_incarnation_is_refused() -> None:
    """X19."""
    machines = Machines("AB")
    machines.lead("A", isr="A")
    late = machines.ask("B")
    machines.restart("B")
    machines.tell("B", "A", "A")
    machines.fetch("B")
    assert machines.serve("A", late).error == ErrorCode.stale_broker_epoch


def test_incarnation_that_diverges_ends_what_was_known_of_the_one_before() -> None:
    """X8, X29: B was at 2, restarts without its last records and with others, and asks. Until its
    log fits, nothing that it had may count."""
    machines = Machines()
    machines.hold("B", "e0:m7")
    machines.lead("A", isr="ABC")
    machines.write("A", 1, 2)
    machines.settle("B")
    machines.restart("B", lost=2)
    machines["B"].log.append([(0, 7)])
    machines.tell("B", "A", "ABC")
    assert machines.fetch("B") is Verdict.truncate
    remote = machines.replica("A").remotes[number("B")]
    assert not remote.has_fetched
    assert remote.broker_epoch == machines.live[number("B")]
    machines.settle("C")
    assert machines.replica("A").high_watermark == 0


def test_leader_without_any_record_tells_where_its_epoch_began() -> None:
    """L2: a follower that has records of an older epoch is to drop them all."""
    machines = Machines("AB")
    machines.hold("B", "e1:m1 e1:m2")
    machines.epoch = 1
    machines.lead("A", isr="A")
    assert machines.replica("A").end_of(1) == (1, 0)
    assert machines.fetch("B") is Verdict.truncate
    assert machines["B"].log.log_end_offset == 0


def test_leader_whose_records_are_all_deleted_tells_where_its_epoch_began() -> None:
    machines = Machines("AB")
    machines["A"].log.begin_at(10)
    machines.hold("B", " ".join(f"e1:m{value}" for value in range(12)))
    machines.epoch = 1
    machines.lead("A", isr="A")
    assert machines.fetch("B") is Verdict.truncate
    assert machines["B"].log.log_end_offset == 10


def test_follower_whose_log_begins_above_the_common_end_begins_anew_there() -> None:
    """It happens after an unclean election only."""
    machines = Machines("AB")
    machines.hold("A", "e2:m1 e2:m2")
    machines["B"].log.begin_at(5)
    machines["B"].log.append([(1, 8), (1, 9)])
    machines.epoch = 2
    machines.lead("A", isr="A")
    assert machines.fetch("B") is Verdict.restart
    assert machines["B"].log.log_start_offset == 0
    machines.settle("B")
    assert machines.values("B") == [1, 2]


def test_news_of_the_same_epoch_that_are_not_newer_leave_a_proposal_open() -> None:
    """D5: the write may still land, so who is to be added counts on."""
    machines = Machines()
    machines.lead("A", isr="AB")
    machines.fetch("C")
    proposed = PendingExpand((1, 2), 3, machines.live[3])
    assert isr_of(machines) == proposed
    machines.tell("A", "A", "AB")
    assert isr_of(machines) == proposed
    machines.partition_epoch += 1
    machines.tell("A", "A", "AB")
    assert isr_of(machines) == Committed((1, 2)), "a later version: that write cannot land any more"


def test_answer_to_a_write_that_is_older_than_what_is_known_is_ignored() -> None:
    """I4: the controller has changed the state since, and told it first."""
    machines = Machines()
    machines.lead("A", isr="AB")
    machines.fetch("C")
    replica = machines.replica("A")
    replica.become_leader((machines.epoch, 3), (1, 2, 3), (1,), 0)
    replica.isr_written((1, 2, 3), 2)
    assert replica.isr == Committed((1,))
    assert replica.partition_epoch == 3


def test_leader_goes_on_in_its_epoch_with_what_it_knows_of_its_followers() -> None:
    machines = Machines()
    machines.lead("A", isr="ABC")
    machines.write("A", 1)
    machines.settle("B")
    machines.partition_epoch += 1
    machines.tell("A", "A", "AB")
    assert machines.replica("A").high_watermark == 1
    assert machines.replica("A").epoch_start == 0


def test_new_epoch_forgets_what_was_fetched_in_the_one_before() -> None:
    """D3."""
    machines = Machines("AB")
    machines.lead("A", isr="AB")
    machines.settle("B")
    machines.lead("A", isr="AB")
    machines.write("A", 1)
    assert machines.replica("A").high_watermark == 0
    assert not machines.replica("A").remotes[number("B")].has_fetched


@pytest.mark.parametrize("event", ["leads", "follows"])
def test_leader_epoch_that_falls_is_a_bug_of_the_caller(event: str) -> None:
    """V9."""
    machines = Machines("AB")
    machines.lead("A", isr="A")
    replica = machines.replica("A")
    events = {
        "leads": lambda: replica.become_leader((0, 9), (1, 2), (1,), 0),
        "follows": lambda: replica.become_follower(2, (0, 9)),
    }
    with pytest.raises(AssertionError, match="leader epoch fell"):
        events[event]()


def test_leader_that_resigns_forgets_its_followers() -> None:
    machines = Machines("AB")
    machines.lead("A", isr="AB")
    machines.replica("A").resign()
    assert machines.replica("A").role is Role.nobody
    assert machines.replica("A").remotes == {}
    assert machines.replica("A").leader_epoch == 1, "what it knows of epochs stays"


def test_partition_without_a_leader_is_followed_by_nobody() -> None:
    machines = Machines("AB")
    machines.lead("A", isr="AB")
    replica = machines.replica("B")
    replica.become_follower(NOBODY, (2, 2))
    assert replica.role is Role.nobody
    assert replica.answered(2, 0, None, 0) is Verdict.drop


def test_one_change_of_the_set_is_proposed_at_a_time() -> None:
    machines = Machines()
    machines.lead("A", isr="AB")
    machines.write("A", 1)
    machines.fetch("C")
    machines.now_ms += 60_000
    machines.expire("A")
    assert isr_of(machines) == PendingExpand((1, 2), 3, machines.live[3])
    machines.write_isr("A")
    machines.expire("A")
    assert isr_of(machines) == PendingShrink((1, 2, 3), (2, 3))


def test_follower_that_is_not_registered_is_not_proposed() -> None:
    """D4."""
    machines = Machines()
    machines.lead("A", isr="AB")
    del machines.live[number("C")]
    replica = machines.replica("A")
    assert replica.fetched(number("C"), 3, (0, -1, 0), 0) is None
    assert isr_of(machines) == Committed((1, 2))
    machines.live[number("C")] = 4
    replica.fetched(number("C"), 3, (0, -1, 0), 0)
    assert isr_of(machines) == Committed((1, 2)), "another incarnation than the one registered"
    replica.fetched(number("C"), 4, (0, -1, 0), 0)
    assert isr_of(machines) == PendingExpand((1, 2), 3, 4)


def test_smaller_watermark_of_the_leader_does_not_lower_the_follower_s() -> None:
    machines = Machines("AB")
    machines.hold("B", "e1:m1 e1:m2", high_watermark=2)
    machines.lead("A", isr="A")
    assert not machines.replica("B").followed(1)
    assert machines.replica("B").high_watermark == 2


def test_low_watermark_is_the_smallest_log_start_of_the_living() -> None:
    """S5."""
    machines = Machines()
    machines["A"].log.begin_at(5)
    machines["B"].log.begin_at(5)
    machines["C"].log.begin_at(5)
    machines.lead("A", isr="ABC")
    replica = machines.replica("A")
    assert replica.low_watermark() == NO_OFFSET, "not known before they have fetched"
    machines.fetch("B")
    replica.fetched(number("C"), machines.live[number("C")], (5, -1, 3), 0)
    assert replica.low_watermark() == 3
    del machines.live[number("C")]
    assert replica.low_watermark() == 5


def test_leader_tells_its_watermark_once_that_has_reached_the_start_of_its_epoch() -> None:
    """I5: one that goes on leading has committed everything itself, and knows it."""
    machines = Machines("AB", min_isr=2)
    machines.hold("A", "e1:m1 e1:m2", high_watermark=1)
    machines.epoch = 1
    machines.lead("A", isr="AB")
    replica = machines.replica("A")
    assert (replica.high_watermark, replica.settled_at) == (1, 2)
    machines.write("A", 3)
    machines.lead("A", isr="AB")
    assert (replica.epoch_start, replica.settled_at) == (3, 2)
    machines.epoch += 1
    machines.lead("A", isr="AB")
    assert replica.settled_at == 3, "another may have led in the epoch between"


def test_nothing_is_committed_while_members_of_too_small_a_set_are_remembered() -> None:
    """D8: also where the set is large enough for a smaller min ISR; then it is written again."""
    machines = Machines(min_isr=1)
    machines.lead("A", isr="A")
    replica = machines.replica("A")
    replica.elr = (2,)
    machines.write("A", 1)
    assert replica.high_watermark == 0
    machines.expire("A")
    assert isr_of(machines) == PendingShrink((1,), ())
    replica.elr = ()
    machines.write_isr("A")
    assert replica.high_watermark == 1


def test_follower_that_asked_too_early_is_reconsidered() -> None:
    """I3: it was not known to be registered then, and need not ask again for long."""
    machines = Machines()
    machines.lead("A", isr="A")
    replica = machines.replica("A")
    epoch = machines.live.pop(number("B"))
    replica.fetched(number("B"), epoch, (0, -1, 0), 0)
    replica.reconsider(0)
    assert isr_of(machines) == Committed((1,)), "still not known"
    machines.live[number("B")] = epoch
    replica.reconsider(0)
    assert isr_of(machines) == PendingExpand((1,), 2, epoch)
    machines.replica("B").reconsider(0)
    assert machines.replica("B").isr == Committed(()), "only a leader proposes"


def test_follower_that_is_behind_or_restarted_is_not_reconsidered() -> None:
    machines = Machines()
    machines.lead("A", isr="A")
    machines.write("A", 1)
    replica = machines.replica("A")
    replica.fetched(number("B"), machines.live[number("B")], (0, -1, 0), 0)
    machines.live[number("C")] += 10
    replica.reconsider(0)
    assert isr_of(machines) == Committed((1,))


def test_follower_that_waits_at_the_log_end_was_caught_up_until_then() -> None:
    """I1."""
    machines = Machines("AB")
    machines.lead("A", isr="AB")
    replica = machines.replica("A")
    replica.was_caught_up(number("B"), 500)
    assert replica.remotes[2].last_caught_up_ms == 0, "it has not fetched in this epoch"
    machines.fetch("B")
    replica.was_caught_up(number("B"), 500)
    replica.was_caught_up(number("B"), 300)
    replica.was_caught_up(7, 900)
    assert replica.remotes[2].last_caught_up_ms == 500


def test_followers_that_have_what_is_durable_are_in_sync_while_the_leader_flushes() -> None:
    """I1: they are not told of the rest yet. One that is not in the set may come back."""
    machines = Machines()
    machines.lead("A", isr="AB")
    replica = machines.replica("A")
    machines.fetch("B")
    machines.now_ms += 60_000
    replica.flushing_from = replica.log.log_end_offset
    machines.write("A", 1)
    machines.expire("A")
    assert isr_of(machines) == Committed((1, 2))
    replica.fetched(number("C"), machines.live[number("C")], (0, -1, 0), machines.now_ms)
    assert isr_of(machines) == PendingExpand((1, 2), 3, machines.live[3])
    machines.write_isr("A")
    replica.isr = Committed((1, 2))
    replica.reconsider(machines.now_ms)
    assert isr_of(machines) == PendingExpand((1, 2), 3, machines.live[3])


def test_follower_that_asks_while_the_leader_flushes_was_caught_up_then() -> None:
    """I1: it has had everything for as long, and has a while to fetch what comes after that."""
    machines = Machines("AB")
    machines.lead("A", isr="AB")
    replica = machines.replica("A")
    machines.fetch("B")
    machines.now_ms += 60_000
    replica.flushing_from = replica.log.log_end_offset
    machines.write("A", 1)
    machines.serve("A", machines.ask("B"))
    replica.flushing_from = NOWHERE
    machines.now_ms += 100
    machines.expire("A")
    assert isr_of(machines) == Committed((1, 2))


@pytest.mark.parametrize(
    ("fetches", "caught_up"),
    [
        ([(10, 10, 100)], 100),
        ([(9, 10, 100)], NEVER),
        ([(9, 10, 100), (10, 12, 200)], 100),
        ([(9, 10, 100), (9, 12, 200)], NEVER),
        ([(9, 10, 100), (10, 12, 200), (12, 14, 300)], 200),
        ([(10, 10, 100), (9, 12, 200), (11, 14, 300)], 100),
    ],
)
def test_caught_up_is_the_fetch_that_reached_the_end_of_then_or_now(
    fetches: list[tuple[int, int, int]], caught_up: int
) -> None:
    """I1."""
    remote = Remote(NEVER)
    for offset, leader_end, now_ms in fetches:
        remote.fetched(offset, 0, leader_end, now_ms)
    assert remote.last_caught_up_ms == caught_up


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=8))
def test_any_two_logs_are_equal_after_the_follower_has_settled(
    runs: list[tuple[int, int]],
) -> None:
    """L2: whatever epochs they were written in, as long as one epoch has one leader."""
    machines = Machines()
    value = 0
    for leader, count in runs:
        name = "ABCA"[leader]
        machines.lead(name, isr=name, told=name)
        machines.write(name, *range(value, value + count))
        value += count
    machines.lead("A", isr="A")
    machines.write("A", value)
    for name in "BC":
        machines.settle(name)
        machines.settle(name)
        machines.settle(name)
        assert machines.values(name) == machines.values("A")
        assert machines[name].log.epochs.entries == machines["A"].log.epochs.entries
