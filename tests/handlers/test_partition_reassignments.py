"""AlterPartitionReassignments and ListPartitionReassignments (T3): replicas move on request.

What a request asks of the cluster, and how its results are shown, is tested on a stand-in for
the metadata, because one broker has nowhere to move a replica to; the rest on the real one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from support.admin_node import AdminNode, versions
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.metadata import Metadata
from tidelog.cluster.requests import OngoingReassignment, Reassignment
from tidelog.cluster.standing import Results

ALTER, LIST = 45, 46
ANSWERS: dict[int, KafkaError] = {
    1: KafkaError(ErrorCode.no_reassignment_in_progress, "nothing is being moved"),
    2: KafkaError(ErrorCode.invalid_replica_assignment, "no broker 99"),
}
NOT_CONTROLLER = KafkaError(ErrorCode.not_controller, "the controller is the broker 2")


class Moving(Metadata):
    """Notes what is asked and answers as it is told to, by partition."""

    wanted: list[Reassignment]
    asked: list[Mapping[str, Sequence[int]] | None]
    answers: dict[int, KafkaError]
    under_way: list[OngoingReassignment]
    soon: Callable[[Callable[[], None]], None]

    def alter_reassignments(self, wanted: Sequence[Reassignment], done: Results[None]) -> None:
        self.wanted += wanted
        results = [self.answers.get(one.partition) for one in wanted]
        self.soon(lambda: done(results))

    def list_reassignments(
        self, topics: Mapping[str, Sequence[int]] | None
    ) -> list[OngoingReassignment]:
        self.asked.append(topics)
        if topics == {"moved": []}:
            raise NOT_CONTROLLER
        return self.under_way


def moving_node(answers: dict[int, KafkaError] | None = None) -> tuple[AdminNode, Moving]:
    node = AdminNode()
    node.create("orders", partitions=4)
    metadata = node.metadata
    metadata.__class__ = Moving
    assert isinstance(metadata, Moving)
    metadata.wanted, metadata.asked, metadata.under_way = [], [], []
    metadata.answers = answers or {}
    metadata.soon = node.loop.call_soon
    return node, metadata


def alter(node: AdminNode, version: int, *rows: tuple[str, int, Any], **more: Any) -> Any:
    topics: dict[str, list[Any]] = {}
    for topic, index, replicas in rows:
        topics.setdefault(topic, []).append({"partition_index": index, "replicas": replicas})
    listed = [{"name": name, "partitions": found} for name, found in topics.items()]
    values: dict[str, Any] = {"timeout": 10_000, "topics": listed, **more}
    return node.ask(ALTER, version, **values)


def shown(answer: Any) -> dict[tuple[str, int], ErrorCode]:
    return {
        (topic.name, one.partition_index): one.error_code
        for topic in answer.responses
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", versions(ALTER))
def test_each_partition_has_its_own_result(version: int) -> None:
    node, metadata = moving_node(ANSWERS)
    answer = alter(
        node, version, ("orders", 0, [3, 1]), ("orders", 1, None), ("orders", 2, [99]), ("x", 0, [])
    )
    assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
    assert shown(answer) == {
        ("orders", 0): ErrorCode.none,
        ("orders", 1): ErrorCode.no_reassignment_in_progress,
        ("orders", 2): ErrorCode.invalid_replica_assignment,
        ("x", 0): ErrorCode.none,
    }
    messages = [one.error_message for one in answer.responses[0].partitions]
    assert messages == [None, "nothing is being moved", "no broker 99"]
    assert [(one.topic, one.partition, one.replicas) for one in metadata.wanted] == [
        ("orders", 0, (3, 1)),
        ("orders", 1, None),
        ("orders", 2, (99,)),
        ("x", 0, ()),
    ]


def test_whoever_is_not_the_controller_says_so_of_the_whole_request() -> None:
    node, _ = moving_node({0: NOT_CONTROLLER, 1: NOT_CONTROLLER})
    answer = alter(node, 1, ("orders", 0, [2]), ("orders", 1, [2]))
    assert answer.error_code is ErrorCode.not_controller
    assert set(shown(answer).values()) == {ErrorCode.not_controller}


def test_a_client_that_does_not_wait_is_told() -> None:
    node, metadata = moving_node()
    answer = alter(node, 1, ("orders", 0, [2]), timeout=0)
    assert answer.error_code is ErrorCode.request_timed_out
    assert shown(answer) == {("orders", 0): ErrorCode.request_timed_out}
    node.loop.run_for(1_000)
    assert len(metadata.wanted) == 1


def test_a_partition_that_comes_twice_is_not_moved() -> None:
    node, metadata = moving_node()
    answer = alter(node, 1, ("orders", 0, [2]), ("orders", 1, [2]), ("orders", 0, [3]))
    assert shown(answer) == {
        ("orders", 0): ErrorCode.invalid_request,
        ("orders", 1): ErrorCode.none,
    }
    assert [one.partition for one in metadata.wanted] == [1]


def test_the_replication_factor_stays_if_it_is_asked_for() -> None:
    node, metadata = moving_node()
    topic = metadata.image.topics["orders"]
    moving = replace(topic.partitions[3], replicas=(5, 1), adding_replicas=(5,))
    metadata.image.put_topic(replace(topic, partitions=(*topic.partitions[:3], moving)))
    rows: list[tuple[str, int, list[int] | None]] = [
        ("orders", 0, [2]),
        ("orders", 1, [2, 3]),
        ("orders", 2, None),
        ("orders", 3, [5]),
        ("orders", 99, [2, 3]),
        ("unknown", 0, [2, 3]),
    ]
    answer = alter(node, 1, *rows, allow_replication_factor_change=False)
    assert answer.allow_replication_factor_change is False
    assert shown(answer) == {
        ("orders", 0): ErrorCode.none,
        ("orders", 1): ErrorCode.invalid_replication_factor,
        ("orders", 2): ErrorCode.none,
        ("orders", 3): ErrorCode.none,
        ("orders", 99): ErrorCode.none,
        ("unknown", 0): ErrorCode.none,
    }
    assert [one.partition for one in metadata.wanted] == [0, 2, 3, 99, 0]
    answer = alter(node, 1, ("orders", 1, [2, 3]), allow_replication_factor_change=True)
    assert shown(answer) == {("orders", 1): ErrorCode.none}


@pytest.mark.parametrize("version", versions(LIST))
def test_what_is_being_moved_is_listed_by_topic(version: int) -> None:
    node, metadata = moving_node()
    metadata.under_way = [
        OngoingReassignment(
            topic=topic, partition=index, replicas=(3, 1), adding=(3,), removing=(1,)
        )
        for topic, index in (("orders", 0), ("orders", 2), ("tides", 1))
    ]
    answer = node.ask(LIST, version, timeout=1_000, topics=None)
    assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
    listed = {
        (topic.name, one.partition_index): (
            one.replicas,
            one.adding_replicas,
            one.removing_replicas,
        )
        for topic in answer.topics
        for one in topic.partitions
    }
    assert listed == dict.fromkeys(
        (("orders", 0), ("orders", 2), ("tides", 1)), ((3, 1), (3,), (1,))
    )
    assert metadata.asked == [None]


def test_the_partitions_that_are_asked_for_are_looked_at() -> None:
    node, metadata = moving_node()
    topics = [
        {"name": "orders", "partition_indexes": [0, 5]},
        {"name": "x", "partition_indexes": []},
        {"name": "orders", "partition_indexes": [1]},
    ]
    answer = node.ask(LIST, 0, timeout=1_000, topics=topics)
    assert answer.topics == ()
    assert metadata.asked == [{"orders": [0, 5, 1], "x": []}]


def test_whoever_is_not_the_controller_does_not_know_what_moves() -> None:
    node, _ = moving_node()
    topics = [{"name": "moved", "partition_indexes": []}]
    answer = node.ask(LIST, 0, timeout=1_000, topics=topics)
    assert answer.error_code is ErrorCode.not_controller
    assert answer.error_message == NOT_CONTROLLER.message
    assert answer.topics == ()


# -- the real metadata, of one broker


def test_a_move_to_a_broker_that_is_not_there_is_refused() -> None:
    node = AdminNode()
    node.create("orders")
    answer = alter(node, 1, ("orders", 0, [99]))
    assert shown(answer) == {("orders", 0): ErrorCode.invalid_replica_assignment}


@pytest.mark.parametrize("replicas", [[], [1, 1], [-1]])
def test_an_assignment_that_cannot_be_is_refused(replicas: list[int]) -> None:
    node = AdminNode()
    node.create("orders")
    answer = alter(node, 1, ("orders", 0, replicas))
    assert shown(answer) == {("orders", 0): ErrorCode.invalid_replica_assignment}


def test_there_is_nothing_to_cancel_where_nothing_moves() -> None:
    node = AdminNode()
    node.create("orders")
    answer = alter(node, 1, ("orders", 0, None))
    assert shown(answer) == {("orders", 0): ErrorCode.no_reassignment_in_progress}


def test_what_is_not_there_cannot_be_moved() -> None:
    node = AdminNode()
    node.create("orders")
    answer = alter(node, 1, ("orders", 7, [1]), ("orders", -1, [1]), ("unknown", 0, [1]))
    assert set(shown(answer).values()) == {ErrorCode.unknown_topic_or_partition}


def test_a_partition_may_stay_where_it_is() -> None:
    node = AdminNode()
    node.create("orders")
    assert shown(alter(node, 1, ("orders", 0, [1]))) == {("orders", 0): ErrorCode.none}
    node.loop.run_for(1_000)
    assert node.ask(LIST, 0, timeout=1_000, topics=None).topics == ()
