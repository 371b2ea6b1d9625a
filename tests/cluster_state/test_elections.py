"""Who leads when brokers die, restart, stop or lose a disk: every rule of the controller.

Brokers A, B, C are 1, 2, 3; their epochs in the beginning are 10, 20, 30.
"""

from dataclasses import replace

import pytest

from tidelog.cluster.elections import (
    Known,
    Situation,
    TopicRules,
    is_current,
    preferred_leader,
    unclean_leader,
    wanted_state,
)
from tidelog.cluster.image import NO_LEADER, NO_STATE, PartitionInfo

A, B, C = 1, 2, 3
ALL = {A: 10, B: 20, C: 30}
MIN_TWO = TopicRules(min_isr=2)
MIN_ONE = TopicRules(min_isr=1)
UNCLEAN = TopicRules(min_isr=2, unclean=True)


def partition(
    leader: int = A, isr: tuple[int, ...] = (A, B, C), elr: tuple[int, ...] = ()
) -> PartitionInfo:
    return PartitionInfo(
        replicas=(A, B, C),
        isr=isr,
        elr=elr,
        leader=leader,
        leader_epoch=4,
        state_version=9,
        controller_epoch=1,
        broker_epochs={member: ALL[member] for member in (*isr, *elr)},
    )


def new_partition() -> PartitionInfo:
    return PartitionInfo(
        replicas=(A, B, C),
        isr=(),
        leader=NO_LEADER,
        leader_epoch=NO_STATE,
        state_version=NO_STATE,
    )


def situation(live: dict[int, int] | None = None, *stopping: int) -> Situation:
    return Situation(
        live=ALL if live is None else live, controller_epoch=2, shutting_down=frozenset(stopping)
    )


def without(*dead: int, **restarted: int) -> dict[int, int]:
    """The live brokers; `B=21`: broker B is registered under that epoch."""
    names = {"A": A, "B": B, "C": C}
    live = {member: epoch for member, epoch in ALL.items() if member not in dead}
    return live | {names[name]: epoch for name, epoch in restarted.items()}


Shown = tuple[int, tuple[int, ...], tuple[int, ...], int]


def shown(state: PartitionInfo | None) -> Shown | None:
    """Leader, ISR, ELR, leader epoch."""
    return None if state is None else (state.leader, state.isr, state.elr, state.leader_epoch)


def test_a_partition_that_is_as_it_should_be_is_left_alone() -> None:
    assert wanted_state(partition(), situation(), MIN_TWO).state is None


def test_a_new_partition_is_led_by_its_first_live_replica() -> None:
    state = wanted_state(new_partition(), situation(without(A)), MIN_TWO).state
    assert shown(state) == (B, (B, C), (), 0)
    assert state is not None
    assert (state.broker_epochs, state.state_version) == ({B: 20, C: 30}, NO_STATE)
    assert state.controller_epoch == 2


def test_a_new_partition_without_any_live_replica_waits() -> None:
    decision = wanted_state(new_partition(), situation({}), MIN_TWO)
    assert (decision.state, decision.ask) == (None, ())


def test_a_new_partition_is_not_put_on_a_broker_that_stops_or_on_a_failed_disk() -> None:
    stopping = wanted_state(new_partition(), situation(ALL, A), MIN_TWO).state
    assert shown(stopping) == (B, (B, C), (), 0)
    failed = Known(offline=frozenset((A, B)))
    assert shown(wanted_state(new_partition(), situation(), MIN_TWO, failed).state) == (
        C,
        (C,),
        (),
        0,
    )
    only = wanted_state(new_partition(), situation({A: 10}, A), MIN_TWO).state
    assert shown(only) == (A, (A,), (), 0)


