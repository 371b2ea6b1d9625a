"""kafka-python administers: T1, T3, T5, T6, O2, S5 as one node can show them. Of the clients
here it has the most admin calls, log dirs and producers among them."""

import uuid
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clients.conftest import MakeTopic
from clients.samples import TIME, stored_batches
from clients.settling import settled
from clients.test_kafka_python import api_version, numbers, older_releases, send
from support.servers import Server

with warnings.catch_warnings():
    # It reads its schemas with a function that Python is about to drop.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
    from kafka.errors import (
        InvalidConfigurationError,
        InvalidPartitionsError,
        InvalidReplicationFactorError,
        InvalidTopicError,
        OffsetOutOfRangeError,
        TopicAlreadyExistsError,
        UnknownTopicOrPartitionError,
    )

UnusedName = Callable[[], str]


@pytest.fixture
def client(bootstrap: str) -> Iterator[KafkaAdminClient]:
    made = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        yield made
    finally:
        made.close()


def described(client: KafkaAdminClient, topic: Any) -> Any:
    (found,) = client.describe_topics([topic])
    assert found["error_code"] == 0
    return found


def configs(client: KafkaAdminClient, kind: ConfigResourceType, name: str) -> Any:
    resource = ConfigResource(kind, name)
    found = client.describe_configs([resource], include_synonyms=True, config_filter="all")
    return found[kind.name.lower()][name]


def test_kafka_python_admin_makes_describes_lists_and_deletes_a_topic(
    client: KafkaAdminClient, unused_name: UnusedName
) -> None:
    """T5, T6"""
    name = unused_name()
    wanted = {"num_partitions": 3, "replication_factor": 1, "configs": {"retention.ms": "5000"}}
    (made,) = client.create_topics({name: wanted}, wait_for_metadata=True)["topics"]
    assert (made["num_partitions"], made["replication_factor"]) == (3, 1)
    assert made["configs"]["retention.ms"]["value"] == "5000"
    assert made["configs"]["segment.bytes"]["value"] == "1073741824"
    assert name in client.list_topics()
    topic = described(client, name)
    assert topic["topic_id"] == made["topic_id"]
    assert [item["partition_index"] for item in topic["partitions"]] == [0, 1, 2]
    for item in topic["partitions"]:
        assert item["replica_nodes"] == item["isr_nodes"] == [item["leader_id"]]
    client.delete_topics([name])
    assert settled(lambda: name not in client.list_topics())
    with pytest.raises(UnknownTopicOrPartitionError):
        client.delete_topics([name])


def test_kafka_python_admin_describes_and_deletes_a_topic_by_its_id(
    client: KafkaAdminClient, make_topic: MakeTopic
) -> None:
    name = make_topic()
    topic_id = uuid.UUID(str(described(client, name)["topic_id"]))
    assert topic_id.version == 4
    assert described(client, topic_id)["name"] == name
    client.delete_topics([topic_id])
    assert settled(lambda: name not in client.list_topics())


@pytest.mark.parametrize(
    ("name", "wanted", "error"),
    [
        ("slash/ed", {}, InvalidTopicError),
        ("", {}, InvalidTopicError),
        ("t", {"replication_factor": 3}, InvalidReplicationFactorError),
        ("t", {"num_partitions": 0}, InvalidPartitionsError),
        ("t", {"configs": {"retention.ms": "soon"}}, InvalidConfigurationError),
        ("t", {"configs": {"no.such.setting": "1"}}, InvalidConfigurationError),
    ],
)
def test_kafka_python_admin_is_refused_a_topic_that_cannot_be(
    client: KafkaAdminClient, name: str, wanted: dict[str, Any], error: type[Exception]
) -> None:
    """T1, O2"""
    with pytest.raises(error):
        client.create_topics({name: wanted})
    assert name not in client.list_topics()


def test_kafka_python_admin_is_refused_a_topic_that_exists(
    client: KafkaAdminClient, make_topic: MakeTopic
) -> None:
    with pytest.raises(TopicAlreadyExistsError):
        client.create_topics([make_topic()])


def test_kafka_python_admin_validates_without_creating(
    client: KafkaAdminClient, unused_name: UnusedName
) -> None:
    name = unused_name()
    client.create_topics([name], validate_only=True)
    assert name not in client.list_topics()


