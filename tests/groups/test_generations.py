"""Generations of classic groups: what members are to do, heartbeats, leaving, fencing (A5, V15)."""

import pytest

from support.group_stage import Member, Stage, leave, settle
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.requests import Identity, Leaving, Sync


def test_members_do_what_the_leader_says_once_it_is_committed() -> None:
    stage = Stage()
    leader, follower = Member(stage), Member(stage)
    settle(stage, leader, follower)
    leader.join()
    follower.join()
    stage.wait(10)
    follower.syncs.clear()
    follower.sync()
    assert follower.syncs == []
    stage.journal.is_held = True
    leader.syncs.clear()
    leader.sync({leader.member_id: b"one", follower.member_id: b"two"})
    stage.wait(10)
    assert (leader.syncs, follower.syncs) == ([], [])
    assert stage.group().state_name == "CompletingRebalance"
    stage.journal.release()
    stage.wait(10)
    assert [s.assignment for s in leader.syncs + follower.syncs] == [b"one", b"two"]
    assert stage.group().state_name == "Stable"


def test_one_that_asks_late_is_told_what_was_said() -> None:
    stage = Stage()
    leader, follower = Member(stage), Member(stage)
    settle(stage, leader, follower)
    follower.sync()
    assert follower.syncs[-1].assignment == f"work of {follower.member_id}".encode()
    assert (follower.syncs[-1].protocol_type, follower.syncs[-1].protocol) == ("consumer", "range")


def test_one_that_the_leader_forgot_has_nothing_to_do() -> None:
    stage = Stage()
    leader, follower = Member(stage), Member(stage)
    settle(stage, leader, follower)
    leader.join()
    follower.join()
    stage.wait(10)
    leader.sync({leader.member_id: b"all", "nobody": b"none"})
    follower.sync()
    assert (follower.syncs[-1].code, follower.syncs[-1].assignment) == (ErrorCode.none, b"")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.request_timed_out, ErrorCode.coordinator_not_available),
        (ErrorCode.not_enough_replicas, ErrorCode.coordinator_not_available),
        (ErrorCode.not_leader_or_follower, ErrorCode.not_coordinator),
        (ErrorCode.message_too_large, ErrorCode.unknown_server_error),
    ],
)
@pytest.mark.parametrize("is_refused", [True, False])
def test_what_could_not_be_written_is_not_told_and_all_join_again(
    code: ErrorCode, told: ErrorCode, is_refused: bool
) -> None:
    stage = Stage()
    only = Member(stage).join()
    stage.wait(10)
    failure = KafkaError(code, "it failed")
    if is_refused:
        stage.journal.refusal = failure
    else:
        stage.journal.is_held = True
    only.sync({only.member_id: b"work"})
    stage.journal.release(failure)
    stage.wait(10)
    assert [(synced.code, synced.assignment) for synced in only.syncs] == [(told, b"")]
    assert only.heartbeat() is ErrorCode.rebalance_in_progress
    stage.journal.refusal = None
    settle(stage, only)
    assert only.generation == 2


def test_a_commit_that_comes_after_the_next_rebalance_began_changes_nothing() -> None:
    stage = Stage()
    only = Member(stage).join()
    stage.wait(10)
    stage.journal.is_held = True
    only.sync({only.member_id: b"work"})
    other = Member(stage).join()
    stage.wait(10)
    assert only.syncs[-1].code is ErrorCode.rebalance_in_progress
    stage.journal.release()
    stage.wait(10)
    assert stage.group().state_name == "PreparingRebalance"
    assert len(only.syncs) == 1
    settle(stage, only, other)


def test_a_leader_that_says_it_twice_is_heard_once() -> None:
    """What is written is what members do, also for the broker that takes over."""
    stage = Stage()
    only = Member(stage).join()
    stage.wait(10)
    stage.journal.is_held = True
    only.sync({only.member_id: b"first"})
    only.sync({only.member_id: b"second"})
    stage.journal.release()
    stage.wait(10)
    assert only.syncs[-1].assignment == b"first"
    stage.move()
    only.sync()
    assert only.syncs[-1].assignment == b"first"


