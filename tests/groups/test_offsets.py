"""Committed offsets: kept, found, expired, deleted, and held back by transactions (A5, V15)."""

from typing import Any

import pytest

from support.group_stage import Member, Stage, settle, subscription
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.records import OffsetKey, OffsetValue
from tidelog.groups.requests import Commit, Identity

ORDERS = bytes([7] * 16)
MINUTE = 60_000


def orders(offset: int, partition: int = 0, **more: Any) -> Commit:
    return Commit("orders", ORDERS, partition, offset)._replace(**more)


def look_up(
    stage: Stage, topic_id: bytes = ORDERS, *, is_stable: bool = False, partition: int = 0
) -> int | ErrorCode | None:
    key = OffsetKey("g", "orders", partition)
    found = stage.shard.committing.look_up(key, topic_id, is_stable=is_stable)
    return found.offset if isinstance(found, OffsetValue) else found


def commit_in_transaction(
    stage: Stage, *commits: Commit, producer: tuple[int, int] = (9, 0), who: Identity | None = None
) -> list[ErrorCode]:
    codes: list[list[ErrorCode]] = []
    who = who or Identity("g", "")
    try:
        stage.shard.committing.commit_in_transaction(who, commits, codes.append, producer)
    except KafkaError as error:
        return [error.code]
    return codes[0]


# -- committing


def test_what_is_committed_is_found_with_all_that_was_said() -> None:
    stage = Stage()
    assert stage.commit(orders(5, leader_epoch=3, metadata="note"), orders(8, 1)) == [
        ErrorCode.none,
        ErrorCode.none,
    ]
    found = stage.shard.offsets.find(OffsetKey("g", "orders", 0))
    assert found == OffsetValue(5, 3, "note", stage.loop.clock.now_ms(), -1, ORDERS)
    assert stage.committed(partition=1) == 8
    assert stage.journal.batches == [2], "one request is one batch"


def test_offsets_survive_the_coordinator() -> None:
    stage = Stage()
    for offset in range(10):
        stage.commit(orders(offset), orders(offset * 2, 1))
    stage.move()
    assert (stage.committed(), stage.committed(partition=1)) == (9, 18)


def test_whoever_commits_without_members_makes_a_group_that_has_offsets_only() -> None:
    stage = Stage()
    stage.commit(orders(5))
    group = stage.group()
    assert (group.state_name, group.protocol_type) == ("Empty", None)
    assert stage.commit(orders(6), who=Identity("g", "stranger")) == [ErrorCode.none]
    late = Identity("g", "stranger", None, 3)
    assert stage.commit(orders(6), who=late) == [ErrorCode.unknown_member_id]


@pytest.mark.parametrize(
    ("version", "code"),
    [(8, ErrorCode.illegal_generation), (9, ErrorCode.group_id_not_found)],
)
def test_a_member_of_a_group_there_is_not_is_told_so(version: int, code: ErrorCode) -> None:
    stage = Stage()
    who = Identity("g", "member", None, 1)
    assert stage.commit(orders(5), who=who, version=version) == [code]
    assert stage.journal.written == []
    assert commit_in_transaction(stage, orders(5), who=who) == [ErrorCode.illegal_generation]


def test_text_that_is_too_long_is_refused_for_its_partition_alone() -> None:
    stage = Stage(offset_metadata_max_bytes=4)
    codes = stage.commit(orders(1, metadata="12345"), orders(2, 1, metadata="1234"))
    assert codes == [ErrorCode.offset_metadata_too_large, ErrorCode.none]
    assert (stage.committed(), stage.committed(partition=1)) == (-1, 2)
    assert stage.commit(orders(1, metadata="12345")) == [ErrorCode.offset_metadata_too_large]


def test_nobody_is_told_before_it_is_committed() -> None:
    stage = Stage()
    stage.journal.is_held = True
    codes: list[list[ErrorCode]] = []
    who = Identity("g", "")
    stage.shard.committing.commit(who, [orders(5)], codes.append, version=9)
    told: list[KafkaError | None] = []
    stage.shard.settle(told.append)
    assert (codes, told) == ([], [])
    stage.journal.release()
    assert (codes, told) == ([[ErrorCode.none]], [None])


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.not_enough_replicas, ErrorCode.coordinator_not_available),
        (ErrorCode.not_leader_or_follower, ErrorCode.not_coordinator),
        (ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_load_in_progress),
    ],
)
def test_what_cannot_be_written_changes_nothing(code: ErrorCode, told: ErrorCode) -> None:
    stage = Stage()
    stage.commit(orders(5))
    stage.journal.refusal = KafkaError(code, "refused")
    assert stage.commit(orders(6)) == [told]
    assert stage.committed() == 5


