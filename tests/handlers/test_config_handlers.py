"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs (O2)."""

from typing import Any

import pytest

from support.admin_node import AdminNode, versions
from tidelog.base.errors import ErrorCode

DESCRIBE, ALTER, INCREMENTAL = 32, 33, 44
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
OF_TOPIC, OF_BROKER, OF_ALL_BROKERS, OF_FILE, DEFAULT = 1, 2, 3, 4, 5


def describe(node: AdminNode, kind: int, name: str, **more: Any) -> Any:
    """The answer for one resource."""
    version = more.pop("version", 4)
    keys = more.pop("keys", None)
    usual = {"include_synonyms": False, "include_documentation": False}
    asked = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    answer = node.ask(DESCRIBE, version, resources=[asked], **(usual | more))
    (result,) = answer.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def values(node: AdminNode, kind: int, name: str) -> dict[str, tuple[str | None, int]]:
    result = describe(node, kind, name)
    assert result.error_code is ErrorCode.none, result.error_message
    return {entry.name: (entry.value, entry.config_source) for entry in result.configs}


def alter(
    node: AdminNode, kind: int, name: str, *changes: tuple[str, int, str | None], **more: Any
) -> Any:
    """The answer to a change of one resource's settings, one by one."""
    configs = [
        {"name": setting, "config_operation": operation, "value": value}
        for setting, operation, value in changes
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    version = more.pop("version", 1)
    answer = node.ask(
        INCREMENTAL, version, resources=[resource], **({"validate_only": False} | more)
    )
    (result,) = answer.responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def replace(node: AdminNode, kind: int, name: str, **more: Any) -> Any:
    """The answer to a change of all of one resource's settings."""
    version = more.pop("version", 2)
    changed = more.pop("configs")
    configs = [{"name": setting, "value": value} for setting, value in changed]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    answer = node.ask(ALTER, version, resources=[resource], **({"validate_only": False} | more))
    return answer.responses[0]


# Describing.


@pytest.mark.parametrize("version", versions(DESCRIBE))
def test_a_topic_is_described_in_every_version(version: int) -> None:
    node = AdminNode()
    node.create("orders", retention_ms="1000")
    result = describe(
        node, TOPIC, "orders", version=version, include_synonyms=True, include_documentation=True
    )
    (entry,) = [entry for entry in result.configs if entry.name == "retention.ms"]
    assert (entry.value, entry.config_source, entry.read_only) == ("1000", OF_TOPIC, False)
    assert [(s.name, s.value, s.source) for s in entry.synonyms] == [
        ("retention.ms", "1000", OF_TOPIC),
        ("log.retention.hours", "168", DEFAULT),
    ]
    if version >= 3:
        assert entry.config_type == 5
        assert "older than this" in entry.documentation


def test_synonyms_and_documentation_come_if_asked_for() -> None:
    node = AdminNode()
    node.create("orders")
    for entry in describe(node, TOPIC, "orders").configs:
        assert (entry.synonyms, entry.documentation) == ((), None)


@pytest.mark.parametrize("keys", [None, []])
def test_all_settings_are_shown_if_none_is_named(keys: list[str] | None) -> None:
    node = AdminNode()
    node.create("orders")
    shown = {entry.name for entry in describe(node, TOPIC, "orders", keys=keys).configs}
    assert {"retention.ms", "cleanup.policy", "max.message.bytes"} <= shown


def test_only_settings_that_are_named_are_shown() -> None:
    node = AdminNode()
    node.create("orders")
    for kind, name, keys in (
        (TOPIC, "orders", ["retention.ms", "no.such"]),
        (BROKER, "1", ["num.partitions", "no.such"]),
    ):
        assert [entry.name for entry in describe(node, kind, name, keys=keys).configs] == keys[:1]


def test_a_broker_is_described_with_its_file() -> None:
    node = AdminNode(num_partitions="7")
    shown = values(node, BROKER, "1")
    assert shown["num.partitions"] == ("7", OF_FILE)
    assert shown["log.retention.hours"] == ("168", DEFAULT)
    entries = {entry.name: entry for entry in describe(node, BROKER, "1").configs}
    assert entries["num.partitions"].read_only
    assert not entries["message.max.bytes"].read_only


def test_a_password_is_never_shown() -> None:
    node = AdminNode()
    result = describe(node, BROKER, "1", include_synonyms=True)
    (entry,) = [e for e in result.configs if e.name == "zookeeper.ssl.keystore.password"]
    assert (entry.value, entry.is_sensitive, entry.config_type) == (None, True, 9)
    assert all(synonym.value is None for synonym in entry.synonyms)


def test_what_was_changed_for_all_brokers_is_described_without_a_name() -> None:
    node = AdminNode()
    assert values(node, BROKER, "") == {}
    alter(node, BROKER, "", ("message.max.bytes", SET, "2000000"))
    assert values(node, BROKER, "") == {"message.max.bytes": ("2000000", OF_ALL_BROKERS)}


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.unknown_topic_or_partition),
        (TOPIC, "", ErrorCode.invalid_topic_exception),
        (TOPIC, "../etc", ErrorCode.invalid_topic_exception),
        (BROKER, "2", ErrorCode.invalid_request),
        (BROKER, "one", ErrorCode.invalid_request),
        (LOGGER, "2", ErrorCode.invalid_request),
        (LOGGER, "", ErrorCode.invalid_request),
        (METRICS, "m", ErrorCode.invalid_request),
        (GROUP, "g", ErrorCode.invalid_request),
        (0, "", ErrorCode.invalid_request),
        (-1, "x", ErrorCode.invalid_request),
    ],
)
def test_what_has_no_settings_here_is_told_so(kind: int, name: str, code: ErrorCode) -> None:
    result = describe(AdminNode(), kind, name)
    assert (result.error_code, result.configs) == (code, ())
    assert result.error_message


