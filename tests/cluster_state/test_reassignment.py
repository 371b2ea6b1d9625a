"""Moving a partition to other brokers: start, completion, change of mind, more and fewer replicas.

Brokers A to F are 1 to 6; A, B, C hold the partition in the beginning, and A leads.
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.elections import Situation, TopicRules, wanted_state
from tidelog.cluster.image import NO_LEADER, NO_STATE, PartitionInfo
from tidelog.cluster.isr_change import expanded
from tidelog.cluster.reassignment import (
    cancelled,
    check_target,
    dropped,
    is_reassigned,
    next_step,
    originals_of,
    started,
    target_of,
)

A, B, C, D, E, F = range(1, 7)
LIVE = {broker_id: broker_id * 10 for broker_id in range(1, 7)}
NOW = Situation(live=LIVE, controller_epoch=2)


def partition(isr: tuple[int, ...] = (A, B, C), leader: int = A) -> PartitionInfo:
    return PartitionInfo(
        replicas=(A, B, C),
        isr=isr,
        leader=leader,
        leader_epoch=4,
        state_version=9,
        controller_epoch=1,
        broker_epochs={member: LIVE[member] for member in isr},
    )


def moving(target: tuple[int, ...], before: PartitionInfo | None = None) -> PartitionInfo:
    after = started(before or partition(), target, 2)
    assert after is not None
    return after


def caught_up(before: PartitionInfo, *members: int) -> PartitionInfo:
    for member in members:
        before = expanded(before, member, LIVE[member], 2)
    return before


def completed(before: PartitionInfo, situation: Situation = NOW) -> PartitionInfo:
    after = next_step(before, situation, 2)
    assert after is not None
    assert not is_reassigned(after)
    return after


def test_a_move_puts_new_replicas_beside_the_old() -> None:
    """T3: the new ones are outside the ISR."""
    after = moving((D, E, A))
    assert after.replicas == (D, E, A, B, C)
    assert (after.adding_replicas, after.removing_replicas) == ((D, E), (B, C))
    assert (after.isr, after.leader, after.leader_epoch) == ((A, B, C), A, 5)
    assert (after.state_version, after.controller_epoch) == (9, 2)
    assert (target_of(after), originals_of(after)) == ((D, E, A), (A, B, C))
    assert dropped(partition(), after) == ()


def test_old_replicas_leave_when_all_new_ones_have_caught_up() -> None:
    """T3."""
    before = moving((D, E, A))
    assert next_step(before, NOW, 2) is None
    assert next_step(caught_up(before, D), NOW, 2) is None
    ready = caught_up(before, D, E)
    after = completed(ready)
    assert (after.replicas, after.isr, after.leader) == ((D, E, A), (A, D, E), A)
    assert (after.leader_epoch, after.state_version) == (ready.leader_epoch + 1, 9)
    assert after.broker_epochs == {A: 10, D: 40, E: 50}
    assert dropped(before, after) == (B, C)


def test_the_leader_moves_into_the_target() -> None:
    """T3: the first of the target that can."""
    after = completed(caught_up(moving((D, E, F)), D, E, F))
    assert (after.replicas, after.leader, after.isr) == ((D, E, F), D, (D, E, F))
    stopping = replace(NOW, shutting_down=frozenset((D,)))
    assert completed(caught_up(moving((D, E, F)), D, E, F), stopping).leader == E


def test_a_new_replica_that_restarted_does_not_count() -> None:
    """X19, X29."""
    ready = caught_up(moving((D, E, A)), D, E)
    restarted = replace(NOW, live={**LIVE, E: 51})
    assert next_step(ready, restarted, 2) is None


def test_a_move_waits_for_a_target_that_is_away() -> None:
    ready = caught_up(moving((D, B, C), partition((A, B))), D)
    assert next_step(ready, NOW, 2) is None


def test_nothing_moves_while_nobody_leads() -> None:
    ready = replace(caught_up(moving((D, E, A)), D, E), leader=NO_LEADER)
    assert next_step(ready, NOW, 2) is None


def test_the_replication_factor_grows() -> None:
    """T3."""
    one = replace(partition((A,)), replicas=(A,))
    before = moving((A, B, C), one)
    assert (before.replicas, before.adding_replicas) == ((A, B, C), (B, C))
    assert before.removing_replicas == ()
    after = completed(caught_up(before, B, C))
    assert (after.replicas, after.isr, after.elr) == ((A, B, C), (A, B, C), ())


def test_the_replication_factor_shrinks_at_once() -> None:
    """T3."""
    before = moving((B, A))
    assert (before.replicas, before.adding_replicas, before.removing_replicas) == (
        (B, A, C),
        (),
        (C,),
    )
    after = completed(before)
    assert (after.replicas, after.isr, after.leader) == ((B, A), (A, B), A)


def test_a_shrink_waits_while_too_few_of_those_who_stay_are_in_sync() -> None:
    before = moving((A, B), partition((A, C)))
    assert next_step(before, NOW, 2) is None
    assert completed(caught_up(before, B)).isr == (A, B)


def test_a_shrink_does_not_wait_for_a_replica_that_is_not_needed() -> None:
    before = moving((A, B), partition((A, B)))
    assert completed(before).replicas == (A, B)
    alone = moving((A,), partition((A, C)))
    assert completed(alone).isr == (A,)


def test_only_the_order_of_replicas_changes() -> None:
    """E4: the first replica is the preferred leader."""
    after = moving((C, A, B))
    assert (after.replicas, is_reassigned(after)) == ((C, A, B), False)
    assert started(after, (C, A, B), 2) is None


def test_a_cancelled_move_goes_back_at_once_if_nobody_has_caught_up() -> None:
    """T3."""
    before = moving((D, E, F))
    after = cancelled(before, 2)
    assert (after.replicas, is_reassigned(after)) == ((A, B, C), False)
    assert (after.isr, after.leader_epoch) == ((A, B, C), before.leader_epoch + 1)
    assert dropped(before, after) == (D, E, F)


def test_a_cancelled_move_keeps_who_is_in_sync_until_enough_others_are() -> None:
    """T3: D is the only other copy of what was committed with A."""
    before = caught_up(moving((D, E, F), partition((A,))), D)
    waiting = cancelled(before, 2)
    assert (waiting.replicas, waiting.isr) == ((A, B, C, D), (A, D))
    assert (waiting.adding_replicas, waiting.removing_replicas) == ((D,), (D,))
    assert (target_of(waiting), originals_of(waiting)) == ((A, B, C), (A, B, C))
    assert dropped(before, waiting) == (E, F)
    assert next_step(waiting, NOW, 2) is None
    after = completed(caught_up(waiting, B))
    assert (after.replicas, after.isr, after.leader) == ((A, B, C), (A, B), A)


def test_a_cancelled_move_gives_leadership_back() -> None:
    led_by_new = replace(caught_up(moving((D, E, F)), D), leader=D)
    after = completed(cancelled(led_by_new, 2))
    assert (after.replicas, after.leader, after.isr) == ((A, B, C), A, (A, B, C))


def test_a_move_that_was_cancelled_can_be_cancelled_again() -> None:
    waiting = cancelled(caught_up(moving((D, E, F), partition((A,))), D), 2)
    assert cancelled(waiting, 2) == waiting


def test_what_does_not_move_cannot_be_cancelled() -> None:
    with pytest.raises(KafkaError) as refused:
        cancelled(partition(), 2)
    assert refused.value.code is ErrorCode.no_reassignment_in_progress


def test_a_move_is_replaced_by_another() -> None:
    """T3: D had caught up and is kept for now, E had not."""
    first = caught_up(moving((D, E, A)), D)
    second = moving((F, A, B), first)
    assert second.replicas == (F, A, B, C, D)
    assert (second.adding_replicas, second.removing_replicas) == ((F, D), (C, D))
    assert (target_of(second), originals_of(second)) == ((F, A, B), (A, B, C))
    assert dropped(first, second) == (E,)
    assert next_step(second, NOW, 2) is None
    after = completed(caught_up(second, F))
    assert (after.replicas, after.isr) == ((F, A, B), (A, B, F))
    back = cancelled(second, 2)
    assert (back.replicas, target_of(back)) == ((A, B, C, D), (A, B, C))


def test_a_partition_without_a_state_moves_without_one() -> None:
    unborn = PartitionInfo(
        replicas=(A,), isr=(), leader=NO_LEADER, leader_epoch=NO_STATE, state_version=NO_STATE
    )
    after = moving((B,), unborn)
    assert (after.leader_epoch, after.state_version) == (NO_STATE, NO_STATE)
    assert next_step(after, NOW, 2) is None


@pytest.mark.parametrize("target", [(), (A, A), (A, -1), (A, 7)])
def test_what_no_partition_can_be_moved_to_is_refused(target: tuple[int, ...]) -> None:
    """T1, T3."""
    with pytest.raises(KafkaError) as refused:
        check_target(partition(), target, LIVE)
    assert refused.value.code is ErrorCode.invalid_replica_assignment


def test_brokers_that_are_away_may_keep_what_they_hold_but_get_nothing_new() -> None:
    check_target(partition(), (A, B, D), {B: 20, D: 40})
    with pytest.raises(KafkaError):
        check_target(moving((D, E, A)), (D, E, A), {A: 10, E: 50})


TARGETS = st.lists(st.sampled_from(sorted(LIVE)), min_size=1, max_size=4, unique=True).map(tuple)
CHANGES = st.lists(TARGETS | st.just("cancel") | st.sampled_from(sorted(LIVE)), max_size=12)


@settings(max_examples=150, deadline=None)
@given(CHANGES, st.integers(1, 3))
def test_a_move_ends_at_its_last_target_and_never_drops_a_copy_that_counts(
    changes: list[tuple[int, ...] | str | int], min_isr: int
) -> None:
    """T3, V10: whatever was asked for in between, and whoever had caught up."""
    now = partition()
    goal: tuple[int, ...] = (A, B, C)
    for change in changes:
        before = now
        if isinstance(change, int):
            if change in now.replicas:
                now = expanded(now, change, LIVE[change], min_isr)
        elif isinstance(change, str):
            goal = originals_of(now)
            now = cancelled(now, 2) if is_reassigned(now) else now
        else:
            goal = change
            now = started(now, change, 2) or now
        members = {*now.isr, *now.elr}
        assert not {*before.isr, *before.elr} - members or not is_step(change)
        assert members <= set(now.replicas)
        assert now.leader in now.isr
        assert target_of(now) == goal
    for member in goal:
        now = expanded(now, member, LIVE[member], min_isr)
    end = next_step(now, NOW, min_isr) or now
    assert (end.replicas, is_reassigned(end), set(end.isr)) == (goal, False, set(goal))
    assert next_step(end, NOW, min_isr) is None
    assert wanted_state(end, NOW, TopicRules(min_isr=min_isr)).state is None


def is_step(change: tuple[int, ...] | str | int) -> bool:
    """Changes of the target; an ISR that grows may let the ELR go."""
    return not isinstance(change, int)
