"""Joining classic groups: who becomes a member, as whom, and in which generation (A5)."""

from typing import Any

import pytest

from support.group_stage import Member, Stage, settle, subscription
from tidelog.base.errors import ErrorCode


def test_one_that_is_new_is_given_an_id_and_joins_with_it() -> None:
    stage = Stage()
    member = Member(stage, "reader")
    member.ask_to_join()
    assert member.code() is ErrorCode.member_id_required
    assert member.member_id.startswith("reader-")
    assert len(member.member_id) == len("reader-") + 36
    member.ask_to_join()
    stage.wait(10)
    joined = member.joins[-1]
    assert (joined.code, joined.generation, joined.leader) == (
        ErrorCode.none,
        1,
        member.member_id,
    )
    assert (joined.protocol, joined.protocol_type) == ("range", "consumer")
    assert [shown.member_id for shown in joined.members] == [member.member_id]


def test_however_long_a_name_is_an_id_can_be_made_of_it() -> None:
    stage = Stage()
    member = Member(stage, "ü" * 16_383).join()
    stage.wait(10)
    assert member.code() is ErrorCode.none
    assert len(member.member_id.encode()) < 32_768


def test_an_older_client_is_a_member_at_once() -> None:
    stage = Stage()
    member = Member(stage, takes_member_id=False)
    member.ask_to_join()
    stage.wait(10)
    assert member.code() is ErrorCode.none


def test_an_id_nobody_gave_is_unknown() -> None:
    stage = Stage()
    stranger = Member(stage)
    stranger.member_id = "made-up"
    stranger.ask_to_join()
    assert stranger.code() is ErrorCode.unknown_member_id
    settle(stage, Member(stage))
    stranger.ask_to_join()
    assert stranger.code() is ErrorCode.unknown_member_id


def test_only_the_leader_is_told_of_everyone() -> None:
    stage = Stage()
    members = [Member(stage, f"c{number}") for number in range(3)]
    settle(stage, *members)
    told = {member.member_id: member.joins[-1] for member in members}
    leaders = {joined.leader for joined in told.values()}
    assert len(leaders) == 1
    for member_id, joined in told.items():
        assert len(joined.members) == (3 if member_id in leaders else 0)


def test_the_first_generation_waits_for_more_members_as_long_as_they_come() -> None:
    stage = Stage(group_initial_rebalance_delay_ms=3000)
    first = Member(stage).join()
    stage.wait(2900)
    second = Member(stage).join()
    stage.wait(2900)
    assert (first.code(), second.code()) == (None, None)
    third = Member(stage).join()
    stage.wait(3200)
    assert third.code() is None
    stage.wait(3000)
    for member in (first, second, third):
        assert (member.code(), member.generation) == (ErrorCode.none, 1)


def test_the_first_generation_begins_when_nobody_else_comes() -> None:
    stage = Stage(group_initial_rebalance_delay_ms=3000)
    only = Member(stage).join()
    stage.wait(2999)
    assert only.code() is None
    stage.wait(2)
    assert only.code() is ErrorCode.none


def test_it_waits_for_more_no_longer_than_members_do() -> None:
    """However many come, the first is answered before it gives up."""
    stage = Stage(group_initial_rebalance_delay_ms=3000)
    first = Member(stage, rebalance_timeout_ms=10_000).join()
    for _ in range(10):
        stage.wait(1000)
        Member(stage, rebalance_timeout_ms=10_000).join()
    stage.wait(10)
    assert first.code() is ErrorCode.none


def test_a_new_member_makes_the_others_join_again() -> None:
    stage = Stage()
    old, new = Member(stage), Member(stage)
    settle(stage, old)
    new.join()
    assert new.code() is None
    assert old.heartbeat() is ErrorCode.rebalance_in_progress
    old.join()
    stage.wait(10)
    assert (old.code(), old.generation) == (ErrorCode.none, 2)
    assert (new.code(), new.generation) == (ErrorCode.none, 2)
    assert old.joins[-1].leader == old.member_id


def test_one_that_does_not_join_again_in_time_is_let_go() -> None:
    stage = Stage()
    slow, new = (Member(stage, rebalance_timeout_ms=5000) for _ in range(2))
    settle(stage, slow)
    new.join()
    stage.wait(4990)
    assert new.code() is None
    stage.wait(20)
    assert (new.code(), new.generation) == (ErrorCode.none, 2)
    assert [shown.member_id for shown in new.joins[-1].members] == [new.member_id]
    assert slow.heartbeat() is ErrorCode.unknown_member_id


def test_one_that_was_promised_an_id_is_waited_for_until_its_session_is_over() -> None:
    stage = Stage()
    old, promised = Member(stage), Member(stage, session_timeout_ms=6000)
    settle(stage, old)
    promised.ask_to_join()
    old.join()
    stage.wait(5000)
    assert old.heartbeat() is ErrorCode.rebalance_in_progress
    stage.wait(1100)
    assert (old.code(), old.generation) == (ErrorCode.none, 2)
    promised.ask_to_join()
    assert promised.code() is ErrorCode.unknown_member_id


def test_a_follower_that_asks_again_is_told_what_it_was_told() -> None:
    stage = Stage()
    leader, follower = Member(stage), Member(stage)
    settle(stage, leader, follower)
    generation = stage.group().generation
    follower.ask_to_join()
    assert (follower.code(), follower.generation) == (ErrorCode.none, generation)
    assert stage.group().state_name == "Stable"


