"""Every rule switched off, and the invariant that then breaks: a check that cannot fail is worth
nothing. Frequent ones are found by the explorer within a few seeds; rare ones are scripted.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from support import cluster_mutants as cluster
from support import group_mutants as groups
from support import move_mutants as moves
from support import replication_mutants as machine
from support import session_mutants as sessions
from support import start_mutants as starts
from support import topic_mutants as topics
from support import transaction_mutants as transactions
from support import unclean_mutants as unclean
from support.scripted_world import Mutant, check_breaks
from support.watched import Watched, number
from tidelog.replication.isr import PendingShrink
from tidelog.trials.exploring import explore
from tidelog.trials.options import draw_options
from tidelog.trials.violation import Violation

SEEDS_MAX = 400
"""Of 20,000 that would be allowed; some twenty are needed on average."""
FOCUSED = replace(
    draw_options(Random(1)),
    brokers=3,
    partitions=4,
    replication_factor=3,
    fault_gap_ms=100,
    min_isr=1,
    members=0,
    transactors=0,
    down_ms_max=500,
    duration_ms=3_000,
    session_timeout_ms=500,
    lag_ms_max=1_000,
    delay_ms_max=20,
    fetch_records_max=1,
    fetch_wait_ms=500,
    think_ms_max=120,
    sync_gap_ms=100,
    late_requests=0.5,
    guarded=False,
    move_gap_ms=0,
    delete_gap_ms=0,
    unclean="never",
    recreate_gap_ms=0,
)


@pytest.mark.parametrize(
    ("mutant", "invariants"),
    [
        pytest.param(machine.cut_to_watermark, ("V2", "V3", "V5"), id="D1-X1"),
        pytest.param(machine.compare_lengths_only, ("V1", "V3", "V5", "V13"), id="D1-X2"),
        pytest.param(machine.count_fetches_of_any_epoch, ("V7",), id="D3"),
        pytest.param(machine.expand_at_the_watermark, ("V10",), id="D4-X6"),
        pytest.param(machine.expand_after_the_write, ("V3", "V4", "V5"), id="D5-X13"),
        pytest.param(machine.shrink_before_the_write, ("V1", "V3", "V5", "V11"), id="D5-X14"),
        pytest.param(machine.keep_empty_epochs, ("V6",), id="D7-X11"),
        pytest.param(machine.tell_the_watermark_at_once, ("I5",), id="I5"),
        pytest.param(machine.commit_below_min_isr, ("V7",), id="D8-X20"),
        pytest.param(cluster.trust_any_incarnation, ("V2", "V3", "V9"), id="D9-X18"),
        pytest.param(cluster.first_back_leads, ("V2", "V3"), id="D10-X21"),
        pytest.param(cluster.recovered_keeps_its_set, ("V2", "V3"), id="D10-keeps-the-set"),
        pytest.param(moves.take_the_target_early, ("V11",), id="T3-in-sync"),
        pytest.param(moves.keep_who_goes_in_the_set, ("V10",), id="T3-set"),
        pytest.param(moves.tell_nobody_to_go, ("H3",), id="T3-removed"),
        pytest.param(moves.cancel_in_vain, ("T3",), id="T3-cancelled"),
        pytest.param(moves.grant_before_the_write, ("T3",), id="T3-granted"),
        pytest.param(starts.delete_beyond_the_watermark, ("V17",), id="V17-watermark"),
        pytest.param(starts.move_the_start_back, ("V17",), id="V17-back"),
        pytest.param(starts.forget_epochs_before_the_start_is_saved, ("V6",), id="V17-epochs"),
        pytest.param(starts.stay_below_the_start, ("H3",), id="X23-behind"),
        pytest.param(starts.ask_nobody_where_it_starts, ("S5",), id="S5-replicas"),
        pytest.param(topics.tell_nobody_that_it_is_gone, ("H3",), id="T6-told"),
        pytest.param(topics.forget_deletions_under_way, ("H1",), id="T6-marked"),
        pytest.param(topics.give_the_same_id_again, ("H3",), id="T6-ids"),
        pytest.param(sessions.register_once, ("H3",), id="X22-registered"),
        pytest.param(unclean.allow_it_everywhere, ("E3", "V3"), id="E3-setting"),
        pytest.param(unclean.keep_the_others_in_the_set, ("V3",), id="E3-alone"),
        pytest.param(unclean.keep_the_others_eligible, ("V3",), id="E3-eligible"),
        pytest.param(unclean.go_on_in_the_same_epoch, ("V2", "V3"), id="E3-epoch"),
        pytest.param(groups.answer_before_it_is_committed, ("V15",), id="V15-answered-early"),
        pytest.param(groups.take_commits_of_any_generation, ("V15",), id="V15-generations"),
        pytest.param(transactions.take_what_is_known_for_new, ("V13",), id="V13-retries"),
        pytest.param(transactions.forget_the_marker_of_a_partition, ("H8",), id="V14-no-marker"),
        pytest.param(transactions.give_a_partition_the_wrong_marker, ("V14",), id="V14-verdict"),
        pytest.param(transactions.fence_nobody_at_the_coordinator, ("V14",), id="V14-fencing"),
        pytest.param(transactions.raise_no_epoch, ("V14",), id="V14-epochs"),
        pytest.param(transactions.verify_nothing, ("H8",), id="X30-verification"),
        pytest.param(transactions.show_open_transactions, ("V14",), id="V14-open"),
        pytest.param(transactions.trust_uncommitted_markers, ("V14",), id="V14-undecided"),
        pytest.param(transactions.answer_before_it_is_committed, ("V14",), id="V14-early"),
        pytest.param(transactions.complete_before_the_markers, ("V14",), id="V14-completed"),
        pytest.param(transactions.pursue_nothing_of_others, ("H8",), id="H8-failover"),
        pytest.param(transactions.let_transactions_last, ("H8",), id="H8-timeout"),
    ],
)
def test_explorer_finds_the_missing_rule(
    mutant: Mutant, invariants: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    for seed in range(SEEDS_MAX):
        _, failure = explore([seed])
        if failure is not None and failure.invariant in invariants:
            return
    pytest.fail(f"none of {invariants} broke in {SEEDS_MAX} histories")


@pytest.mark.parametrize(
    ("mutant", "invariant", "kinds", "options"),
    [
        pytest.param(
            machine.expand_for_any_incarnation,
            "V10",
            ("process crash", "late coordination", "broken connections"),
            {"session_timeout_ms": 200, "fault_gap_ms": 60, "down_ms_max": 50, "guarded": True},
            id="D4-X19",
        ),
        pytest.param(
            cluster.forget_eligible_leaders,
            "V3",
            ("machine crash", "isolation"),
            {"session_timeout_ms": 1_000, "lag_ms_max": 200, "min_isr": 2, "sync_gap_ms": 2_000},
            id="D10-X20",
        ),
        pytest.param(
            cluster.write_without_the_fence,
            "V20",
            (
                "controller deposed",
                "process crash",
                *2 * ("late coordination", "preferred leaders"),
            ),
            {"session_timeout_ms": 3_000, "fault_gap_ms": 25, "guarded": True},
            id="D11-X16",
        ),
        pytest.param(
            cluster.obey_any_controller,
            "V20",
            ("process crash", "broken connections", "controller deposed", "session expiry"),
            {"session_timeout_ms": 200, "down_ms_max": 50, "late_requests": 0.9},
            id="D11-X17",
        ),
        pytest.param(
            cluster.write_isr_unconditionally,
            "V9",
            ("pause", "isolation", "process crash"),
            {"session_timeout_ms": 200, "lag_ms_max": 200},
            id="I4-X15",
        ),
        pytest.param(
            machine.compare_deleted_epochs,
            "V1",
            ("machine crash", "isolation", "clean restart"),
            {
                "session_timeout_ms": 200,
                "lag_ms_max": 200,
                "sync_gap_ms": 500,
                "fetch_records_max": 10,
                "delete_gap_ms": 40,
            },
            id="X23-deleted",
        ),
        pytest.param(
            sessions.leave_the_watch_behind,
            "H3",
            ("session expiry", "controller deposed"),
            {},
            id="X22-watch",
        ),
        pytest.param(
            sessions.stay_in_office,
            "H3",
            ("session expiry", "controller deposed"),
            {},
            id="X22-office",
        ),
        pytest.param(
            topics.write_the_set_of_any_topic_of_that_name,
            "V5",
            (*2 * ("broken connections",), "slow link", "isolation", "pause"),
            {
                "recreate_gap_ms": 100,
                "late_requests": 0.9,
                "fault_gap_ms": 60,
                "session_timeout_ms": 3_000,
            },
            id="T6-set",
        ),
        pytest.param(
            unclean.do_not_wait_for_members_of_the_set,
            "E3",
            ("isolation", "process crash", "clean restart"),
            {
                "session_timeout_ms": 200,
                "lag_ms_max": 200,
                "down_ms_max": 1_500,
                "guarded": True,
                "unclean": "setting",
            },
            id="E3-candidates",
        ),
        pytest.param(
            moves.forget_wishes_of_the_deposed,
            "H1",
            ("coordination loss", "session expiry", *2 * ("preferred leaders",)),
            {"session_timeout_ms": 200, "fault_gap_ms": 30, "move_gap_ms": 60},
            id="T3-answered",
        ),
    ],
)
def test_explorer_finds_the_missing_rule_where_what_it_is_for_happens_all_the_time(
    mutant: Mutant,
    invariant: str,
    kinds: tuple[str, ...],
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    focused = replace(FOCUSED, fault_kinds=kinds, **options)
    assert explore([0, 1, 2], focused)[1] is None
    mutant(monkeypatch)
    for seed in range(SEEDS_MAX):
        _, failure = explore([seed], focused)
        if failure is not None and failure.invariant == invariant:
            return
    pytest.fail(f"{invariant} did not break in {SEEDS_MAX} histories")


Script = Callable[[], None]


def x5_fast_failover() -> None:
    machines = Watched()
    for name in "ABC":
        machines.hold(name, "e1:m1", high_watermark=1)
    machines.epoch = machines.partition_epoch = 1
    machines.lead("B", isr="B", told="B")
    machines.lead("B", isr="ABC", told="")
    machines.replica("B").min_isr = 4
    machines.write("B", 2, 3)
    machines.lead("A", isr="ABC", told="A")
    machines.write("A", 4)
    machines.lead("C", isr="ABC", told="C")
    machines.write("C", 5, 6, 7)
    machines.lead("B", isr="B", told="BC")
    machines.replica("B").min_isr = 1
    machines.write("B", 8)
    for _ in range(4):
        machines.fetch("C")


def x7_zombie_follower() -> None:
    """B fetches from A as it did two epochs ago; then the news of the epoch between arrive."""
    machines = Watched(min_isr=2)
    for name in "ABC":
        machines.hold(name, "e0:m1", high_watermark=1)
    machines.lead("A", isr="ABC")
    machines.lead("C", isr="ABC", told="C")
    machines.write("C", 2)
    machines.lead("A", isr="AB", told="A")
    machines.write("A", 3)
    machines.fetch("B")
    machines.fetch("B")
    machines.replica("B").become_follower(number("C"), (2, 2))
    machines.fetch("B")


def x12_late_answer_of_another_epoch() -> None:
    """A tells B to cut; B hears it after it has led, and what it has is committed."""
    machines = Watched(min_isr=1)
    for name in "ABC":
        machines.hold(name, "e0:m1", high_watermark=1)
    machines.lead("A", isr="ABC")
    machines.lead("C", isr="ABC", told="BC")
    machines.write("C", 2)
    machines.fetch("B")
    machines.lead("A", isr="AB", told="AB")
    ask = machines.ask("B")
    late = machines.serve("A", ask)
    assert late.diverging == (0, 1)
    machines.lead("B", isr="B", told="BC")
    machines.settle("C")
    machines.write_isr("B")
    machines.acknowledge("B", 2)
    machines.lead("C", isr="BC", told="BC")
    machines.take("B", ask, late)


def x8_diverging_fetch() -> None:
    machines = Watched("AB")
    for name in "AB":
        machines.hold(name, "e0:m1", high_watermark=1)
    machines.lead("B", isr="AB", told="B")
    machines.write("B", 4, 5)
    machines.lead("A", isr="AB")
    machines.write("A", 6, 7, 8)
    machines.serve("A", machines.ask("B"))


@pytest.mark.parametrize(
    ("script", "mutant", "invariant"),
    [
        pytest.param(x5_fast_failover, machine.answer_with_the_next_epoch, "V1", id="D1-X5"),
        pytest.param(x7_zombie_follower, machine.serve_any_epoch, "V3", id="D2-X7"),
        pytest.param(
            x12_late_answer_of_another_epoch, machine.take_answers_of_any_epoch, "V3", id="D2-X12"
        ),
        pytest.param(x8_diverging_fetch, machine.count_diverging_fetches, "V5", id="D3-X8"),
    ],
)
def test_script_breaks_without_its_rule_only(
    script: Script, mutant: Mutant, invariant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_breaks(script, mutant, invariant, monkeypatch)


def test_second_fetch_under_way_cuts_what_is_committed() -> None:
    """D6, X12: which is why a fetcher has one, and drops answers of other connections."""
    machines = Watched("AB")
    for name in "AB":
        machines.hold(name, "e0:m1", high_watermark=1)
    machines.lead("B", isr="AB", told="B")
    machines.write("B", 2, 3)
    machines.lead("A", isr="AB")
    machines.write("A", 4, 5)
    first, second = machines.ask("B"), machines.ask("B")
    late = machines.serve("A", second)
    machines.take("B", first, machines.serve("A", first))
    machines.settle("B")
    machines.acknowledge("A", 5)
    with pytest.raises(Violation, match="V3"):
        machines.take("B", second, late)


def test_proposal_that_is_refused_stays_open_without_harm() -> None:
    """D5, X14: the leader goes on counting the member that it wanted to drop."""
    machines = Watched("AB")
    machines.lead("A", isr="AB")
    machines.write("A", 1)
    machines.now_ms += 60_000
    machines.expire("A")
    assert isinstance(machines.replica("A").isr, PendingShrink)
    machines.write("A", 2)
    with pytest.raises(AssertionError, match="not committed"):
        machines.acknowledge("A", 2)
