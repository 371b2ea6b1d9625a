"""How a partition that nobody leads is led again: rule D10, and the setting that chooses
availability instead.
"""

import pytest

from tidelog.cluster.elections import (
    Decision,
    Known,
    RecoveryStrategy,
    Report,
    Situation,
    TopicRules,
    wanted_state,
)
from tidelog.cluster.image import NO_LEADER, PartitionInfo

A, B, C = 1, 2, 3
BACK = {A: 11, B: 21, C: 31}
MIN_TWO = TopicRules(min_isr=2)


def leaderless(isr: tuple[int, ...], elr: tuple[int, ...] = ()) -> PartitionInfo:
    return PartitionInfo(
        replicas=(A, B, C),
        isr=isr,
        elr=elr,
        leader=NO_LEADER,
        leader_epoch=7,
        state_version=9,
        controller_epoch=1,
        broker_epochs={member: member * 10 for member in (*isr, *elr)},
    )


def report(broker_id: int, last_epoch: int, log_end_offset: int, leader_epoch: int = 7) -> Report:
    return Report(
        leader_epoch=leader_epoch,
        broker_epoch=BACK[broker_id],
        last_epoch=last_epoch,
        log_end_offset=log_end_offset,
    )


def decide(
    partition: PartitionInfo,
    back: tuple[int, ...],
    reports: dict[int, Report | None] | None = None,
    rules: TopicRules = MIN_TWO,
    strategy: RecoveryStrategy = "strict",
) -> Decision:
    live = {broker_id: BACK[broker_id] for broker_id in back}
    situation = Situation(live=live, controller_epoch=2, strategy=strategy)
    return wanted_state(partition, situation, rules, Known(reports=reports or {}))


def led(decision: Decision) -> PartitionInfo:
    assert decision.state is not None
    assert decision.ask == ()
    return decision.state


@pytest.mark.parametrize(
    ("isr", "elr", "back", "min_isr", "asked"),
    [
        ((A, B), (), (A,), 2, ()),
        ((A, B), (), (C,), 2, ()),
        ((A, B), (), (A, C), 2, ()),
        ((A, B), (), (A, B), 2, (A, B)),
        ((B, A), (), (A, B, C), 2, (A, B)),
        ((C,), (A, B), (C,), 2, ()),
        ((C,), (A, B), (A, B), 2, (A, B)),
        ((C,), (A, B), (A, B, C), 2, (A, B, C)),
        ((C,), (A, B), (A, B), 3, ()),
        ((C,), (A, B), (A, B, C), 3, (A, B, C)),
        ((A, B), (), (A, B), 5, (A, B)),
        ((A, B), (), (A, B), 1, (A, B)),
    ],
)
def test_members_are_asked_when_enough_of_them_are_back(
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    back: tuple[int, ...],
    min_isr: int,
    asked: tuple[int, ...],
) -> None:
    """D10, X20, X21."""
    decision = decide(leaderless(isr, elr), back, rules=TopicRules(min_isr=min_isr))
    assert (decision.state, decision.ask) == (None, asked)


@pytest.mark.parametrize(
    ("reports", "winner"),
    [
        ({A: (6, 100), B: (6, 99)}, A),
        ({A: (6, 99), B: (6, 100)}, B),
        ({A: (5, 100), B: (6, 3)}, B),
        ({A: (6, 100), B: (6, 100)}, A),
        ({A: (-1, 0), B: (0, 1)}, B),
        ({A: (-1, 0), B: (-1, 0)}, A),
        ({A: (-1, 9), B: (6, 3)}, A),
        ({A: (6, 3), B: (-1, 9)}, B),
        ({A: (-1, 9), B: (6, 9)}, B),
        ({A: (-1, 9), B: (6, 12)}, B),
    ],
)
def test_the_member_that_is_furthest_leads(
    reports: dict[int, tuple[int, int]], winner: int
) -> None:
    """D10, X21: B had lost its tail, or A had; a higher epoch counts before a longer log. One from
    which everything was deleted knows no epoch, and that all that is not there was committed."""
    told: dict[int, Report | None] = {b: report(b, *far) for b, far in reports.items()}
    assert led(decide(leaderless((A, B)), (A, B), told)).leader == winner


def test_the_winner_is_alone_in_the_isr_and_the_others_are_eligible() -> None:
    """D10: keeping the old ISR lost acknowledged records."""
    told: dict[int, Report | None] = {b: report(b, 6, b) for b in (A, B, C)}
    state = led(decide(leaderless((A, B), (C,)), (A, B, C), told, TopicRules(min_isr=3)))
    assert (state.leader, state.isr, set(state.elr)) == (C, (C,), {A, B})
    assert state.broker_epochs == {C: 31, A: 10, B: 20}
    assert (state.leader_epoch, state.state_version, state.controller_epoch) == (8, 9, 2)