def test_kafka_python_admin_adds_partitions(
    client: KafkaAdminClient, make_topic: MakeTopic
) -> None:
    """T3"""
    name = make_topic()
    client.create_partitions({name: 4})
    assert settled(lambda: len(described(client, name)["partitions"]) == 4)
    with pytest.raises(InvalidPartitionsError):
        client.create_partitions({name: 2})
    with pytest.raises(UnknownTopicOrPartitionError):
        client.create_partitions({"unknown": 2})


def test_kafka_python_admin_describes_settings_with_their_synonyms(
    client: KafkaAdminClient, make_topic: MakeTopic
) -> None:
    """O2"""
    name = make_topic(config={"segment.bytes": "2000000"})
    found = configs(client, ConfigResourceType.TOPIC, name)

    def shown(setting: str) -> tuple[str, str, list[tuple[str, str, str]]]:
        entry = found[setting]
        synonyms = [(item["name"], item["value"], item["source"]) for item in entry["synonyms"]]
        return entry["value"], entry["config_source"], synonyms

    changed = ("segment.bytes", "2000000", "DYNAMIC_TOPIC_CONFIG")
    default = ("log.segment.bytes", "1073741824", "DEFAULT_CONFIG")
    assert shown("segment.bytes") == ("2000000", "DYNAMIC_TOPIC_CONFIG", [changed, default])
    default = ("message.max.bytes", "1048588", "DEFAULT_CONFIG")
    assert shown("max.message.bytes") == ("1048588", "DEFAULT_CONFIG", [default])
    types = {name: found[name]["config_type"] for name in ("retention.ms", "cleanup.policy")}
    assert types == {"retention.ms": "LONG", "cleanup.policy": "LIST"}


@pytest.mark.parametrize("incremental", [True, False])
def test_kafka_python_admin_changes_and_resets_settings(
    client: KafkaAdminClient, make_topic: MakeTopic, incremental: bool
) -> None:
    """O2: with IncrementalAlterConfigs and with AlterConfigs."""
    name = make_topic(config={"retention.ms": "86400000"})

    def values() -> tuple[str, str]:
        found = configs(client, ConfigResourceType.TOPIC, name)
        return found["retention.ms"]["value"], found["segment.bytes"]["value"]

    wanted = ConfigResource(ConfigResourceType.TOPIC, name, {"segment.bytes": "2000000"})
    changed = client.alter_configs([wanted], incremental=incremental)
    assert changed == {"topic": {name: "OK"}}
    assert settled(lambda: values() == ("86400000", "2000000"))
    undone = ConfigResource(ConfigResourceType.TOPIC, name, ["retention.ms"])
    assert client.reset_configs([undone], incremental=incremental) == {"topic": {name: "OK"}}
    assert settled(lambda: values() == ("604800000", "2000000"))


@pytest.mark.parametrize("incremental", [True, False])
def test_kafka_python_admin_is_refused_a_bad_setting(
    client: KafkaAdminClient, make_topic: MakeTopic, incremental: bool
) -> None:
    name = make_topic()
    bad = ConfigResource(ConfigResourceType.TOPIC, name, {"segment.bytes": "many"})
    refused = client.alter_configs([bad], incremental=incremental)["topic"][name]
    assert "InvalidConfigurationError" in refused


def test_kafka_python_admin_describes_the_cluster_and_its_broker(
    broker: Server, client: KafkaAdminClient
) -> None:
    cluster = client.describe_cluster()
    (node,) = cluster["brokers"]
    assert f"{node['host']}:{node['port']}" == broker.address
    assert cluster["controller_id"] == node["broker_id"]
    assert len(cluster["cluster_id"]) == 22
    found = configs(client, ConfigResourceType.BROKER, str(node["broker_id"]))
    assert found["log.dirs"]["value"] == str(broker.log_dir)
    assert found["log.dirs"]["read_only"]


def test_kafka_python_admin_deletes_records(
    bootstrap: str, client: KafkaAdminClient, make_topic: MakeTopic
) -> None:
    """S5"""
    partition = TopicPartition(make_topic(), 0)
    send(bootstrap, partition.topic, numbers(20))
    assert client.delete_records({partition: 7})[partition]["low_watermark"] == 7
    with pytest.raises(OffsetOutOfRangeError):
        client.delete_records({partition: 21})
    assert client.delete_records({partition: -1})[partition]["low_watermark"] == 20


