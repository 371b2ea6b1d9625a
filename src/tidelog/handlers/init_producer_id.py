"""InitProducerId, API 22: gives a producer the id and the epoch under which its batches count.

Without a transactional id every request gets a new id, epoch 0, also one that already has an
id: the client bumps its own epochs, as in Kafka. With one the coordinator of that id shuts out
whoever had it before, and ends what that has left open; a producer that goes on names itself.
"""

from datetime import timedelta
from functools import partial
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import respond
from tidelog.handlers.transactional import code_for, find_shard
from tidelog.transactions.requests import Begin
from tidelog.transactions.state import NO_PRODUCER, Producer

_FENCED_FROM: Final = 4
_MS: Final = timedelta(milliseconds=1)


def handle(node: Node, request: Request) -> Any:
    body = request.body
    if body.transactional_id == "" or not _comes_whole(body):
        return _refused(request, ErrorCode.invalid_request)
    if body.transactional_id is None:
        node.metadata.next_producer_id(partial(_answer_idempotent, request))
        return None
    expected = _named(body)
    asked = Begin(
        transactional_id=body.transactional_id,
        timeout_ms=body.transaction_timeout // _MS,
        expected=None if expected == NO_PRODUCER else expected,
    )
    try:
        find_shard(node, asked.transactional_id).begin(asked, partial(_answer, request))
    except KafkaError as error:
        return _refused(request, error.code)
    return None


def _named(body: Any) -> Producer:
    return Producer(
        getattr(body, "producer_id", NO_PRODUCER_ID),
        getattr(body, "producer_epoch", NO_PRODUCER_EPOCH),
    )


def _comes_whole(body: Any) -> bool:
    """An id and its epoch are given together or not at all."""
    named = _named(body)
    return (named.producer_id == NO_PRODUCER_ID) == (named.epoch == NO_PRODUCER_EPOCH)


def _answer_idempotent(request: Request, result: int | KafkaError) -> None:
    _answer(request, result if isinstance(result, KafkaError) else Producer(result, 0))


def _answer(request: Request, result: Producer | KafkaError) -> None:
    if isinstance(result, KafkaError):
        code = code_for(result.code, request.version, _FENCED_FROM)
        request.answer(_refused(request, code))
        return
    given = {"producer_id": result.producer_id, "producer_epoch": result.epoch}
    request.answer(respond(request, {"error_code": ErrorCode.none, **given}))


def _refused(request: Request, code: ErrorCode) -> Any:
    none = {"producer_id": NO_PRODUCER_ID, "producer_epoch": NO_PRODUCER_EPOCH}
    return respond(request, {"error_code": code, **none})


API = Api(key=22, first=0, last=5, handle=handle)
