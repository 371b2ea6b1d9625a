"""What the APIs of transactions have in common: finding the coordinator, and old error codes.

A client that is told PRODUCER_FENCED by a version that did not have that code yet is told
INVALID_PRODUCER_EPOCH instead, which says the same to it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.handlers.api import Node
from tidelog.transactions.requests import Add
from tidelog.transactions.shard import TransactionShard

Codes = Mapping[TopicPartition, ErrorCode]
"""What came of each partition."""
MISSING: Final = ErrorCode.transaction_abortable
"""Of a partition that is not in the transaction it should be in."""


def find_shard(node: Node, transactional_id: str) -> TransactionShard:
    if not transactional_id:
        raise KafkaError(ErrorCode.invalid_request, "a transactional id has at least one character")
    return node.coordinators.transactions.find(transactional_id)


def code_for(code: ErrorCode, version: int, fenced_from: int) -> ErrorCode:
    """The code for a client of a version, in an API that can say PRODUCER_FENCED from one on."""
    if code is ErrorCode.producer_fenced and version < fenced_from:
        return ErrorCode.invalid_producer_epoch
    return code


def partitions_of(topics: Iterable[Any]) -> tuple[TopicPartition, ...]:
    """As AddPartitionsToTxn names them."""
    return tuple(
        TopicPartition(topic.name, index) for topic in topics for index in topic.partitions
    )


def add_or_verify(node: Node, asked: Add, done: Callable[[Codes], None], *, verify: bool) -> None:
    """Adds partitions to a transaction, or only says which of them are in it. All or none: if one
    of them does not exist, none is added."""

    def refused(error: KafkaError) -> None:
        done(dict.fromkeys(asked.partitions, error.code))

    unknown = [each for each in asked.partitions if not _exists(node, each)]
    if unknown:
        codes = dict.fromkeys(asked.partitions, ErrorCode.operation_not_attempted)
        done({**codes, **dict.fromkeys(unknown, ErrorCode.unknown_topic_or_partition)})
        return
    try:
        shard = find_shard(node, asked.transactional_id)
    except KafkaError as error:
        refused(error)
        return
    if verify:
        shard.verify_partitions(
            asked,
            lambda missing: (
                refused(missing)
                if isinstance(missing, KafkaError)
                else done(
                    {
                        **dict.fromkeys(asked.partitions, ErrorCode.none),
                        **dict.fromkeys(missing, MISSING),
                    }
                )
            ),
        )
        return
    shard.add_partitions(
        asked,
        lambda error: (
            done(dict.fromkeys(asked.partitions, ErrorCode.none))
            if error is None
            else refused(error)
        ),
    )


def _exists(node: Node, partition: TopicPartition) -> bool:
    topic = node.metadata.image.topics.get(partition.topic)
    return topic is not None and 0 <= partition.partition < len(topic.partitions)
