"""Groups of the newer protocol: members come, share, and go (A5, V15)."""

import pytest

from support.consumer_stage import (
    Consumer,
    add_topic,
    consumer_stage,
    find,
    owners,
    remove_topic,
    settle,
)
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.consumer_requests import Beat, Told
from tidelog.groups.requests import Commit

ALL = [("orders", index) for index in range(6)]


def test_a5_the_first_member_gets_all_partitions_with_its_first_heartbeat() -> None:
    stage = consumer_stage()
    a = Consumer(stage, "a").join()
    assert a.partitions == ALL
    assert (a.epoch, find(stage).epoch, find(stage).target_epoch) == (1, 1, 1)
    told = a.told[-1]
    assert isinstance(told, Told)
    assert told.interval_ms == 5000
    assert find(stage).state_name == "Stable"


def test_v15_a_partition_is_handed_over_only_after_it_was_given_up() -> None:
    stage = consumer_stage()
    a, b = Consumer(stage, "a").join(), Consumer(stage, "b").join()
    assert (b.partitions, b.epoch) == ([], 2)
    assert find(stage).state_name == "Reconciling"
    a.beat(takes_on=False)
    b.beat()
    assert b.partitions == [], "a was told to give up three, and has not said that it did"
    a.beat()
    b.beat()
    assert b.partitions == []
    a.beat()
    b.beat()
    assert owners(a, b) == ALL
    assert (len(a.partitions), len(b.partitions)) == (3, 3)
    assert (a.epoch, b.epoch, find(stage).state_name) == (2, 2, "Stable")


def test_an_assignment_is_told_when_it_changes_and_to_whoever_says_all_of_itself() -> None:
    stage = consumer_stage()
    a = Consumer(stage, "a").join()
    assert a.beat().told[-1] == Told(member_id="a", epoch=1, interval_ms=5000)
    full = a.send(epoch=1, owned=a.owned, topics=("orders",), rebalance_timeout_ms=30_000)
    assert isinstance(full, Told)
    assert full.assignment == a.owned


def test_a5_members_that_leave_are_followed_by_the_others() -> None:
    stage = consumer_stage()
    a, b, c = (Consumer(stage, name).join() for name in "abc")
    settle(a, b, c)
    assert owners(a, b, c) == ALL
    b.leave()
    assert b.told[-1] == Told(member_id="b", epoch=-1)
    settle(a, c)
    assert owners(a, c) == ALL
    a.leave()
    c.leave()
    assert find(stage).state_name == "Empty"
    assert b.beat().code is ErrorCode.unknown_member_id


def test_a5_a_silent_member_is_gone_after_its_session_timeout() -> None:
    stage = consumer_stage()
    a, b = Consumer(stage, "a").join(), Consumer(stage, "b").join()
    settle(a, b)
    for _ in range(9):
        stage.wait(5000)
        a.beat()
    assert owners(a) != ALL
    stage.wait(5000)
    a.beat()
    assert owners(a) == ALL
    assert b.beat().code is ErrorCode.unknown_member_id
    assert b.join().partitions == []


def test_v15_a_member_that_does_not_give_up_in_time_is_gone() -> None:
    stage = consumer_stage()
    a = Consumer(stage, "a", rebalance_timeout_ms=12_000).join()
    b = Consumer(stage, "b").join()
    a.beat(takes_on=False)
    for _ in range(2):
        stage.wait(5000)
        a.beat(takes_on=False)
        b.beat()
        assert a.code is ErrorCode.none
        assert b.partitions == []
    stage.wait(5000)
    b.beat()
    assert b.partitions == ALL
    assert a.beat().code is ErrorCode.unknown_member_id


def test_a_second_revocation_has_a_time_of_its_own() -> None:
    stage = consumer_stage()
    a = Consumer(stage, "a", rebalance_timeout_ms=12_000).join()
    b = Consumer(stage, "b").join()
    a.beat()
    stage.wait(10_000)
    settle(a, b)
    c = Consumer(stage, "c").join()
    a.beat(takes_on=False)
    stage.wait(10_000)
    assert a.beat(takes_on=False).code is ErrorCode.none
    settle(a, b, c)
    assert owners(a, b, c) == ALL


