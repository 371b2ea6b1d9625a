"""AddPartitionsToTxn, API 24: names partitions that a transaction will write to.

Up to version 3 a producer asks for its own transaction. From version 4 on a broker asks, about
several transactions at once: it adds for producers of the newer kind, and otherwise only wants to
know whether what it was sent belongs to an open transaction (X30).
"""

from functools import partial
from typing import Any, Final

from tidelog.base.errors import ErrorCode
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import Values, respond
from tidelog.handlers.transactional import MISSING, Codes, add_or_verify, code_for, partitions_of
from tidelog.transactions.requests import Add
from tidelog.transactions.state import EPOCH_RAISED_FROM, Producer

_OF_BROKERS_FROM: Final = 4
_FENCED_FROM: Final = 2
_ABORTABLE_FROM: Final = 5


def handle(node: Node, request: Request) -> None:
    if request.version < _OF_BROKERS_FROM:
        _add(node, request)
    else:
        _add_or_verify_all(node, request)


def _add(node: Node, request: Request) -> None:
    body = request.body
    topics = body.v3_and_below_topics
    asked = Add(
        transactional_id=body.v3_and_below_transactional_id,
        producer=Producer(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch),
        partitions=partitions_of(topics),
    )

    def answer(codes: Codes) -> None:
        rows = _rows(request, topics, codes)
        request.answer(respond(request, {"results_by_topic_v3_and_below": rows}))

    add_or_verify(node, asked, answer, verify=False)


def _add_or_verify_all(node: Node, request: Request) -> None:
    transactions = request.body.transactions
    found: dict[int, Codes] = {}

    def answer_one(number: int, codes: Codes) -> None:
        found[number] = codes
        if len(found) == len(transactions):
            results = [
                {
                    "transactional_id": transaction.transactional_id,
                    "topic_results": _rows(request, transaction.topics, found[at]),
                }
                for at, transaction in enumerate(transactions)
            ]
            values = {"error_code": ErrorCode.none, "results_by_transaction": results}
            request.answer(respond(request, values))

    if not transactions:
        values = {"error_code": ErrorCode.none, "results_by_transaction": ()}
        request.answer(respond(request, values))
    for number, transaction in enumerate(transactions):
        asked = Add(
            transactional_id=transaction.transactional_id,
            producer=Producer(transaction.producer_id, transaction.producer_epoch),
            partitions=partitions_of(transaction.topics),
            client_version=EPOCH_RAISED_FROM,
        )
        answer = partial(answer_one, number)
        add_or_verify(node, asked, answer, verify=transaction.verify_only)


def _rows(request: Request, topics: Any, codes: Codes) -> list[Values]:
    by_partition = {
        (partition.topic, partition.partition): _code(request, code)
        for partition, code in codes.items()
    }
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {
                    "partition_index": index,
                    "partition_error_code": by_partition[topic.name, index],
                }
                for index in topic.partitions
            ],
        }
        for topic in topics
    ]


def _code(request: Request, code: ErrorCode) -> ErrorCode:
    if code is MISSING and request.version < _ABORTABLE_FROM:
        return ErrorCode.invalid_txn_state
    return code_for(code, request.version, _FENCED_FROM)


API = Api(key=24, first=0, last=5, handle=handle)
