"""CreateTopics (T1, T3, T6): each topic made whole or told what is wrong with it."""

from typing import Any
from uuid import UUID

import pytest

from support.admin_node import AdminNode, new_topic, versions
from tidelog.base.errors import ErrorCode

CREATE = 19
NEWEST = versions(CREATE)[-1]


def ask(node: AdminNode, *topics: Any, version: int = NEWEST, **more: Any) -> Any:
    usual = {"timeout": 10_000, "validate_only": False}
    return node.ask(CREATE, version, topics=topics, **(usual | more))


def refusal(node: AdminNode, **values: Any) -> tuple[ErrorCode, str]:
    """The code and message for one topic that must not be made."""
    (topic,) = ask(node, new_topic("orders", **values)).topics
    assert "orders" not in node.metadata.image.topics
    assert (topic.topic_id, topic.num_partitions, topic.replication_factor) == (None, -1, -1)
    assert topic.configs == ()
    return topic.error_code, topic.error_message


@pytest.mark.parametrize("version", versions(CREATE))
def test_a_topic_is_made_in_every_version(version: int) -> None:
    node = AdminNode()
    configs = [{"name": "retention.ms", "value": "1000"}]
    topic = new_topic("orders", num_partitions=3, replication_factor=1, configs=configs)
    (made,) = ask(node, topic, version=version).topics
    assert (made.name, made.error_code) == ("orders", ErrorCode.none)
    known = node.metadata.image.topics["orders"]
    assert (len(known.partitions), dict(known.config)) == (3, {"retention.ms": "1000"})
    assert node.partition("orders", 2).log.settings.retention_ms == 1000
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (3, 1)
        sources = {entry.name: (entry.value, entry.config_source) for entry in made.configs}
        assert sources["retention.ms"] == ("1000", 1)
        assert sources["cleanup.policy"] == ("delete", 5)
    if version >= 7:
        assert made.topic_id == UUID(bytes=known.topic_id)


def test_what_is_left_open_is_taken_from_the_settings() -> None:
    node = AdminNode(num_partitions="4")
    (made,) = ask(node, new_topic("orders")).topics
    assert (made.num_partitions, made.replication_factor) == (4, 1)


@pytest.mark.parametrize("version", versions(CREATE))
def test_validating_makes_nothing(version: int) -> None:
    node = AdminNode()
    topics = [new_topic("good", num_partitions=2), new_topic("bad", num_partitions=0)]
    good, bad = ask(node, *topics, version=version, validate_only=True).topics
    assert (good.error_code, bad.error_code) == (ErrorCode.none, ErrorCode.invalid_partitions)
    if version >= 5:
        assert (good.num_partitions, good.replication_factor) == (2, 1)
    assert node.metadata.image.topics == {}
    assert len(node.partitions) == 0


def test_a_topic_that_is_there_is_not_made_again() -> None:
    node = AdminNode()
    before = node.create("orders")
    (topic,) = ask(node, new_topic("orders", num_partitions=9)).topics
    assert topic.error_code is ErrorCode.topic_already_exists
    assert "orders" in topic.error_message
    assert node.metadata.image.topics["orders"] is before


def test_one_that_is_wrong_does_not_hinder_the_others() -> None:
    node = AdminNode()
    answer = ask(node, new_topic("bad", num_partitions=0), new_topic("good"))
    assert [topic.error_code for topic in answer.topics] == [
        ErrorCode.invalid_partitions,
        ErrorCode.none,
    ]
    assert list(node.metadata.image.topics) == ["good"]


