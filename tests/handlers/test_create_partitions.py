"""CreatePartitions (T3): a topic grows, and never shrinks."""

from typing import Any

import pytest

from support.admin_node import AdminNode, versions
from tidelog.base.errors import ErrorCode

GROW = 37
NEWEST = versions(GROW)[-1]


def ask(node: AdminNode, *topics: Any, version: int = NEWEST, **more: Any) -> Any:
    asked = [{"name": name, "count": count, "assignments": given} for name, count, given in topics]
    usual = {"timeout": 10_000, "validate_only": False}
    return node.ask(GROW, version, topics=asked, **(usual | more))


def refusal(count: int, brokers: list[list[int]] | None = None) -> tuple[ErrorCode, str]:
    """The code and message for a topic of two partitions that must stay as it is."""
    node = AdminNode()
    before = node.create("orders", partitions=2)
    given = None if brokers is None else [{"broker_ids": ids} for ids in brokers]
    (topic,) = ask(node, ("orders", count, given)).results
    assert node.metadata.image.topics["orders"] == before
    return topic.error_code, topic.error_message


@pytest.mark.parametrize("version", versions(GROW))
def test_a_topic_grows_in_every_version(version: int) -> None:
    node = AdminNode()
    node.create("orders", partitions=2)
    (grown,) = ask(node, ("orders", 4, None), version=version).results
    assert (grown.name, grown.error_code) == ("orders", ErrorCode.none)
    assert len(node.metadata.image.topics["orders"].partitions) == 4
    assert node.partition("orders", 3).log.log_end_offset == 0


@pytest.mark.parametrize("version", versions(GROW))
def test_validating_changes_nothing(version: int) -> None:
    node = AdminNode()
    before = node.create("orders")
    (fine,) = ask(node, ("orders", 4, None), version=version, validate_only=True).results
    (wrong,) = ask(node, ("orders", 1, None), version=version, validate_only=True).results
    assert (fine.error_code, wrong.error_code) == (ErrorCode.none, ErrorCode.invalid_partitions)
    assert node.metadata.image.topics["orders"] == before


@pytest.mark.parametrize("count", [2, 1, 0, -1, -(1 << 31)])
def test_a_topic_never_shrinks(count: int) -> None:
    code, message = refusal(count)
    assert code is ErrorCode.invalid_partitions
    assert "2" in message


def test_added_partitions_can_be_assigned() -> None:
    node = AdminNode()
    node.create("orders")
    (grown,) = ask(node, ("orders", 2, [{"broker_ids": [1]}])).results
    assert grown.error_code is ErrorCode.none
    assert node.metadata.image.topics["orders"].partitions[1].replicas == (1,)


@pytest.mark.parametrize("brokers", [[], [[1], [1]], [[]], [[1, 1]], [[99]]])
def test_an_assignment_that_cannot_be_is_refused(brokers: list[list[int]]) -> None:
    code, message = refusal(3, brokers)
    assert code is ErrorCode.invalid_replica_assignment
    assert message


def test_a_topic_that_is_not_there_cannot_grow() -> None:
    (unknown,) = ask(AdminNode(), ("orders", 2, None)).results
    assert unknown.error_code is ErrorCode.unknown_topic_or_partition


def test_a_topic_that_comes_twice_is_refused_once() -> None:
    node = AdminNode()
    for name in ("twice", "once"):
        node.create(name)
    answer = ask(node, ("twice", 2, None), ("once", 2, None), ("twice", 3, None))
    assert {topic.name: topic.error_code for topic in answer.results} == {
        "twice": ErrorCode.invalid_request,
        "once": ErrorCode.none,
    }
    assert len(node.metadata.image.topics["twice"].partitions) == 1


def test_a_client_that_does_not_wait_is_told_and_the_topic_grows_all_the_same() -> None:
    node = AdminNode()
    node.create("orders")
    (late,) = ask(node, ("orders", 2, None), timeout=0).results
    assert late.error_code is ErrorCode.request_timed_out
    node.loop.run_for(1000)
    assert len(node.metadata.image.topics["orders"].partitions) == 2