def test_whoever_is_told_finds_it_kept() -> None:
    """An answer may lead to the next request at once."""
    stage = Stage()
    found: list[int] = []
    stage.shard.committing.commit(
        Identity("g", ""), [orders(5)], lambda _: found.append(stage.committed()), version=9
    )
    assert found == [5]


# -- topics


def test_an_offset_of_a_topic_that_was_made_again_is_not_the_new_ones() -> None:
    stage = Stage()
    stage.commit(orders(5))
    assert look_up(stage, bytes([8] * 16)) is None
    assert look_up(stage, bytes(16)) == 5
    assert look_up(stage, ORDERS) == 5


def test_offsets_of_deleted_topics_are_removed() -> None:
    stage = Stage()
    stage.topics.ids["bills"] = bytes([8] * 16)
    stage.commit(orders(5), orders(6, 1), Commit("bills", bytes([8] * 16), 0, 7))
    commit_in_transaction(stage, orders(9, 3))
    del stage.topics.ids["orders"]
    stage.shard.topics_changed()
    assert [stage.committed(partition=index) for index in (0, 1)] == [-1, -1]
    assert stage.committed("bills") == 7
    stage.shard.replay_marker(9, 0, is_commit=True)
    assert stage.committed(partition=3) == -1
    stage.move()
    assert stage.committed() == -1


def test_offsets_of_a_topic_that_was_made_again_are_removed() -> None:
    stage = Stage()
    stage.commit(orders(5))
    stage.topics.ids["orders"] = new_id = bytes([9] * 16)
    stage.shard.topics_changed()
    assert stage.committed() == -1
    stage.commit(Commit("orders", new_id, 0, 6))
    stage.shard.topics_changed()
    assert stage.committed() == 6


def test_a_topic_that_is_not_known_yet_is_not_taken_for_deleted() -> None:
    stage = Stage()
    stage.commit(orders(5))
    known = stage.topics.ids.pop("orders")
    stage.move()
    stage.shard.topics_changed()
    assert stage.committed() == 5
    stage.topics.ids["orders"] = known
    stage.shard.topics_changed()
    assert stage.committed() == 5
    del stage.topics.ids["orders"]
    stage.topics.unreadable.add("orders")
    stage.shard.topics_changed()
    assert stage.committed() == 5
    stage.topics.unreadable.clear()
    stage.shard.topics_changed()
    assert stage.committed() == -1


# -- expiry


def aged(stage: Stage, minutes: int) -> None:
    """Lets time pass until the offsets have been looked through."""
    stage.wait(minutes * MINUTE)


def expiring() -> Stage:
    return Stage(offsets_retention_minutes=60, offsets_retention_check_interval_ms=MINUTE)


def test_offsets_of_whoever_was_never_a_member_are_kept_from_when_they_were_committed() -> None:
    stage = expiring()
    stage.commit(orders(5))
    aged(stage, 50)
    stage.commit(orders(6, 1))
    aged(stage, 12)
    assert (stage.committed(), stage.committed(partition=1)) == (-1, 6)
    aged(stage, 60)
    assert "g" not in stage.shard.groups
    stage.move()
    assert "g" not in stage.shard.groups


def test_offsets_of_a_group_are_kept_from_when_its_last_member_left() -> None:
    stage = expiring()
    only = Member(stage, session_timeout_ms=1_800_000)
    settle(stage, only)
    only.commit(5)
    for _ in range(5):
        aged(stage, 25)
        only.heartbeat()
    assert stage.committed() == 5
    only.leave()
    aged(stage, 59)
    stage.move()
    assert stage.committed() == 5
    aged(stage, 3)
    assert stage.committed() == -1
    assert "g" not in stage.shard.groups


def test_a_group_with_members_keeps_what_they_subscribe_to() -> None:
    stage = expiring()
    stage.topics.ids["bills"] = bytes([8] * 16)
    only = Member(stage, session_timeout_ms=1_800_000)
    settle(stage, only)
    only.commit(5)
    only.commit(6, "bills")
    for _ in range(4):
        aged(stage, 25)
        only.heartbeat()
    assert (stage.committed(), stage.committed("bills")) == (5, -1)
    assert stage.group().state_name == "Stable"


def test_a_group_that_is_no_group_of_consumers_keeps_all_while_it_has_members() -> None:
    stage = expiring()
    protocols = (("eager", b"x"),)
    only = Member(stage, session_timeout_ms=1_800_000, protocol_type="connect", protocols=protocols)
    settle(stage, only)
    only.commit(5)
    for _ in range(4):
        aged(stage, 25)
        only.heartbeat()
    assert stage.committed() == 5


