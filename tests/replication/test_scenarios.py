"""Mistakes that others have made in replication, each with the rule and without it (X1-X29).

In the variant `right` the machine is as it is; in the other ones a rule is replaced by the
mistake, and the harm that the catalogue tells of must be done: or the scenario shows nothing.
"""

from typing import Any

import pytest

from support.machines import Machines, number
from support.replication_mutants import (
    answer_with_the_next_epoch,
    commit_below_min_isr,
    compare_deleted_epochs,
    compare_lengths_only,
    count_diverging_fetches,
    count_fetches_of_any_epoch,
    cut_to_watermark,
    expand_after_the_write,
    expand_at_the_watermark,
    keep_empty_epochs,
    keep_watermark_after_a_cut,
    remember_other_incarnations,
    serve_any_epoch,
    shrink_before_the_write,
    take_answers_of_any_epoch,
)
from tidelog.base.errors import ErrorCode
from tidelog.replication.isr import Committed, PendingExpand, PendingShrink
from tidelog.replication.replica import Replica, Role
from tidelog.replication.verdicts import Verdict

Mutants = tuple[Any, ...]


def variants(*wrong: Any) -> pytest.MarkDecorator:
    """Runs a scenario as it is, and without its rule."""
    return pytest.mark.parametrize("mutants", [(), wrong], ids=["right", "wrong"])


def apply(mutants: Mutants, patch: pytest.MonkeyPatch) -> bool:
    for mutant in mutants:
        mutant(patch)
    return not mutants