@pytest.mark.parametrize(
    ("isr", "live", "expected"),
    [
        ((A, B, C), without(A), (B, (B, C), (), 5)),
        ((C, B, A), without(A), (B, (C, B), (), 5)),
        ((A, C), without(A), (C, (C,), (A,), 5)),
        ((A, B, C), without(A, B), (C, (C,), (A, B), 5)),
        ((A, B, C), without(A=11), (B, (B, C), (), 5)),
        ((A, C), without(A=11), (C, (C,), (A,), 5)),
        ((A, B, C), without(A=11, B=21), (C, (C,), (A, B), 5)),
    ],
)
def test_a_dead_or_restarted_leader_is_followed_by_the_first_current_isr_member(
    isr: tuple[int, ...], live: dict[int, int], expected: Shown
) -> None:
    """E2, D9, X18: a broker that is back under another epoch has not stayed."""
    state = wanted_state(partition(A, isr), situation(live), MIN_TWO).state
    assert shown(state) == expected
    assert state is not None
    assert (state.state_version, state.controller_epoch) == (9, 2)


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        (without(C), (A, (A, B), (), 5)),
        (without(C=31), (A, (A, B), (), 5)),
        (without(B, C), (A, (A,), (B, C), 5)),
        (without(B=21, C=31), (A, (A,), (B, C), 5)),
    ],
)
def test_a_dead_or_restarted_follower_leaves_the_isr(live: dict[int, int], expected: Shown) -> None:
    """X19, D9."""
    assert shown(wanted_state(partition(), situation(live), MIN_TWO).state) == expected


def test_a_follower_that_came_back_empty_while_it_was_added_is_never_elected() -> None:
    """X19: the expand recorded the epoch it had fetched under, which is not the registered one."""
    added = replace(partition(A, (A, B)), broker_epochs={A: 10, B: 20})
    came_back = wanted_state(added, situation(without(B=21)), MIN_TWO).state
    assert shown(came_back) == (A, (A,), (B,), 5)
    both = wanted_state(added, situation(without(A, B=21)), MIN_TWO).state
    assert shown(both) == (NO_LEADER, (A, B), (), 5)


def test_when_no_current_member_is_left_everything_stays_on_record() -> None:
    """E3, E5, X21."""
    before = partition(A, (A, B), (C,))
    state = wanted_state(before, situation({}), TopicRules(min_isr=3)).state
    assert shown(state) == (NO_LEADER, (A, B), (C,), 5)
    assert state is not None
    assert state.broker_epochs == before.broker_epochs


def test_a_leaderless_partition_is_not_touched_while_brokers_come_and_go() -> None:
    """X21: neither recorded epochs nor the epoch of the partition change."""
    leaderless = partition(NO_LEADER, (A, B))
    for live in ({}, {A: 11}, {A: 12}, {C: 30}, {C: 31}):
        decision = wanted_state(leaderless, situation(live), MIN_TWO)
        assert (decision.state, decision.ask) == (None, ())


def test_a_current_member_does_not_lead_a_leaderless_partition_by_the_ordinary_way() -> None:
    """X21."""
    leaderless = partition(NO_LEADER, (A, B))
    assert is_current(leaderless, B, situation())
    decision = wanted_state(leaderless, situation(), MIN_TWO)
    assert (decision.state, decision.ask) == (None, (A, B))


def test_members_without_a_recorded_epoch_are_not_current() -> None:
    """D10: a state that Apache Kafka wrote is recovered once."""
    old = replace(partition(), broker_epochs={})
    decision = wanted_state(old, situation(), MIN_TWO)
    assert shown(decision.state) == (NO_LEADER, (A, B, C), (), 5)
    assert decision.ask == ()


@pytest.mark.parametrize(
    ("stopping", "isr", "expected"),
    [
        ((A,), (A, B, C), (B, (B, C), (), 5)),
        ((A, B), (A, B, C), (C, (C,), (A, B), 5)),
        ((B,), (A, B, C), (A, (A, C), (), 5)),
        ((A,), (A,), None),
        ((A, B), (A, B), None),
        ((B,), (A, B), (A, (A,), (B,), 5)),
    ],
)
def test_a_broker_that_stops_leads_only_what_nobody_else_can(
    stopping: tuple[int, ...], isr: tuple[int, ...], expected: Shown | None
) -> None:
    """E2: controlled shutdown."""
    state = wanted_state(partition(A, isr), situation(ALL, *stopping), MIN_TWO).state
    assert shown(state) == expected


def test_a_replica_on_a_failed_disk_neither_leads_nor_counts() -> None:
    """X26."""
    failed = Known(offline=frozenset((A,)))
    state = wanted_state(partition(), situation(), MIN_TWO, failed).state
    assert shown(state) == (B, (B, C), (), 5)
    alone = wanted_state(partition(A, (A,)), situation(), MIN_TWO, failed).state
    assert shown(alone) == (NO_LEADER, (A,), (), 5)
    assert alone is not None
    assert wanted_state(alone, situation(), MIN_TWO, failed).ask == ()


