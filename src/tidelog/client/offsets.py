"""Where partitions begin and end, asked of their leaders: one request to each.

The end that consumers are told is the high watermark, or, if only committed transactions count,
the last stable offset.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.client import apis
from tidelog.client.client import Client
from tidelog.client.cluster import NO_LEADER, Cluster
from tidelog.client.leaders import MOVED, PAUSE_MS, partition_of
from tidelog.client.sockets import now_ms, pause_ms

EARLIEST: Final = -2
LATEST: Final = -1
_RETRIED: Final = MOVED | {ErrorCode.offset_not_available}
"""What is said while one broker takes over from another; a while later all is well."""

Times = Mapping[TopicPartition, int]


def list_offsets(
    client: Client, topic: str, timestamps: Mapping[int, int], *, committed_only: bool = False
) -> dict[int, int]:
    """The offset of each partition for `EARLIEST`, `LATEST`, or the first record since a time in
    ms; -1 where there is none. The end is that of committed transactions, if only these count."""
    times = {TopicPartition(topic, index): when for index, when in timestamps.items()}
    found = list_many_offsets(client, times, committed_only=committed_only)
    return {one.partition: offset for one, offset in found.items()}


def list_many_offsets(
    client: Client, times: Times, *, committed_only: bool = False
) -> dict[TopicPartition, int]:
    """As `list_offsets`, for partitions of several topics; in the order they were asked for."""
    deadline_ms = now_ms() + client.timeout_ms
    found: dict[TopicPartition, int] = {}
    while True:
        missing = {one: when for one, when in times.items() if one not in found}
        if not missing:
            return {one: found[one] for one in times}
        errors: list[KafkaError] = []
        for leader, group in _by_leader(client, missing).items():
            if leader == NO_LEADER:
                errors += [_leaderless(one) for one in group]
                continue
            answer = client.ask(apis.LIST_OFFSETS, _values(group, committed_only), leader)
            _take(answer, found, errors)
        if not errors:
            continue
        if any(e.code not in _RETRIED for e in errors) or now_ms() + PAUSE_MS > deadline_ms:
            raise errors[0]
        pause_ms(PAUSE_MS)


def _take(answer: Any, found: dict[TopicPartition, int], errors: list[KafkaError]) -> None:
    for topic in answer.topics:
        for partition in topic.partitions:
            one = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code is ErrorCode.none:
                found[one] = partition.offset
            else:
                errors.append(_error(one, partition.error_code))


def _by_leader(client: Client, times: Times) -> dict[int, dict[TopicPartition, int]]:
    cluster = client.cluster(sorted({one.topic for one in times}))
    groups: dict[int, dict[TopicPartition, int]] = {}
    for one, when in times.items():
        groups.setdefault(_leader(cluster, one), {})[one] = when
    return groups


def _leader(cluster: Cluster, one: TopicPartition) -> int:
    return partition_of(cluster.topic(one.topic), one.partition).leader


def _values(times: Times, committed_only: bool) -> dict[str, Any]:
    topics = [
        {"name": name, "partitions": [_partition(one, times[one]) for one in members]}
        for name, members in _by_topic(times)
    ]
    return {"replica_id": -1, "isolation_level": 1 if committed_only else 0, "topics": topics}


def _by_topic(times: Times) -> Iterable[tuple[str, Iterable[TopicPartition]]]:
    return groupby(sorted(times), key=lambda one: one.topic)


def _partition(one: TopicPartition, timestamp: int) -> dict[str, Any]:
    return {
        "partition_index": one.partition,
        "current_leader_epoch": -1,
        "timestamp": timestamp,
    }


def _leaderless(one: TopicPartition) -> KafkaError:
    why = f"{one.topic}: nobody leads partition {one.partition}"
    return KafkaError(ErrorCode.leader_not_available, why)


def _error(one: TopicPartition, code: ErrorCode) -> KafkaError:
    return KafkaError(code, f"{one.topic}-{one.partition}: {code.name.replace('_', ' ')}")
