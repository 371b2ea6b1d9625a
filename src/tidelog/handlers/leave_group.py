"""LeaveGroup, API 13: takes members out of a group, from version 3 on several, and static ones by
their instance id alone (A5)."""

from functools import partial
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.requests import Leaving
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import respond
from tidelog.handlers.group_requests import find_group

_SEVERAL_FROM: Final = 3


def handle(node: Node, request: Request) -> Any:
    body = request.body
    if request.version < _SEVERAL_FROM:
        leaving = [Leaving(body.member_id)]
    else:
        leaving = [Leaving(member.member_id, member.group_instance_id) for member in body.members]
    try:
        shard = find_group(node, body.group_id)
    except KafkaError as error:
        return respond(request, {"error_code": error.code, "members": ()})
    shard.leave(body.group_id, leaving, partial(_answer, request, leaving))
    return None


def _answer(request: Request, leaving: list[Leaving], codes: list[ErrorCode]) -> None:
    """Older versions have one member, and one place for what became of it."""
    code = codes[0] if request.version < _SEVERAL_FROM else ErrorCode.none
    members = [
        {"member_id": one.member_id, "group_instance_id": one.instance_id, "error_code": code}
        for one, code in zip(leaving, codes, strict=True)
    ]
    request.answer(respond(request, {"error_code": code, "members": members}))


API = Api(key=13, first=0, last=5, handle=handle)