def test_a_name_that_comes_twice_is_refused_once() -> None:
    node = AdminNode()
    answer = ask(node, new_topic("twice"), new_topic("once"), new_topic("twice"))
    found = {topic.name: (topic.error_code, topic.error_message) for topic in answer.topics}
    assert found["twice"] == (ErrorCode.invalid_request, "duplicate topic name")
    assert found["once"][0] is ErrorCode.none
    assert len(answer.topics) == 2
    assert list(node.metadata.image.topics) == ["once"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../orders", "x" * 250])
def test_a_name_that_no_topic_can_have_is_refused(name: str) -> None:
    """No path is ever made of one (B11)."""
    node = AdminNode()
    (topic,) = ask(node, new_topic(name)).topics
    assert topic.error_code is ErrorCode.invalid_topic_exception
    assert topic.error_message


def test_names_that_differ_in_a_dot_and_an_underscore_collide() -> None:
    node = AdminNode()
    node.create("a.b")
    (topic,) = ask(node, new_topic("a_b")).topics
    assert topic.error_code is ErrorCode.invalid_topic_exception


@pytest.mark.parametrize("count", [0, -2, -100])
def test_a_topic_needs_a_partition(count: int) -> None:
    assert refusal(AdminNode(), num_partitions=count)[0] is ErrorCode.invalid_partitions


@pytest.mark.parametrize("factor", [0, -2, 2, 32767])
def test_a_replication_factor_that_cannot_be_had_is_refused(factor: int) -> None:
    """T1: more replicas than brokers, nothing created."""
    code, message = refusal(AdminNode(), num_partitions=1, replication_factor=factor)
    assert code is ErrorCode.invalid_replication_factor
    assert message


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("retention.ms", "soon", "retention.ms=soon"),
        ("retentoin.ms", "1", "retention.ms"),
        ("cleanup.policy", "burn", "cleanup.policy=burn"),
        ("retention.ms", None, "retention.ms"),
    ],
)
def test_a_bad_setting_is_refused_by_name(name: str, value: str | None, words: str) -> None:
    """O2."""
    code, message = refusal(AdminNode(), configs=[{"name": name, "value": value}])
    assert code is ErrorCode.invalid_config
    assert words in message


def assigned(*replicas: tuple[int, list[int]]) -> list[dict[str, Any]]:
    return [{"partition_index": index, "broker_ids": brokers} for index, brokers in replicas]


@pytest.mark.parametrize("version", versions(CREATE))
def test_an_assignment_can_be_given(version: int) -> None:
    """T3."""
    node = AdminNode()
    topic = new_topic("orders", assignments=assigned((1, [1]), (0, [1])))
    (made,) = ask(node, topic, version=version).topics
    assert made.error_code is ErrorCode.none
    assert [p.replicas for p in node.metadata.image.topics["orders"].partitions] == [(1,), (1,)]


@pytest.mark.parametrize(
    "replicas",
    [
        [(0, [1]), (0, [1])],
        [(1, [1])],
        [(0, [1]), (2, [1])],
        [(0, [])],
        [(0, [1, 1])],
        [(0, [1]), (1, [1, 2])],
        [(0, [99])],
        [(0, [-1])],
        [(-1, [1])],
    ],
)
def test_an_assignment_that_cannot_be_is_refused(replicas: Any) -> None:
    code, message = refusal(AdminNode(), assignments=assigned(*replicas))
    assert code is ErrorCode.invalid_replica_assignment
    assert message


@pytest.mark.parametrize("given", [{"num_partitions": 1}, {"replication_factor": 1}])
def test_an_assignment_stands_for_both_counts(given: dict[str, int]) -> None:
    code, message = refusal(AdminNode(), assignments=assigned((0, [1])), **given)
    assert code is ErrorCode.invalid_request
    assert "-1" in message


def test_a_client_that_does_not_wait_is_told_and_the_topic_made_all_the_same() -> None:
    node = AdminNode()
    (topic,) = ask(node, new_topic("orders"), timeout=0).topics
    assert topic.error_code is ErrorCode.request_timed_out
    node.loop.run_for(1000)
    assert "orders" in node.metadata.image.topics


@pytest.mark.parametrize("timeout", [-1, -(1 << 31)])
def test_no_time_at_all_is_no_time(timeout: int) -> None:
    (topic,) = ask(AdminNode(), new_topic("orders"), timeout=timeout).topics
    assert topic.error_code is ErrorCode.request_timed_out


def test_nothing_is_answered_to_nothing() -> None:
    assert ask(AdminNode()).topics == ()