@variants(cut_to_watermark)
def test_x1_returning_follower_keeps_what_it_does_not_know_to_be_committed(
    mutants: Mutants, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_right = apply(mutants, monkeypatch)
    machines = Machines("AB")
    machines.hold("A", "e1:m1 e1:m2", high_watermark=1)
    machines.hold("B", "e1:m1 e1:m2", high_watermark=2)
    machines.lead("B", isr="AB")
    machines.restart("A", high_watermark=1)
    machines.tell("A", "B", "AB")
    machines.lead("A", isr="A", told="A")
    assert (machines.values("A") == [1, 2]) is is_right
    assert is_right or machines.values("A") == [1], "m2, which was acknowledged, is gone"


@variants(compare_lengths_only)
def test_x2_logs_of_equal_length_that_differ_are_made_equal(
    mutants: Mutants, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_right = apply(mutants, monkeypatch)
    machines = Machines("AB")
    machines.hold("A", "e1:m1 e1:m2", high_watermark=2)
    machines.hold("B", "e1:m1", high_watermark=1)
    machines.epoch = 1
    machines.lead("B", isr="B", told="B")
    machines.write("B", 3)
    machines.tell("A", "B", "B")
    machines.settle("A")
    assert machines.values("B") == [1, 3]
    assert machines.values("A") == ([1, 3] if is_right else [1, 2])


@variants(answer_with_the_next_epoch)
def test_x5_fast_failover_leaves_no_record_of_an_epoch_that_others_never_saw(
    mutants: Mutants, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_right = apply(mutants, monkeypatch)
    machines = Machines()
    for name in "ABC":
        machines.hold(name, "e1:m1")
    machines.epoch = 1
    machines.lead("B", isr="B", told="B")
    machines.write("B", 2, 3)
    machines.lead("A", isr="A", told="A")
    machines.write("A", 4)
    machines.lead("C", isr="C", told="C")
    machines.write("C", 5, 6, 7)
    machines.lead("B", isr="B", told="BC")
    machines.write("B", 8)
    for _ in range(4):
        machines.fetch("C")
    assert machines.values("B") == [1, 2, 3, 8]
    assert machines.values("C") == ([1, 2, 3, 8] if is_right else [1, 5, 6, 8])


@variants(expand_at_the_watermark)
def test_x6_follower_behind_the_start_of_the_epoch_is_not_taken_in(
    mutants: Mutants, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_right = apply(mutants, monkeypatch)
    machines = Machines(min_isr=1)
    machines.lead("A", isr="AB")
    machines.write("A", 1)
    machines.fetch("B")
    machines.serve("A", machines.ask("B"))
    assert machines.replica("A").high_watermark == 1, "m1 is acknowledged"
    assert machines.replica("B").high_watermark == 0
    machines.lead("B", isr="B", told="BC")
    machines.replica("B").high_watermark = 0
    machines.replica("B").min_isr = 2
    machines.serve("B", machines.ask("C"))
    taken_in = isinstance(machines.replica("B").isr, PendingExpand)
    assert taken_in is not is_right
    if is_right:
        machines.settle("C")
        assert machines.replica("B").isr.maximal == (number("B"), number("C"))
        assert machines.values("C") == [1]


@variants(serve_any_epoch, compare_lengths_only)
def test_x7_zombie_follower_does_not_count(
    mutants: Mutants, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_right = apply(mutants, monkeypatch)
    machines = Machines(min_isr=2)
    machines.hold("A", "e1:m1 e1:m2", high_watermark=1)
    machines.hold("B", "e1:m1 e1:m2", high_watermark=1)
    machines.hold("C", "e1:m1", high_watermark=1)
    machines.tell("B", "A", "ABC")
    machines.lead("C", isr="ABC", told="AC")
    machines.settle("A") if is_right else machines["A"].log.truncate_suffix(1)
    machines.lead("A", isr="AB", told="AC")
    machines.write("A", 3)
    zombie = machines.ask("B")
    answer = machines.serve("A", zombie)
    if is_right:
        assert answer.error == ErrorCode.fenced_leader_epoch
        assert machines.replica("A").high_watermark == 1
    else:
        assert machines.replica("A").high_watermark == 2, "m3 counts as committed"
        assert machines.values("B") == [1, 2], "and is not there"


@variants(serve_any_epoch)
def test_x7_epoch_of_the_last_record_alone_does_not_fence_a_zombie(
    mutants: Mutants, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B fetches from A as it did two epochs ago; then the news of the epoch between arrive."""
    is_right = apply(mutants, monkeypatch)
    machines = Machines(min_isr=2)
    for name in "ABC":
        machines.hold(name, "e1:m1", high_watermark=1)
    machines.lead("A", isr="ABC")
    machines.lead("C", isr="ABC", told="C")
    machines.write("C", 2)
    machines.lead("A", isr="AB", told="A")
    machines.write("A", 3)
    machines.fetch("B")
    machines.fetch("B")
    if is_right:
        assert machines.replica("A").high_watermark == 1
        return
    assert machines.replica("A").high_watermark == 2, "m3 is acknowledged"
    machines.replica("B").become_follower(number("C"), (2, 2))
    machines.fetch("B")
    assert machines.values("B") == [1], "and gone from the only other member of the set"


def test_x7_requests_of_a_later_epoch_are_refused_too() -> None:
    """L6."""
    machines = Machines("AB")
    machines.lead("A", isr="AB")
    machines.lead("A", isr="AB", told="B")
    assert machines.serve("A", machines.ask("B")).error == ErrorCode.unknown_leader_epoch
    assert machines.serve("B", machines.ask("B")).error == ErrorCode.not_leader_or_follower


@variants(count_diverging_fetches)
def test_x8_diverging_fetch_counts_for_nothing(
    mutants: Mutants, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_right = apply(mutants, monkeypatch)
    machines = Machines("AB", min_isr=1)
    machines.hold("A", "e1:m1 e1:m2 e1:m3 e3:m6 e3:m7 e3:m8")
    machines.hold("B", "e1:m1 e1:m2 e1:m3 e2:m4 e2:m5")
    machines.epoch = 3
    machines.lead("A", isr="AB")
    answer = machines.serve("A", machines.ask("B"))
    assert answer.diverging == (1, 3)
    assert (machines.replica("A").high_watermark == 0) is is_right
    assert machines.replica("A").remotes[number("B")].has_fetched is not is_right


@pytest.mark.parametrize("touches_watermark", [False, True], ids=["right", "wrong"])
def test_x9_diverging_answer_moves_no_watermark(
    touches_watermark: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = Machines("AB")
    machines.hold("A", "e1:m1 e1:m9", high_watermark=1)
    machines.hold("B", "e1:m1 e2:m10", high_watermark=2)
    machines.epoch = 2
    machines.lead("B", isr="B")
    if touches_watermark:
        common_end = Replica.common_end

        def too_early(self: Replica, diverging: tuple[int, int]) -> int:
            self.followed(machines.replica("B").high_watermark)
            return common_end(self, diverging)

        monkeypatch.setattr(Replica, "common_end", too_early)
    ask = machines.ask("A")
    answer = machines.serve("B", ask)
    replica = machines.replica("A")
    verdict = replica.answered(ask.leader_epoch, 0, answer.diverging, 0)
    assert verdict is Verdict.truncate
    readable = machines.values("A")[: replica.high_watermark]
    assert readable == ([1, 9] if touches_watermark else [1])


@variants(keep_watermark_after_a_cut)
def test_x9_what_was_cut_off_is_not_committed(
    mutants: Mutants, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a recovery that gave up on it, as in L4."""
    is_right = apply(mutants, monkeypatch)
    machines = Machines("AB")
    machines.hold("A", "e1:m1 e1:m2", high_watermark=2)
    machines.hold("B", "e1:m1", high_watermark=1)
    machines.epoch = 1
    machines.lead("B", isr="B")
    assert machines.fetch("A") is Verdict.truncate
    end = machines["A"].log.log_end_offset
    assert (machines.replica("A").high_watermark <= end) is is_right


@variants(compare_lengths_only)
def test_x10_epoch_that_was_missed_is_noticed_though_the_leader_is_the_same(
    mutants: Mutants, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_right = apply(mutants, monkeypatch)
    machines = Machines()
    machines.hold("A", "e1:m1", high_watermark=1)
    machines.hold("B", "e1:m1 e1:m2", high_watermark=1)
    machines.epoch = 0
    machines.lead("A", isr="ABC", told="B")
    machines.epoch = 2
    machines.lead("A", isr="ABC", told="AB")
    machines.write("A", 3)
    machines.settle("B")
    assert machines.values("B") == ([1, 3] if is_right else [1, 2])


@variants(keep_empty_epochs)
def test_x11_epoch_without_a_record_hides_no_older_one(
    mutants: Mutants, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_right = apply(mutants, monkeypatch)
    machines = Machines("AB")
    machines.hold("A", "e6:m3 e6:m4", high_watermark=2)
    machines.epoch = 6
    machines.lead("B", isr="B", told="B")
    machines.lead("A", isr="A")
    fits = []
    for _ in range(3):
        machines.fetch("B")
        log = machines["B"].log
        fits.append(all(log.epochs.at(at) == e for at, (e, _) in enumerate(log.records)))
    assert all(fits) is is_right, "the epochs of a log are those of its records"
    if is_right:
        machines.lead("B", isr="AB")
        machines.settle("A")
        assert machines.values("A") == machines.values("B") == [3, 4], "committed records"


def test_x12_late_answer_of_the_same_epoch_cannot_be_told_from_a_good_one() -> None:
    """D6: so who fetches has one request under way, and drops answers of other connections."""
    machines = Machines("AB")
    machines.hold("A", "e1:m1 e3:m4 e3:m5")
    machines.hold("B", "e1:m1 e2:m2 e2:m3")
    machines.epoch = 3
    machines.lead("A", isr="A")
    first, retried = machines.ask("B"), machines.ask("B")
    late = machines.serve("A", retried)
    assert machines.take("B", first, machines.serve("A", first)) is Verdict.truncate
    machines.settle("B")
    assert machines.values("B") == [1, 4, 5]
    assert machines.take("B", retried, late) is Verdict.truncate
    assert machines.values("B") == [1]


@variants(expand_after_the_write)
def test_x13_member_to_be_added_counts_from_the_proposal_on(
    mutants: Mutants, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_right = apply(mutants, monkeypatch)
    machines = Machines()
    machines.lead("A", isr="AB")
    machines.serve("A", machines.ask("C"))
    assert isinstance(machines.replica("A").isr, PendingExpand)
    machines.write("A", *range(10))
    machines.fetch("B")
    machines.fetch("B")
    assert machines.values("C") == []
    assert machines.replica("A").high_watermark == (0 if is_right else 10)


@variants(shrink_before_the_write)
def test_x14_member_to_be_removed_counts_until_the_write_is_known(
    mutants: Mutants, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_right = apply(mutants, monkeypatch)
    machines = Machines("AB")
    machines.lead("A", isr="AB")
    machines.write("A", 1)
    machines.now_ms += 60_000
    machines.expire("A")
    assert isinstance(machines.replica("A").isr, PendingShrink)
    machines.write("A", 2)
    assert machines.replica("A").high_watermark == (0 if is_right else 2)
    machines.write_isr("A")
    assert machines.replica("A").high_watermark == 2
    assert machines.replica("A").isr == Committed((1,))


def test_x15_zombie_leader_commits_nothing_while_its_write_is_refused() -> None:
    machines = Machines("AB", min_isr=1)
    machines.lead("A", isr="AB")
    machines.lead("B", isr="B", told="B")
    machines.write("A", 1)
    machines.now_ms += 60_000
    machines.expire("A")
    machines.expire("A")
    assert isinstance(machines.replica("A").isr, PendingShrink)
    assert machines.replica("A").high_watermark == 0
    machines.tell("A", "B", "B")
    assert machines.replica("A").role is Role.follower
    machines.settle("A")
    assert machines.values("A") == []


@variants(commit_below_min_isr)
def test_x20_nothing_is_committed_below_the_smallest_allowed_set(
    mutants: Mutants, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D8."""
    is_right = apply(mutants, monkeypatch)
    machines = Machines(min_isr=2)
    machines.lead("C", isr="C")
    machines.write("C", 1)
    assert machines.replica("C").high_watermark == (0 if is_right else 1)


def test_x23_follower_ahead_of_its_leader_drops_only_what_differs() -> None:
    machines = Machines("AB")
    shared = " ".join(f"e1:m{value}" for value in range(90))
    machines.hold("A", shared, high_watermark=90)
    machines.hold("B", shared + " " + " ".join(f"e1:m{value}" for value in range(90, 100)))
    machines.epoch = 1
    machines.lead("A", isr="A")
    assert machines.fetch("B") is Verdict.truncate
    assert machines["B"].log.log_end_offset == 90
    machines.settle("B")
    assert machines.values("B") == list(range(90))


def test_x23_follower_behind_the_start_of_its_leader_begins_there() -> None:
    """The high watermark is raised together with the log start."""
    machines = Machines("AB")
    machines["A"].log.begin_at(50)
    machines.hold("B", "e1:m1 e1:m2", high_watermark=2)
    machines.epoch = 2
    machines.lead("A", isr="A")
    machines.write("A", 50, 51)
    assert machines.fetch("B") is Verdict.restart
    log, replica = machines["B"].log, machines.replica("B")
    assert (log.log_start_offset, log.log_end_offset, replica.high_watermark) == (50, 50, 50)
    machines.settle("B")
    assert machines.values("B") == [50, 51]


@variants(compare_deleted_epochs)
def test_x23_follower_with_other_records_than_those_that_were_deleted_begins_anew(
    mutants: Mutants, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V1: B has m3, which was never committed, where A had m4, which was and is deleted."""
    is_right = apply(mutants, monkeypatch)
    machines = Machines("AB")
    machines.hold("A", "e1:m1 e1:m2", high_watermark=2)
    machines.hold("B", "e1:m1 e1:m2 e1:m3", high_watermark=2)
    machines.epoch = 2
    machines.lead("A", isr="A")
    machines.write("A", 4)
    machines["A"].log.log_start_offset = 3
    machines["A"].log.save_start()
    machines.settle("B")
    assert (machines.values("B") == []) is is_right
    assert machines["B"].log.log_end_offset == 3
    assert isinstance(machines.replica("A").isr, PendingExpand)


@pytest.mark.parametrize("end", [1, 3])
def test_x23_nothing_is_compared_with_a_leader_that_has_no_record_left(end: int) -> None:
    machines = Machines("AB")
    machines["A"].log.begin_at(3)
    machines.hold("B", " ".join(f"e1:m{value}" for value in range(end)), high_watermark=1)
    machines.epoch = 2
    machines.lead("A", isr="A")
    machines.settle("B")
    log = machines["B"].log
    assert (log.log_start_offset, log.log_end_offset, log.records) == (3, 3, [])


def test_x23_follower_that_has_what_was_deleted_keeps_it() -> None:
    machines = Machines("AB")
    for name in "AB":
        machines.hold(name, "e1:m1 e1:m2", high_watermark=2)
    machines.epoch = 1
    machines.lead("A", isr="AB")
    machines["A"].log.log_start_offset = 2
    machines["A"].log.save_start()
    machines.settle("B")
    assert machines.values("B") == [1, 2]
    assert machines["B"].log.log_start_offset == 2


def test_x23_out_of_range_without_a_reason_drops_nothing() -> None:
    machines = Machines("AB")
    machines.hold("B", "e1:m1 e1:m2")
    machines.lead("A", isr="A")
    out_of_range = ErrorCode.offset_out_of_range
    assert machines.replica("B").answered(1, out_of_range, None, 2) is Verdict.back_off
    assert machines.replica("B").answered(1, out_of_range, None, 3) is Verdict.restart


@variants(remember_other_incarnations, count_fetches_of_any_epoch)
def test_x29_nothing_is_known_of_a_follower_that_restarted(
    mutants: Mutants, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_right = apply(mutants, monkeypatch)
    machines = Machines("AB")
    machines.hold("A", "e1:m1 e1:m2", high_watermark=2)
    machines.hold("B", "e1:m1 e1:m2", high_watermark=2)
    machines.epoch = 1
    machines.lead("A", isr="A")
    machines.restart("B", lost=2)
    machines.lead("A", isr="A")
    replica = machines.replica("A")
    assert not replica.remotes[number("B")].has_fetched
    assert replica.reached(replica.remotes[number("B")]) == (-1 if is_right else 2)


def test_x29_replica_that_was_removed_and_added_again_has_to_fetch_anew() -> None:
    machines = Machines()
    machines.hold("A", "e1:m1", high_watermark=1)
    machines.hold("C", "e1:m1", high_watermark=1)
    machines.epoch = 1
    machines.lead("A", isr="AC")
    machines.fetch("C")
    replica = machines.replica("A")
    assert replica.remotes[number("C")].has_fetched
    replica.become_leader((machines.epoch, 5), (1, 2), (1,), 0)
    replica.become_leader((machines.epoch, 6), (1, 2, 3), (1,), 0)
    assert not replica.remotes[number("C")].has_fetched
    assert not replica.may_expand(number("C"), replica.remotes[number("C")])


@variants(take_answers_of_any_epoch)
def test_answer_that_was_asked_for_under_another_leader_is_dropped(
    mutants: Mutants, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D2, X12: B asks A; C leads meanwhile, and B has taken what C wrote."""
    is_right = apply(mutants, monkeypatch)
    machines = Machines()
    machines.lead("A", isr="ABC")
    machines.write("A", 1)
    ask = machines.ask("B")
    late = machines.serve("A", ask)
    machines.lead("C", isr="BC", told="BC")
    verdict = machines.take("B", ask, late)
    assert verdict is (Verdict.drop if is_right else Verdict.append)
    assert machines.values("B") == ([] if is_right else [1])


@pytest.mark.parametrize("written", [1, 3])
def test_x23_follower_that_has_nothing_but_deletions_is_given_all_its_leader_has(
    written: int,
) -> None:
    """V2, V3: B began where records were deleted that A never had, and A was elected uncleanly."""
    machines = Machines("AB")
    machines.hold("A", "e1:m1 e1:m2", high_watermark=2)
    machines["B"].log.begin_at(4)
    machines.epoch = 2
    machines.lead("A", isr="A")
    machines.write("A", *range(3, 3 + written))
    assert machines.fetch("B") is Verdict.restart
    machines.settle("B")
    assert machines.values("B") == machines.values("A")
    assert list(machines.write_isr("A")) == [number("A"), number("B")]


def test_x23_member_that_has_nothing_but_deletions_stays_where_it_is() -> None:
    """V3: A has not heard of the deletion; B is in the set, and must not fall behind in it."""
    machines = Machines("AB")
    machines.hold("A", "e1:m1 e1:m2 e1:m3", high_watermark=3)
    machines["B"].log.begin_at(3)
    machines.epoch = 2
    machines.lead("A", isr="AB")
    machines.settle("B")
    assert (machines["B"].log.log_start_offset, machines["B"].log.log_end_offset) == (3, 3)
