"""TxnOffsetCommit, API 28: offsets of a group that count once a transaction is committed (A4).

The transaction must have been told of the group before (AddOffsetsToTxn); from version 5 on the
broker tells it. Then the offsets are kept in the group's partition as part of the transaction.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import CONSUMER_OFFSETS
from tidelog.groups.requests import AnswerCodes, Commit, Identity
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import Values, respond
from tidelog.handlers.group_requests import find_group
from tidelog.handlers.offset_rows import (
    Row,
    answered_in_slices,
    are_many,
    keep_in_parts,
    keep_rows,
    rows_of,
    shown,
    wanted,
)
from tidelog.handlers.rows import Answering, answer_in_slices
from tidelog.handlers.verifying import is_wanted
from tidelog.transactions.state import Producer
from tidelog.verification import Question

_ADDING_FROM: Final = 5
_ABORTABLE_FROM: Final = 4
_LOADING: Final = (
    ErrorCode.network_exception,
    ErrorCode.not_enough_replicas,
    ErrorCode.operation_not_attempted,
)


def handle(node: Node, request: Request) -> None:
    if are_many(request):
        answer_in_slices(node, request, _answering(node, request))
        return
    rows = list(_rows(node, request))
    keep_rows(wanted(rows), partial(_keep, node, request), partial(_answer, request, rows))


def _answering(node: Node, request: Request) -> Answering:
    rows: list[Row] = []
    for row in _rows(node, request):
        rows.append(row)
        yield None
    yield from keep_in_parts(node, wanted(rows), partial(_keep, node, request))
    topics = yield from answered_in_slices(request, rows, _named)
    return {"topics": topics}


def _answer(request: Request, rows: Sequence[Row]) -> None:
    outcomes = iter(rows)
    topics = [
        {
            "name": topic.name,
            "partitions": [shown(row) for row in islice(outcomes, len(topic.partitions))],
        }
        for topic in request.body.topics
    ]
    request.answer(respond(request, {"topics": topics}))


def _keep(node: Node, request: Request, commits: Sequence[Commit], answer: AnswerCodes) -> None:
    """Each part of a request is verified by itself: the transaction may have ended meanwhile."""
    body = request.body
    shard = find_group(node, body.group_id)
    index = node.coordinators.groups.index_of(body.group_id)
    assert index is not None, "a shard was found"
    partition = node.partitions.find(CONSUMER_OFFSETS, index)

    def verified(error: KafkaError | None) -> None:
        try:
            if error is not None:
                raise error
            producer = (body.producer_id, body.producer_epoch)
            shard.committing.commit_in_transaction(_identity(body), commits, answer, producer)
        except KafkaError as refused:
            answer([_told(refused.code, request.version)] * len(commits))

    if request.version < _ADDING_FROM and not is_wanted(node):
        verified(None)
        return
    question = Question(
        transactional_id=body.transactional_id,
        producer=Producer(body.producer_id, body.producer_epoch),
        is_adding=request.version >= _ADDING_FROM,
    )
    node.verification.admit(partition, question, verified)


def _rows(node: Node, request: Request) -> Iterator[Row]:
    topics = node.metadata.image.topics
    for topic in request.body.topics:
        yield from rows_of(topics.get(topic.name), topic, ErrorCode.unknown_topic_or_partition)


def _named(topic: Any) -> Values:
    return {"name": topic.name}


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


API = Api(key=28, first=0, last=5, handle=handle)
