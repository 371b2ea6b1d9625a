"""DeleteRecords (S5): where a partition begins is moved on request, never back."""

from typing import Any

import pytest

from support.admin_node import AdminNode, versions
from support.logs import NOW, batch
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.image import PartitionInfo, TopicInfo

DELETE_RECORDS = 21
NEWEST = versions(DELETE_RECORDS)[-1]


def ask(node: AdminNode, offset: int, version: int = NEWEST, **where: Any) -> tuple[int, ErrorCode]:
    """The low watermark and code for one partition."""
    partition = {"partition_index": where.get("index", 0), "offset": offset}
    topics = [{"name": where.get("topic", "orders"), "partitions": [partition]}]
    timeout = where.get("timeout", 1000)
    (topic,) = node.ask(DELETE_RECORDS, version, topics=topics, timeout=timeout).topics
    (result,) = topic.partitions
    assert result.partition_index == partition["partition_index"]
    return result.low_watermark, result.error_code


def with_records(count: int = 10, topic: str = "orders", **configs: Any) -> AdminNode:
    node = AdminNode()
    node.create(topic, **configs)
    for _ in range(count):
        node.partition(topic).append(memoryview(batch(1)), NOW)
    return node


@pytest.mark.parametrize("version", versions(DELETE_RECORDS))
def test_a_partition_begins_where_it_is_told_to(version: int) -> None:
    node = with_records(10)
    assert ask(node, 4, version) == (4, ErrorCode.none)
    assert node.partition("orders").log.log_start_offset == 4


@pytest.mark.parametrize("timeout", [0, -1])
def test_where_there_are_no_other_replicas_nothing_is_too_late(timeout: int) -> None:
    node = with_records(10)
    assert ask(node, 4, timeout=timeout) == (4, ErrorCode.none)


def test_everything_committed_can_be_deleted() -> None:
    node = with_records(10)
    assert ask(node, -1) == (10, ErrorCode.none)
    assert ask(node, 10) == (10, ErrorCode.none)


def test_where_a_partition_begins_never_moves_back() -> None:
    node = with_records(10)
    ask(node, 6)
    assert ask(node, 2) == (6, ErrorCode.none)


@pytest.mark.parametrize("offset", [11, 1 << 62, -2, -(1 << 63)])
def test_what_is_not_committed_cannot_be_deleted(offset: int) -> None:
    node = with_records(10)
    assert ask(node, offset) == (-1, ErrorCode.offset_out_of_range)
    assert node.partition("orders").log.log_start_offset == 0


@pytest.mark.parametrize("where", [{"topic": "missing"}, {"index": 1}, {"index": -1}])
def test_a_partition_that_is_not_there_is_told_so(where: dict[str, Any]) -> None:
    assert ask(with_records(1), 0, **where) == (-1, ErrorCode.unknown_topic_or_partition)


def test_who_leads_no_more_does_not_say_that_records_are_deleted_elsewhere() -> None:
    """S5: the leader that comes next may not have heard of it."""
    partition = with_records(10).partition("orders")
    ends: list[KafkaError | None] = []
    start = partition.delete_records(4)
    partition.when_low(start, ends.append)
    assert ends == [None]
    partition.stop_leading()
    partition.when_low(start, ends.append)
    assert isinstance(ends[1], KafkaError)
    assert ends[1].code is ErrorCode.not_leader_or_follower


def test_who_waits_for_the_other_replicas_is_told_when_another_leads() -> None:
    partition = with_records(10).partition("orders")
    ends: list[KafkaError | None] = []
    partition.when_low(11, ends.append)
    assert ends == []
    partition.stop_leading()
    assert isinstance(ends[0], KafkaError)
    assert ends[0].code is ErrorCode.not_leader_or_follower


def test_a_partition_that_is_led_elsewhere_is_told_so() -> None:
    node = AdminNode()
    there = PartitionInfo(replicas=(2,), isr=(2,), leader=2, leader_epoch=0, state_version=0)
    topic = TopicInfo(name="far", topic_id=bytes([3] * 16), partitions=(there,))
    node.metadata.image.put_topic(topic)
    assert ask(node, 0, topic="far") == (-1, ErrorCode.not_leader_or_follower)


def test_records_of_a_compacted_topic_are_kept() -> None:
    node = with_records(3, cleanup_policy="compact")
    assert ask(node, 2) == (-1, ErrorCode.policy_violation)
    assert node.partition("orders").log.log_start_offset == 0


def test_records_of_a_topic_that_is_compacted_and_deleted_may_go() -> None:
    node = with_records(3, cleanup_policy="compact,delete")
    assert ask(node, 2) == (2, ErrorCode.none)


def test_records_of_an_internal_topic_are_kept() -> None:
    node = with_records(3, topic="__consumer_offsets")
    assert ask(node, 2, topic="__consumer_offsets") == (-1, ErrorCode.invalid_topic_exception)


def test_many_partitions_are_answered_one_by_one() -> None:
    node = with_records(5)
    partitions = [{"partition_index": i, "offset": 3} for i in (0, 7)]
    topics = [{"name": name, "partitions": partitions} for name in ("orders", "missing")]
    answer = node.ask(DELETE_RECORDS, NEWEST, topics=topics, timeout=1000)
    codes = [[p.error_code for p in topic.partitions] for topic in answer.topics]
    unknown = ErrorCode.unknown_topic_or_partition
    assert codes == [[ErrorCode.none, unknown], [unknown, unknown]]


def test_a_failed_disk_is_told_as_such() -> None:
    node = with_records(5)
    node.logs.dirs[0].fail(OSError(5, "Input/output error"))
    assert ask(node, 2) == (-1, ErrorCode.kafka_storage_error)
