"""Heartbeat, API 12: says that a member is alive, and learns whether it must join again (A5).

While the group is being loaded nothing is known of it, so that counts as well.
"""

from typing import Any

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.requests import Identity
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import respond
from tidelog.handlers.group_requests import find_group


def handle(node: Node, request: Request) -> Any:
    body = request.body
    try:
        shard = find_group(node, body.group_id)
    except KafkaError as error:
        is_loading = error.code is ErrorCode.coordinator_load_in_progress
        return respond(request, {"error_code": ErrorCode.none if is_loading else error.code})
    instance_id = getattr(body, "group_instance_id", None)
    who = Identity(body.group_id, body.member_id, instance_id, body.generation_id)

    def answer(code: ErrorCode) -> None:
        request.answer(respond(request, {"error_code": code}))

    shard.heartbeat(who, answer)
    return None


API = Api(key=12, first=0, last=4, handle=handle)