def test_a5_members_have_only_what_they_subscribe_to() -> None:
    stage = consumer_stage({"orders": 3, "bills": 4})
    a = Consumer(stage, "a", "orders").join()
    b = Consumer(stage, "b", "bills", "orders").join()
    settle(a, b)
    assert {topic for topic, _ in a.partitions} == {"orders"}
    assert len(owners(a, b)) == 7
    a.beat(topics=("bills",))
    settle(a, b)
    assert {topic for topic, _ in a.partitions} == {"bills"}
    assert len(owners(a, b)) == 7


def test_a5_new_partitions_and_topics_are_assigned_and_deleted_ones_are_not() -> None:
    stage = consumer_stage()
    a = Consumer(stage, "a", "orders", "later").join()
    epoch = find(stage).epoch
    add_topic(stage, "other", 2)
    a.beat()
    assert find(stage).epoch == epoch, "a topic that nobody subscribes to is no change"
    add_topic(stage, "orders", 8)
    a.beat()
    assert len(a.partitions) == 8
    add_topic(stage, "later", 2)
    a.beat()
    assert len(a.partitions) == 10
    remove_topic(stage, "orders")
    settle(a)
    assert a.partitions == [("later", 0), ("later", 1)]


def test_a_member_that_did_not_get_the_answer_comes_again_with_the_epoch_before() -> None:
    stage = consumer_stage()
    a = Consumer(stage, "a").join()
    Consumer(stage, "b").join()
    a.beat()
    before = (a.epoch, a.owned)
    a.beat()
    assert a.epoch == before[0] + 1
    a.epoch, a.owned = before
    assert a.beat().code is ErrorCode.none
    assert a.epoch == before[0] + 1


@pytest.mark.parametrize("epoch", [1, 4])
def test_v15_a_member_of_another_epoch_is_fenced(epoch: int) -> None:
    stage = consumer_stage()
    a, b = Consumer(stage, "a").join(), Consumer(stage, "b").join()
    settle(a, b)
    Consumer(stage, "c").join()
    settle(a, b)
    assert a.epoch == 3
    a.epoch = epoch
    a.beat()
    assert a.code is ErrorCode.fenced_member_epoch
    assert a.join().code is ErrorCode.none, "it may join again under its id"


def test_v15_the_epoch_before_is_not_taken_from_one_that_has_more_than_it_should() -> None:
    stage = consumer_stage()
    a, b = Consumer(stage, "a").join(), Consumer(stage, "b").join()
    everything = a.owned
    settle(a, b)
    assert a.epoch == 2
    told = a.send(epoch=1, owned=everything)
    assert isinstance(told, KafkaError)
    assert told.code is ErrorCode.fenced_member_epoch


def test_a5_a_static_member_that_leaves_for_now_gets_back_what_it_had() -> None:
    stage = consumer_stage()
    a = Consumer(stage, "a", instance_id="one").join()
    b = Consumer(stage, "b").join()
    settle(a, b)
    had, epoch = a.partitions, find(stage).epoch
    a.leave(epoch=-2)
    settle(b)
    assert owners(b) != ALL
    again = Consumer(stage, "a2", instance_id="one").join()
    assert again.partitions == had
    assert find(stage).epoch == epoch, "nothing changed for anyone"
    settle(again, b)
    assert owners(again, b) == ALL
    assert a.beat().code is ErrorCode.fenced_instance_id


def test_a5_a_static_member_that_stays_away_is_gone_after_its_session_timeout() -> None:
    stage = consumer_stage()
    a = Consumer(stage, "a", instance_id="one").join()
    b = Consumer(stage, "b").join()
    settle(a, b)
    a.leave(epoch=-2)
    for _ in range(10):
        stage.wait(5000)
        b.beat()
    assert b.partitions == ALL
    assert a.beat().code is ErrorCode.unknown_member_id