def test_whoever_asks_of_another_generation_is_told_so() -> None:
    stage = Stage()
    only = Member(stage)
    settle(stage, only)
    for generation in (0, 2, -1):
        only.generation = generation
        assert only.heartbeat() is ErrorCode.illegal_generation
        assert only.commit(1) is ErrorCode.illegal_generation
        only.sync()
        assert only.syncs[-1].code is ErrorCode.illegal_generation


def test_whoever_is_no_member_is_told_so() -> None:
    stage = Stage()
    stranger = Member(stage)
    assert stranger.heartbeat() is ErrorCode.unknown_member_id
    stranger.sync()
    assert stranger.syncs[-1].code is ErrorCode.unknown_member_id
    settle(stage, Member(stage))
    stranger.member_id, stranger.generation = "made-up", 1
    assert stranger.heartbeat() is ErrorCode.unknown_member_id
    assert stranger.commit(1) is ErrorCode.unknown_member_id
    assert stranger.leave() is ErrorCode.unknown_member_id
    stranger.sync()
    assert stranger.syncs[-1].code is ErrorCode.unknown_member_id


@pytest.mark.parametrize("wrong", [{"protocol_type": "connect"}, {"protocol": "sticky"}])
def test_whoever_believes_in_another_protocol_is_told_so(wrong: dict[str, str]) -> None:
    stage = Stage()
    only = Member(stage)
    settle(stage, only)
    answers: list[ErrorCode] = []
    sync = Sync(
        who=only.identity,
        assignments={},
        protocol_type=wrong.get("protocol_type"),
        protocol=wrong.get("protocol"),
    )
    stage.shard.sync(sync, lambda synced: answers.append(synced.code))
    assert answers == [ErrorCode.inconsistent_group_protocol]


def test_one_that_is_silent_is_let_go_and_the_others_join_again() -> None:
    stage = Stage()
    alive, silent = Member(stage), Member(stage, session_timeout_ms=6000)
    settle(stage, alive, silent)
    stage.wait(5900)
    assert alive.heartbeat() is ErrorCode.none
    stage.wait(200)
    assert alive.heartbeat() is ErrorCode.rebalance_in_progress
    alive.join()
    stage.wait(10)
    assert [member.member_id for member in alive.joins[-1].members] == [alive.member_id]
    assert silent.heartbeat() is ErrorCode.unknown_member_id


def test_heartbeats_keep_a_member() -> None:
    stage = Stage()
    only = Member(stage, session_timeout_ms=6000)
    settle(stage, only)
    for _ in range(20):
        stage.wait(5900)
        assert only.heartbeat() is ErrorCode.none
    stage.wait(6100)
    assert only.heartbeat() is ErrorCode.unknown_member_id
    assert stage.group().state_name == "Empty"


def test_commits_keep_a_member_too() -> None:
    stage = Stage()
    only = Member(stage, session_timeout_ms=6000)
    settle(stage, only)
    for offset in range(5):
        stage.wait(5900)
        assert only.commit(offset) is ErrorCode.none


def test_one_that_never_asks_what_to_do_is_let_go() -> None:
    stage = Stage()
    leader, follower = (Member(stage, rebalance_timeout_ms=5000) for _ in range(2))
    settle(stage, leader, follower)
    leader.join()
    follower.join()
    stage.wait(10)
    leader.sync({})
    for _ in range(5):
        stage.wait(1000)
        follower.heartbeat()
    assert leader.heartbeat() is ErrorCode.rebalance_in_progress
    assert follower.heartbeat() is ErrorCode.unknown_member_id


def test_one_that_waits_for_the_leader_is_not_taken_for_silent() -> None:
    stage = Stage()
    leader = Member(stage, session_timeout_ms=1_000_000)
    follower = Member(stage, session_timeout_ms=6000)
    settle(stage, leader, follower)
    leader.join()
    follower.join()
    stage.wait(10)
    follower.sync()
    stage.wait(20_000)
    leader.sync({follower.member_id: b"work"})
    assert follower.syncs[-1].assignment == b"work"
    assert follower.heartbeat() is ErrorCode.none


