"""aiokafka administers: T5, T6, O2, S5 as one node can show them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    InvalidPartitionsError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
    for_code,
)

from clients.conftest import MakeTopic
from clients.settling import settled
from clients.test_aiokafka import numbers, run, send
from support.servers import Server

UnusedName = Callable[[], str]


def ask(bootstrap: str, call: Callable[[AIOKafkaAdminClient], Any]) -> Any:
    """The result of one call of a client made for it."""

    async def steps() -> Any:
        async with client(bootstrap) as admin:
            return await call(admin)

    return run(steps())


@asynccontextmanager
async def client(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()


def listed(bootstrap: str) -> list[str]:
    names: list[str] = ask(bootstrap, lambda admin: admin.list_topics())
    return names


def partitions(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    (found,) = ask(bootstrap, lambda admin: admin.describe_topics([topic]))
    assert found["error_code"] == 0
    described: list[dict[str, Any]] = found["partitions"]
    return described


def outcome(response: Any) -> str:
    """The name of the one error in an answer about one topic."""
    errors = getattr(response, "topic_errors", None) or response.topic_error_codes
    ((_, code, *_),) = errors
    name: str = for_code(code).__name__
    return name


def create(bootstrap: str, name: str, **arguments: Any) -> str:
    topic = NewTopic(name, **{"num_partitions": 1, "replication_factor": 1, **arguments})
    return outcome(ask(bootstrap, lambda admin: admin.create_topics([topic])))


def configs(bootstrap: str, kind: ConfigResourceType, name: str) -> dict[str, str]:
    (response,) = ask(bootstrap, lambda admin: admin.describe_configs([ConfigResource(kind, name)]))
    ((code, _, _, _, entries),) = response.resources
    assert code == 0
    return {entry[0]: entry[1] for entry in entries}


def test_aiokafka_admin_makes_describes_lists_and_deletes_a_topic(
    bootstrap: str, unused_name: UnusedName
) -> None:
    """T5, T6"""
    name = unused_name()
    assert create(bootstrap, name, num_partitions=3) == "NoError"
    assert settled(lambda: name in listed(bootstrap))
    found = sorted(partitions(bootstrap, name), key=lambda item: item["partition"])
    assert [item["partition"] for item in found] == [0, 1, 2]
    assert all(item["replicas"] == item["isr"] == [item["leader"]] for item in found)
    deleted = ask(bootstrap, lambda admin: admin.delete_topics([name]))
    assert outcome(deleted) == "NoError"
    assert settled(lambda: name not in listed(bootstrap))
    again = ask(bootstrap, lambda admin: admin.delete_topics([name]))
    assert outcome(again) == "UnknownTopicOrPartitionError"


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("slash/ed", {}, "InvalidTopicError"),
        ("", {}, "InvalidTopicError"),
        ("t", {"replication_factor": 3}, "InvalidReplicationFactorError"),
        ("t", {"num_partitions": 0}, "InvalidPartitionsError"),
        ("t", {"topic_configs": {"retention.ms": "soon"}}, "InvalidConfigurationError"),
        ("t", {"topic_configs": {"no.such": "1"}}, "InvalidConfigurationError"),
    ],
)
def test_aiokafka_admin_is_refused_a_topic_that_cannot_be(
    bootstrap: str, name: str, arguments: dict[str, Any], error: str
) -> None:
    """T1, O2"""
    assert create(bootstrap, name, **arguments) == error
    assert name not in listed(bootstrap)


def test_aiokafka_admin_is_refused_a_topic_that_exists(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    assert create(bootstrap, make_topic()) == "TopicAlreadyExistsError"


def test_aiokafka_admin_adds_partitions(bootstrap: str, make_topic: MakeTopic) -> None:
    name = make_topic()

    def grow(topic: str, count: int) -> None:
        wanted = {topic: NewPartitions(count)}
        ask(bootstrap, lambda admin: admin.create_partitions(wanted))

    grow(name, 4)
    assert settled(lambda: len(partitions(bootstrap, name)) == 4)
    with pytest.raises(InvalidPartitionsError):
        grow(name, 2)
    with pytest.raises(UnknownTopicOrPartitionError):
        grow("unknown", 2)


def test_aiokafka_admin_describes_and_replaces_settings(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    """O2: it has AlterConfigs only, which resets what it does not name."""
    name = make_topic(config={"retention.ms": "86400000"})
    assert configs(bootstrap, ConfigResourceType.TOPIC, name)["retention.ms"] == "86400000"
    wanted = ConfigResource(ConfigResourceType.TOPIC, name, {"segment.bytes": "2000000"})
    (changed,) = ask(bootstrap, lambda admin: admin.alter_configs([wanted]))
    assert [code for code, *_ in changed.resources] == [0]

    def is_changed() -> bool:
        found = configs(bootstrap, ConfigResourceType.TOPIC, name)
        return (found["retention.ms"], found["segment.bytes"]) == ("604800000", "2000000")

    assert settled(is_changed)


def test_aiokafka_admin_is_refused_a_bad_setting(bootstrap: str, make_topic: MakeTopic) -> None:
    bad = ConfigResource(ConfigResourceType.TOPIC, make_topic(), {"segment.bytes": "many"})
    (refused,) = ask(bootstrap, lambda admin: admin.alter_configs([bad]))
    assert [for_code(code).__name__ for code, *_ in refused.resources] == [
        "InvalidConfigurationError"
    ]


def test_aiokafka_admin_describes_the_cluster_and_its_broker(broker: Server) -> None:
    cluster = ask(broker.address, lambda admin: admin.describe_cluster())
    (node,) = cluster["brokers"]
    assert f"{node['host']}:{node['port']}" == broker.address
    assert cluster["controller_id"] == node["node_id"]
    assert len(cluster["cluster_id"]) == 22
    found = configs(broker.address, ConfigResourceType.BROKER, str(node["node_id"]))
    assert found["log.dirs"] == str(broker.log_dir)


def test_aiokafka_admin_deletes_records(bootstrap: str, make_topic: MakeTopic) -> None:
    """S5"""
    partition = TopicPartition(make_topic(), 0)
    run(send(bootstrap, partition.topic, numbers(20)))

    def delete(offset: int) -> Any:
        wanted = {partition: RecordsToDelete(before_offset=offset)}
        return ask(bootstrap, lambda admin: admin.delete_records(wanted))

    assert delete(7) == {partition: 7}
    assert run(_beginning(bootstrap, partition)) == {partition: 7}
    with pytest.raises(OffsetOutOfRangeError):
        delete(21)


async def _beginning(bootstrap: str, partition: TopicPartition) -> Any:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    try:
        await consumer.start()
        return await consumer.beginning_offsets([partition])
    finally:
        await consumer.stop()
