"""Offsets that members of the newer protocol commit: fenced by epoch (A5, V15)."""

import pytest

from support.consumer_stage import Consumer, consumer_stage, find, settle
from support.group_stage import Stage
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.requests import Commit, Identity


def commit_in_transaction(stage: Stage, who: Identity, *partitions: int) -> list[ErrorCode]:
    """What became of offset 5 of each."""
    known = stage.topics.ids["orders"]
    commits = [Commit("orders", known, partition, 5) for partition in partitions]
    codes: list[list[ErrorCode]] = []
    stage.shard.committing.commit_in_transaction(who, commits, codes.append, (9, 0))
    return codes[0]


def test_a5_a_member_commits_in_its_epoch() -> None:
    stage = consumer_stage()
    a = Consumer(stage, "a").join()
    assert a.commit(5) is ErrorCode.none
    assert stage.committed() == 5


def test_v15_a_commit_of_another_epoch_is_refused_for_what_was_not_the_members_then() -> None:
    stage = consumer_stage()
    a, b = Consumer(stage, "a").join(), Consumer(stage, "b").join()
    settle(a, b)
    assert (a.epoch, b.epoch) == (2, 2)
    mine, its = a.partitions[0][1], b.partitions[0][1]
    assert a.commit(5, partition=mine, epoch=1) is ErrorCode.none, "it has had it since then"
    assert a.commit(6, partition=its, epoch=1) is ErrorCode.stale_member_epoch
    assert b.commit(7, partition=its, epoch=1) is ErrorCode.stale_member_epoch
    assert a.commit(8, partition=mine, epoch=3) is ErrorCode.stale_member_epoch
    assert (stage.committed(partition=mine), stage.committed(partition=its)) == (5, -1)


def test_v15_what_is_being_given_up_can_be_committed_until_it_has_been() -> None:
    stage = consumer_stage()
    a = Consumer(stage, "a").join()
    b = Consumer(stage, "b").join()
    had = a.partitions
    a.beat()
    gone = next(p for p in had if p not in a.partitions)[1]
    assert a.commit(5, partition=gone) is ErrorCode.none
    settle(a, b)
    assert a.commit(6, partition=gone, epoch=1) is ErrorCode.stale_member_epoch
    assert b.commit(7, partition=gone) is ErrorCode.none
    assert stage.committed(partition=gone) == 7


def test_v15_a_late_commit_in_a_transaction_is_refused_in_words_that_producers_know() -> None:
    stage = consumer_stage()
    a, b = Consumer(stage, "a").join(), Consumer(stage, "b").join()
    settle(a, b)
    mine, its = a.partitions[0][1], b.partitions[0][1]
    late = Identity("g", "a", None, 1)
    codes = commit_in_transaction(stage, late, mine, its)
    assert codes == [ErrorCode.none, ErrorCode.illegal_generation]


def test_a_producer_that_names_no_member_commits_also_while_there_are_some() -> None:
    stage = consumer_stage()
    Consumer(stage, "a").join()
    assert commit_in_transaction(stage, Identity("g", ""), 0) == [ErrorCode.none]
    stage.shard.replay_marker(9, 0, is_commit=True)
    assert stage.committed() == 5
    for who in (Identity("g", "b"), Identity("g", "", "b"), Identity("g", "", None, 1)):
        with pytest.raises(KafkaError) as raised:
            commit_in_transaction(stage, who, 0)
        assert raised.value.code is ErrorCode.unknown_member_id


def test_v15_one_that_is_no_member_any_more_commits_nothing() -> None:
    stage = consumer_stage()
    a, b = Consumer(stage, "a").join(), Consumer(stage, "b").join()
    settle(a, b)
    a.leave()
    assert a.commit(5) is ErrorCode.unknown_member_id
    assert stage.commit(
        Commit("orders", stage.topics.ids["orders"], 0, 5), who=Identity("g", "")
    ) == [ErrorCode.unknown_member_id], "nor does one that never was, while there are members"
    b.leave()
    assert stage.commit(
        Commit("orders", stage.topics.ids["orders"], 0, 5), who=Identity("g", "")
    ) == [ErrorCode.none], "an administrator may, when there are none"


def test_members_commit_in_a_version_that_knows_epochs() -> None:
    stage = consumer_stage()
    a = Consumer(stage, "a").join()
    assert a.commit(5, version=8) is ErrorCode.unsupported_version


def test_offsets_are_shown_to_members_of_the_epoch_and_to_whoever_does_not_say_who_it_is() -> None:
    stage = consumer_stage()
    Consumer(stage, "a").join()
    group = find(stage)
    group.check_fetch(None, -1)
    group.check_fetch("a", 1)
    for member_id, epoch, code in (
        ("a", 2, ErrorCode.stale_member_epoch),
        ("b", 1, ErrorCode.unknown_member_id),
    ):
        with pytest.raises(KafkaError) as raised:
            group.check_fetch(member_id, epoch)
        assert raised.value.code is code


def test_offsets_of_topics_that_are_subscribed_to_stay() -> None:
    stage = consumer_stage({"orders": 1, "old": 1, "by-pattern": 1})
    a = Consumer(stage, "a", "orders", "old", pattern="by-.*").join()
    settle(a)
    group = find(stage)
    assert group.is_subscribed_to("orders")
    assert group.is_subscribed_to("by-pattern")
    a.beat(topics=("orders",), pattern="")
    assert [group.is_subscribed_to(name) for name in ("orders", "old", "by-pattern")] == [
        True,
        False,
        False,
    ]
