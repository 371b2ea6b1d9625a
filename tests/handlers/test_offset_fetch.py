"""OffsetCommit and OffsetFetch, in every version and for every way of asking (A5)."""

from typing import Any

import pytest

from support.admin_node import AdminNode, versions
from support.group_node import OFFSET_COMMIT, OFFSET_FETCH, GroupNode, commit_row
from tidelog.base.errors import ErrorCode
from tidelog.groups.requests import Commit, Identity

UNKNOWN_ID = bytes([4] * 16)


@pytest.fixture(scope="module")
def node() -> GroupNode:
    made = GroupNode()
    made.create("orders", partitions=2)
    return made


def fetch(
    node: AdminNode, version: int, group_id: str, topics: list[dict[str, Any]] | None, **more: Any
) -> Any:
    """What is told of one group."""
    group: dict[str, Any] = {"group_id": group_id, "topics": topics}
    group |= {"member_id": None, "member_epoch": -1}
    more = {"require_stable": False, **more}
    answer = node.ask(OFFSET_FETCH, version, groups=[group], **group, **more)
    if version < 8:
        return answer
    (shown,) = answer.groups
    assert shown.group_id == group_id
    return shown


def asked(node: AdminNode, *indexes: int) -> list[dict[str, Any]]:
    topic_id = node.metadata.image.topics["orders"].topic_id
    return [{"name": "orders", "topic_id": topic_id, "partition_indexes": indexes}]


def found(shown: Any) -> list[tuple[int, int, str | None, ErrorCode]]:
    (topic,) = shown.topics
    return [
        (row.partition_index, row.committed_offset, row.metadata, row.error_code)
        for row in topic.partitions
    ]


def codes(answer: Any) -> list[ErrorCode]:
    return [row.error_code for topic in answer.topics for row in topic.partitions]


@pytest.mark.parametrize("version", versions(OFFSET_FETCH))
def test_what_is_committed_is_found(node: GroupNode, version: int) -> None:
    assert codes(node.commit(9)) == [ErrorCode.none] * 2
    shown = fetch(node, version, "g", asked(node, 1, 0, 7))
    none = ErrorCode.none
    assert found(shown) == [(1, 6, "note", none), (0, 5, "note", none), (7, -1, "", none)]
    if version >= 5:
        assert [row.committed_leader_epoch for row in shown.topics[0].partitions] == [3, 3, -1]
    if version >= 10:
        assert shown.topics[0].topic_id.bytes == asked(node)[0]["topic_id"]
    else:
        assert shown.topics[0].name == "orders"
    if version >= 2:
        assert shown.error_code is ErrorCode.none


@pytest.mark.parametrize("version", versions(OFFSET_COMMIT))
def test_every_version_commits(node: GroupNode, version: int) -> None:
    group_id = f"committed-{version}"
    answer = node.commit(version, group_id)
    assert codes(answer) == [ErrorCode.none] * 2
    if version >= 10:
        assert answer.topics[0].topic_id.bytes == asked(node)[0]["topic_id"]
    else:
        assert answer.topics[0].name == "orders"
    (first, second) = found(fetch(node, 9, group_id, asked(node, 0, 1)))
    assert (first[1], second[1]) == (5, 6)


@pytest.mark.parametrize("version", versions(OFFSET_FETCH)[1:])
def test_all_that_was_committed_is_found_by_naming_nothing(node: GroupNode, version: int) -> None:
    node.commit(9)
    none = ErrorCode.none
    shown = fetch(node, version, "g", None)
    assert sorted(found(shown)) == [(0, 5, "note", none), (1, 6, "note", none)]
    assert fetch(node, version, "nobody", None).topics == ()


@pytest.mark.parametrize("version", versions(OFFSET_COMMIT))
def test_partitions_there_are_not_are_refused_one_by_one(node: GroupNode, version: int) -> None:
    known = asked(node)[0]["topic_id"]
    topics = [
        {
            "name": "nothing",
            "topic_id": UNKNOWN_ID,
            "partitions": [commit_row(0, 1), commit_row(1, 1)],
        },
        {
            "name": "orders",
            "topic_id": known,
            "partitions": [commit_row(0, 9), commit_row(2, 9), commit_row(-1, 9)],
        },
    ]
    answer = node.commit(version, f"refused-{version}", topics=topics)
    partition = ErrorCode.unknown_topic_or_partition
    topic = ErrorCode.unknown_topic_id if version >= 10 else partition
    assert codes(answer) == [topic, topic, ErrorCode.none, partition, partition]


def test_an_id_that_no_topic_has_is_told_so(node: GroupNode) -> None:
    topics = [{"topic_id": UNKNOWN_ID, "partition_indexes": [0]}]
    shown = fetch(node, 10, "g", topics)
    assert shown.topics[0].topic_id.bytes == UNKNOWN_ID
    assert found(shown) == [(0, -1, "", ErrorCode.unknown_topic_id)]


@pytest.mark.parametrize("version", versions(OFFSET_FETCH))
def test_without_a_coordinator_the_group_is_told_so(version: int) -> None:
    node = AdminNode()
    node.create("orders")
    shown = fetch(node, version, "g", asked(node, 0))
    code = ErrorCode.coordinator_not_available
    if version >= 2:
        assert shown.error_code is code
        assert shown.topics == ()
    else:
        assert found(shown) == [(0, -1, "", code)]


