"""Topics made, enlarged and deleted, through the controller. Each has an outcome of its own."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.client import apis
from tidelog.client.client import Client

USE_DEFAULT: Final = -1

Outcomes = dict[str, KafkaError | None]
"""What became of each topic, by name: an error, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    name: str
    partition_count: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignment: Sequence[Sequence[int]] = ()
    """The brokers of each partition, in order; if it is given, the counts follow from it."""
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MorePartitions:
    name: str
    partition_count: int
    """How many there are to be."""
    assignment: Sequence[Sequence[int]] | None = None
    """The brokers of each new partition."""


def create_topics(
    client: Client, topics: Iterable[NewTopic], *, validate_only: bool = False
) -> Outcomes:
    values = {
        "topics": [_creatable(topic) for topic in topics],
        "timeout": client.timeout_ms,
        "validate_only": validate_only,
    }
    return _outcomes(client.ask_controller(apis.CREATE_TOPICS, values, _codes_of_topics).topics)


def delete_topics(client: Client, names: Sequence[str]) -> Outcomes:
    values = {
        "topics": [{"name": name} for name in names],
        "topic_names": names,
        "timeout": client.timeout_ms,
    }
    answer = client.ask_controller(apis.DELETE_TOPICS, values, _codes_of_responses)
    return _outcomes(answer.responses)


def create_partitions(
    client: Client, topics: Iterable[MorePartitions], *, validate_only: bool = False
) -> Outcomes:
    values = {
        "topics": [_enlarged(topic) for topic in topics],
        "timeout": client.timeout_ms,
        "validate_only": validate_only,
    }
    answer = client.ask_controller(apis.CREATE_PARTITIONS, values, _codes_of_results)
    return _outcomes(answer.results)


def _creatable(topic: NewTopic) -> Mapping[str, Any]:
    return {
        "name": topic.name,
        "num_partitions": USE_DEFAULT if topic.assignment else topic.partition_count,
        "replication_factor": USE_DEFAULT if topic.assignment else topic.replication_factor,
        "assignments": [
            {"partition_index": index, "broker_ids": brokers}
            for index, brokers in enumerate(topic.assignment)
        ],
        "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
    }


def _enlarged(topic: MorePartitions) -> Mapping[str, Any]:
    assigned = topic.assignment
    return {
        "name": topic.name,
        "count": topic.partition_count,
        "assignments": None if assigned is None else [{"broker_ids": ids} for ids in assigned],
    }


def _outcomes(results: Iterable[Any]) -> Outcomes:
    return {result.name: error_of(result, f"topic {result.name}") for result in results}


def error_of(result: Any, what: str) -> KafkaError | None:
    """The error in a part of a response; not every version has a message with it."""
    code: ErrorCode = result.error_code
    if code is ErrorCode.none:
        return None
    message = getattr(result, "error_message", None)
    return KafkaError(code, message or f"{what}: {code.name.replace('_', ' ')}")


def _codes_of_topics(answer: Any) -> list[ErrorCode]:
    return [topic.error_code for topic in answer.topics]


def _codes_of_responses(answer: Any) -> list[ErrorCode]:
    return [response.error_code for response in answer.responses]


def _codes_of_results(answer: Any) -> list[ErrorCode]:
    return [result.error_code for result in answer.results]
