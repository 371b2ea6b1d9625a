"""Static members: they come back as who they were, without a rebalance, and fence what they were
before (A5)."""

import pytest

from support.group_stage import Member, Stage, leave, settle
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.requests import Leaving


def restarted(member: Member) -> Member:
    """The same static member after its process started again."""
    again = Member(member.stage)
    again.join_values = dict(member.join_values)
    return again


def two(stage: Stage) -> tuple[Member, Member]:
    """A stable group whose leader is the first."""
    leader, follower = Member(stage, instance_id="one"), Member(stage, instance_id="two")
    settle(stage, leader, follower)
    return leader, follower


def test_a_static_member_needs_no_second_request() -> None:
    stage = Stage()
    member = Member(stage, instance_id="one")
    member.ask_to_join()
    stage.wait(10)
    assert member.code() is ErrorCode.none
    assert member.member_id.startswith("one-")


@pytest.mark.parametrize("number", [0, 1])
def test_one_that_starts_again_goes_on_without_a_rebalance(number: int) -> None:
    stage = Stage()
    members = two(stage)
    other, generation = members[1 - number], stage.group().generation
    again = restarted(members[number])
    again.ask_to_join()
    stage.wait(10)
    joined = again.joins[-1]
    assert (joined.code, joined.generation) == (ErrorCode.none, generation)
    assert again.member_id != members[number].member_id
    assert stage.group().state_name == "Stable"
    assert other.heartbeat() is ErrorCode.none
    again.sync()
    assert again.syncs[-1].assignment == f"work of {members[number].member_id}".encode()
    assert joined.leader == (again.member_id if number == 0 else members[0].member_id)


def test_a_leader_that_starts_again_is_told_to_leave_all_as_it_is() -> None:
    stage = Stage()
    leader, _ = two(stage)
    again = restarted(leader)
    again.ask_to_join()
    stage.wait(10)
    joined = again.joins[-1]
    assert joined.skip_assignment
    assert [member.instance_id for member in joined.members] == ["one", "two"]


def test_an_older_leader_that_starts_again_is_told_that_what_it_was_leads() -> None:
    stage = Stage()
    leader, _ = two(stage)
    again = restarted(leader)
    again.ask_to_join(may_skip_assignment=False)
    stage.wait(10)
    joined = again.joins[-1]
    assert (joined.leader, joined.skip_assignment, joined.members) == (leader.member_id, False, ())


def test_what_it_was_before_is_fenced() -> None:
    stage = Stage()
    _, follower = two(stage)
    again = restarted(follower)
    again.ask_to_join()
    stage.wait(10)
    assert follower.heartbeat() is ErrorCode.fenced_instance_id
    assert follower.commit(3) is ErrorCode.fenced_instance_id
    assert follower.leave() is ErrorCode.fenced_instance_id
    follower.sync()
    assert follower.syncs[-1].code is ErrorCode.fenced_instance_id
    follower.ask_to_join()
    assert follower.code() is ErrorCode.fenced_instance_id
    assert again.commit(3) is ErrorCode.none


def test_what_waits_is_fenced_when_it_is_replaced() -> None:
    stage = Stage()
    leader, follower = two(stage)
    follower.joins.clear()
    leader.ask_to_join()
    leader.joins.clear()
    again = restarted(leader)
    again.ask_to_join()
    assert leader.code() is ErrorCode.fenced_instance_id
    follower.ask_to_join()
    stage.wait(10)
    assert (again.code(), follower.code()) == (ErrorCode.none, ErrorCode.none)


def test_one_that_starts_again_before_the_leader_has_spoken_makes_all_join_again() -> None:
    stage = Stage()
    leader, follower = two(stage)
    leader.join()
    follower.join()
    stage.wait(10)
    follower.sync()
    again = restarted(follower)
    again.ask_to_join()
    stage.wait(10)
    assert follower.syncs[-1].code is ErrorCode.fenced_instance_id
    assert leader.heartbeat() is ErrorCode.rebalance_in_progress
    leader.ask_to_join()
    stage.wait(10)
    assert leader.generation == again.generation == stage.group().generation


def test_one_that_can_no_longer_do_what_was_chosen_makes_all_join_again() -> None:
    stage = Stage()
    both = (("range", b"\0\1\0\0\0\0"), ("sticky", b"\0\1\0\0\0\0"))
    leader = Member(stage, instance_id="one", protocols=both)
    follower = Member(stage, instance_id="two", protocols=both)
    settle(stage, leader, follower)
    again = restarted(follower)
    again.ask_to_join(protocols=both[1:])
    assert leader.heartbeat() is ErrorCode.rebalance_in_progress
    leader.ask_to_join()
    stage.wait(10)
    assert again.joins[-1].protocol == "sticky"