def test_the_last_replica_standing_does_not_erase_what_eligible_leaders_have() -> None:
    """X20: C lost committed records when its power failed; A has them."""
    partition = leaderless((C,), (A, B))
    assert decide(partition, (C,)).state is None
    assert decide(partition, (C, A)).ask == (A, C)
    told: dict[int, Report | None] = {A: report(A, 6, 50), C: report(C, 6, 40)}
    assert led(decide(partition, (C, A), told)).leader == A


def test_one_dead_disk_does_not_block_a_partition_that_has_enough_others() -> None:
    """D10."""
    told: dict[int, Report | None] = {A: report(A, 6, 50), C: report(C, 6, 40)}
    assert led(decide(leaderless((A, B, C)), (A, C), told)).leader == A


def test_the_only_member_leads_again_in_a_new_epoch_without_being_asked() -> None:
    """D9: there is nobody to compare it with."""
    state = led(decide(leaderless((A,)), (A, B, C)))
    assert (state.leader, state.isr, state.elr, state.leader_epoch) == (A, (A,), (), 8)
    assert state.broker_epochs == {A: 11}


def test_the_only_member_of_a_partition_led_until_now_needs_no_write_in_between() -> None:
    """D9."""
    partition = PartitionInfo(
        replicas=(A,),
        isr=(A,),
        leader=A,
        leader_epoch=7,
        state_version=9,
        broker_epochs={A: 10},
    )
    state = led(decide(partition, (A,)))
    assert (state.leader, state.leader_epoch, state.broker_epochs) == (A, 8, {A: 11})


@pytest.mark.parametrize(
    "stale",
    [
        report(B, 6, 200, leader_epoch=6),
        Report(leader_epoch=7, broker_epoch=20, last_epoch=6, log_end_offset=200),
    ],
)
def test_a_report_of_another_epoch_or_incarnation_does_not_count(stale: Report) -> None:
    """D10."""
    decision = decide(leaderless((A, B)), (A, B), {A: report(A, 6, 100), B: stale})
    assert (decision.state, decision.ask) == (None, (B,))


def test_everyone_who_is_back_is_waited_for_until_it_answers_or_does_not() -> None:
    """D10: more than enough may be back; all are heard."""
    partition = leaderless((A, B, C))
    told: dict[int, Report | None] = {A: report(A, 6, 50), B: report(B, 6, 40)}
    assert decide(partition, (A, B, C), told).ask == (C,)
    assert led(decide(partition, (A, B, C), {**told, C: None})).leader == A
    assert led(decide(partition, (A, B, C), {**told, C: report(C, 6, 60)})).leader == C


def test_who_did_not_answer_is_asked_again_if_there_are_too_few_without_it() -> None:
    """D10."""
    decision = decide(leaderless((A, B)), (A, B), {A: report(A, 6, 50), B: None})
    assert (decision.state, decision.ask) == (None, (B,))


def test_first_isr_takes_the_first_member_that_is_back() -> None:
    """E3, E5: `leader.recovery.strategy=first-isr`."""
    partition = leaderless((B, C), (A,))
    waiting = decide(partition, (A,), strategy="first-isr")
    assert (waiting.state, waiting.ask) == (None, ())
    state = led(decide(partition, (C,), strategy="first-isr"))
    assert (state.leader, state.isr, state.leader_epoch) == (C, (C,), 8)
    assert state.broker_epochs[C] == 31
    assert led(decide(partition, (A, B, C), strategy="first-isr")).leader == B


def test_a_quick_restart_of_a_follower_leaves_it_eligible() -> None:
    """X20: B restarts and loses nothing, then A fails and loses its tail: one loss, min ISR 2."""
    partition = PartitionInfo(
        replicas=(A, B, C),
        isr=(A, B),
        leader=A,
        leader_epoch=7,
        state_version=9,
        broker_epochs={A: 10, B: 20},
    )
    live = Situation(live={A: 10, B: 21}, controller_epoch=2)
    after = wanted_state(partition, live, MIN_TWO).state
    assert after is not None
    assert (after.isr, after.elr) == ((A,), (B,))
    restarted = Situation(live={A: 11, B: 21}, controller_epoch=2)
    lost = wanted_state(after, restarted, MIN_TWO).state
    assert lost is not None
    assert wanted_state(lost, restarted, MIN_TWO).ask == (A, B)
