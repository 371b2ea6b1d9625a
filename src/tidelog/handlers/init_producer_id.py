"""InitProducerId, API 22: gives an idempotent producer the id under which its batches count.

Without a transactional id every request gets a new id, epoch 0, also one that already has an
id: the client bumps its own epochs, as in Kafka. Transactions are refused with the one error at
which every client stops at once: anything that sounds like «not now» is tried again for ever.
"""

from functools import partial
from typing import Any

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import respond


def handle(node: Node, request: Request) -> Any:
    body = request.body
    if body.transactional_id == "" or not _comes_whole(body):
        return _refused(request, ErrorCode.invalid_request)
    if body.transactional_id is not None:
        return _refused(request, ErrorCode.transactional_id_authorization_failed)
    node.metadata.next_producer_id(partial(_answer, request))
    return None


def _comes_whole(body: Any) -> bool:
    """An id and its epoch are given together or not at all."""
    has_id = getattr(body, "producer_id", NO_PRODUCER_ID) != NO_PRODUCER_ID
    has_epoch = getattr(body, "producer_epoch", NO_PRODUCER_EPOCH) != NO_PRODUCER_EPOCH
    return has_id == has_epoch


def _answer(request: Request, result: int | KafkaError) -> None:
    if isinstance(result, KafkaError):
        request.answer(_refused(request, result.code))
    else:
        given = {"error_code": ErrorCode.none, "producer_id": result, "producer_epoch": 0}
        request.answer(respond(request, given))


def _refused(request: Request, code: ErrorCode) -> Any:
    none = {"producer_id": NO_PRODUCER_ID, "producer_epoch": NO_PRODUCER_EPOCH}
    return respond(request, {"error_code": code, **none})


API = Api(key=22, first=0, last=5, handle=handle)
