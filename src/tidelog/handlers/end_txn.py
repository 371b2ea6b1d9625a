"""EndTxn, API 26: commits or aborts a transaction, for whoever knows its id, producer and epoch.

It is answered when the outcome cannot change any more; a request that comes again is answered the
same way. From version 5 on the producer goes on in a higher epoch, of which the answer tells.
"""

from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import respond
from tidelog.handlers.transactional import code_for, find_shard
from tidelog.transactions.requests import End
from tidelog.transactions.state import EPOCH_RAISED_FROM, NO_PRODUCER, Producer

_FENCED_FROM: Final = 2
_RAISING_FROM: Final = 5


def handle(node: Node, request: Request) -> None:
    body = request.body

    def answer(result: Producer | KafkaError) -> None:
        code, producer = ErrorCode.none, NO_PRODUCER
        if isinstance(result, KafkaError):
            code = code_for(result.code, request.version, _FENCED_FROM)
        else:
            producer = result
        told = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
        request.answer(respond(request, {"error_code": code, **told}))

    asked = End(
        transactional_id=body.transactional_id,
        producer=Producer(body.producer_id, body.producer_epoch),
        is_commit=body.committed,
        client_version=EPOCH_RAISED_FROM if request.version >= _RAISING_FROM else 0,
    )
    try:
        find_shard(node, body.transactional_id).end(asked, answer)
    except KafkaError as error:
        answer(error)


API = Api(key=26, first=0, last=5, handle=handle)
