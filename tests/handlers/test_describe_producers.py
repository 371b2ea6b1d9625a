"""DescribeProducers (A3): who writes to a partition, as its log knows it."""

from typing import Any

import pytest

from support.admin_node import AdminNode
from support.logs import NOW, batch
from tidelog.base.errors import ErrorCode
from tidelog.cluster.image import PartitionInfo, TopicInfo
from tidelog.slices import SLICE_STEPS
from tidelog.wire import codec

DESCRIBE = 61


def ask(node: AdminNode, topic: str, *indexes: int) -> Any:
    topics = [{"name": topic, "partition_indexes": indexes}]
    (answer,) = node.ask(DESCRIBE, 0, topics=topics).topics
    assert answer.name == topic
    return answer.partitions


def test_producers_are_shown_with_their_last_batch() -> None:
    node = AdminNode()
    node.create("orders")
    partition = node.partition("orders")
    for sequence in (0, 2):
        produced = batch(2, producer_id=9, producer_epoch=3, base_sequence=sequence)
        partition.append(memoryview(produced), NOW)
    partition.append(
        memoryview(batch(1, producer_id=4, producer_epoch=0, base_sequence=0, transactional=True)),
        NOW,
    )
    (shown,) = ask(node, "orders", 0)
    assert (shown.partition_index, shown.error_code) == (0, ErrorCode.none)
    transactional, idempotent = shown.active_producers
    assert (idempotent.producer_id, idempotent.producer_epoch) == (9, 3)
    assert (idempotent.last_sequence, idempotent.last_timestamp) == (3, NOW + 1)
    assert (idempotent.coordinator_epoch, idempotent.current_txn_start_offset) == (-1, -1)
    assert (transactional.producer_id, transactional.current_txn_start_offset) == (4, 4)


def test_very_many_producers_are_shown_while_others_are_served() -> None:
    """A3: one of them may be forgotten meanwhile."""
    node = AdminNode()
    node.create("orders")
    partition = node.partition("orders")
    for producer_id in range(3 * SLICE_STEPS):
        produced = batch(1, producer_id=producer_id, producer_epoch=0, base_sequence=0)
        partition.append(memoryview(produced), NOW)
    topics = [{"name": "orders", "partition_indexes": [0]}]
    wire = node.begin(DESCRIBE, 0, "PLAINTEXT", topics=topics)
    assert not wire.sent, "somebody else is served before all are shown"
    last = 3 * SLICE_STEPS - 1
    del partition.log.producers.by_id[last]
    assert node.loop.run_until(lambda: bool(wire.sent))
    _, answer = codec.read_response(DESCRIBE, 0, wire.sent[0][4:])
    (shown,) = answer.topics[0].partitions
    assert [row.producer_id for row in shown.active_producers] == list(range(last))


def test_a_partition_without_producers_shows_none() -> None:
    node = AdminNode()
    node.create("orders")
    node.partition("orders").append(memoryview(batch(3)), NOW)
    (shown,) = ask(node, "orders", 0)
    assert (shown.error_code, shown.active_producers) == (ErrorCode.none, ())


@pytest.mark.parametrize(
    ("topic", "index", "code"),
    [
        ("missing", 0, ErrorCode.unknown_topic_or_partition),
        ("orders", 1, ErrorCode.unknown_topic_or_partition),
        ("orders", -1, ErrorCode.unknown_topic_or_partition),
        ("no/topic", 0, ErrorCode.invalid_topic_exception),
        ("far", 0, ErrorCode.not_leader_or_follower),
    ],
)
def test_a_partition_that_is_not_here_is_told_so(topic: str, index: int, code: ErrorCode) -> None:
    node = AdminNode()
    node.create("orders")
    there = PartitionInfo(replicas=(2,), isr=(2,), leader=2, leader_epoch=0, state_version=0)
    far = TopicInfo(name="far", topic_id=bytes([3] * 16), partitions=(there,))
    node.metadata.image.put_topic(far)
    (shown,) = ask(node, topic, index)
    assert (shown.partition_index, shown.error_code) == (index, code)
    assert (shown.active_producers, bool(shown.error_message)) == ((), True)


def test_partitions_are_answered_one_by_one() -> None:
    node = AdminNode()
    node.create("orders", partitions=2)
    codes = [shown.error_code for shown in ask(node, "orders", 1, 5, 0)]
    assert codes == [ErrorCode.none, ErrorCode.unknown_topic_or_partition, ErrorCode.none]