def test_a_broker_has_no_loggers() -> None:
    result = describe(AdminNode(), LOGGER, "1")
    assert (result.error_code, result.configs) == (ErrorCode.none, ())


# Changing one by one.


@pytest.mark.parametrize("version", versions(INCREMENTAL))
def test_a_setting_of_a_topic_is_set_and_acts(version: int) -> None:
    node = AdminNode()
    node.create("orders", segment_ms="5000")
    result = alter(node, TOPIC, "orders", ("retention.ms", SET, "1000"), version=version)
    assert result.error_code is ErrorCode.none
    shown = values(node, TOPIC, "orders")
    assert (shown["retention.ms"], shown["segment.ms"]) == (("1000", OF_TOPIC), ("5000", OF_TOPIC))
    assert node.partition("orders").log.settings.retention_ms == 1000


@pytest.mark.parametrize("value", [None, "", "ignored"])
def test_a_setting_is_deleted_and_falls_back(value: str | None) -> None:
    node = AdminNode()
    node.create("orders", retention_ms="1000")
    alter(node, TOPIC, "orders", ("retention.ms", DELETE, value))
    assert values(node, TOPIC, "orders")["retention.ms"] == ("604800000", DEFAULT)


def test_items_are_added_to_a_list_and_taken_from_it() -> None:
    node = AdminNode()
    node.create("orders", cleanup_policy="delete")
    alter(node, TOPIC, "orders", ("cleanup.policy", APPEND, "compact"))
    assert values(node, TOPIC, "orders")["cleanup.policy"] == ("delete,compact", OF_TOPIC)
    alter(node, TOPIC, "orders", ("cleanup.policy", SUBTRACT, "delete"))
    assert values(node, TOPIC, "orders")["cleanup.policy"] == ("compact", OF_TOPIC)
    assert node.partition("orders").log.settings.cleanup_compact


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_only_lists_have_items(operation: int) -> None:
    node = AdminNode()
    node.create("orders")
    result = alter(node, TOPIC, "orders", ("retention.ms", operation, "1"))
    assert result.error_code is ErrorCode.invalid_config
    assert "retention.ms" in result.error_message


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ([("retention.ms", SET, "soon")], ErrorCode.invalid_config, "retention.ms=soon"),
        ([("no.such", SET, "1")], ErrorCode.invalid_config, "no.such"),
        ([("retention.ms", SET, None)], ErrorCode.invalid_request, "retention.ms"),
        ([("cleanup.policy", APPEND, None)], ErrorCode.invalid_request, "cleanup.policy"),
        ([("retention.ms", 4, "1")], ErrorCode.invalid_request, "4"),
        ([("retention.ms", -1, "1")], ErrorCode.invalid_request, "-1"),
        (
            [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
            ErrorCode.invalid_request,
            "at most once",
        ),
    ],
)
def test_a_change_that_is_wrong_changes_nothing(
    changes: list[tuple[str, int, str | None]], code: ErrorCode, words: str
) -> None:
    node = AdminNode()
    node.create("orders")
    result = alter(node, TOPIC, "orders", ("segment.ms", SET, "5000"), *changes)
    assert result.error_code is code
    assert words in result.error_message
    assert node.metadata.image.topics["orders"].config == {}


@pytest.mark.parametrize("key", [ALTER, INCREMENTAL])
@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.unknown_topic_or_partition),
        (TOPIC, "a/b", ErrorCode.invalid_topic_exception),
        (BROKER, "2", ErrorCode.invalid_request),
        (BROKER, "one", ErrorCode.invalid_request),
        (GROUP, "g", ErrorCode.invalid_request),
        (0, "", ErrorCode.invalid_request),
    ],
)
def test_what_has_no_settings_cannot_be_changed(
    key: int, kind: int, name: str, code: ErrorCode
) -> None:
    node = AdminNode()
    if key == ALTER:
        result = replace(node, kind, name, configs=[("retention.ms", "1")])
    else:
        result = alter(node, kind, name, ("retention.ms", SET, "1"))
    assert result.error_code is code
    assert result.error_message