def test_one_that_leaves_is_gone_at_once() -> None:
    stage = Stage()
    stays, leaves = Member(stage), Member(stage)
    settle(stage, stays, leaves)
    assert leaves.leave() is ErrorCode.none
    assert stays.heartbeat() is ErrorCode.rebalance_in_progress
    stays.join()
    stage.wait(10)
    assert stays.code() is ErrorCode.none
    assert leaves.leave() is ErrorCode.unknown_member_id


def test_several_leave_with_one_rebalance() -> None:
    stage = Stage()
    members = [Member(stage) for _ in range(4)]
    settle(stage, *members)
    generation = stage.group().generation
    gone = [Leaving(member.member_id) for member in members[:3]]
    assert leave(stage, *gone, Leaving("made-up")) == [
        *[ErrorCode.none] * 3,
        ErrorCode.unknown_member_id,
    ]
    members[3].join()
    stage.wait(10)
    assert members[3].generation == generation + 1


def test_the_last_that_leaves_leaves_an_empty_group() -> None:
    stage = Stage()
    only = Member(stage)
    settle(stage, only)
    only.commit(5)
    only.leave()
    group = stage.group()
    assert (group.state_name, group.generation, group.protocol) == ("Empty", 2, None)
    stage.move()
    group = stage.group()
    assert (group.state_name, group.generation, group.protocol_type) == ("Empty", 2, "consumer")
    settle(stage, only2 := Member(stage))
    assert only2.generation == 3


def test_one_that_leaves_while_it_waits_is_answered() -> None:
    stage = Stage()
    leader, follower = Member(stage), Member(stage)
    settle(stage, leader, follower)
    leader.join()
    follower.joins.clear()
    follower.leave()
    stage.wait(10)
    leader.sync({})
    leader.join()
    late = Member(stage).join()
    assert late.leave() is ErrorCode.none
    assert late.code() is ErrorCode.unknown_member_id


def test_one_that_leaves_while_it_waits_for_the_leader_is_answered() -> None:
    stage = Stage()
    leader, follower = Member(stage), Member(stage)
    settle(stage, leader, follower)
    leader.join()
    follower.join()
    stage.wait(10)
    follower.sync()
    follower.leave()
    assert follower.syncs[-1].code is ErrorCode.unknown_member_id


def test_one_that_was_promised_an_id_may_leave_before_it_came() -> None:
    stage = Stage()
    old, promised = Member(stage), Member(stage)
    settle(stage, old)
    promised.ask_to_join()
    old.join()
    assert promised.leave() is ErrorCode.none
    stage.wait(10)
    assert old.code() is ErrorCode.none


def test_leaving_a_group_there_is_not_is_an_error_of_the_member() -> None:
    stage = Stage()
    assert leave(stage, Leaving("a"), Leaving("b")) == [ErrorCode.unknown_member_id] * 2


def test_nobody_commits_before_it_was_told_what_to_do() -> None:
    """V15: its partitions may be another's already."""
    stage = Stage()
    only = Member(stage).join()
    stage.wait(10)
    assert only.commit(5) is ErrorCode.rebalance_in_progress
    assert stage.committed() == -1
    only.sync({only.member_id: b"work"})
    assert only.commit(5) is ErrorCode.none


def test_members_commit_while_a_rebalance_is_prepared() -> None:
    stage = Stage()
    old, new = Member(stage), Member(stage)
    settle(stage, old)
    new.join()
    assert old.commit(7) is ErrorCode.none
    assert new.commit(8) is ErrorCode.illegal_generation


def test_a_generation_that_is_over_cannot_commit() -> None:
    """V15."""
    stage = Stage()
    first, second = Member(stage), Member(stage)
    settle(stage, first)
    zombie = first.identity
    settle(stage, first, second)
    assert first.commit(10) is ErrorCode.none
    first.generation = zombie.generation
    assert first.commit(3) is ErrorCode.illegal_generation
    assert stage.committed() == 10


def test_a_group_with_members_is_not_committed_to_by_others() -> None:
    stage = Stage()
    settle(stage, Member(stage))
    outsider = Member(stage)
    assert outsider.commit(5) is ErrorCode.unknown_member_id


