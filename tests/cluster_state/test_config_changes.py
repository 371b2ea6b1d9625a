"""Changing settings of topics and brokers, and what is announced of it: T6, O1."""

from typing import Literal

import pytest

from support.members import Cluster, Member
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.config_changes import KEPT_MS
from tidelog.cluster.requests import Change, ConfigChange, ConfigOperation, NewTopic

Changes = dict[str, tuple[ConfigOperation, str | None]]


def with_topic(**configs: str) -> tuple[Cluster, Member]:
    cluster = Cluster()
    member = cluster.started()
    named: dict[str, str | None] = {k.replace("_", "."): v for k, v in configs.items()}
    member.create(NewTopic(name="t", configs=named))
    member.changes.clear()
    return cluster, member


def refused(results: list[KafkaError | None]) -> tuple[ErrorCode, str]:
    (error,) = results
    assert error is not None
    return error.code, error.message


def test_a_topic_setting_is_stored_shown_told_and_announced() -> None:
    cluster, member = with_topic(retention_ms="5")
    assert member.alter("topic", "t", {"segment.ms": ("set", "7")}) == [None]
    wanted = {"retention.ms": "5", "segment.ms": "7"}
    assert cluster.json("/config/topics/t") == {"version": 1, "config": wanted}
    assert member.metadata.image.topics["t"].config == wanted
    assert member.changes == [Change(topic_configs=("t",))]
    assert cluster.paths("/config/changes")[1:] == ["/config/changes/config_change_0000000000"]
    assert cluster.json("/config/changes/config_change_0000000000") == {
        "version": 2,
        "entity_path": "topics/t",
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"retention.ms": ("delete", None)}, {"cleanup.policy": "compact"}),
        (
            {"cleanup.policy": ("append", "delete,compact")},
            {"retention.ms": "5", "cleanup.policy": "compact,delete"},
        ),
        (
            {"cleanup.policy": ("subtract", "compact")},
            {"retention.ms": "5", "cleanup.policy": ""},
        ),
        (
            {"leader.replication.throttled.replicas": ("append", "0:1, 1:2")},
            {
                "retention.ms": "5",
                "cleanup.policy": "compact",
                "leader.replication.throttled.replicas": "0:1,1:2",
            },
        ),
        ({"no.such": ("delete", None)}, {"retention.ms": "5", "cleanup.policy": "compact"}),
    ],
)
def test_settings_are_changed_one_by_one(changes: Changes, expected: dict[str, str]) -> None:
    cluster, member = with_topic(retention_ms="5", cleanup_policy="compact")
    assert member.alter("topic", "t", changes) == [None]
    assert cluster.json("/config/topics/t")["config"] == expected


def test_appending_begins_with_the_default() -> None:
    cluster, member = with_topic()
    assert member.alter("topic", "t", {"cleanup.policy": ("append", "compact")}) == [None]
    assert cluster.json("/config/topics/t")["config"] == {"cleanup.policy": "delete,compact"}


def test_the_older_request_replaces_all_settings() -> None:
    cluster, member = with_topic(retention_ms="5", segment_ms="6")
    changes: Changes = {"retention.ms": ("set", "9"), "segment.ms": ("set", None)}
    assert member.alter("topic", "t", changes, replace=True) == [None]
    assert cluster.json("/config/topics/t")["config"] == {"retention.ms": "9"}


