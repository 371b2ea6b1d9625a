"""What the APIs of transactions have in common: finding the coordinator, and old error codes.

A client that is told PRODUCER_FENCED by a version that did not have that code yet is told
INVALID_PRODUCER_EPOCH instead, which says the same to it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition, is_internal
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


def add_or_verify(
    node: Node,
    asked: Add,
    done: Callable[[Codes], None],
    *,
    verify: bool,
    of_client: bool = False,
) -> None:
    """Adds partitions to a transaction, or only says which of them are in it. All or none: if one
    of them does not exist, or is not for the client that asks, none is added."""
    refused = {
        each: code
        for each in asked.partitions
        if (code := _refusal(node, each, of_client)) is not None
    }
    if refused:
        done({**dict.fromkeys(asked.partitions, ErrorCode.operation_not_attempted), **refused})
        return
    try:
        shard = find_shard(node, asked.transactional_id)
    except KafkaError as error:
        done(dict.fromkeys(asked.partitions, error.code))
        return
    ask_shard(shard, asked, done, verify=verify)


def ask_shard(
    shard: TransactionShard, asked: Add, done: Callable[[Codes], None], *, verify: bool
) -> None:
    def tell(answer: Sequence[TopicPartition] | KafkaError | None) -> None:
        if isinstance(answer, KafkaError):
            done(dict.fromkeys(asked.partitions, answer.code))
            return
        codes = dict.fromkeys(asked.partitions, ErrorCode.none)
        done({**codes, **dict.fromkeys(answer or (), MISSING)})

    if verify:
        shard.verify_partitions(asked, tell)
    else:
        shard.add_partitions(asked, tell)


def _refusal(node: Node, partition: TopicPartition, of_client: bool) -> ErrorCode | None:
    """Clients name no partitions of internal topics: AddOffsetsToTxn does that for them."""
    if of_client and is_internal(partition.topic):
        return ErrorCode.topic_authorization_failed
    topic = node.metadata.image.topics.get(partition.topic)
    is_there = topic is not None and 0 <= partition.partition < len(topic.partitions)
    return None if is_there else ErrorCode.unknown_topic_or_partition
