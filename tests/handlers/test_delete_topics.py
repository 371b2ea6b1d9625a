"""DeleteTopics (T6): by name and by id; the data goes with the topic."""

from typing import Any
from uuid import UUID

import pytest

from support.admin_node import AdminNode, versions
from tidelog.base.errors import ErrorCode

DELETE = 20
NEWEST = versions(DELETE)[-1]
NO_ID = bytes(16)


def ask(node: AdminNode, *names: str, version: int = NEWEST, timeout: int = 10_000) -> Any:
    topics = [{"name": name, "topic_id": NO_ID} for name in names]
    return node.ask(DELETE, version, topic_names=names, topics=topics, timeout=timeout)


def ask_for(node: AdminNode, *topics: tuple[str | None, bytes]) -> Any:
    asked = [{"name": name, "topic_id": topic_id} for name, topic_id in topics]
    return node.ask(DELETE, NEWEST, topics=asked, timeout=10_000)


@pytest.mark.parametrize("version", versions(DELETE))
def test_a_topic_goes_with_its_data_in_every_version(version: int) -> None:
    node = AdminNode()
    topic_id = node.create("orders", partitions=2).topic_id
    (gone,) = ask(node, "orders", version=version).responses
    assert (gone.name, gone.error_code) == ("orders", ErrorCode.none)
    if version >= 6:
        assert gone.topic_id == UUID(bytes=topic_id)
    assert node.metadata.image.topics == {}
    assert len(node.partitions) == 0
    assert node.logs.dirs[0].logs == {}


@pytest.mark.parametrize("version", versions(DELETE))
def test_a_topic_that_is_not_there_cannot_go(version: int) -> None:
    (unknown,) = ask(AdminNode(), "orders", version=version).responses
    assert unknown.error_code is ErrorCode.unknown_topic_or_partition


def test_a_topic_goes_by_its_id() -> None:
    node = AdminNode()
    topic_id = node.create("orders").topic_id
    (gone,) = ask_for(node, (None, topic_id)).responses
    assert (gone.name, gone.topic_id.bytes, gone.error_code) == (
        "orders",
        topic_id,
        ErrorCode.none,
    )
    assert node.metadata.image.topics == {}


def test_an_id_that_no_topic_has_is_told_so() -> None:
    (unknown,) = ask_for(AdminNode(), (None, bytes([5] * 16))).responses
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.unknown_topic_id)
    assert unknown.topic_id.bytes == bytes([5] * 16)
    assert unknown.error_message == "no topic has the id BQUFBQUFBQUFBQUFBQUFBQ"


def test_a_topic_is_named_one_way() -> None:
    node = AdminNode()
    topic_id = node.create("orders").topic_id
    neither, both = ask_for(node, (None, NO_ID), ("orders", topic_id)).responses
    assert neither.error_code is both.error_code is ErrorCode.invalid_request
    assert neither.error_message != both.error_message
    assert "orders" in node.metadata.image.topics


@pytest.mark.parametrize("version", versions(DELETE))
def test_a_topic_that_is_named_twice_stays(version: int) -> None:
    node = AdminNode()
    for name in ("twice", "once"):
        node.create(name)
    answer = ask(node, "twice", "once", "twice", version=version)
    assert {topic.name: topic.error_code for topic in answer.responses} == {
        "twice": ErrorCode.invalid_request,
        "once": ErrorCode.none,
    }
    assert len(answer.responses) == 2
    assert list(node.metadata.image.topics) == ["twice"]


def test_a_topic_that_is_named_by_name_and_by_id_stays() -> None:
    node = AdminNode()
    topic_id = node.create("orders").topic_id
    answer = ask_for(node, ("orders", NO_ID), (None, topic_id), (None, topic_id))
    assert [topic.error_code for topic in answer.responses] == [ErrorCode.invalid_request] * 2
    assert "orders" in node.metadata.image.topics


@pytest.mark.parametrize("version", versions(DELETE))
def test_deleting_can_be_forbidden(version: int) -> None:
    node = AdminNode(delete_topic_enable="false")
    node.create("orders")
    (refused,) = ask(node, "orders", version=version).responses
    known = version >= 3
    assert refused.error_code is (
        ErrorCode.topic_deletion_disabled if known else ErrorCode.invalid_request
    )
    assert "orders" in node.metadata.image.topics


def test_a_topic_can_be_made_anew_and_has_another_id() -> None:
    node = AdminNode()
    before = node.create("orders").topic_id
    ask(node, "orders")
    assert node.create("orders").topic_id != before


def test_a_client_that_does_not_wait_is_told_and_the_topic_goes_all_the_same() -> None:
    node = AdminNode()
    node.create("orders")
    (late,) = ask(node, "orders", timeout=0).responses
    assert (late.name, late.error_code) == ("orders", ErrorCode.request_timed_out)
    node.loop.run_for(1000)
    assert node.metadata.image.topics == {}


def test_nothing_is_answered_to_nothing() -> None:
    assert ask(AdminNode()).responses == ()