@pytest.mark.parametrize("is_refused", [True, False])
def test_one_whose_return_cannot_be_written_was_never_back(is_refused: bool) -> None:
    stage = Stage()
    _, follower = two(stage)
    again = restarted(follower)
    failure = KafkaError(ErrorCode.request_timed_out, "not in time")
    if is_refused:
        stage.journal.refusal = failure
    else:
        stage.journal.is_held = True
    again.ask_to_join(protocols=(("range", b"\0\1\0\0\0\0"),))
    stage.journal.release(failure)
    stage.wait(10)
    assert again.code() is ErrorCode.coordinator_not_available
    assert follower.heartbeat() is ErrorCode.none
    assert stage.group().members[follower.member_id].protocols == follower.join_values["protocols"]
    assert stage.group().joining_count == 0
    assert stage.group().select_protocol() == "range"


def test_nothing_is_told_of_a_return_before_it_is_committed() -> None:
    stage = Stage()
    _, follower = two(stage)
    stage.journal.is_held = True
    again = restarted(follower)
    again.ask_to_join()
    stage.wait(100)
    assert again.code() is None
    stage.journal.release()
    stage.wait(10)
    assert again.code() is ErrorCode.none


def test_one_whose_return_is_overtaken_by_a_rebalance_is_part_of_it() -> None:
    stage = Stage()
    leader, follower = two(stage)
    stage.journal.is_held = True
    again = restarted(follower)
    again.ask_to_join()
    leader.ask_to_join()
    stage.wait(10)
    stage.journal.release()
    stage.wait(10)
    assert [joined.code for joined in again.joins] == [ErrorCode.none]
    assert again.generation == leader.generation == stage.group().generation == 3


def test_a_group_waits_for_static_members_until_their_session_is_over() -> None:
    stage = Stage()
    leader, follower = two(stage)
    new = Member(stage, rebalance_timeout_ms=5000)
    leader.join_values["rebalance_timeout_ms"] = follower.join_values["rebalance_timeout_ms"] = 5000
    leader.ask_to_join()
    new.join()
    stage.wait(9000)
    assert new.code() is None
    leader.heartbeat()
    stage.wait(60_000)
    assert new.code() is ErrorCode.none
    assert follower.heartbeat() is ErrorCode.unknown_member_id


def test_static_members_are_sent_away_by_their_instance_id() -> None:
    stage = Stage()
    leader, _ = two(stage)
    assert leave(stage, Leaving("", "two"), Leaving("", "nobody"), Leaving("")) == [
        ErrorCode.none,
        ErrorCode.unknown_member_id,
        ErrorCode.unknown_member_id,
    ]
    assert leader.heartbeat() is ErrorCode.rebalance_in_progress
    assert list(stage.group().member_ids) == ["one"]


def test_a_static_member_that_starts_again_elsewhere_is_known_there() -> None:
    stage = Stage()
    _, follower = two(stage)
    again = restarted(follower)
    again.ask_to_join()
    stage.wait(10)
    stage.move()
    assert again.heartbeat() is ErrorCode.none
    assert follower.heartbeat() is ErrorCode.fenced_instance_id
    once_more = restarted(follower)
    once_more.ask_to_join()
    stage.wait(10)
    assert once_more.code() is ErrorCode.none
    assert stage.group().state_name == "Stable"


def test_an_instance_id_without_a_member_is_unknown() -> None:
    stage = Stage()
    leader, _ = two(stage)
    leader.join_values["instance_id"] = "three"
    assert leader.heartbeat() is ErrorCode.unknown_member_id


@pytest.mark.parametrize(
    ("instance_id", "code"),
    [("one", ErrorCode.fenced_instance_id), ("three", ErrorCode.unknown_member_id)],
)
def test_a_promised_id_is_of_no_use_to_a_static_member(instance_id: str, code: ErrorCode) -> None:
    """Whoever has the name goes on."""
    stage = Stage()
    leader, _ = two(stage)
    other = Member(stage)
    other.ask_to_join()
    assert other.code() is ErrorCode.member_id_required
    other.ask_to_join(instance_id=instance_id)
    stage.wait(10)
    assert other.code() is code
    assert (stage.group().state_name, leader.heartbeat()) == ("Stable", ErrorCode.none)
    other.ask_to_join(instance_id=None)
    assert stage.group().state_name == "PreparingRebalance"
