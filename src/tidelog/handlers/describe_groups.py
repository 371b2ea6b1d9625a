"""DescribeGroups, API 15: the members of classic groups, and what they are to do (A5).

A group there is not, and one of the newer protocol, is dead to this API; from version 6 on that is
an error with a message.
"""

from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.classic_group import ClassicGroup, State
from tidelog.groups.classic_member import ClassicMember
from tidelog.groups.errors import told
from tidelog.groups.shard import GroupShard
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import NO_ERROR, Values, error_fields
from tidelog.handlers.group_requests import all_settled
from tidelog.handlers.rows import Answering, Rows, answer_in_slices

_NOT_FOUND_IS_KNOWN_FROM: Final = 6
_NOTHING: Final[Values] = {
    "group_state": "",
    "protocol_type": "",
    "protocol_data": "",
    "members": (),
}


def handle(node: Node, request: Request) -> None:
    answer_in_slices(node, request, _answering(node, request))


def _answering(node: Node, request: Request) -> Answering:
    groups = Rows(request, "groups")
    shards: dict[int, GroupShard] = {}
    for group_id in request.body.groups:
        try:
            shard = node.coordinators.groups.find(group_id)
            shards[id(shard)] = shard
            group = shard.find_classic(group_id)
        except KafkaError as error:
            groups.put({**_missing(request, error), "group_id": group_id})
        else:
            members = Rows(request, "groups", "members")
            for member in list(group.members.values()):
                members.put(_member(group, member))
                yield None
            groups.put({**_described(group), "members": members})
        yield None
    failure = yield from all_settled(shards.values())
    if failure is not None:
        return {"groups": [_failed(group_id, failure) for group_id in request.body.groups]}
    return {"groups": groups}


def _described(group: ClassicGroup) -> Values:
    is_stable = group.state is State.STABLE
    return {
        **NO_ERROR,
        "group_id": group.group_id,
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


def _failed(group_id: str, failure: KafkaError) -> Values:
    known = KafkaError(told(failure), failure.message)
    return {**error_fields(known), **_NOTHING, "group_id": group_id}


API = Api(key=15, first=0, last=6, handle=handle)