def test_there_are_no_loggers_to_set() -> None:
    node = AdminNode()
    one = alter(node, LOGGER, "1", ("root", SET, "DEBUG"))
    all_of_them = replace(node, LOGGER, "1", configs=[("root", "DEBUG")])
    assert one.error_code is ErrorCode.invalid_config
    assert all_of_them.error_code is ErrorCode.invalid_request


def test_validating_a_change_makes_none() -> None:
    node = AdminNode()
    node.create("orders")
    fine = alter(node, TOPIC, "orders", ("retention.ms", SET, "1"), validate_only=True)
    wrong = alter(node, TOPIC, "orders", ("retention.ms", SET, "x"), validate_only=True)
    assert (fine.error_code, wrong.error_code) == (ErrorCode.none, ErrorCode.invalid_config)
    assert replace(
        node, TOPIC, "orders", configs=[("retention.ms", "1")], validate_only=True
    ).error_code is (ErrorCode.none)
    assert node.metadata.image.topics["orders"].config == {}


def test_a_dynamic_setting_of_the_broker_acts_at_once() -> None:
    node = AdminNode()
    assert alter(node, BROKER, "1", ("message.max.bytes", SET, "5000")).error_code is ErrorCode.none
    assert values(node, BROKER, "1")["message.max.bytes"] == ("5000", OF_BROKER)
    alter(node, BROKER, "", ("message.max.bytes", SET, "6000"))
    assert values(node, BROKER, "1")["message.max.bytes"] == ("5000", OF_BROKER)
    alter(node, BROKER, "1", ("message.max.bytes", DELETE, None))
    assert values(node, BROKER, "1")["message.max.bytes"] == ("6000", OF_ALL_BROKERS)
    assert node.settings.whole("message.max.bytes") == 6000


def test_a_setting_that_needs_a_restart_is_refused() -> None:
    result = alter(AdminNode(), BROKER, "1", ("num.partitions", SET, "5"))
    assert result.error_code is ErrorCode.invalid_request
    assert "num.partitions" in result.error_message


def test_resources_of_one_request_are_answered_in_order() -> None:
    node = AdminNode()
    for name in ("a", "b", "twice"):
        node.create(name)
    setting = {"name": "retention.ms", "config_operation": SET, "value": "1"}
    names = ["a", "missing", "twice", "b", "twice"]
    resources = [{"resource_type": TOPIC, "resource_name": n, "configs": [setting]} for n in names]
    answer = node.ask(INCREMENTAL, 1, resources=resources, validate_only=False)
    assert [(r.resource_name, r.error_code) for r in answer.responses] == [
        ("a", ErrorCode.none),
        ("missing", ErrorCode.unknown_topic_or_partition),
        ("twice", ErrorCode.invalid_request),
        ("b", ErrorCode.none),
        ("twice", ErrorCode.invalid_request),
    ]
    assert node.metadata.image.topics["twice"].config == {}


def test_a_resource_that_comes_twice_is_refused_even_if_one_of_the_two_is_wrong() -> None:
    node = AdminNode()
    node.create("orders")
    resources = [
        {
            "resource_type": TOPIC,
            "resource_name": "orders",
            "configs": [{"name": "retention.ms", "config_operation": operation, "value": "1"}],
        }
        for operation in (SET, 99)
    ]
    answer = node.ask(INCREMENTAL, 1, resources=resources, validate_only=False)
    assert [r.error_code for r in answer.responses] == [ErrorCode.invalid_request] * 2
    assert node.metadata.image.topics["orders"].config == {}


# Replacing.


@pytest.mark.parametrize("version", versions(ALTER))
def test_replacing_takes_back_what_is_not_named(version: int) -> None:
    node = AdminNode()
    node.create("orders", retention_ms="1000", segment_ms="5000")
    changed = replace(node, TOPIC, "orders", configs=[("retention.ms", "2000")], version=version)
    assert changed.error_code is ErrorCode.none
    assert node.metadata.image.topics["orders"].config == {"retention.ms": "2000"}
    assert node.partition("orders").log.settings.segment_ms == 7 * 24 * 3600 * 1000


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ([("retention.ms", None)], ErrorCode.invalid_request),
        ([("retention.ms", "1"), ("retention.ms", "2")], ErrorCode.invalid_request),
        ([("retention.ms", "soon")], ErrorCode.invalid_config),
    ],
)
def test_a_replacement_that_is_wrong_changes_nothing(
    configs: list[tuple[str, str | None]], code: ErrorCode
) -> None:
    node = AdminNode()
    node.create("orders", segment_ms="5000")
    assert replace(node, TOPIC, "orders", configs=configs).error_code is code
    assert node.metadata.image.topics["orders"].config == {"segment.ms": "5000"}