@pytest.mark.parametrize(
    ("spec", "offset", "at"),
    [
        (OffsetSpec.EARLIEST, 0, -1),
        (OffsetSpec.LATEST, 20, -1),
        (OffsetSpec.MAX_TIMESTAMP, 19, TIME + 19 * 60_000),
        (OffsetSpec.EARLIEST_LOCAL, 0, -1),
        (TIME + 60_001, 2, TIME + 120_000),
        (TIME + 20 * 60_000, -1, -1),
    ],
)
def test_kafka_python_admin_lists_offsets(
    bootstrap: str, client: KafkaAdminClient, make_topic: MakeTopic, spec: Any, offset: int, at: int
) -> None:
    partition = TopicPartition(make_topic(), 0)
    send(bootstrap, partition.topic, numbers(20))
    found = client.list_partition_offsets({partition: spec})[partition]
    assert (found.offset, found.timestamp) == (offset, at)


def test_kafka_python_admin_describes_log_dirs(
    broker: Server, client: KafkaAdminClient, make_topic: MakeTopic
) -> None:
    name = make_topic(partitions=2)
    send(broker.address, name, numbers(20))
    (node,) = client.describe_log_dirs([name])
    (folder,) = node["log_dirs"]
    assert (folder["error_code"], folder["log_dir"]) == (0, str(broker.log_dir))
    assert folder["total_bytes"] >= folder["usable_bytes"] > 0
    (topic,) = folder["topics"]
    assert topic["name"] == name
    sizes = {item["partition_index"]: item["partition_size"] for item in topic["partitions"]}
    for partition in range(2):
        batches = stored_batches(broker.log_dir, name, partition)
        assert sizes[partition] == sum(batch.size for batch in batches)


def test_kafka_python_admin_describes_producers(
    broker: Server, client: KafkaAdminClient, make_topic: MakeTopic
) -> None:
    partition = TopicPartition(make_topic(), 0)
    send(broker.address, partition.topic, numbers(20), enable_idempotence=True)
    (producer,) = client.describe_producers([partition])[partition].active_producers
    (batch, *_) = stored_batches(broker.log_dir, partition.topic)
    assert producer.producer_id == batch.producer_id
    assert producer.last_sequence == 19
    assert producer.current_transaction_start_offset in (-1, None)


def test_kafka_python_admin_describes_partitions_page_by_page(
    client: KafkaAdminClient, make_topic: MakeTopic
) -> None:
    name = make_topic(partitions=5)
    seen: list[int] = []
    cursor = None
    for _ in range(3):
        page = client.describe_topic_partitions([name], response_partition_limit=2, cursor=cursor)
        (topic,) = page["topics"]
        seen += [item["partition_index"] for item in topic["partitions"]]
        cursor = page["next_cursor"]
    assert seen == [0, 1, 2, 3, 4]
    assert cursor is None


def test_kafka_python_admin_is_told_of_an_unknown_topic(
    client: KafkaAdminClient, unused_name: UnusedName
) -> None:
    """And asking does not make it."""
    name = unused_name()
    (topic,) = client.describe_topics([name])
    assert topic["error_code"] == UnknownTopicOrPartitionError.errno
    assert name not in client.list_topics()


def test_kafka_python_is_offered_produce_from_version_zero(client: KafkaAdminClient) -> None:
    """What makes an old librdkafka compress: see test_kcat.py. Versions 0-2 are not served."""
    versions = client.get_broker_version_data(client.describe_cluster()["controller_id"])
    assert versions.api_versions[0] == (0, 13)
    assert versions.api_versions[1] == (4, 18)


@older_releases
def test_kafka_python_admin_speaks_the_protocol_of_an_older_release(
    bootstrap: str, unused_name: UnusedName, release: str
) -> None:
    name = unused_name()
    older = KafkaAdminClient(bootstrap_servers=bootstrap, api_version=api_version(release))
    try:
        older.create_topics({name: {"num_partitions": 2, "replication_factor": 1}})
        assert settled(lambda: name in older.list_topics())
        assert len(described(older, name)["partitions"]) == 2
        wanted = ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": "5000"})
        assert older.alter_configs([wanted]) == {"topic": {name: "OK"}}
        assert settled(
            lambda: (
                configs(older, ConfigResourceType.TOPIC, name)["retention.ms"]["value"] == "5000"
            )
        )
        older.create_partitions({name: 3})
        assert settled(lambda: len(described(older, name)["partitions"]) == 3)
        older.delete_topics([name])
        assert settled(lambda: name not in older.list_topics())
    finally:
        older.close()
