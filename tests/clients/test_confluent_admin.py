"""confluent-kafka (a librdkafka of today) administers: T1, T3, T5, T6, S5 as one node can show
them."""

import base64
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from clients.confluent import consumer, refusal, result_of, send
from clients.conftest import MakeTopic
from clients.samples import SAMPLES, TIME, Sample
from clients.settling import settled
from support.servers import Server

UnusedName = Callable[[], str]


def described(admin: AdminClient, topic: str) -> Any:
    return result_of(admin.describe_topics(TopicCollection([topic])))


def test_confluent_admin_makes_describes_lists_and_deletes_a_topic(
    broker: Server, admin: AdminClient, unused_name: UnusedName
) -> None:
    """T5, T6"""
    name = unused_name()
    result_of(admin.create_topics([NewTopic(name, 3, 1)]))
    assert settled(lambda: name in admin.list_topics(timeout=60).topics)
    assert len(admin.list_topics(timeout=60).topics[name].partitions) == 3
    topic = described(admin, name)
    assert [partition.id for partition in topic.partitions] == [0, 1, 2]
    node = topic.partitions[0].leader
    assert f"{node.host}:{node.port}" == broker.address
    for partition in topic.partitions:
        assert partition.leader.id == node.id
        assert [replica.id for replica in partition.replicas] == [node.id]
        assert [replica.id for replica in partition.isr] == [node.id]
    result_of(admin.delete_topics([name]))
    assert settled(lambda: name not in admin.list_topics(timeout=60).topics)


def test_confluent_admin_sees_a_topic_made_again_under_a_new_id(
    bootstrap: str, admin: AdminClient, make_topic: MakeTopic
) -> None:
    name = make_topic()
    send(Producer({"bootstrap.servers": bootstrap}), name, SAMPLES)
    first = str(described(admin, name).topic_id)
    result_of(admin.delete_topics([name]))
    assert settled(lambda: name not in admin.list_topics(timeout=60).topics)
    result_of(admin.create_topics([NewTopic(name, 1, 1)]))
    assert settled(lambda: name in admin.list_topics(timeout=60).topics)
    assert str(described(admin, name).topic_id) != first
    with consumer(bootstrap) as reader:
        assert reader.get_watermark_offsets(TopicPartition(name, 0), timeout=60) == (0, 0)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "x" * 250, "ž"])
def test_confluent_admin_is_refused_an_invalid_topic_name(admin: AdminClient, name: str) -> None:
    assert refusal(admin.create_topics([NewTopic(name, 1, 1)])) == "TOPIC_EXCEPTION"


def test_confluent_admin_is_refused_a_name_that_collides_with_another(
    admin: AdminClient, unused_name: UnusedName
) -> None:
    """Names that differ in `.` and `_` alone would have the same metrics."""
    name = unused_name()
    result_of(admin.create_topics([NewTopic(f"{name}.a_b", 1, 1)]))
    assert refusal(admin.create_topics([NewTopic(f"{name}_a.b", 1, 1)])) == "TOPIC_EXCEPTION"


def test_confluent_admin_is_refused_a_topic_that_exists(
    admin: AdminClient, make_topic: MakeTopic
) -> None:
    again = NewTopic(make_topic(), 1, 1)
    assert refusal(admin.create_topics([again])) == "TOPIC_ALREADY_EXISTS"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"num_partitions": 1, "replication_factor": 2}, "INVALID_REPLICATION_FACTOR"),
        ({"num_partitions": 1, "config": {"no.such.setting": "1"}}, "INVALID_CONFIG"),
        ({"num_partitions": 1, "config": {"retention.ms": "soon"}}, "INVALID_CONFIG"),
        ({"num_partitions": 1, "config": {"cleanup.policy": "keep"}}, "INVALID_CONFIG"),
        ({"num_partitions": 1, "config": {"segment.bytes": "-1"}}, "INVALID_CONFIG"),
        ({"num_partitions": 1, "replica_assignment": [[99]]}, "INVALID_REPLICA_ASSIGNMENT"),
    ],
)
def test_confluent_admin_is_refused_a_topic_that_cannot_be(
    admin: AdminClient, unused_name: UnusedName, arguments: dict[str, Any], error: str
) -> None:
    """T1, O2: and nothing is created."""
    name = unused_name()
    assert refusal(admin.create_topics([NewTopic(name, **arguments)])) == error
    assert name not in admin.list_topics(timeout=60).topics


def test_confluent_admin_validates_without_creating(
    admin: AdminClient, unused_name: UnusedName
) -> None:
    name = unused_name()
    result_of(admin.create_topics([NewTopic(name, 3, 1)], validate_only=True))
    assert name not in admin.list_topics(timeout=60).topics


def test_confluent_admin_leaves_partitions_and_replicas_to_the_broker(
    admin: AdminClient, unused_name: UnusedName
) -> None:
    name = unused_name()
    result_of(admin.create_topics([NewTopic(name)]))
    assert settled(lambda: name in admin.list_topics(timeout=60).topics)
    assert [len(found.replicas) for found in described(admin, name).partitions] == [1]


def test_confluent_admin_assigns_replicas_itself(
    admin: AdminClient, unused_name: UnusedName
) -> None:
    """T3"""
    name = unused_name()
    (node,) = admin.describe_cluster().result(60).nodes
    assignment = [[node.id], [node.id]]
    result_of(admin.create_topics([NewTopic(name, 2, replica_assignment=assignment)]))
    assert settled(lambda: name in admin.list_topics(timeout=60).topics)
    assert len(described(admin, name).partitions) == 2