INVALID_CONFIG, INVALID_REQUEST = ErrorCode.invalid_config, ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code", "words"),
    [
        ("topic", "", {"retention.ms": ("set", "5")}, INVALID_REQUEST, "name one"),
        ("topic", "u", {}, ErrorCode.unknown_topic_or_partition, "u"),
        ("topic", "a/b", {}, ErrorCode.invalid_topic_exception, "a/b"),
        ("topic", "t", {"no.such": ("set", "5")}, INVALID_CONFIG, "no.such"),
        ("topic", "t", {"retention.ms": ("set", "x")}, INVALID_CONFIG, "retention.ms=x"),
        ("topic", "t", {"retention.ms": ("set", None)}, INVALID_REQUEST, "no value"),
        ("topic", "t", {"retention.ms": ("append", "5")}, INVALID_CONFIG, "not a list"),
        ("topic", "t", {"no.such": ("subtract", "5")}, INVALID_CONFIG, "no.such"),
        ("topic", "t", {"cleanup.policy": ("append", "burn")}, INVALID_CONFIG, "burn"),
        ("topic", "t", {"min.compaction.lag.ms": ("set", f"{2**63 - 1}"),
                        "max.compaction.lag.ms": ("set", "1")}, INVALID_CONFIG, "at most"),
        ("topic", "t", {"leader.replication.throttled.replicas": ("set", "1:1," * 300_000 + "1:1")},
         INVALID_CONFIG, "bytes"),
        ("broker", "1", {}, INVALID_REQUEST, "broker 0"),
        ("broker", "zero", {}, INVALID_REQUEST, "zero"),
        ("broker", "9" * 10_000, {}, INVALID_REQUEST, "broker 0"),
        ("broker", "0", {"no.such": ("set", "5")}, INVALID_REQUEST, "no.such"),
        ("broker", "0", {"log.dirs": ("set", "/a")}, INVALID_REQUEST, "log.dirs"),
        ("broker", "0", {"retention.ms": ("set", "5")}, INVALID_REQUEST, "log.retention.ms"),
        ("broker", "", {"listeners": ("set", "PLAINTEXT://:1")}, INVALID_REQUEST, "in its file"),
        ("broker", "0", {"advertised.listeners": ("set", "PLAINTEXT://h:1")}, INVALID_REQUEST,
         "in its file"),
        ("broker", "0", {"log.cleaner.threads": ("set", "2")}, INVALID_REQUEST, "has no effect"),
        ("broker", "0", {"log.retention.ms": ("set", "x")}, INVALID_REQUEST, "log.retention.ms=x"),
        ("broker", "0", {"ssl.keystore.password": ("set", "s3cret")}, INVALID_REQUEST, "password"),
        ("broker", "0", {"ssl.keystore.location": ("set", "/k")}, INVALID_REQUEST, "no TLS"),
        ("broker", "0", {"listener.name.plaintext.ssl.keystore.location": ("set", "/k")},
         INVALID_REQUEST, "no TLS"),
        ("broker", "0", {"log.retention.ms": ("append", "5")}, INVALID_CONFIG, "not a list"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_change_is_said_and_nothing_changes(
    kind: Literal["topic", "broker"], name: str, changes: Changes, code: ErrorCode, words: str
) -> None:
    cluster, member = with_topic(retention_ms="5")
    before = cluster.paths()
    found, message = refused(member.alter(kind, name, changes))
    assert (found, words in message) == (code, True), message
    assert "s3cret" not in message
    assert len(message) < 500
    assert cluster.paths() == before
    assert cluster.json("/config/topics/t")["config"] == {"retention.ms": "5"}
    assert member.changes == []


def test_settings_of_brokers_act_by_how_particular_they_are() -> None:
    cluster, member = with_topic()
    assert member.alter("broker", "", {"log.retention.ms": ("set", "7")}) == [None]
    assert member.metadata.settings["log.retention.ms"] == 7
    assert member.alter("broker", "0", {"log.retention.ms": ("set", "8")}) == [None]
    assert member.metadata.settings["log.retention.ms"] == 8
    assert cluster.json("/config/brokers/<default>")["config"] == {"log.retention.ms": "7"}
    assert cluster.json("/config/brokers/0")["config"] == {"log.retention.ms": "8"}
    assert member.alter("broker", "0", {"log.retention.ms": ("delete", None)}) == [None]
    assert member.metadata.settings["log.retention.ms"] == 7
    assert member.changes == [Change(broker_config=True)] * 3
    announced = [cluster.json(path)["entity_path"] for path in cluster.paths("/config/changes")[1:]]
    assert announced == ["brokers/<default>", "brokers/0", "brokers/0"]


def test_resources_of_one_request_succeed_or_fail_on_their_own() -> None:
    cluster, member = with_topic()
    good: Changes = {"retention.ms": ("set", "5")}
    wanted = [
        ConfigChange(kind="topic", name="t", changes=good),
        ConfigChange(kind="topic", name="u", changes=good),
        ConfigChange(kind="broker", name="", changes={"log.segment.bytes": ("set", "1000")}),
    ]
    results = member.alter_all(wanted)
    assert [getattr(result, "code", None) for result in results] == [
        None,
        ErrorCode.unknown_topic_or_partition,
        None,
    ]
    assert member.changes == [Change(topic_configs=("t",), broker_config=True)]
    assert cluster.json("/config/brokers/<default>")["config"] == {"log.segment.bytes": "1000"}


def test_validating_only_changes_nothing() -> None:
    cluster, member = with_topic()
    before = cluster.paths()
    changes = [ConfigChange(kind="topic", name="t", changes={"retention.ms": ("set", "5")})]
    assert member.alter_all(changes, validate_only=True) == [None]
    assert cluster.paths() == before
    assert cluster.json("/config/topics/t")["config"] == {}


def test_a_resource_that_stands_twice_in_a_request_is_refused() -> None:
    _, member = with_topic()
    change = ConfigChange(kind="topic", name="t", changes={"retention.ms": ("set", "5")})
    results = member.alter_all([change] * 2)
    assert [getattr(result, "code", None) for result in results] == [INVALID_REQUEST] * 2


def test_announcements_are_cleared_away_after_a_quarter_of_an_hour() -> None:
    cluster, member = with_topic()
    for _ in range(3):
        member.alter("topic", "t", {"retention.ms": ("set", "5")})
    assert len(cluster.paths("/config/changes")) == 1 + 3
    cluster.loop.run_for(KEPT_MS + 1000)
    member.alter("topic", "t", {"retention.ms": ("set", "6")})
    cluster.loop.run_for(1000)
    assert cluster.paths("/config/changes")[1:] == ["/config/changes/config_change_0000000003"]


def test_announcements_of_an_earlier_process_are_cleared_away_too() -> None:
    cluster, member = with_topic()
    member.alter("topic", "t", {"retention.ms": ("set", "5")})
    member.die()
    cluster.loop.run_for(KEPT_MS + 1000)
    cluster.started()
    cluster.loop.run_for(1000)
    assert cluster.paths("/config/changes") == ["/config/changes"]


def test_the_settings_of_a_topic_without_a_node_for_them_are_made() -> None:
    cluster = Cluster()
    cluster.put("/brokers/topics/t", b'{"version":1,"partitions":{"0":[0]}}')
    member = cluster.started()
    assert member.alter("topic", "t", {"retention.ms": ("set", "5")}) == [None]
    assert cluster.json("/config/topics/t")["config"] == {"retention.ms": "5"}