def test_an_instance_whose_member_goes_by_another_name_now_is_free() -> None:
    stage = consumer_stage()
    Consumer(stage, "a", instance_id="one").join()
    renamed = Consumer(stage, "a", instance_id="two").join()
    assert Consumer(stage, "b", instance_id="one").join().code is ErrorCode.none
    renamed.leave()
    assert Consumer(stage, "c", instance_id="two").join().code is ErrorCode.none
    assert find(stage).member_ids == {"one": "b", "two": "c"}


def test_a_static_member_that_is_still_there_is_not_replaced() -> None:
    stage = consumer_stage()
    a = Consumer(stage, "a", instance_id="one").join()
    second = Consumer(stage, "a2", instance_id="one").join()
    assert second.code is ErrorCode.unreleased_instance_id
    assert a.beat().code is ErrorCode.none
    a.leave()
    assert second.join().partitions == ALL


def test_group_max_size_is_kept_for_those_who_come_and_not_for_those_who_are_there() -> None:
    stage = consumer_stage(group_consumer_max_size=2)
    a, b = Consumer(stage, "a").join(), Consumer(stage, "b").join()
    assert Consumer(stage, "c").join().code is ErrorCode.group_max_size_reached
    settle(a, b)
    assert owners(a, b) == ALL


def test_the_assignor_that_most_members_ask_for_is_taken() -> None:
    stage = consumer_stage({"x": 2, "y": 2})
    a = Consumer(stage, "a", "x", "y", assignor="range").join()
    b = Consumer(stage, "b", "x", "y").join()
    settle(a, b)
    assert stage.shard.consumer.assignor_of(find(stage)) == "range"
    assert a.partitions == [("x", 0), ("y", 0)]
    told = Consumer(stage, "c", assignor="best").join().told[-1]
    assert isinstance(told, KafkaError)
    assert told.code is ErrorCode.unsupported_assignor


@pytest.mark.parametrize(
    "wrong",
    [
        {"group_id": " "},
        {"member_id": ""},
        {"instance_id": ""},
        {"rack_id": " "},
        {"epoch": -3},
        {"epoch": -2},
        {"rebalance_timeout_ms": -1},
        {"owned": None},
        {"owned": {bytes(16): (1,)}},
        {"topics": None},
        {"topics": tuple(map(str, range(10_001)))},
    ],
)
def test_a_heartbeat_that_cannot_be_meant_is_refused(wrong: dict[str, object]) -> None:
    stage = consumer_stage()
    good = {"epoch": 0, "owned": {}, "topics": ("orders",), "rebalance_timeout_ms": 1000}
    told = Consumer(stage, "a").send(**{**good, **wrong})
    assert isinstance(told, KafkaError)
    assert told.code is ErrorCode.invalid_request
    assert not stage.journal.written


def test_the_first_version_left_it_to_the_broker_to_name_members() -> None:
    stage = consumer_stage()
    a = Consumer(stage, "")
    told = a.send(epoch=0, owned={}, topics=("orders",), rebalance_timeout_ms=1000, is_named=False)
    assert isinstance(told, Told)
    assert list(find(stage).members) == [told.member_id] != [""]


def test_only_one_who_joins_makes_a_group() -> None:
    stage = consumer_stage()
    a = Consumer(stage, "a")
    a.epoch = 3
    assert a.beat().code is ErrorCode.group_id_not_found
    assert a.leave().code is ErrorCode.group_id_not_found


def test_many_members_settle_in_a_few_rounds_and_with_few_records() -> None:
    stage = consumer_stage({"orders": 300})
    members = [Consumer(stage, f"m{number:03}").join() for number in range(100)]
    settle(*members, rounds=2)
    assert find(stage).state_name == "Stable"
    assert {len(member.partitions) for member in members} == {3}
    written = len(stage.journal.written)
    members.append(Consumer(stage, "new").join())
    settle(*members, rounds=2)
    assert find(stage).state_name == "Stable"
    assert sorted({len(member.partitions) for member in members}) == [2, 3]
    assert len(stage.journal.written) - written < 2 * len(members), "one or two a member"
    written = len(stage.journal.written)
    settle(*members, rounds=2)
    assert len(stage.journal.written) == written, "nothing when nothing changes"