def test_confluent_admin_makes_some_topics_of_a_request_and_not_others(
    admin: AdminClient, unused_name: UnusedName
) -> None:
    good, bad = unused_name(), unused_name()
    futures = admin.create_topics([NewTopic(bad, 1, 3), NewTopic(good, 1, 1)])
    futures[good].result(60)
    with pytest.raises(KafkaException, match="INVALID_REPLICATION_FACTOR"):
        futures[bad].result(60)


def test_confluent_admin_is_told_of_unknown_topics(
    admin: AdminClient, unused_name: UnusedName
) -> None:
    name = unused_name()
    unknown = "UNKNOWN_TOPIC_OR_PART"
    assert refusal(admin.delete_topics([name])) == unknown
    assert refusal(admin.describe_topics(TopicCollection([name]))) == unknown
    assert refusal(admin.create_partitions([NewPartitions(name, 3)])) == unknown


def test_confluent_admin_adds_partitions(
    bootstrap: str, admin: AdminClient, make_topic: MakeTopic
) -> None:
    """T3, T6"""
    name = make_topic(partitions=2)
    result_of(admin.create_partitions([NewPartitions(name, 5)], validate_only=True))
    assert len(described(admin, name).partitions) == 2
    result_of(admin.create_partitions([NewPartitions(name, 5)]))
    assert settled(lambda: len(described(admin, name).partitions) == 5)
    writer = Producer({"bootstrap.servers": bootstrap})
    assert send(writer, name, SAMPLES[:1], partition=4) == [(4, 0)]


@pytest.mark.parametrize("count", [1, 2])
def test_confluent_admin_cannot_take_partitions_away(
    admin: AdminClient, make_topic: MakeTopic, count: int
) -> None:
    name = make_topic(partitions=2)
    futures = admin.create_partitions([NewPartitions(name, count)])
    assert refusal(futures) == "INVALID_PARTITIONS"


def test_confluent_admin_describes_the_cluster(broker: Server, admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(60)
    (node,) = cluster.nodes
    assert f"{node.host}:{node.port}" == broker.address
    assert cluster.controller.id == node.id
    assert len(cluster.cluster_id) == 22
    metadata = admin.list_topics(timeout=60)
    assert metadata.cluster_id == cluster.cluster_id
    assert metadata.controller_id == node.id


@pytest.fixture
def numbered(bootstrap: str, make_topic: MakeTopic) -> TopicPartition:
    """A partition with 20 records, the largest time in the middle."""
    topic = make_topic()
    writer = Producer({"bootstrap.servers": bootstrap})
    for n in range(20):
        late = 1_000_000 if n == 11 else 0
        send(writer, topic, [Sample(key=None, value=b"%d" % n)], timestamp=TIME + n * 1_000 + late)
    return TopicPartition(topic, 0)


def test_confluent_admin_deletes_records(
    bootstrap: str, admin: AdminClient, numbered: TopicPartition
) -> None:
    """S5"""
    topic = numbered.topic
    for offset, low in ((7, 7), (3, 7), (-1, 20)):
        deleted = result_of(admin.delete_records([TopicPartition(topic, 0, offset)]))
        assert deleted.low_watermark == low
        with consumer(bootstrap) as reader:
            assert reader.get_watermark_offsets(numbered, timeout=60) == (low, 20)
    beyond = TopicPartition(topic, 0, 21)
    assert refusal(admin.delete_records([beyond])) == "OFFSET_OUT_OF_RANGE"


@pytest.mark.parametrize(
    ("spec", "offset", "at"),
    [
        (OffsetSpec.earliest(), 0, -1),
        (OffsetSpec.latest(), 20, -1),
        (OffsetSpec.max_timestamp(), 11, TIME + 1_011_000),
        (OffsetSpec.for_timestamp(TIME + 4_500), 5, TIME + 5_000),
        (OffsetSpec.for_timestamp(TIME + 19_001), 11, TIME + 1_011_000),
        (OffsetSpec.for_timestamp(TIME + 2_000_000), -1, -1),
    ],
)
def test_confluent_admin_lists_offsets(
    admin: AdminClient, numbered: TopicPartition, spec: OffsetSpec, offset: int, at: int
) -> None:
    found = result_of(admin.list_offsets({numbered: spec}))
    assert (found.offset, found.timestamp) == (offset, at)


def test_confluent_admin_is_told_which_partition_has_no_offsets(
    admin: AdminClient, make_topic: MakeTopic
) -> None:
    unknown = TopicPartition(make_topic(), 9)
    assert refusal(admin.list_offsets({unknown: OffsetSpec.latest()})) in (
        "UNKNOWN_TOPIC_OR_PART",
        "_NOENT",
    )


def test_confluent_topic_id_is_the_one_on_disk(
    broker: Server, admin: AdminClient, make_topic: MakeTopic
) -> None:
    """S1"""
    name = make_topic()
    send(Producer({"bootstrap.servers": broker.address}), name, SAMPLES[:1])
    found = described(admin, name).topic_id
    number = uuid.UUID(
        int=(found.get_most_significant_bits() & ~(-1 << 64)) << 64
        | found.get_least_significant_bits() & ~(-1 << 64)
    )
    assert number.version == 4
    written = (broker.log_dir / f"{name}-0" / "partition.metadata").read_text()
    text = base64.urlsafe_b64encode(number.bytes).decode().rstrip("=")
    assert f"topic_id: {text}" in written.splitlines()
