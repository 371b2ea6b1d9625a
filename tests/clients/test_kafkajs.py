"""kafkajs produces and administers: T1, T3, T5, T6, O2, S5, A1 as one node can show them. Its
consumers are in test_kafkajs_groups.py. What it sent is read with confluent-kafka."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from clients.confluent import read, samples, send
from clients.conftest import MakeTopic
from clients.kafkajs import Kafkajs, KafkajsError
from clients.samples import (
    BIG,
    CODECS,
    KEYS,
    SAMPLES,
    TIME,
    Sample,
    stored_batches,
    stored_codecs,
)
from clients.settling import settled
from support.servers import Server
from tidelog.records.murmur2 import partition_for

UnusedName = Callable[[], str]
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4

# It has headers as an object, hence sorted by name of first use, and none without a value.
RECORDS = [
    Sample(
        key=sample.key,
        value=sample.value,
        headers=tuple(pair for pair in sample.headers if pair[1] is not None),
    )
    for sample in SAMPLES
]


def configs(kafkajs: Kafkajs, kind: int, name: str) -> dict[str, str]:
    resource = {"type": kind, "name": name}
    answer = kafkajs.admin("describeConfigs", {"resources": [resource], "includeSynonyms": True})
    (found,) = answer["resources"]
    return {entry["configName"]: entry["configValue"] for entry in found["configEntries"]}


def refusal(kafkajs: Kafkajs, method: str, argument: Any) -> str:
    with pytest.raises(KafkajsError) as raised:
        kafkajs.admin(method, argument)
    return raised.value.type


def partitions(kafkajs: Kafkajs, topic: str) -> list[dict[str, Any]]:
    (found,) = kafkajs.admin("fetchTopicMetadata", {"topics": [topic]})["topics"]
    return sorted(found["partitions"], key=lambda partition: int(partition["partitionId"]))


@pytest.mark.parametrize("codec", CODECS)
def test_kafkajs_records_come_back_and_are_stored_as_compressed(
    broker: Server, kafkajs: Kafkajs, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic()
    (answer,) = kafkajs.send(topic, RECORDS, options={"compression": codec})
    assert (answer["errorCode"], answer["baseOffset"]) == (0, "0")
    assert stored_codecs(broker.log_dir, topic) == {CODECS[codec]}
    assert samples(read(broker.address, topic, len(RECORDS))) == RECORDS


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_kafkajs_producer_is_answered_as_its_acks_ask(
    bootstrap: str, kafkajs: Kafkajs, make_topic: MakeTopic, acks: int
) -> None:
    """A1"""
    topic = make_topic()
    answers = kafkajs.send(topic, RECORDS, options={"acks": acks})
    assert [answer["baseOffset"] for answer in answers] == ([] if acks == 0 else ["0"])
    assert samples(read(bootstrap, topic, len(RECORDS))) == RECORDS


def test_kafkajs_idempotent_producer_has_a_producer_id(
    broker: Server, kafkajs: Kafkajs, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    kafkajs.send(topic, RECORDS, producer={"idempotent": True})
    kafkajs.send(topic, RECORDS, producer={"idempotent": True})
    batches = stored_batches(broker.log_dir, topic)
    assert all(batch.producer_id >= 0 and batch.base_sequence == 0 for batch in batches)
    assert len({batch.producer_id for batch in batches}) == 2


def test_kafkajs_keys_go_to_the_partition_java_would_choose(
    bootstrap: str, kafkajs: Kafkajs, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=7)
    kafkajs.send(topic, [Sample(key=key, value=b"") for key in KEYS])
    found = read(bootstrap, topic, len(KEYS), partitions=7)
    assert {message.key(): message.partition() for message in found} == {
        key: partition_for(key, 7) for key in KEYS
    }


def test_kafkajs_record_of_ten_megabytes_is_taken_where_the_topic_allows_it(
    bootstrap: str, kafkajs: Kafkajs, big_topic: str
) -> None:
    record = Sample(key=b"big", value=b"x" * BIG)
    kafkajs.send(big_topic, [record])
    assert samples(read(bootstrap, big_topic, 1)) == [record]


def test_kafkajs_record_larger_than_the_topic_allows_is_refused(
    kafkajs: Kafkajs, make_topic: MakeTopic
) -> None:
    with pytest.raises(KafkajsError) as raised:
        kafkajs.send(make_topic(), [Sample(key=None, value=b"x" * 1_100_000)])
    assert raised.value.type == "MESSAGE_TOO_LARGE"


def test_kafkajs_producer_makes_the_topic_it_writes_to(
    bootstrap: str, kafkajs: Kafkajs, unused_name: UnusedName
) -> None:
    """T6"""
    topic = unused_name()
    kafkajs.send(topic, RECORDS)
    assert samples(read(bootstrap, topic, len(RECORDS))) == RECORDS


def test_kafkajs_producer_may_refuse_to_make_a_topic(
    kafkajs: Kafkajs, unused_name: UnusedName
) -> None:
    topic = unused_name()
    with pytest.raises(KafkajsError) as raised:
        kafkajs.send(topic, RECORDS, producer={"allowAutoTopicCreation": False})
    assert raised.value.type == "UNKNOWN_TOPIC_OR_PARTITION"
    assert topic not in kafkajs.admin("listTopics")


def test_kafkajs_admin_makes_describes_lists_and_deletes_a_topic(
    kafkajs: Kafkajs, unused_name: UnusedName
) -> None:
    """T5, T6"""
    name = unused_name()
    wanted = {"topic": name, "numPartitions": 3, "replicationFactor": 1}
    assert kafkajs.admin("createTopics", {"topics": [wanted], "waitForLeaders": True})
    assert settled(lambda: name in kafkajs.admin("listTopics"))
    found = partitions(kafkajs, name)
    assert [item["partitionId"] for item in found] == [0, 1, 2]
    assert all(item["replicas"] == item["isr"] == [item["leader"]] for item in found)
    kafkajs.admin("deleteTopics", {"topics": [name]})
    assert settled(lambda: name not in kafkajs.admin("listTopics"))
    again = refusal(kafkajs, "deleteTopics", {"topics": [name]})
    assert again == "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"topic": "slash/ed"}, "INVALID_TOPIC_EXCEPTION"),
        ({"topic": "t", "replicationFactor": 3}, "INVALID_REPLICATION_FACTOR"),
        ({"topic": "t", "numPartitions": 0}, "INVALID_PARTITIONS"),
        (
            {"topic": "t", "configEntries": [{"name": "retention.ms", "value": "soon"}]},
            "INVALID_CONFIG",
        ),
        (
            {"topic": "t", "replicaAssignment": [{"partition": 0, "replicas": [99]}]},
            "INVALID_REPLICA_ASSIGNMENT",
        ),
    ],
)
def test_kafkajs_admin_is_refused_a_topic_that_cannot_be(
    kafkajs: Kafkajs, wanted: dict[str, Any], error: str
) -> None:
    """T1, O2"""
    assert refusal(kafkajs, "createTopics", {"topics": [wanted]}) == error
    assert wanted["topic"] not in kafkajs.admin("listTopics")


def test_kafkajs_admin_is_told_that_a_topic_exists(kafkajs: Kafkajs, make_topic: MakeTopic) -> None:
    """It answers false where the error is TOPIC_ALREADY_EXISTS and throws any other."""
    assert kafkajs.admin("createTopics", {"topics": [{"topic": make_topic()}]}) is False


def test_kafkajs_admin_validates_without_creating(
    kafkajs: Kafkajs, unused_name: UnusedName
) -> None:
    name = unused_name()
    argument = {"topics": [{"topic": name}], "validateOnly": True, "waitForLeaders": False}
    assert kafkajs.admin("createTopics", argument)
    assert name not in kafkajs.admin("listTopics")


def test_kafkajs_admin_adds_partitions(kafkajs: Kafkajs, make_topic: MakeTopic) -> None:
    """T3"""
    name = make_topic()
    wanted = {"topicPartitions": [{"topic": name, "count": 4}]}
    kafkajs.admin("createPartitions", wanted)
    assert settled(lambda: len(partitions(kafkajs, name)) == 4)
    assert refusal(kafkajs, "createPartitions", wanted) == "INVALID_PARTITIONS"


def test_kafkajs_admin_describes_and_replaces_settings(
    kafkajs: Kafkajs, make_topic: MakeTopic
) -> None:
    """O2: it has AlterConfigs only, which resets what it does not name."""
    name = make_topic(config={"retention.ms": "86400000"})
    assert configs(kafkajs, TOPIC_RESOURCE, name)["retention.ms"] == "86400000"

    def wanted(value: str) -> dict[str, Any]:
        entries = [{"name": "segment.bytes", "value": value}]
        resource = {"type": TOPIC_RESOURCE, "name": name, "configEntries": entries}
        return {"validateOnly": False, "resources": [resource]}

    kafkajs.admin("alterConfigs", wanted("2000000"))

    def is_changed() -> bool:
        found = configs(kafkajs, TOPIC_RESOURCE, name)
        return (found["retention.ms"], found["segment.bytes"]) == ("604800000", "2000000")

    assert settled(is_changed)
    assert refusal(kafkajs, "alterConfigs", wanted("many")) == "INVALID_CONFIG"


def test_kafkajs_admin_describes_the_cluster_and_its_broker(
    broker: Server, kafkajs: Kafkajs
) -> None:
    cluster = kafkajs.admin("describeCluster")
    (node,) = cluster["brokers"]
    assert f"{node['host']}:{node['port']}" == broker.address
    assert cluster["controller"] == node["nodeId"]
    assert len(cluster["clusterId"]) == 22
    found = configs(kafkajs, BROKER_RESOURCE, str(node["nodeId"]))
    assert found["log.dirs"] == str(broker.log_dir)


def test_kafkajs_admin_finds_offsets_and_deletes_records(
    bootstrap: str, kafkajs: Kafkajs, make_topic: MakeTopic
) -> None:
    """S5"""
    topic = make_topic()
    writer = Producer({"bootstrap.servers": bootstrap})
    for n in range(20):
        send(writer, topic, [Sample(key=None, value=b"")], timestamp=TIME + 60_000 * n)

    def offsets() -> tuple[str, str]:
        (found,) = kafkajs.admin("fetchTopicOffsets", [topic])
        return found["low"], found["high"]

    def offset_at(time_ms: int) -> str:
        (found,) = kafkajs.admin("fetchTopicOffsetsByTimestamp", [topic, time_ms])
        offset: str = found["offset"]
        return offset

    assert offsets() == ("0", "20")
    assert [offset_at(TIME), offset_at(TIME + 60_001)] == ["0", "2"]
    # Where nothing is as late, kafkajs itself takes the end.
    assert offset_at(TIME + 60_000 * 20) == "20"
    wanted = {"topic": topic, "partitions": [{"partition": 0, "offset": "7"}]}
    kafkajs.admin("deleteTopicRecords", wanted)
    assert offsets() == ("7", "20")