def test_without_a_coordinator_nothing_is_committed() -> None:
    node = AdminNode()
    node.create("orders", partitions=2)
    topic = {"name": "orders", "partitions": [commit_row(0, 5), commit_row(1, 5)]}
    answer = node.ask(
        OFFSET_COMMIT,
        9,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[topic],
    )
    assert codes(answer) == [ErrorCode.coordinator_not_available] * 2


def test_groups_are_answered_one_by_one(node: GroupNode) -> None:
    groups = [
        {"group_id": name, "topics": None, "member_id": None, "member_epoch": -1}
        for name in ("b", "a")
    ]
    answer = node.ask(OFFSET_FETCH, 9, groups=groups, require_stable=False)
    assert [group.group_id for group in answer.groups] == ["b", "a"]


def test_a_member_commits_in_its_generation(node: GroupNode) -> None:
    joined = node.member("members")
    who = {"generation_id_or_member_epoch": 1, "member_id": joined.member_id}
    assert codes(node.commit(9, "members", **who)) == [ErrorCode.none] * 2
    late = {**who, "generation_id_or_member_epoch": 0}
    assert codes(node.commit(9, "members", **late)) == [ErrorCode.illegal_generation] * 2
    assert codes(node.commit(9, "members")) == [ErrorCode.unknown_member_id] * 2


def test_an_offset_that_a_transaction_may_replace_is_held_back(node: GroupNode) -> None:
    node.commit(9, "stable")
    shard = node.coordinators.groups.find("stable")
    commit = Commit("orders", asked(node)[0]["topic_id"], 0, 50)
    shard.committing.commit_in_transaction(Identity("stable", ""), [commit], lambda _: None, (9, 0))
    shown = fetch(node, 9, "stable", asked(node, 0, 1), require_stable=True)
    unstable = (0, -1, "", ErrorCode.unstable_offset_commit)
    assert found(shown) == [unstable, (1, 6, "note", ErrorCode.none)]
    every = fetch(node, 9, "stable", None, require_stable=True)
    assert unstable in found(every)
    assert found(fetch(node, 9, "stable", asked(node, 0)))[0][1] == 5
    shard.replay_marker(9, 0, is_commit=True)
    assert found(fetch(node, 9, "stable", asked(node, 0), require_stable=True))[0][1] == 50


@pytest.mark.parametrize("version", [7, 8, 9, 10])
def test_a4_who_asks_for_everything_is_told_of_what_a_transaction_may_commit_for_the_first_time(
    node: GroupNode, version: int
) -> None:
    """One that was told of nothing there would read from the beginning, also what is read."""
    name = f"first in {version}"
    shard = node.coordinators.groups.find(name)
    topic_id = asked(node)[0]["topic_id"]
    shard.committing.commit(
        Identity(name, ""), [Commit("orders", topic_id, 1, 6)], lambda _: None, version=9
    )
    first = [Commit("orders", topic_id, 0, 50)]
    shard.committing.commit_in_transaction(Identity(name, ""), first, lambda _: None, (9, 0))
    kept = (1, 6, "", ErrorCode.none)
    assert found(fetch(node, version, name, None)) == [kept]
    unstable = (0, -1, "", ErrorCode.unstable_offset_commit)
    shown = fetch(node, version, name, None, require_stable=True)
    assert sorted(found(shown)) == [unstable, kept]
    shard.replay_marker(9, 0, is_commit=True)
    shown = fetch(node, version, name, None, require_stable=True)
    assert sorted(found(shown)) == [(0, 50, "", ErrorCode.none), kept]


def test_a4_a_group_whose_first_offsets_are_in_a_transaction_is_not_said_to_have_none(
    node: GroupNode,
) -> None:
    shard = node.coordinators.groups.find("only")
    first = [Commit("orders", asked(node)[0]["topic_id"], 0, 50)]
    shard.committing.commit_in_transaction(Identity("only", ""), first, lambda _: None, (9, 0))
    shown = fetch(node, 9, "only", None, require_stable=True)
    assert found(shown) == [(0, -1, "", ErrorCode.unstable_offset_commit)]
    shard.replay_marker(9, 0, is_commit=False)
    assert fetch(node, 9, "only", None, require_stable=True).topics == ()


def test_no_text_is_empty_text(node: GroupNode) -> None:
    topics = [{"name": "orders", "partitions": [commit_row(0, 5, None)]}]
    assert codes(node.commit(9, "silent", topics=topics)) == [ErrorCode.none]
    assert found(fetch(node, 9, "silent", asked(node, 0)))[0][2] == ""


def test_very_many_offsets_are_committed_and_found() -> None:
    node = GroupNode()
    node.create("orders", partitions=3)
    rows = [commit_row(index % 3, index, "") for index in range(2000)]
    answer = node.commit(9, topics=[{"name": "orders", "partitions": rows}])
    assert codes(answer) == [ErrorCode.none] * 2000
    shown = fetch(node, 9, "g", asked(node, 0, 1, 2))
    assert [row[1] for row in found(shown)] == [1998, 1999, 1997]


def test_offsets_of_a_deleted_topic_are_gone() -> None:
    node = GroupNode()
    node.create("orders", partitions=2)
    node.commit(9)
    named: dict[str, Any] = {"topics": [{"name": "orders", "topic_id": bytes(16)}], "timeout": 1000}
    assert node.ask(20, 6, **named).responses[0].error_code is ErrorCode.none
    node.loop.run_for(1000)
    assert fetch(node, 9, "g", None).topics == ()
    node.create("orders", partitions=2)
    assert found(fetch(node, 9, "g", asked(node, 0)))[0][1] == -1
