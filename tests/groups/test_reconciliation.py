"""How one member comes to what it is to have (A5, V15)."""

from dataclasses import replace

import pytest

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.assignors import Assignment
from tidelog.groups.consumer_member import Member, MemberState
from tidelog.groups.reconciliation import Aim, HolderOf, reconcile

T = bytes(15) + b"\1"
U = bytes(15) + b"\2"
EVERY_TOPIC = (T, U)


def aim(epoch: int, target: Assignment, topic_ids: tuple[bytes, ...] = EVERY_TOPIC) -> Aim:
    return Aim(epoch=epoch, target=target, topic_ids=topic_ids)


def held_by(holder: str, *taken: tuple[bytes, int]) -> HolderOf:
    return lambda topic_id, partition: holder if (topic_id, partition) in taken else None


nobody = held_by("nobody")


NEW = Member(member_id="m")
SETTLED = Member(member_id="m", epoch=3, previous_epoch=2, held={T: {0: 2, 1: 3}})


def test_a_new_member_gets_what_is_free_at_once() -> None:
    found = reconcile(NEW, aim(1, {T: (0, 1)}), nobody, {})
    assert found == Member(member_id="m", epoch=1, previous_epoch=0, held={T: {0: 1, 1: 1}})


def test_v15_what_others_hold_is_waited_for() -> None:
    found = reconcile(NEW, aim(2, {T: (0, 1)}), held_by("other", (T, 1)), {})
    assert (found.state, found.epoch, found.held) == (MemberState.UNRELEASED, 2, {T: {0: 2}})
    still = reconcile(found, aim(2, {T: (0, 1)}), held_by("other", (T, 1)), None)
    assert still == replace(found, previous_epoch=2)
    free = reconcile(still, aim(2, {T: (0, 1)}), nobody, None)
    assert (free.state, free.held) == (MemberState.STABLE, {T: {0: 2, 1: 2}})


def test_v15_what_is_to_be_given_up_is_held_until_the_member_says_it_has() -> None:
    revoking = reconcile(SETTLED, aim(4, {T: (0,), U: (5,)}), nobody, {T: (0, 1)})
    assert revoking.state is MemberState.UNREVOKED
    assert (revoking.epoch, revoking.held, revoking.revoking) == (3, {T: {0: 2}}, {T: {1: 3}})
    for owned in (None, {T: (0, 1)}, {T: (1,)}):
        assert reconcile(revoking, aim(4, {T: (0,), U: (5,)}), nobody, owned) is revoking
    done = reconcile(revoking, aim(4, {T: (0,), U: (5,)}), nobody, {T: (0,)})
    assert (done.epoch, done.previous_epoch, done.state) == (4, 3, MemberState.STABLE)
    assert (done.held, done.revoking) == ({T: {0: 2}, U: {5: 4}}, {})


def test_a_member_that_has_given_up_before_it_was_asked_goes_on_at_once() -> None:
    done = reconcile(SETTLED, aim(4, {T: (0,)}), nobody, {T: (0,)})
    assert (done.epoch, done.held, done.revoking) == (4, {T: {0: 2}}, {})


def test_a_member_gets_back_what_it_was_giving_up_if_it_is_to_have_it_again() -> None:
    revoking = reconcile(SETTLED, aim(4, {T: (0,)}), nobody, None)
    own = held_by("m", (T, 0), (T, 1))
    back = reconcile(revoking, aim(5, {T: (0, 1)}), own, {T: (0,)})
    assert (back.epoch, back.state, back.held) == (5, MemberState.STABLE, {T: {0: 2, 1: 5}})


def test_topics_it_does_not_subscribe_to_are_given_up_whatever_the_target_says() -> None:
    found = reconcile(SETTLED, aim(4, {T: (0, 1), U: (1,)}, (U,)), nobody, None)
    assert (found.held, found.revoking) == ({}, {T: {0: 2, 1: 3}})
    found = reconcile(NEW, aim(4, {T: (0, 1), U: (1,)}, (U,)), nobody, None)
    assert found.held == {U: {1: 4}}


def test_a_member_that_is_where_it_is_to_be_stays_as_it_is() -> None:
    assert reconcile(SETTLED, aim(3, {T: (0, 1)}), nobody, None) is SETTLED


def test_a_member_in_a_state_of_a_newer_broker_has_to_join_again() -> None:
    odd = replace(SETTLED, state=MemberState.UNKNOWN)
    for owned in (None, {T: (0,)}):
        with pytest.raises(KafkaError) as raised:
            reconcile(odd, aim(4, {T: (0,)}), nobody, owned)
        assert raised.value.code is ErrorCode.fenced_member_epoch
    assert reconcile(odd, aim(4, {T: (0,)}), nobody, {}).held == {T: {0: 2}}
