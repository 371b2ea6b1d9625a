"""Replicas moved from broker to broker, through the controller, and how far such moves are.

A move is asked for, and goes on by itself; what is listed is what is still under way.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.client import apis
from tidelog.client.client import Client
from tidelog.client.topics import error_of

Targets = Mapping[TopicPartition, Sequence[int] | None]
"""Where the replicas of partitions shall be, the preferred leader first; None takes a move back."""
Outcomes = dict[TopicPartition, KafkaError | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ongoing:
    replicas: tuple[int, ...]
    """Those that leave among them."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """Where the replicas will be; which of them will be preferred is not known from it."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)


def alter_reassignments(client: Client, targets: Targets) -> Outcomes:
    topics = [
        {
            "name": topic,
            "partitions": [
                {"partition_index": one.partition, "replicas": targets[one]} for one in partitions
            ],
        }
        for topic, partitions in _by_topic(targets)
    ]
    values = {
        "timeout": client.timeout_ms,
        "topics": topics,
        "allow_replication_factor_change": True,
    }
    answer = client.ask_controller(apis.ALTER_REASSIGNMENTS, values, _code)
    _check(answer)
    return {
        TopicPartition(topic.name, one.partition_index): error_of(
            one, f"{topic.name}-{one.partition_index}"
        )
        for topic in answer.responses
        for one in topic.partitions
    }


def list_reassignments(
    client: Client, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, Ongoing]:
    """What is under way, of some partitions or of all, by topic and partition."""
    topics = None
    if partitions is not None:
        topics = [
            {"name": topic, "partition_indexes": [one.partition for one in members]}
            for topic, members in _by_topic(partitions)
        ]
    values = {"timeout": client.timeout_ms, "topics": topics}
    answer = client.ask_controller(apis.LIST_REASSIGNMENTS, values, _code)
    _check(answer)
    found = {
        TopicPartition(topic.name, one.partition_index): Ongoing(
            replicas=tuple(one.replicas),
            adding=tuple(one.adding_replicas),
            removing=tuple(one.removing_replicas),
        )
        for topic in answer.topics
        for one in topic.partitions
    }
    return dict(sorted(found.items()))


def replica_sizes(
    client: Client, brokers: Iterable[int], partitions: Iterable[TopicPartition]
) -> dict[tuple[int, TopicPartition], int]:
    """In bytes, by broker and partition, of the replicas that there are on these brokers."""
    asked = [
        {"topic": topic, "partitions": [one.partition for one in members]}
        for topic, members in _by_topic(partitions)
    ]
    sizes: dict[tuple[int, TopicPartition], int] = {}
    for broker in sorted(set(brokers)):
        answer = client.ask(apis.DESCRIBE_LOG_DIRS, {"topics": asked}, broker)
        for folder in answer.results:
            for topic in folder.topics:
                for one in topic.partitions:
                    key = (broker, TopicPartition(topic.name, one.partition_index))
                    sizes[key] = one.partition_size
    return sizes


def _by_topic(
    partitions: Iterable[TopicPartition],
) -> Iterable[tuple[str, list[TopicPartition]]]:
    for topic, members in groupby(sorted(partitions), key=lambda one: one.topic):
        yield topic, list(members)


def _check(answer: Any) -> None:
    error = error_of(answer, "the request")
    if error is not None:
        raise error


def _code(answer: Any) -> list[ErrorCode]:
    return [answer.error_code]
