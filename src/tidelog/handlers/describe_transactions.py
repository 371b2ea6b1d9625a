"""DescribeTransactions, API 65: where transactional ids are with their transactions."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import Values
from tidelog.handlers.rows import Answering, Rows, answer_in_slices
from tidelog.handlers.transactional import find_shard
from tidelog.transactions.records import by_topic
from tidelog.transactions.state import Transaction

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Described = Transaction | KafkaError


def handle(node: Node, request: Request) -> None:
    answer_in_slices(node, request, _answering(node, request))


def _answering(node: Node, request: Request) -> Answering:
    rows = Rows(request, "transaction_states")
    for transactional_id in request.body.transactional_ids:
        found: list[Described] = []
        yield partial(_describe, node, transactional_id, found)
        (described,) = found
        rows.put({"transactional_id": transactional_id, **_shown(described)})
    return {"transaction_states": rows}


def _describe(
    node: Node, transactional_id: str, found: list[Described], then: Callable[[], None]
) -> None:
    def described(result: Described) -> None:
        found.append(result)
        then()

    try:
        find_shard(node, transactional_id).describe(transactional_id, described)
    except KafkaError as error:
        described(error)


def _shown(described: Described) -> Values:
    if isinstance(described, KafkaError):
        return {
            "error_code": described.code,
            "transaction_state": "",
            "transaction_timeout": 0,
            "transaction_start_time": _EPOCH,
            "producer_id": NO_PRODUCER_ID,
            "producer_epoch": NO_PRODUCER_EPOCH,
            "topics": (),
        }
    topics = by_topic(described.partitions)
    return {
        "error_code": ErrorCode.none,
        "transaction_state": described.status.name,
        "transaction_timeout": described.timeout_ms,
        "transaction_start_time": _EPOCH + timedelta(milliseconds=described.started_ms),
        "producer_id": described.producer_id,
        "producer_epoch": described.producer_epoch,
        "topics": [
            {"topic": topic, "partitions": indexes} for topic, indexes in sorted(topics.items())
        ],
    }


API = Api(key=65, first=0, last=0, handle=handle)
