"""DescribeGroups, API 15: the members of classic groups, and what they are to do (A5).

A group there is not, and one of the newer protocol, is dead to this API; from version 6 on that is
an error with a message.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.classic_group import ClassicGroup, State
from tidelog.groups.classic_member import ClassicMember
from tidelog.groups.shard import GroupShard
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import NO_ERROR, Values, error_fields
from tidelog.handlers.group_requests import Description, describe_groups
from tidelog.handlers.rows import answer_in_slices

_NOT_FOUND_IS_KNOWN_FROM: Final = 6
_NOTHING: Final[Values] = {
    "group_state": "",
    "protocol_type": "",
    "protocol_data": "",
    "members": (),
}


def handle(node: Node, request: Request) -> None:
    description = Description(of=_of, missing=partial(_missing, request))
    work = describe_groups(node, request, request.body.groups, description)
    answer_in_slices(node, request, work)


def _of(shard: GroupShard, group_id: str) -> tuple[Values, Iterable[Values]]:
    group = shard.find_classic(group_id)
    return _described(group), (_member(group, member) for member in list(group.members.values()))


def _described(group: ClassicGroup) -> Values:
    is_stable = group.state is State.STABLE
    return {
        "group_state": group.state_name,
        "protocol_type": group.protocol_type or "",
        "protocol_data": (group.protocol or "") if is_stable else "",
    }


def _member(group: ClassicGroup, member: ClassicMember) -> Values:
    is_stable = group.state is State.STABLE
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.metadata(group.protocol or "") if is_stable else b"",
        "member_assignment": member.assignment,
    }


def _missing(request: Request, error: KafkaError) -> Values:
    is_dead = error.code is ErrorCode.group_id_not_found
    if is_dead and request.version < _NOT_FOUND_IS_KNOWN_FROM:
        return {**NO_ERROR, **_NOTHING, "group_state": State.DEAD.value}
    state = State.DEAD.value if is_dead else ""
    return {**error_fields(error), **_NOTHING, "group_state": state}


API = Api(key=15, first=0, last=6, handle=handle)
