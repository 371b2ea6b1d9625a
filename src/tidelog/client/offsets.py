"""Where partitions begin and end, asked of their leaders: one request to each."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.client import apis
from tidelog.client.client import Client
from tidelog.client.cluster import NO_LEADER
from tidelog.client.sockets import now_ms, pause_ms

EARLIEST: Final = -2
LATEST: Final = -1
_PAUSE_MS: Final = 100
_LEADER_MOVED: Final = (
    ErrorCode.not_leader_or_follower,
    ErrorCode.leader_not_available,
    ErrorCode.listener_not_found,
    ErrorCode.unknown_topic_or_partition,
)
"""What is said while one broker takes over from another; a while later all is well."""


def list_offsets(
    client: Client, topic: str, timestamps: Mapping[int, int], *, committed_only: bool = False
) -> dict[int, int]:
    """The offset of each partition for `EARLIEST`, `LATEST`, or the first record since a time in
    ms; -1 where there is none. The end is that of committed transactions, if only these count."""
    deadline_ms = now_ms() + client.timeout_ms
    found: dict[int, int] = {}
    while True:
        missing = {index: when for index, when in timestamps.items() if index not in found}
        errors = []
        for leader, group in _by_leader(client, topic, missing).items():
            if leader == NO_LEADER:
                why = f"{topic}: nobody leads partition {', '.join(map(str, sorted(group)))}"
                errors.append(KafkaError(ErrorCode.leader_not_available, why))
                continue
            values = _values(topic, group, committed_only)
            for partition in _partitions(client.ask(apis.LIST_OFFSETS, values, leader)):
                if partition.error_code is ErrorCode.none:
                    found[partition.partition_index] = partition.offset
                else:
                    errors.append(_error(topic, partition))
        if not errors:
            return found
        if any(e.code not in _LEADER_MOVED for e in errors) or now_ms() + _PAUSE_MS > deadline_ms:
            raise errors[0]
        pause_ms(_PAUSE_MS)


def _by_leader(
    client: Client, topic: str, timestamps: Mapping[int, int]
) -> dict[int, dict[int, int]]:
    leaders = {p.index: p.leader for p in client.cluster([topic]).topic(topic).partitions}
    groups: dict[int, dict[int, int]] = {}
    for index, timestamp in timestamps.items():
        if index not in leaders:
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition, f"{topic} has no partition {index}"
            )
        groups.setdefault(leaders[index], {})[index] = timestamp
    return groups


def _values(topic: str, timestamps: Mapping[int, int], committed_only: bool) -> dict[str, Any]:
    partitions = [
        {"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp}
        for index, timestamp in timestamps.items()
    ]
    return {
        "replica_id": -1,
        "isolation_level": 1 if committed_only else 0,
        "topics": [{"name": topic, "partitions": partitions}],
    }


def _partitions(answer: Any) -> Iterable[Any]:
    return (partition for topic in answer.topics for partition in topic.partitions)


def _error(topic: str, partition: Any) -> KafkaError:
    code: ErrorCode = partition.error_code
    return KafkaError(code, f"{topic}-{partition.partition_index}: {code.name.replace('_', ' ')}")