def test_a_leader_that_asks_again_decides_anew() -> None:
    stage = Stage()
    leader, follower = Member(stage), Member(stage)
    settle(stage, leader, follower)
    leader.ask_to_join()
    assert follower.heartbeat() is ErrorCode.rebalance_in_progress
    follower.ask_to_join()
    stage.wait(10)
    assert leader.generation == follower.generation == stage.group().generation
    assert stage.group().state_name == "CompletingRebalance"


def test_one_that_asks_for_something_else_makes_all_join_again() -> None:
    stage = Stage()
    leader, follower = Member(stage), Member(stage)
    settle(stage, leader, follower)
    follower.ask_to_join(protocols=(("range", subscription("orders", "bills")),))
    assert leader.heartbeat() is ErrorCode.rebalance_in_progress
    leader.ask_to_join()
    stage.wait(10)
    assert stage.group().topics == frozenset(("orders", "bills"))


def test_a_lost_answer_is_given_again_before_the_leader_has_spoken() -> None:
    stage = Stage()
    only = Member(stage).join()
    stage.wait(10)
    only.ask_to_join()
    stage.wait(10)
    assert [joined.generation for joined in only.joins] == [1, 1]
    assert len(only.joins[-1].members) == 1


def test_one_that_asks_twice_is_answered_on_both_and_counted_once() -> None:
    stage = Stage()
    first, second = Member(stage), Member(stage)
    settle(stage, first, second)
    first.joins.clear()
    first.ask_to_join()
    first.ask_to_join()
    assert [joined.code for joined in first.joins] == [ErrorCode.rebalance_in_progress]
    second.ask_to_join()
    stage.wait(10)
    assert first.code() is ErrorCode.none
    assert len(stage.group().members) == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"protocol_type": "connect"},
        {"protocols": (("sticky", b""),)},
        {"protocols": ()},
    ],
)
def test_one_that_has_nothing_in_common_with_the_others_is_refused(changed: Any) -> None:
    stage = Stage()
    settle(stage, Member(stage))
    other = Member(stage, **changed)
    other.ask_to_join()
    assert other.code() is ErrorCode.inconsistent_group_protocol
    assert stage.group().state_name == "Stable"


@pytest.mark.parametrize("changed", [{"protocol_type": ""}, {"protocols": ()}])
def test_a_group_cannot_begin_with_nothing_to_agree_on(changed: Any) -> None:
    stage = Stage()
    nobody = Member(stage, **changed)
    nobody.ask_to_join()
    assert nobody.code() is ErrorCode.inconsistent_group_protocol


def test_most_members_decide_on_the_protocol_among_those_all_can_do() -> None:
    stage = Stage()
    wishes = (("roundrobin", "range", "sticky"), ("range", "roundrobin"), ("range", "roundrobin"))
    members = [
        Member(stage, protocols=tuple((name, subscription("orders")) for name in names))
        for names in wishes
    ]
    settle(stage, *members)
    assert {member.joins[-1].protocol for member in members} == {"range"}


def test_a_name_that_is_said_twice_counts_once() -> None:
    stage = Stage()
    twice = (("range", b"one"), ("range", b"two"))
    settle(stage, Member(stage, protocols=twice), Member(stage, protocols=(("range", b""),)))
    first, second = stage.group().members.values()
    assert (first.metadata("range"), second.metadata("range")) == (b"one", b"")
    leaver = next(iter(stage.group().members))
    stage.group().remove(leaver)
    assert stage.group().select_protocol() == "range"


def test_a_group_has_no_more_members_than_it_may() -> None:
    stage = Stage(group_max_size=2)
    first, second = Member(stage), Member(stage)
    settle(stage, first, second)
    third = Member(stage).join()
    assert (third.code(), third.member_id) == (ErrorCode.group_max_size_reached, "")
    assert stage.group().state_name == "Stable"


def test_a_group_that_has_become_too_large_keeps_those_who_join_first() -> None:
    stage = Stage()
    members = [Member(stage) for _ in range(3)]
    settle(stage, *members)
    stage.settings = Stage(group_max_size=2).settings
    stage.move()
    for member in members:
        assert member.heartbeat() is ErrorCode.rebalance_in_progress
        member.joins.clear()
    for member in members:
        member.ask_to_join()
    stage.wait(10)
    codes = [member.code() for member in members]
    assert codes == [ErrorCode.none, ErrorCode.none, ErrorCode.group_max_size_reached]
    assert len(stage.group().members) == 2


def test_a_new_member_that_waits_too_long_may_have_left() -> None:
    """While it waits it sends no heartbeats; if it is there, it joins anew."""
    stage = Stage()
    patient, new = (Member(stage, rebalance_timeout_ms=900_000) for _ in range(2))
    settle(stage, patient)
    new.join()
    for _ in range(299):
        stage.wait(1000)
        patient.heartbeat()
    assert new.code() is None
    stage.wait(1100)
    assert new.code() is ErrorCode.unknown_member_id


def test_a_leader_that_is_gone_is_followed_by_one_that_is_there() -> None:
    stage = Stage()
    leader = Member(stage, instance_id="lead", rebalance_timeout_ms=5000)
    other = Member(stage, rebalance_timeout_ms=5000)
    settle(stage, leader, other)
    other.ask_to_join(protocols=(("range", subscription("bills")),))
    stage.wait(5100)
    assert other.code() is ErrorCode.none
    assert other.joins[-1].leader == other.member_id
    assert len(other.joins[-1].members) == 2
