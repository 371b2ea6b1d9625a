"""JoinGroup, API 11: becomes a member of a group, and waits for its next generation (A5).

It is answered when all members have joined. One that is new is given an id first, from version 4
on, and joins with that.
"""

from datetime import timedelta
from functools import partial
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.requests import Join, Joined
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import respond
from tidelog.handlers.group_requests import find_group

_ID_FIRST_FROM: Final = 4
_NO_PROTOCOL_FROM: Final = 7
_SKIPS_FROM: Final = 9
_MS: Final = timedelta(milliseconds=1)


def handle(node: Node, request: Request) -> Any:
    join = _join(request)
    try:
        shard = find_group(node, join.group_id)
        _check_timeout(node, join.session_timeout_ms)
    except KafkaError as error:
        return _response(request, Joined(code=error.code, member_id=join.member_id))
    shard.join(join, partial(_answer, request))
    return None


def _join(request: Request) -> Join:
    body, version = request.body, request.version
    session_timeout_ms = body.session_timeout // _MS
    has_two = hasattr(body, "rebalance_timeout")
    return Join(
        group_id=body.group_id,
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        client_id=request.client_id or "",
        client_host=request.client_host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=body.rebalance_timeout // _MS if has_two else session_timeout_ms,
        protocol_type=body.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in body.protocols),
        takes_member_id=version >= _ID_FIRST_FROM,
        may_skip_assignment=version >= _SKIPS_FROM,
    )


def _check_timeout(node: Node, timeout_ms: int) -> None:
    least = node.settings.whole("group.min.session.timeout.ms")
    most = node.settings.whole("group.max.session.timeout.ms")
    if not least <= timeout_ms <= most:
        raise KafkaError(
            ErrorCode.invalid_session_timeout, f"{timeout_ms} ms, not from {least} to {most}"
        )


def _answer(request: Request, joined: Joined) -> None:
    request.answer(_response(request, joined))


def _response(request: Request, joined: Joined) -> Any:
    protocol = joined.protocol
    if protocol is None and request.version < _NO_PROTOCOL_FROM:
        protocol = ""
    return respond(
        request,
        {
            "error_code": joined.code,
            "generation_id": joined.generation,
            "protocol_type": joined.protocol_type,
            "protocol_name": protocol,
            "leader": joined.leader,
            "skip_assignment": joined.skip_assignment,
            "member_id": joined.member_id,
            "members": [
                {
                    "member_id": member.member_id,
                    "group_instance_id": member.instance_id,
                    "metadata": member.metadata,
                }
                for member in joined.members
            ],
        },
    )


API = Api(key=11, first=0, last=9, handle=handle)