def test_an_offset_may_have_a_time_of_its_own() -> None:
    stage = expiring()
    stage.commit(orders(5), version=4, retention_ms=10 * MINUTE)
    stage.commit(orders(6, 1), version=4, retention_ms=100 * MINUTE)
    aged(stage, 12)
    assert (stage.committed(), stage.committed(partition=1)) == (-1, 6)
    aged(stage, 80)
    assert stage.committed(partition=1) == 6
    aged(stage, 10)
    assert stage.committed(partition=1) == -1


def test_what_an_open_transaction_holds_does_not_expire() -> None:
    stage = expiring()
    stage.commit(orders(5))
    commit_in_transaction(stage, orders(9))
    aged(stage, 100)
    assert stage.committed() == 5
    stage.shard.replay_marker(9, 0, is_commit=False)
    aged(stage, 2)
    assert "g" not in stage.shard.groups


def test_a_group_that_nobody_joined_after_all_is_forgotten() -> None:
    stage = expiring()
    Member(stage).ask_to_join()
    aged(stage, 3)
    assert stage.shard.groups == {}


def test_many_groups_are_looked_through_in_several_turns() -> None:
    stage = expiring()
    for number in range(350):
        stage.commit(orders(5), who=Identity(f"g{number}", ""))
    aged(stage, 62)
    assert stage.shard.groups == {}
    aged(stage, 62)


def test_what_could_not_be_removed_is_removed_another_time() -> None:
    stage = expiring()
    stage.commit(orders(5))
    stage.journal.refusal = KafkaError(ErrorCode.not_enough_replicas, "too few")
    aged(stage, 65)
    assert stage.committed() == 5
    stage.journal.refusal = None
    aged(stage, 2)
    assert stage.committed() == -1


# -- deleting


def delete_offsets(stage: Stage, *keys: OffsetKey) -> list[ErrorCode]:
    codes: list[list[ErrorCode]] = []
    try:
        stage.shard.committing.delete_offsets("g", keys, codes.append)
    except KafkaError as error:
        return [error.code]
    return codes[0]


def test_offsets_are_deleted_one_by_one() -> None:
    stage = Stage()
    stage.commit(orders(5), orders(6, 1))
    commit_in_transaction(stage, orders(7, 2))
    keys = [OffsetKey("g", "orders", index) for index in (0, 2, 3)]
    assert delete_offsets(stage, *keys) == [ErrorCode.none] * 3
    assert (stage.committed(), stage.committed(partition=1)) == (-1, 6)
    assert look_up(stage, is_stable=True, partition=2) is None
    stage.move()
    assert (stage.committed(), stage.committed(partition=1)) == (-1, 6)


def test_what_a_member_subscribes_to_is_not_deleted() -> None:
    stage = Stage()
    only = Member(stage)
    settle(stage, only)
    only.commit(5)
    only.commit(6, "bills")
    keys = [OffsetKey("g", "orders", 0), OffsetKey("g", "bills", 0)]
    assert delete_offsets(stage, *keys) == [ErrorCode.group_subscribed_to_topic, ErrorCode.none]
    assert (stage.committed(), stage.committed("bills")) == (5, -1)


def test_offsets_of_others_than_consumers_are_not_deleted_while_there_are_members() -> None:
    stage = Stage()
    settle(stage, Member(stage, protocol_type="connect", protocols=(("eager", b"x"),)))
    assert delete_offsets(stage, OffsetKey("g", "orders", 0)) == [ErrorCode.non_empty_group]


def test_offsets_of_a_group_there_is_not_cannot_be_deleted() -> None:
    assert delete_offsets(Stage(), OffsetKey("g", "orders", 0)) == [ErrorCode.group_id_not_found]


def delete(stage: Stage, group_id: str = "g") -> ErrorCode:
    codes: list[ErrorCode] = []
    try:
        stage.shard.delete(group_id, codes.append)
    except KafkaError as error:
        return error.code
    return codes[0]


def test_a_group_is_deleted_with_its_offsets() -> None:
    stage = Stage()
    only = Member(stage)
    settle(stage, only)
    for partition in range(3):
        only.commit(partition, partition=partition)
    assert delete(stage) is ErrorCode.non_empty_group
    only.leave()
    commit_in_transaction(stage, orders(9, 7))
    assert delete(stage) is ErrorCode.none
    assert (stage.shard.groups, stage.shard.offsets.topics()) == ({}, [])
    stage.shard.replay_marker(9, 0, is_commit=True)
    stage.move()
    assert (stage.shard.groups, stage.shard.offsets.topics()) == ({}, [])
    assert delete(stage) is ErrorCode.group_id_not_found


def test_a_group_with_very_many_offsets_is_deleted_in_parts() -> None:
    stage = Stage()
    for start in range(0, 9000, 500):
        stage.commit(*(orders(1, index) for index in range(start, start + 500)))
    before = len(stage.journal.batches)
    assert delete(stage) is ErrorCode.none
    assert len(stage.journal.batches) - before > 1
    stage.move()
    assert stage.shard.groups == {}


