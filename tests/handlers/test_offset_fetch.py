"""OffsetFetch: nothing was committed, in every version and for every way of asking."""

from typing import Any

import pytest

from support.admin_node import AdminNode, versions
from tidelog.base.errors import ErrorCode

OFFSET_FETCH = 9


def ask(node: AdminNode, version: int, topics: list[dict[str, Any]] | None) -> Any:
    """The topics answered for one group."""
    group: dict[str, Any] = {"group_id": "readers", "topics": topics}
    answer = node.ask(OFFSET_FETCH, version, groups=[group], **group)
    if version < 8:
        return answer.topics
    (shown,) = answer.groups
    assert (shown.group_id, shown.error_code) == ("readers", ErrorCode.none)
    return shown.topics


@pytest.mark.parametrize("version", versions(OFFSET_FETCH))
def test_no_partition_has_an_offset(version: int) -> None:
    node = AdminNode()
    topic_id = node.create("orders").topic_id
    asked = [{"name": "orders", "topic_id": topic_id, "partition_indexes": [0, 7]}]
    (topic,) = ask(node, version, asked)
    assert [partition.partition_index for partition in topic.partitions] == [0, 7]
    for partition in topic.partitions:
        assert (partition.committed_offset, partition.error_code) == (-1, ErrorCode.none)
    named = topic.topic_id.bytes if version >= 10 else topic.name
    assert named == (topic_id if version >= 10 else "orders")


@pytest.mark.parametrize("version", versions(OFFSET_FETCH)[1:])
def test_all_that_was_committed_is_nothing(version: int) -> None:
    assert ask(AdminNode(), version, None) == ()


def test_an_id_that_no_topic_has_is_told_so() -> None:
    asked = [{"topic_id": bytes([4] * 16), "partition_indexes": [0]}]
    (topic,) = ask(AdminNode(), 10, asked)
    assert topic.topic_id.bytes == bytes([4] * 16)
    assert topic.partitions[0].error_code is ErrorCode.unknown_topic_id


def test_groups_are_answered_one_by_one() -> None:
    groups = [{"group_id": name, "topics": None} for name in ("b", "a")]
    answer = AdminNode().ask(OFFSET_FETCH, 9, groups=groups)
    assert [group.group_id for group in answer.groups] == ["b", "a"]