def test_a_coordinator_that_goes_sends_everyone_to_the_next() -> None:
    stage = Stage()
    first, second = Member(stage), Member(stage)
    settle(stage, first, second)
    first.joins.clear()
    first.ask_to_join()
    stage.shard.stop()
    stage.wait(10)
    assert first.code() is ErrorCode.not_coordinator
    stage.wait(1_000_000)
    assert stage.loop.turn() is False, "no timer runs on"


def test_a_group_survives_its_coordinator() -> None:
    """A5: members go on in the same generation, with the same work, where another looks on."""
    stage = Stage()
    members = [Member(stage, session_timeout_ms=6000) for _ in range(3)]
    settle(stage, *members)
    members[0].commit(42)
    stage.move()
    stage.wait(5000)
    for member in members:
        assert member.heartbeat() is ErrorCode.none
        member.sync()
        assert member.syncs[-1].assignment == f"work of {member.member_id}".encode()
    assert stage.committed() == 42
    stage.wait(5000)
    assert members[0].heartbeat() is ErrorCode.none
    stage.wait(2000)
    assert members[0].heartbeat() is ErrorCode.rebalance_in_progress
    members[0].join()
    stage.wait(10)
    assert len(members[0].joins[-1].members) == 1


def test_nobody_is_told_of_a_generation_that_is_not_committed_yet() -> None:
    """V15: the coordinator that took over has it, but the next may not."""
    stage = Stage()
    only = Member(stage)
    settle(stage, only)
    stage.move()
    stage.journal.is_held = True
    count = len(only.syncs)
    assert only.heartbeat() is None
    only.sync()
    assert len(only.syncs) == count
    stage.journal.release()
    stage.wait(10)
    assert only.syncs[-1].assignment == f"work of {only.member_id}".encode()
    stage.journal.is_held = True
    codes: list[ErrorCode] = []
    stage.shard.heartbeat(only.identity, codes.append)
    stage.journal.release(KafkaError(ErrorCode.not_leader_or_follower, "another leads it"))
    assert codes == [ErrorCode.not_coordinator]


def test_a_rebalance_that_the_coordinator_did_not_survive_begins_anew() -> None:
    stage = Stage()
    old, new = Member(stage), Member(stage)
    settle(stage, old)
    new.join()
    old.join()
    stage.wait(10)
    assert old.generation == new.generation == 2
    stage.move()
    assert old.heartbeat() is ErrorCode.illegal_generation
    assert new.heartbeat() is ErrorCode.unknown_member_id
    new.member_id = ""
    settle(stage, old, new)


def test_a_loaded_group_is_the_one_that_was_there() -> None:
    stage = Stage()
    settle(stage, *(Member(stage, f"c{number}", instance_id=f"i{number}") for number in range(3)))
    before = stage.group()
    shown = before.entry({m.member_id: m.assignment for m in before.members.values()})
    topics = before.topics
    stage.move()
    after = stage.group()
    assert after is not before
    again = after.entry({m.member_id: m.assignment for m in after.members.values()})
    assert again.key == shown.key
    assert (after.topics, after.state_name) == (topics, "Stable")
    assert list(after.member_ids.items()) == list(before.member_ids.items())
    assert stage.journal.written[-1][0] == again


def test_subscriptions_that_cannot_be_read_are_not_known() -> None:
    stage = Stage()
    settle(stage, Member(stage, protocols=(("range", b"\0\1\0\0\0\7short"),)))
    assert stage.group().topics is None
    assert stage.group().is_subscribed_to("anything")


def test_a_group_that_is_no_group_of_consumers_subscribes_to_nothing() -> None:
    stage = Stage()
    settle(stage, Member(stage, protocol_type="connect", protocols=(("eager", b"x"),)))
    assert stage.group().topics is None
    assert not stage.group().is_subscribed_to("orders")


def test_whoever_names_no_generation_is_no_member() -> None:
    stage = Stage()
    only = Member(stage)
    settle(stage, only)
    codes: list[ErrorCode] = []
    stage.shard.heartbeat(Identity("g", only.member_id), codes.append)
    assert codes == [ErrorCode.illegal_generation]
