"""ConsumerGroupHeartbeat, API 68: all that a member of the newer group protocol asks (A5).

With it a member joins, says what has changed, gives up partitions and gets others, and leaves.
From version 1 on members make their ids themselves, and may subscribe by regular expression.
"""

from datetime import timedelta
from functools import partial
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.assignors import Assignment
from tidelog.groups.consumer_requests import Beat, Told
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import NO_ERROR, error_fields, id_bytes, respond

_NAMED_FROM: Final = 1
_MS: Final = timedelta(milliseconds=1)


def handle(node: Node, request: Request) -> None:
    answer = partial(_answer, request)
    try:
        if "consumer" not in node.settings.words("group.coordinator.rebalance.protocols"):
            raise KafkaError(
                ErrorCode.unsupported_version,
                "group.coordinator.rebalance.protocols does not name the consumer protocol",
            )
        shard = node.coordinators.groups.find(request.body.group_id)
    except KafkaError as error:
        answer(error)
    else:
        shard.consumer.beat(_beat(request), answer)


def _beat(request: Request) -> Beat:
    body = request.body
    return Beat(
        group_id=body.group_id,
        member_id=body.member_id,
        epoch=body.member_epoch,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        client_id=request.client_id or "",
        client_host=request.client_host,
        rebalance_timeout_ms=body.rebalance_timeout // _MS,
        topics=body.subscribed_topic_names,
        pattern=getattr(body, "subscribed_topic_regex", None),
        assignor=body.server_assignor,
        owned=_owned(body.topic_partitions),
        is_named=request.version >= _NAMED_FROM,
    )


def _owned(topics: Any) -> Assignment | None:
    if topics is None:
        return None
    owned: dict[bytes, tuple[int, ...]] = {}
    for topic in topics:
        if topic.partitions:
            topic_id = id_bytes(topic.topic_id)
            owned[topic_id] = owned.get(topic_id, ()) + topic.partitions
    return owned


def _answer(request: Request, told: Told | KafkaError) -> None:
    if isinstance(told, KafkaError):
        refused = {"member_id": None, "member_epoch": 0, "heartbeat_interval": 0}
        request.answer(respond(request, {**error_fields(told), **refused}))
        return
    assignment = told.assignment
    rows = None if assignment is None else {"topic_partitions": _rows(assignment)}
    values = {
        **NO_ERROR,
        "member_id": told.member_id,
        "member_epoch": told.epoch,
        "heartbeat_interval": told.interval_ms,
        "assignment": rows,
    }
    request.answer(respond(request, values))


def _rows(assignment: Assignment) -> list[dict[str, Any]]:
    return [
        {"topic_id": topic_id, "partitions": assignment[topic_id]}
        for topic_id in sorted(assignment)
    ]


API = Api(key=68, first=0, last=1, handle=handle)
