"""Where partitions begin and end, asked of their leaders, and where groups are, of coordinators.

The end that consumers are told is the high watermark, or, if only committed transactions count,
the last stable offset. Offsets of a group are committed here as by somebody who is no member of it,
which a group takes only while it has none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.client import apis
from tidelog.client.client import Client
from tidelog.client.cluster import NO_LEADER, Cluster
from tidelog.client.coordinators import Question, ask_coordinators
from tidelog.client.leaders import MOVED, NOT_LEADING, PAUSE_MS, partition_of
from tidelog.client.marks import EARLIEST as EARLIEST
from tidelog.client.marks import LATEST as LATEST
from tidelog.client.sockets import now_ms, pause_ms

RETRIED: Final = MOVED | {ErrorCode.offset_not_available}
"""What is said while one broker takes over from another; a while later all is well."""

_NO_MEMBER: Final[Mapping[str, Any]] = {"generation_id_or_member_epoch": -1, "member_id": ""}

Times = Mapping[TopicPartition, int]
NewOffsets = Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    offset: int
    leader_epoch: int
    """-1 if it was not said."""
    metadata: str


def list_offsets(
    client: Client, topic: str, timestamps: Mapping[int, int], *, committed_only: bool = False
) -> dict[int, int]:
    """The offset of each partition for `EARLIEST`, `LATEST`, or the first record since a time in
    ms; -1 where there is none. The end is that of committed transactions, if only these count."""
    times = {TopicPartition(topic, index): when for index, when in timestamps.items()}
    found = list_many_offsets(client, times, committed_only=committed_only)
    return {one.partition: offset for one, offset in found.items()}


def list_many_offsets(
    client: Client, times: Times, *, committed_only: bool = False, patience_ms: int | None = None
) -> dict[TopicPartition, int]:
    """As `list_offsets`, for partitions of several topics; in the order they were asked for. Those
    that have no leader are waited for as long as for an answer, or with the patience given."""
    deadline_ms = now_ms() + (client.timeout_ms if patience_ms is None else patience_ms)
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
            try:
                answer = client.ask(apis.LIST_OFFSETS, _values(group, committed_only), leader)
            except KafkaError as error:
                if error.code is not ErrorCode.broker_not_available:
                    raise
                # It has left the cluster since it was named: another one will lead.
                errors.append(error)
                continue
            _take(answer, found, errors)
            if not errors:
                errors += [_left_out(one, leader) for one in group if one not in found]
        if not errors:
            continue
        if any(e.code not in RETRIED for e in errors) or now_ms() + PAUSE_MS > deadline_ms:
            raise errors[0]
        if any(error.code in NOT_LEADING for error in errors):
            client.hear_all(sorted({one.topic for one in missing}))
        pause_ms(PAUSE_MS)


def commit_offsets(client: Client, group_id: str, offsets: NewOffsets) -> None:
    """Where the group goes on from. Raises if any of them was refused; the others stand."""
    wanted = {_partition_at(place): offset for place, offset in offsets.items()}
    if not wanted:
        return
    topics = [
        {"name": topic, "partitions": [_commit(one, wanted[one]) for one in members]}
        for topic, members in _by_topic(wanted)
    ]
    values = {**_NO_MEMBER, "group_id": group_id, "topics": topics}
    question = Question(
        kind="group",
        api=apis.OFFSET_COMMIT,
        values=lambda _: values,
        rows=lambda answer: [(group_id, _first_code(answer), answer)],
    )
    told = ask_coordinators(client, question, [group_id])[group_id]
    error = told.error(f"offsets of group {group_id} were not committed")
    if told.code is ErrorCode.unknown_member_id:
        why = f"group {group_id} has members: only they commit its offsets, until all have left"
        error = KafkaError(told.code, why)
    if error is not None:
        raise error


def committed_offsets(
    client: Client, group_id: str, topics: Iterable[str] | None = None, *, stable_only: bool = False
) -> dict[TopicPartition, int]:
    """What a group has committed, of some topics or of all. If only what is stable counts, commits
    of transactions that are open are waited for."""
    chosen = None if topics is None else set(topics)
    found = committed_by_groups(client, [group_id], stable_only=stable_only)[group_id]
    if isinstance(found, KafkaError):
        raise found
    return {
        one: committed.offset
        for one, committed in found.items()
        if chosen is None or one.topic in chosen
    }


def committed_by_groups(
    client: Client, groups: Iterable[str], *, stable_only: bool = False
) -> dict[str, dict[TopicPartition, Committed] | KafkaError]:
    """By partition, in order; a group that is not there has committed nothing."""
    question = Question(
        kind="group",
        api=apis.OFFSET_FETCH,
        values=lambda names: {
            "groups": [{"group_id": name, "topics": None} for name in names],
            "require_stable": stable_only,
        },
        rows=lambda answer: [(group.group_id, _code(group), group) for group in answer.groups],
    )
    told = ask_coordinators(client, question, groups)
    return {
        group: one.error(f"offsets of group {group}") or _committed(one.row)
        for group, one in told.items()
    }


def _code(group: Any) -> ErrorCode:
    """Its own, or else the first of its partitions that has one."""
    return _first_code(group) if group.error_code is ErrorCode.none else group.error_code


def _first_code(answer: Any) -> ErrorCode:
    codes = (one.error_code for topic in answer.topics for one in topic.partitions)
    return next((code for code in codes if code is not ErrorCode.none), ErrorCode.none)


def _committed(group: Any) -> dict[TopicPartition, Committed]:
    found = {
        TopicPartition(topic.name, one.partition_index): Committed(
            offset=one.committed_offset,
            leader_epoch=one.committed_leader_epoch,
            metadata=one.metadata or "",
        )
        for topic in group.topics
        for one in topic.partitions
        if one.committed_offset >= 0
    }
    return dict(sorted(found.items()))


def _partition_at(place: TopicPartition | tuple[str, int]) -> TopicPartition:
    return place if isinstance(place, TopicPartition) else TopicPartition(*place)


def _commit(one: TopicPartition, offset: int) -> dict[str, Any]:
    return {
        "partition_index": one.partition,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }


def _take(answer: Any, found: dict[TopicPartition, int], errors: list[KafkaError]) -> None:
    for topic in answer.topics:
        for partition in topic.partitions:
            one = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code is ErrorCode.none:
                found[one] = partition.offset
            else:
                errors.append(_error(one, partition.error_code))


def _left_out(one: TopicPartition, leader: int) -> KafkaError:
    return KafkaError(ErrorCode.unknown_server_error, f"broker {leader} says nothing of {one}")


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
