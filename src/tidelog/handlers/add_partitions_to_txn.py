"""AddPartitionsToTxn, API 24: names partitions that a transaction will write to.

Up to version 3 a producer asks for its own transaction. From version 4 on a broker asks, about
several transactions at once: it adds for producers of the newer kind, and otherwise only wants to
know whether what it was sent belongs to an open transaction (X30).
"""

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, Final

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicPartition
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.rows import Answering, Rows, answer_in_slices
from tidelog.handlers.transactional import MISSING, Codes, add_or_verify, code_for
from tidelog.slices import Ask
from tidelog.transactions.requests import Add
from tidelog.transactions.state import EPOCH_RAISED_FROM, Producer

_OF_BROKERS_FROM: Final = 4
_FENCED_FROM: Final = 2
_ABORTABLE_FROM: Final = 5
_OWN: Final = "results_by_topic_v3_and_below"
_ALL: Final = "results_by_transaction"


def handle(node: Node, request: Request) -> None:
    answering = _own if request.version < _OF_BROKERS_FROM else _all
    answer_in_slices(node, request, answering(node, request))


def _own(node: Node, request: Request) -> Answering:
    body = request.body
    topics = body.v3_and_below_topics
    asked = Add(
        transactional_id=body.v3_and_below_transactional_id,
        producer=Producer(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch),
        partitions=(yield from _partitions(topics)),
    )
    found: list[Codes] = []
    yield _asking(node, [(asked, False)], found, of_client=True)
    rows = yield from _rows(request, topics, found[0], _OWN)
    return {_OWN: rows}


def _all(node: Node, request: Request) -> Answering:
    transactions = request.body.transactions
    asked: list[tuple[Add, bool]] = []
    for transaction in transactions:
        add = Add(
            transactional_id=transaction.transactional_id,
            producer=Producer(transaction.producer_id, transaction.producer_epoch),
            partitions=(yield from _partitions(transaction.topics)),
            client_version=EPOCH_RAISED_FROM,
        )
        asked.append((add, transaction.verify_only))
    found: list[Codes] = []
    yield _asking(node, asked, found, of_client=False)
    results = Rows(request, _ALL)
    for transaction, codes in zip(transactions, found, strict=True):
        rows = yield from _rows(request, transaction.topics, codes, _ALL, "topic_results")
        results.put({"transactional_id": transaction.transactional_id, "topic_results": rows})
    return {"error_code": ErrorCode.none, _ALL: results}


def _partitions(
    topics: Iterable[Any],
) -> Generator[Ask | None, None, tuple[TopicPartition, ...]]:
    found: list[TopicPartition] = []
    for topic in topics:
        for index in topic.partitions:
            found.append(TopicPartition(topic.name, index))
            yield None
    return tuple(found)


def _asking(
    node: Node, asked: list[tuple[Add, bool]], found: list[Codes], *, of_client: bool
) -> Ask:
    """Adds or verifies for each, and puts what came of it into `found`, in the same order."""

    def ask(then: Callable[[], None]) -> None:
        codes: dict[int, Codes] = {}

        def end(number: int, of_one: Codes) -> None:
            codes[number] = of_one
            if len(codes) == len(asked):
                found.extend(codes[at] for at in range(len(asked)))
                then()

        if not asked:
            then()
        for number, (add, is_verifying) in enumerate(asked):
            told = partial(end, number)
            add_or_verify(node, add, told, verify=is_verifying, of_client=of_client)

    return ask


def _rows(
    request: Request, topics: Any, codes: Codes, *path: str
) -> Generator[Ask | None, None, Rows]:
    found = Rows(request, *path)
    for topic in topics:
        partitions = Rows(request, *path, "results_by_partition")
        for index in topic.partitions:
            code = _code(request, codes[TopicPartition(topic.name, index)])
            partitions.put({"partition_index": index, "partition_error_code": code})
            yield None
        found.put({"name": topic.name, "results_by_partition": partitions})
        yield None
    return found


def _code(request: Request, code: ErrorCode) -> ErrorCode:
    if code is MISSING and request.version < _ABORTABLE_FROM:
        return ErrorCode.invalid_txn_state
    return code_for(code, request.version, _FENCED_FROM)


API = Api(key=24, first=0, last=5, handle=handle)
