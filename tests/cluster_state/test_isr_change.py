"""What happens to ELR and recorded epochs when the ISR of a partition changes."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cluster.image import PartitionInfo
from tidelog.cluster.isr_change import effective_min_isr, expanded, shrunk, with_isr


def partition(
    isr: tuple[int, ...] = (1, 2, 3),
    elr: tuple[int, ...] = (),
    replicas: tuple[int, ...] = (1, 2, 3),
) -> PartitionInfo:
    return PartitionInfo(
        replicas=replicas,
        isr=isr,
        elr=elr,
        leader=1,
        leader_epoch=4,
        state_version=9,
        controller_epoch=2,
        broker_epochs={member: member * 10 for member in (*isr, *elr)},
    )


def test_min_isr_is_at_most_the_replication_factor() -> None:
    assert effective_min_isr(2, (1, 2, 3)) == 2
    assert effective_min_isr(2, (1,)) == 1


def test_who_leaves_an_isr_that_stays_large_enough_is_not_kept() -> None:
    after = shrunk(partition(), [3], 2)
    assert (after.isr, after.elr, after.broker_epochs) == ((1, 2), (), {1: 10, 2: 20})


def test_who_leaves_an_isr_that_becomes_too_small_is_an_eligible_leader() -> None:
    """X20."""
    after = shrunk(partition((1, 2)), [2], 2)
    assert (after.isr, after.elr, after.broker_epochs) == ((1,), (2,), {1: 10, 2: 20})


def test_all_who_leave_at_once_are_eligible_leaders() -> None:
    """X20."""
    after = shrunk(partition(), [2, 3], 2)
    assert (after.isr, after.elr, after.broker_epochs) == ((1,), (2, 3), {1: 10, 2: 20, 3: 30})


def test_eligible_leaders_stay_while_the_isr_is_too_small() -> None:
    """X20."""
    after = shrunk(partition((1, 2), (3,)), [2], 3)
    assert (after.isr, after.elr) == ((1,), (3, 2))


def test_a_partition_with_too_few_replicas_for_the_setting_keeps_no_eligible_leaders() -> None:
    after = shrunk(partition((1, 2), replicas=(1, 2)), [2], 1)
    assert after.elr == ()


def test_eligible_leaders_go_as_soon_as_the_isr_is_large_enough() -> None:
    after = expanded(partition((1,), (2, 3)), 3, 31, 2)
    assert (after.isr, after.elr, after.broker_epochs) == ((1, 3), (), {1: 10, 3: 31})


def test_one_who_joins_an_isr_that_is_still_too_small_is_no_eligible_leader_any_more() -> None:
    after = expanded(partition((1,), (2, 3)), 3, 31, 3)
    assert (after.isr, after.elr, after.broker_epochs) == ((1, 3), (2,), {1: 10, 2: 20, 3: 31})


def test_a_member_joins_under_the_epoch_it_fetched_with() -> None:
    """X19."""
    assert expanded(partition((1, 2)), 2, 77, 1).broker_epochs == {1: 10, 2: 77}


def test_a_lowered_setting_lets_the_eligible_leaders_go() -> None:
    assert shrunk(partition((1,), (2,)), [], 1).elr == ()


def test_leader_epoch_and_version_stay_as_they_are() -> None:
    after = shrunk(partition(), [2], 1)
    assert (after.leader_epoch, after.state_version, after.controller_epoch) == (4, 9, 2)


def test_a_replica_that_was_reassigned_away_is_not_an_eligible_leader() -> None:
    after = with_isr(partition((1, 2, 3), replicas=(1, 2)), (1,), 2)
    assert after.elr == (2,)


def test_what_makes_no_sense_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        shrunk(partition(), [1], 1)
    with pytest.raises(AssertionError):
        expanded(partition(), 4, 1, 1)
    with pytest.raises(AssertionError):
        with_isr(partition(), (), 1)


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from((2, 3, 4, 5))), max_size=30),
    st.integers(1, 6),
)
def test_members_that_had_everything_are_never_forgotten_below_min_isr(
    changes: list[tuple[bool, int]], min_isr: int
) -> None:
    """X20: from the moment the ISR is too small, ISR and ELR together only grow."""
    now = partition((1, 2, 3, 4, 5), replicas=(1, 2, 3, 4, 5))
    needed = min(min_isr, 5)
    for grows, member in changes:
        before = now
        changed = (
            partial(expanded, member=member, epoch=100)
            if grows
            else partial(shrunk, members=[member])
        )
        now = changed(before, min_isr=min_isr)
        members = {*now.isr, *now.elr}
        assert not set(now.isr) & set(now.elr)
        assert set(now.broker_epochs) == members
        assert len(members) >= needed
        if len(now.isr) < needed:
            assert members >= {*before.isr, *before.elr}
        else:
            assert now.elr == ()
