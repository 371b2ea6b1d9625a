"""AddOffsetsToTxn, API 25: says that a transaction will commit offsets of a group.

So the partition of `__consumer_offsets` that the group's offsets are kept in is added to it.
"""

from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import CONSUMER_OFFSETS, TopicPartition
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import respond
from tidelog.handlers.transactional import code_for, find_shard
from tidelog.transactions.requests import Add
from tidelog.transactions.state import Producer

_FENCED_FROM: Final = 2


def handle(node: Node, request: Request) -> Any:
    body = request.body

    def answer(error: KafkaError | None) -> None:
        code = ErrorCode.none if error is None else error.code
        told = {"error_code": code_for(code, request.version, _FENCED_FROM)}
        request.answer(respond(request, told))

    index = node.coordinators.groups.index_of(body.group_id)
    if index is None:
        answer(KafkaError(ErrorCode.coordinator_not_available, "there are no groups yet"))
        return
    asked = Add(
        transactional_id=body.transactional_id,
        producer=Producer(body.producer_id, body.producer_epoch),
        partitions=(TopicPartition(CONSUMER_OFFSETS, index),),
    )
    try:
        find_shard(node, body.transactional_id).add_partitions(asked, answer)
    except KafkaError as error:
        answer(error)


API = Api(key=25, first=0, last=4, handle=handle)
