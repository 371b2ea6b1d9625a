"""confluent-kafka (a librdkafka of today) describes and changes settings: O2."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from clients.confluent import refusal, result_of, send
from clients.conftest import MakeTopic
from clients.samples import Sample
from clients.settling import settled
from support.servers import Server


def configs(admin: AdminClient, kind: ResourceType, name: str) -> Any:
    return result_of(admin.describe_configs([ConfigResource(kind, name)]))


def value_of(admin: AdminClient, topic: str, setting: str) -> str:
    value: str = configs(admin, ResourceType.TOPIC, topic)[setting].value
    return value


def change(admin: AdminClient, topic: str, *entries: tuple[str, str | None, Any]) -> dict[Any, Any]:
    resource = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry(name, value, incremental_operation=operation)
            for name, value, operation in entries
        ],
    )
    changed: dict[Any, Any] = admin.incremental_alter_configs([resource])
    return changed


def test_confluent_admin_describes_the_settings_of_a_topic(
    admin: AdminClient, make_topic: MakeTopic
) -> None:
    """O2"""
    name = make_topic(config={"retention.ms": "86400000"})
    found = configs(admin, ResourceType.TOPIC, name)
    assert found["retention.ms"].value == "86400000"
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert not found["retention.ms"].is_default
    for setting, value in {
        "cleanup.policy": "delete",
        "segment.bytes": "1073741824",
        "max.message.bytes": "1048588",
        "compression.type": "producer",
        "message.timestamp.type": "CreateTime",
    }.items():
        assert (found[setting].value, found[setting].is_default) == (value, True)
        assert found[setting].source == ConfigSource.DEFAULT_CONFIG.value


def test_confluent_admin_describes_the_settings_of_the_broker(
    broker: Server, admin: AdminClient
) -> None:
    (node,) = admin.describe_cluster().result(60).nodes
    found = configs(admin, ResourceType.BROKER, str(node.id))
    assert found["log.dirs"].value == str(broker.log_dir)
    assert found["log.dirs"].source == ConfigSource.STATIC_BROKER_CONFIG.value
    assert found["log.dirs"].is_read_only
    assert found["log.retention.hours"].value == "168"
    assert found["log.retention.hours"].is_default


def test_confluent_admin_changes_settings_one_by_one(
    admin: AdminClient, make_topic: MakeTopic
) -> None:
    """O2"""
    name = make_topic(config={"retention.ms": "86400000", "cleanup.policy": "delete"})
    result_of(
        change(
            admin,
            name,
            ("retention.ms", None, AlterConfigOpType.DELETE),
            ("segment.bytes", "2000000", AlterConfigOpType.SET),
            ("cleanup.policy", "compact", AlterConfigOpType.APPEND),
        )
    )
    assert settled(lambda: value_of(admin, name, "segment.bytes") == "2000000")
    found = configs(admin, ResourceType.TOPIC, name)
    assert (found["retention.ms"].value, found["retention.ms"].is_default) == ("604800000", True)
    assert found["segment.bytes"].value == "2000000"
    assert set(found["cleanup.policy"].value.split(",")) == {"delete", "compact"}
    result_of(change(admin, name, ("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)))
    assert settled(lambda: value_of(admin, name, "cleanup.policy") == "compact")


@pytest.mark.parametrize(
    ("setting", "value", "operation"),
    [
        ("no.such.setting", "1", AlterConfigOpType.SET),
        ("retention.ms", "soon", AlterConfigOpType.SET),
        ("min.insync.replicas", "0", AlterConfigOpType.SET),
        ("retention.ms", "1", AlterConfigOpType.APPEND),
    ],
)
def test_confluent_admin_is_refused_a_bad_setting(
    admin: AdminClient, make_topic: MakeTopic, setting: str, value: str, operation: Any
) -> None:
    """O2: refused by name; what the same request says of other settings is not done either."""
    name = make_topic()
    good = ("segment.bytes", "2000000", AlterConfigOpType.SET)
    futures = change(admin, name, good, (setting, value, operation))
    assert refusal(futures) == "INVALID_CONFIG"
    assert configs(admin, ResourceType.TOPIC, name)["segment.bytes"].is_default


def test_confluent_admin_replaces_all_settings_the_old_way(
    admin: AdminClient, make_topic: MakeTopic
) -> None:
    """AlterConfigs: what is not named goes back to its default."""
    name = make_topic(config={"retention.ms": "86400000"})
    resource = ConfigResource(ResourceType.TOPIC, name, set_config={"segment.bytes": "2000000"})
    with pytest.warns(DeprecationWarning, match="incremental_alter_configs"):
        result_of(admin.alter_configs([resource]))
    assert settled(lambda: value_of(admin, name, "segment.bytes") == "2000000")
    assert configs(admin, ResourceType.TOPIC, name)["retention.ms"].is_default
    bad = ConfigResource(ResourceType.TOPIC, name, set_config={"segment.bytes": "many"})
    with pytest.warns(DeprecationWarning, match="incremental_alter_configs"):
        assert refusal(admin.alter_configs([bad])) == "INVALID_CONFIG"


def test_confluent_changed_limit_acts_on_the_next_record(
    bootstrap: str, admin: AdminClient, make_topic: MakeTopic
) -> None:
    """O2: dynamic settings apply without restart."""
    name = make_topic()
    writer = Producer({"bootstrap.servers": bootstrap})
    record = Sample(key=None, value=b"x" * 5_000)
    send(writer, name, [record])
    result_of(change(admin, name, ("max.message.bytes", "1000", AlterConfigOpType.SET)))
    assert settled(lambda: _is_too_large(writer, name, record))


def _is_too_large(writer: Producer, topic: str, record: Sample) -> bool:
    try:
        send(writer, topic, [record])
    except KafkaException as error:
        return bool(error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE)
    return False


def test_confluent_dynamic_setting_of_the_broker_is_the_default_of_its_topics(
    admin: AdminClient, make_topic: MakeTopic
) -> None:
    """O2"""
    name = make_topic()
    (node,) = admin.describe_cluster().result(60).nodes

    def alter(operation: AlterConfigOpType) -> None:
        entry = ConfigEntry("log.retention.ms", "777000", incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, str(node.id), incremental_configs=[entry])
        result_of(admin.incremental_alter_configs([resource]))

    def shown() -> tuple[str, int]:
        found = configs(admin, ResourceType.TOPIC, name)["retention.ms"]
        return found.value, found.source

    alter(AlterConfigOpType.SET)
    try:
        dynamic = ConfigSource.DYNAMIC_BROKER_CONFIG.value
        assert settled(lambda: shown() == ("777000", dynamic)), shown()
    finally:
        alter(AlterConfigOpType.DELETE)
    default = ConfigSource.DEFAULT_CONFIG.value
    assert settled(lambda: shown() == ("604800000", default)), shown()


def test_confluent_admin_is_told_that_a_topic_has_no_settings_as_it_is_unknown(
    admin: AdminClient, unused_name: Callable[[], str]
) -> None:
    name = unused_name()
    unknown = "UNKNOWN_TOPIC_OR_PART"
    resource = ConfigResource(ResourceType.TOPIC, name)
    assert refusal(admin.describe_configs([resource])) == unknown
    set_it = ("retention.ms", "1000", AlterConfigOpType.SET)
    assert refusal(change(admin, name, set_it)) == unknown
