"""Transactions that are open in a partition though no coordinator will ever end them there."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TRANSACTION_STATE, TopicPartition
from tidelog.client.client import Client
from tidelog.client.cluster import NO_LEADER
from tidelog.client.transactions import (
    ActiveProducer,
    Transaction,
    TransactionFilter,
    describe_producers,
    describe_transactions,
    list_transactions,
)

Open = Mapping[TopicPartition, Sequence[ActiveProducer]]
"""Producers that have a transaction open in a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    partitions: Sequence[TopicPartition]
    broker: int | None
    """Asked for what it has, instead of the leaders."""
    before_ms: int
    """Only those whose last record is older: nobody can be at work on them any more."""


def find_hanging(client: Client, search: Search) -> dict[TopicPartition, list[ActiveProducer]]:
    found: dict[TopicPartition, list[ActiveProducer]] = {}
    for one, producers in describe_producers(client, search.partitions, search.broker).items():
        if isinstance(producers, KafkaError):
            raise producers
        old = [
            producer
            for producer in producers
            if producer.start_offset is not None and producer.last_timestamp_ms < search.before_ms
        ]
        if old:
            found[one] = old
    missing = leaderless(client) if found else []
    if missing:
        raise KafkaError(
            ErrorCode.coordinator_not_available,
            f"nobody leads {missing[0]}: transactions of which it may know are not said to hang",
        )
    known = known_transactions(client, found)
    return {
        one: hanging
        for one, producers in found.items()
        if (hanging := [p for p in producers if not is_known(known, one, p)])
    }


def known_transactions(client: Client, open_ones: Open) -> dict[int, Transaction]:
    """What coordinators know of the producers, by producer id."""
    ids = sorted({one.producer_id for producers in open_ones.values() for one in producers})
    if not ids:
        return {}
    listed = list_transactions(client, TransactionFilter(producer_ids=ids))
    return _by_producer(
        describe_transactions(client, [one.transactional_id for one in listed]).values()
    )


def is_known(
    known: Mapping[int, Transaction], one: TopicPartition, producer: ActiveProducer
) -> bool:
    """Whether its coordinator has yet to write its marker there."""
    transaction = known.get(producer.producer_id)
    return transaction is not None and one in transaction.partitions


def leaderless(client: Client) -> list[TopicPartition]:
    """Of the partitions that transactions are kept in those that nobody leads: what was decided
    there will be carried out when somebody does, and until then nobody can say that it was."""
    topic = client.cluster([TRANSACTION_STATE]).topics.get(TRANSACTION_STATE)
    return [
        TopicPartition(TRANSACTION_STATE, partition.index)
        for partition in (() if topic is None else topic.partitions)
        if partition.leader == NO_LEADER
    ]


def _by_producer(described: Iterable[Transaction | KafkaError]) -> dict[int, Transaction]:
    found = {}
    for one in described:
        if isinstance(one, Transaction):
            found[one.producer_id] = one
        elif one.code is not ErrorCode.transactional_id_not_found:
            raise one
    return found
