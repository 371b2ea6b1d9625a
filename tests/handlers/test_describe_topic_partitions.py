"""DescribeTopicPartitions: pages of partitions, in the order of names."""

from typing import Any

import pytest

from support.admin_node import AdminNode
from tidelog.base.errors import ErrorCode

DESCRIBE = 75
Page = tuple[list[tuple[str, list[int]]], tuple[str, int] | None]


def ask(node: AdminNode, *names: str, limit: int = 2000, cursor: Any = None) -> Any:
    at = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    topics = [{"name": name} for name in names]
    return node.ask(DESCRIBE, 0, topics=topics, response_partition_limit=limit, cursor=at)


def page(answer: Any) -> Page:
    """Names with the indexes of their partitions, and where the next page begins."""
    topics = [(t.name, [p.partition_index for p in t.partitions]) for t in answer.topics]
    cursor = answer.next_cursor
    return topics, None if cursor is None else (cursor.topic_name, cursor.partition_index)


@pytest.fixture
def node() -> AdminNode:
    node = AdminNode()
    node.create("b", partitions=3)
    node.create("a", partitions=2)
    return node


def test_all_topics_come_in_the_order_of_their_names(node: AdminNode) -> None:
    answer = ask(node)
    assert page(answer) == ([("a", [0, 1]), ("b", [0, 1, 2])], None)
    (partition, _) = answer.topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.none, 1)
    assert (partition.replica_nodes, partition.isr_nodes) == ((1,), (1,))
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())
    assert answer.topics[0].topic_authorized_operations > 0
    assert answer.topics[0].topic_id.bytes == node.metadata.image.topics["a"].topic_id


def test_pages_follow_each_other_without_gap_or_repeat(node: AdminNode) -> None:
    assert page(ask(node, limit=1)) == ([("a", [0])], ("a", 1))
    assert page(ask(node, limit=1, cursor=("a", 1))) == ([("a", [1])], ("b", 0))
    assert page(ask(node, limit=2, cursor=("b", 0))) == ([("b", [0, 1])], ("b", 2))
    assert page(ask(node, limit=2, cursor=("b", 2))) == ([("b", [2])], None)


@pytest.mark.parametrize("limit", range(1, 7))
def test_all_pages_together_are_the_whole(node: AdminNode, limit: int) -> None:
    seen, cursor = [], None
    while True:
        topics, cursor = page(ask(node, limit=limit, cursor=cursor))
        found = [(name, index) for name, indexes in topics for index in indexes]
        assert len(found) <= limit
        seen += found
        if cursor is None:
            break
    assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)]


def test_a_page_that_ends_with_its_topic_points_to_the_next(node: AdminNode) -> None:
    assert page(ask(node, limit=2)) == ([("a", [0, 1])], ("b", 0))


@pytest.mark.parametrize("limit", [0, -1, -(1 << 31)])
def test_a_page_has_at_least_one_partition(node: AdminNode, limit: int) -> None:
    assert page(ask(node, limit=limit)) == ([("a", [0])], ("a", 1))


def test_the_settings_limit_a_page_too() -> None:
    node = AdminNode(max_request_partition_size_limit="2")
    node.create("a", partitions=3)
    assert page(ask(node, limit=1000)) == ([("a", [0, 1])], ("a", 2))


def test_only_topics_that_are_named_are_shown(node: AdminNode) -> None:
    assert page(ask(node, "b")) == ([("b", [0, 1, 2])], None)
    assert page(ask(node, "b", "a", "b", limit=2)) == ([("a", [0, 1])], ("b", 0))


def test_topics_that_are_not_there_are_told_so_and_not_made(node: AdminNode) -> None:
    unknown, invalid = ask(node, "missing", "no/topic").topics
    assert unknown.error_code is ErrorCode.unknown_topic_or_partition
    assert (invalid.error_code, invalid.topic_id) == (ErrorCode.invalid_topic_exception, None)
    assert "missing" not in node.metadata.image.topics


def test_a_cursor_must_be_among_the_topics_named(node: AdminNode) -> None:
    (topic,) = ask(node, "b", cursor=("a", 0)).topics
    assert (topic.name, topic.error_code) == ("b", ErrorCode.invalid_request)
    assert topic.topic_authorized_operations == -(1 << 31)


def test_a_cursor_before_the_first_partition_is_refused(node: AdminNode) -> None:
    (topic,) = ask(node, "a", cursor=("a", -1)).topics
    assert topic.error_code is ErrorCode.invalid_request
    assert ask(node, cursor=("a", -1)).topics == ()


def test_a_cursor_behind_the_last_partition_goes_on_with_the_next_topic(node: AdminNode) -> None:
    assert page(ask(node, cursor=("a", 99))) == ([("a", []), ("b", [0, 1, 2])], None)


def test_a_cursor_of_a_topic_that_is_gone_goes_on_behind_it(node: AdminNode) -> None:
    assert page(ask(node, cursor=("aa", 1))) == ([("b", [0, 1, 2])], None)