# -- transactions


def test_an_offset_in_a_transaction_counts_once_that_is_committed() -> None:
    stage = Stage()
    stage.commit(orders(5))
    assert commit_in_transaction(stage, orders(9)) == [ErrorCode.none]
    assert look_up(stage) == 5
    assert look_up(stage, is_stable=True) is ErrorCode.unstable_offset_commit
    stage.shard.replay_marker(9, 0, is_commit=True)
    assert look_up(stage, is_stable=True) == 9


def test_an_offset_in_a_transaction_that_is_aborted_never_counts() -> None:
    stage = Stage()
    stage.commit(orders(5))
    commit_in_transaction(stage, orders(9), orders(10, 1))
    stage.shard.replay_marker(9, 0, is_commit=False)
    assert look_up(stage, is_stable=True) == 5
    assert look_up(stage, is_stable=True, partition=1) is None


def test_of_a_transaction_and_a_commit_the_one_that_was_written_later_counts() -> None:
    stage = Stage()
    commit_in_transaction(stage, orders(9))
    stage.commit(orders(20))
    stage.shard.replay_marker(9, 0, is_commit=True)
    assert look_up(stage) == 20


def test_transactions_of_several_producers_are_apart() -> None:
    stage = Stage()
    for producer_id in (1, 2):
        commit_in_transaction(stage, orders(producer_id), producer=(producer_id, 0))
        commit_in_transaction(stage, orders(producer_id * 10, 1), producer=(producer_id, 0))
    stage.shard.replay_marker(2, 0, is_commit=True)
    assert (stage.committed(), stage.committed(partition=1)) == (2, 20)
    assert look_up(stage, is_stable=True) is ErrorCode.unstable_offset_commit
    stage.shard.replay_marker(1, 0, is_commit=True)
    assert look_up(stage, is_stable=True) == 2, "the other one was written later"


def test_an_open_transaction_survives_the_coordinator() -> None:
    stage = Stage()
    commit_in_transaction(stage, orders(9))
    stage.move()
    assert look_up(stage, is_stable=True) is ErrorCode.unstable_offset_commit
    stage.shard.replay_marker(9, 0, is_commit=True)
    assert look_up(stage, is_stable=True) == 9


def test_what_says_that_nobody_else_looks_after_a_group_says_nothing_of_it() -> None:
    stage = Stage()
    told: list[KafkaError | None] = []
    stage.shard.confirm("g", told.append)
    stage.move()
    assert stage.shard.groups == {}
    stage.commit(orders(5))
    commit_in_transaction(stage, orders(9, 1))
    stage.shard.confirm("g", told.append)
    stage.move()
    assert look_up(stage, is_stable=True) == 5
    assert look_up(stage, is_stable=True, partition=1) is ErrorCode.unstable_offset_commit
    stage.journal.is_held = True
    stage.shard.confirm("g", told.append)
    assert told == [None, None]


def test_a_marker_of_nobody_changes_nothing() -> None:
    stage = Stage()
    stage.commit(orders(5))
    stage.shard.replay_marker(77, 0, is_commit=True)
    assert stage.committed() == 5


def test_a_member_commits_in_a_transaction_while_it_is_one() -> None:
    stage = Stage()
    only = Member(stage).join()
    stage.wait(10)
    assert commit_in_transaction(stage, orders(1), who=only.identity) == [ErrorCode.none]
    late = only.identity._replace(generation=0)
    assert commit_in_transaction(stage, orders(1), who=late) == [ErrorCode.illegal_generation]
    stranger = only.identity._replace(member_id="made-up")
    assert commit_in_transaction(stage, orders(1), who=stranger) == [ErrorCode.unknown_member_id]
    assert commit_in_transaction(stage, orders(1)) == [ErrorCode.none], "older clients name nobody"


def test_text_that_is_too_long_is_refused_in_transactions_too() -> None:
    stage = Stage(offset_metadata_max_bytes=4)
    codes = commit_in_transaction(stage, orders(1, metadata="12345"), orders(2, 1))
    assert codes == [ErrorCode.offset_metadata_too_large, ErrorCode.none]


def test_a_record_that_nobody_here_knows_is_passed_over() -> None:
    """A newer version may have written it, and it is not ours to judge."""
    stage = Stage()
    stage.commit(orders(5))
    entry, origin = stage.journal.written[0]
    stage.shard.replay(entry._replace(key=b"\x00\x63unknown"), origin)
    assert stage.committed() == 5


def test_subscriptions_of_members_decide_what_is_deleted() -> None:
    stage = Stage()
    settle(stage, Member(stage, protocols=(("range", subscription("bills")),)))
    assert stage.group().is_subscribed_to("bills")
    assert not stage.group().is_subscribed_to("orders")
