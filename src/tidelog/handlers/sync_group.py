"""SyncGroup, API 14: asks what a member is to do in a generation; the leader says it for all (A5).

It is answered when the leader has said it and that is committed. From version 5 on a member must
name the protocol of its group.
"""

from functools import partial
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.requests import Identity, Sync, Synced
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import respond
from tidelog.handlers.group_requests import find_group

_PROTOCOL_FROM: Final = 5


def handle(node: Node, request: Request) -> Any:
    body = request.body
    if request.version >= _PROTOCOL_FROM and None in (body.protocol_type, body.protocol_name):
        return _response(request, Synced(code=ErrorCode.inconsistent_group_protocol))
    try:
        shard = find_group(node, body.group_id)
    except KafkaError as error:
        return _response(request, Synced(code=error.code))
    sync = Sync(
        who=Identity(
            body.group_id,
            body.member_id,
            getattr(body, "group_instance_id", None),
            body.generation_id,
        ),
        protocol_type=getattr(body, "protocol_type", None),
        protocol=getattr(body, "protocol_name", None),
        assignments={given.member_id: given.assignment for given in body.assignments},
    )
    shard.sync(sync, partial(_answer, request))
    return None


def _answer(request: Request, synced: Synced) -> None:
    request.answer(_response(request, synced))


def _response(request: Request, synced: Synced) -> Any:
    return respond(
        request,
        {
            "error_code": synced.code,
            "protocol_type": synced.protocol_type,
            "protocol_name": synced.protocol,
            "assignment": synced.assignment,
        },
    )


API = Api(key=14, first=0, last=5, handle=handle)