def test_eligible_leaders_are_let_go_when_the_setting_is_lowered() -> None:
    state = wanted_state(partition(A, (A,), (B,)), situation(), MIN_ONE).state
    assert shown(state) == (A, (A,), (), 5)


def test_a_leader_that_is_not_in_the_isr_or_no_replica_does_not_stay() -> None:
    outside = replace(partition(A, (B, C)))
    assert shown(wanted_state(outside, situation(), MIN_TWO).state) == (B, (B, C), (), 5)
    moved = replace(partition(), replicas=(B, C))
    assert shown(wanted_state(moved, situation(), MIN_TWO).state) == (B, (B, C), (), 5)


def test_an_unclean_election_takes_a_live_replica_alone_into_the_isr() -> None:
    """E3: what the others had may be lost, so nobody waits for them either."""
    state = wanted_state(partition(A, (A, B)), situation({C: 31}), UNCLEAN).state
    assert shown(state) == (C, (C,), (), 5)
    assert state is not None
    assert state.broker_epochs == {C: 31}


def test_an_unclean_election_is_made_only_when_no_other_is_possible() -> None:
    """E3."""
    assert shown(wanted_state(partition(), situation(without(A)), UNCLEAN).state) == (
        B,
        (B, C),
        (),
        5,
    )
    both_back = wanted_state(partition(NO_LEADER, (A, B)), situation({A: 11, B: 21}), UNCLEAN)
    assert (both_back.state, both_back.ask) == (None, (A, B))
    nobody = wanted_state(partition(NO_LEADER, (A, B)), situation({}), UNCLEAN)
    assert (nobody.state, nobody.ask) == (None, ())


def test_an_unclean_election_prefers_a_member_of_the_isr_then_of_the_elr() -> None:
    """E3."""
    rules = TopicRules(min_isr=3, unclean=True)
    isr = wanted_state(partition(NO_LEADER, (C,), (B,)), situation({A: 11, C: 31}), rules).state
    assert shown(isr) == (C, (C,), (), 5)
    elr = wanted_state(partition(NO_LEADER, (C,), (B,)), situation({A: 11, B: 21}), rules).state
    assert shown(elr) == (B, (B,), (), 5)


def test_an_unclean_election_follows_when_too_few_of_those_who_are_back_answer() -> None:
    """E3."""
    silent = Known(reports={A: None, B: None})
    decision = wanted_state(partition(NO_LEADER, (A, B)), situation(), UNCLEAN, silent)
    assert shown(decision.state) == (A, (A,), (), 5)


def test_who_was_silent_in_an_earlier_epoch_is_asked_before_an_unclean_election() -> None:
    """E3, D10."""
    silent = Known(reports={A: None, B: None})
    decision = wanted_state(partition(A, (A, B)), situation({A: 11, B: 21}), UNCLEAN, silent)
    assert shown(decision.state) == (NO_LEADER, (A, B), (), 5)


def test_an_unclean_election_can_be_asked_for() -> None:
    """E3: whatever the topic's setting says, but only where nobody leads."""
    lost = partition(NO_LEADER, (A, B))
    assert shown(unclean_leader(lost, situation({C: 31}))) == (C, (C,), (), 5)
    dead = partition(A, (A,))
    assert shown(unclean_leader(dead, situation(without(A)))) == (B, (B,), (), 5)
    assert unclean_leader(lost, situation({})) is None
    assert unclean_leader(partition(), situation()) is None
    assert unclean_leader(partition(), situation(without(A))) is None
    assert unclean_leader(new_partition(), situation()) is None


def test_the_preferred_replica_leads_again_when_it_can() -> None:
    """E4."""
    state = preferred_leader(partition(B), situation())
    assert shown(state) == (A, (A, B, C), (), 5)
    assert preferred_leader(partition(A), situation()) is None
    assert preferred_leader(partition(B, (B, C)), situation()) is None
    assert preferred_leader(partition(B), situation(without(A=11))) is None
    assert preferred_leader(partition(B), situation(without(A))) is None
    assert preferred_leader(partition(B), situation(ALL, A)) is None
    assert preferred_leader(partition(NO_LEADER), situation()) is None
    failed = Known(offline=frozenset((A,)))
    assert preferred_leader(partition(B), situation(), failed) is None
