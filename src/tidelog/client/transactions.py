"""Transactions as their coordinators show them, and as the partitions they write to do.

A transaction hangs when a partition has it open and its coordinator does not know of it, so that
nobody will ever end it: readers of committed records stop there. Then it can be aborted in that
partition alone, by the marker that its coordinator would have written.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.client import apis
from tidelog.client.client import Client
from tidelog.client.coordinators import Question, Told, ask_coordinators, ask_every_broker
from tidelog.client.leaders import find_leader, leader_of
from tidelog.client.topics import error_of

_NONE: Final = -1
_MILLISECOND: Final = 1000
_PARTITIONS_MAX: Final = 500
"""In one request, as a broker need not read longer ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTransaction:
    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    """None if none is under way."""
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveProducer:
    """What a partition keeps of one."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    start_offset: int | None
    """Of the transaction it has open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFilter:
    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    duration_ms_min: int = _NONE
    pattern: str | None = None


def list_transactions(client: Client, wanted: TransactionFilter) -> list[ListedTransaction]:
    """Of all coordinators, sorted by transactional id."""
    api = apis.LIST_TRANSACTIONS
    if wanted.duration_ms_min != _NONE or wanted.pattern is not None:
        api = apis.at_least(api, 1 if wanted.pattern is None else 2)
    values = {
        "state_filters": wanted.states,
        "producer_id_filters": wanted.producer_ids,
        "duration_filter": wanted.duration_ms_min,
        "transactional_id_pattern": wanted.pattern,
    }
    answers = ask_every_broker(client, api, values)
    _check_states(answers.values())
    found = [
        ListedTransaction(
            transactional_id=one.transactional_id,
            coordinator=broker,
            producer_id=one.producer_id,
            state=one.transaction_state,
        )
        for broker, answer in answers.items()
        for one in answer.transaction_states
    ]
    return sorted(found, key=lambda one: (one.transactional_id, one.coordinator))


def describe_transactions(
    client: Client, names: Iterable[str]
) -> dict[str, Transaction | KafkaError]:
    """In the order of the names."""
    question = Question(
        kind="transaction",
        api=apis.DESCRIBE_TRANSACTIONS,
        values=lambda some: {"transactional_ids": some},
        rows=lambda answer: [
            (row.transactional_id, row.error_code, row) for row in answer.transaction_states
        ],
    )
    told = ask_coordinators(client, question, names)
    return {name: _refusal(name, one) or _transaction(one) for name, one in told.items()}


def describe_producers(
    client: Client, partitions: Sequence[TopicPartition], broker: int | None = None
) -> dict[TopicPartition, list[ActiveProducer] | KafkaError]:
    """As the leaders of these partitions know them, or as one broker does."""
    found: dict[TopicPartition, list[ActiveProducer] | KafkaError] = {}
    for asked, some in _by_broker(client, partitions, broker).items():
        for at in range(0, len(some), _PARTITIONS_MAX):
            topics = _topics(some[at : at + _PARTITIONS_MAX])
            answer = client.ask(apis.DESCRIBE_PRODUCERS, {"topics": topics}, asked)
            for topic in answer.topics:
                for row in topic.partitions:
                    one = TopicPartition(topic.name, row.partition_index)
                    found[one] = error_of(row, str(one)) or [
                        _producer(producer) for producer in row.active_producers
                    ]
    return {one: found[one] for one in partitions if one in found}


def abort_in_partition(client: Client, one: TopicPartition, producer: ActiveProducer) -> None:
    """Writes the marker of an aborted transaction."""
    marker = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "transaction_result": False,
        "topics": _topics([one]),
        # A producer that never had a marker has none yet; 0 is older than any that may come.
        "coordinator_epoch": max(0, producer.coordinator_epoch),
    }
    leader = find_leader(client, one.topic, one.partition).leader
    answer = client.ask(apis.WRITE_TXN_MARKERS, {"markers": [marker]}, leader)
    for result in answer.markers:
        for topic in result.topics:
            for row in topic.partitions:
                error = error_of(row, f"the transaction in {one} was not aborted")
                if error is not None:
                    raise error


def _check_states(answers: Iterable[Any]) -> None:
    unknown = sorted({state for answer in answers for state in answer.unknown_state_filters})
    if unknown:
        raise KafkaError(
            ErrorCode.invalid_request, f"transactions have no state {', '.join(unknown)}"
        )


def _refusal(name: str, told: Told) -> KafkaError | None:
    if told.code is ErrorCode.transactional_id_not_found:
        return KafkaError(told.code, f"there is no transactional id {name}")
    return told.error(f"transactional id {name}")


def _transaction(told: Told) -> Transaction:
    row = told.row
    started = row.transaction_start_time
    return Transaction(
        transactional_id=row.transactional_id,
        coordinator=told.coordinator,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        state=row.transaction_state,
        timeout_ms=round(row.transaction_timeout.total_seconds() * _MILLISECOND),
        start_ms=None if started is None else round(started.timestamp() * _MILLISECOND),
        partitions=tuple(
            sorted(
                TopicPartition(topic.topic, index)
                for topic in row.topics
                for index in topic.partitions
            )
        ),
    )


def _producer(row: Any) -> ActiveProducer:
    start = row.current_txn_start_offset
    return ActiveProducer(
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        coordinator_epoch=row.coordinator_epoch,
        last_sequence=row.last_sequence,
        last_timestamp_ms=row.last_timestamp,
        start_offset=None if start == _NONE else start,
    )


def _by_broker(
    client: Client, partitions: Sequence[TopicPartition], broker: int | None
) -> dict[int, list[TopicPartition]]:
    if broker is not None:
        return {broker: list(partitions)}
    cluster = client.cluster(sorted({one.topic for one in partitions}))
    found: dict[int, list[TopicPartition]] = {}
    for one in partitions:
        leader = leader_of(cluster.topic(one.topic), one.partition).leader
        found.setdefault(leader, []).append(one)
    return found


def _topics(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    topics: dict[str, list[int]] = {}
    for one in partitions:
        topics.setdefault(one.topic, []).append(one.partition)
    return [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()]