def test_a5_the_group_survives_its_coordinator() -> None:
    stage = consumer_stage()
    a, b = Consumer(stage, "a").join(), Consumer(stage, "b").join()
    a.beat()
    before = find(stage)
    stage.move()
    after = find(stage)
    for name in ("epoch", "topics_hash", "target_epoch", "members", "targets", "member_ids"):
        assert getattr(after, name) == getattr(before, name), name
    settle(a, b)
    assert owners(a, b) == ALL
    assert (a.epoch, b.epoch) == (2, 2)
    stage.move()
    for _ in range(10):
        stage.wait(5000)
        a.beat()
    assert a.partitions == ALL, "timers run on the new coordinator too"


def test_nobody_is_told_of_what_is_not_committed() -> None:
    stage = consumer_stage()
    stage.journal.is_held = True
    told: list[Told | KafkaError] = []
    join = Beat(
        group_id="g", member_id="a", epoch=0, owned={}, topics=("orders",), rebalance_timeout_ms=1
    )
    stage.shard.consumer.beat(join, told.append)
    stage.shard.consumer.beat(Beat(group_id="g", member_id="a", epoch=1), told.append)
    stage.loop.run_for(0)
    assert not told, "neither of the change, nor of what came of it"
    stage.journal.release()
    assert [isinstance(one, Told) for one in told] == [True, True]


def test_a_commit_that_did_not_come_to_pass_is_told_and_the_group_is_as_the_journal_has_it() -> (
    None
):
    stage = consumer_stage()
    stage.journal.is_held = True
    a = Consumer(stage, "a").join()
    told: list[Told | KafkaError] = []
    stage.shard.consumer.beat(Beat(group_id="g", member_id="a", epoch=1), told.append)
    stage.journal.release(KafkaError(ErrorCode.request_timed_out, "for a test"))
    (error,) = told
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.coordinator_not_available
    assert a.join().partitions == ALL


def test_a_heartbeat_that_cannot_be_written_changes_nothing() -> None:
    stage = consumer_stage()
    a = Consumer(stage, "a").join()
    stage.journal.refusal = KafkaError(ErrorCode.not_enough_replicas, "for a test")
    assert Consumer(stage, "b").join().code is ErrorCode.coordinator_not_available
    add_topic(stage, "orders", 8)
    assert a.beat().code is ErrorCode.coordinator_not_available
    assert (list(find(stage).members), find(stage).epoch) == (["a"], 1)
    stage.journal.refusal = None
    assert len(a.beat().partitions) == 8


def test_a_member_whose_time_is_over_goes_when_the_journal_can_be_written_again() -> None:
    stage = consumer_stage()
    Consumer(stage, "a").join()
    stage.journal.refusal = KafkaError(ErrorCode.not_enough_replicas, "for a test")
    stage.wait(46_000)
    assert list(find(stage).members) == ["a"]
    stage.journal.refusal = None
    stage.wait(600)
    assert find(stage).state_name == "Empty"


def test_a_group_without_members_can_be_deleted_and_is_gone_from_the_journal() -> None:
    stage = consumer_stage()
    a = Consumer(stage, "a", pattern="ord.*").join()
    codes: list[ErrorCode] = []
    with pytest.raises(KafkaError) as raised:
        stage.shard.delete("g", codes.append)
    assert raised.value.code is ErrorCode.non_empty_group
    a.leave()
    stage.shard.delete("g", codes.append)
    assert codes == [ErrorCode.none]
    assert not stage.shard.groups
    stage.move()
    assert not stage.shard.groups
    last = {entry.key: entry.value for entry, _ in stage.journal.written}
    assert set(last.values()) == {None}, "compaction leaves nothing of it"


def test_a_group_whose_classic_form_had_no_members_is_made_anew() -> None:
    stage = consumer_stage()
    stage.commit(Commit("orders", stage.topics.ids["orders"], 0, 7))
    assert stage.shard.groups["g"].kind == "classic"
    Consumer(stage, "a").join()
    assert stage.shard.groups["g"].kind == "consumer"
    assert stage.committed() == 7
    stage.move()
    assert (stage.shard.groups["g"].kind, stage.committed()) == ("consumer", 7)
