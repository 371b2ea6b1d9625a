"""Leaders elected on request: the preferred replica, or any where none that may lead is left."""

from collections.abc import Iterable
from typing import Any, Final, Literal

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.client import apis
from tidelog.client.client import Client
from tidelog.client.topics import error_of

Kind = Literal["preferred", "unclean"]
_KINDS: Final[dict[Kind, int]] = {"preferred": 0, "unclean": 1}
Elected = dict[TopicPartition, KafkaError | None]


def elect_leaders(
    client: Client, kind: Kind, partitions: Iterable[TopicPartition] | None
) -> Elected:
    """What came of it, by partition. Of all partitions (None) only those are told where an
    election was held, or failed."""
    asked = None
    if partitions is not None:
        topics: dict[str, list[int]] = {}
        for one in sorted(set(partitions)):
            topics.setdefault(one.topic, []).append(one.partition)
        asked = [{"topic": topic, "partitions": members} for topic, members in topics.items()]
    values = {
        "election_type": _KINDS[kind],
        "topic_partitions": asked,
        "timeout": client.timeout_ms,
    }
    answer = client.ask_controller(apis.ELECT_LEADERS, values, _codes)
    error = error_of(answer, "the election") if hasattr(answer, "error_code") else None
    if error is not None:
        raise error
    return {
        TopicPartition(topic.topic, one.partition_id): error_of(
            one, f"{topic.topic}-{one.partition_id}"
        )
        for topic in answer.replica_election_results
        for one in topic.partition_result
    }


def _codes(answer: Any) -> list[ErrorCode]:
    rows = [
        one.error_code
        for topic in answer.replica_election_results
        for one in topic.partition_result
    ]
    return [getattr(answer, "error_code", ErrorCode.none), *rows]
