"""TxnOffsetCommit, API 28: offsets of a group that count once a transaction is committed (A4).

The transaction must have been told of the group before (AddOffsetsToTxn); from version 5 on the
broker tells it. Then the offsets are kept in the group's partition as part of the transaction.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import CONSUMER_OFFSETS
from tidelog.groups.requests import Commit, Identity
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import respond
from tidelog.handlers.verifying import is_wanted
from tidelog.transactions.state import Producer
from tidelog.verification import Question

_ADDING_FROM: Final = 5
_ABORTABLE_FROM: Final = 4
_LOADING: Final = (ErrorCode.network_exception, ErrorCode.not_enough_replicas)

Codes = dict[tuple[str, int], ErrorCode]


def handle(node: Node, request: Request) -> None:
    body = request.body
    codes: Codes = {}
    commits = list(_commits(node, request, codes))
    answer = partial(_answer, request, codes)
    try:
        shard = node.coordinators.groups.find(body.group_id)
        index = node.coordinators.groups.index_of(body.group_id)
        assert index is not None, "a shard was found"
        partition = node.partitions.find(CONSUMER_OFFSETS, index)
    except KafkaError as error:
        answer(commits, [error.code] * len(commits))
        return

    def verified(error: KafkaError | None) -> None:
        try:
            if error is not None:
                raise error
            shard.committing.commit_in_transaction(
                _identity(body),
                commits,
                partial(answer, commits),
                (body.producer_id, body.producer_epoch),
            )
        except KafkaError as refused:
            code = _told(refused.code, request.version)
            answer(commits, [code] * len(commits))

    if request.version < _ADDING_FROM and not is_wanted(node):
        verified(None)
        return
    question = Question(
        transactional_id=body.transactional_id,
        producer=Producer(body.producer_id, body.producer_epoch),
        is_adding=request.version >= _ADDING_FROM,
    )
    node.verification.admit(partition, question, verified)


def _commits(node: Node, request: Request, codes: Codes) -> Iterator[Commit]:
    """What is to be kept; partitions that do not exist have their code at once."""
    topics = node.metadata.image.topics
    for topic in request.body.topics:
        known = topics.get(topic.name)
        for row in topic.partitions:
            index = row.partition_index
            if known is None or not 0 <= index < len(known.partitions):
                codes[topic.name, index] = ErrorCode.unknown_topic_or_partition
                continue
            yield Commit(
                topic.name,
                known.topic_id,
                index,
                row.committed_offset,
                getattr(row, "committed_leader_epoch", -1),
                row.committed_metadata or "",
            )


def _identity(body: Any) -> Identity:
    return Identity(
        body.group_id,
        getattr(body, "member_id", ""),
        getattr(body, "group_instance_id", None),
        getattr(body, "generation_id", -1),
    )


def _told(code: ErrorCode, version: int) -> ErrorCode:
    """In the words of this API, which has no PRODUCER_FENCED; who is to come again thinks that
    groups are being loaded."""
    if code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.transaction_abortable and version < _ABORTABLE_FROM:
        return ErrorCode.invalid_txn_state
    if code in _LOADING or (code is ErrorCode.concurrent_transactions and version < _ADDING_FROM):
        return ErrorCode.coordinator_load_in_progress
    return code


def _answer(
    request: Request, codes: Codes, commits: list[Commit], results: list[ErrorCode]
) -> None:
    for commit, code in zip(commits, results, strict=True):
        codes[commit.topic, commit.partition] = code
    topics = [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": row.partition_index,
                    "error_code": codes[topic.name, row.partition_index],
                }
                for row in topic.partitions
            ],
        }
        for topic in request.body.topics
    ]
    request.answer(respond(request, {"topics": topics}))


API = Api(key=28, first=0, last=5, handle=handle)
