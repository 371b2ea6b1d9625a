"""ListGroups, API 16: the groups this broker looks after, or some of them by state or type (A5)."""

from collections.abc import Collection
from typing import Final

from tidelog.base.errors import ErrorCode
from tidelog.groups.errors import told
from tidelog.groups.group import Group
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import Values
from tidelog.handlers.group_requests import all_settled
from tidelog.handlers.rows import Answering, Rows, answer_in_slices

_LOADING: Final[Values] = {"error_code": ErrorCode.coordinator_load_in_progress, "groups": ()}


def handle(node: Node, request: Request) -> None:
    answer_in_slices(node, request, _answering(node, request))


def _answering(node: Node, request: Request) -> Answering:
    coordinator = node.coordinators.groups
    if coordinator.is_loading:
        return _LOADING
    body = request.body
    states = {state.strip().lower() for state in getattr(body, "states_filter", ())}
    types = {kind.strip().lower() for kind in getattr(body, "types_filter", ())}
    groups = Rows(request, "groups")
    shards = coordinator.shards()
    for shard in shards:
        for group in list(shard.groups.values()):
            if _is_wanted(group, states, types):
                groups.put(_listed(group))
            yield None
    error = yield from all_settled(shards)
    if error is not None:
        return {"error_code": told(error), "groups": ()}
    return {"error_code": ErrorCode.none, "groups": groups}


def _is_wanted(group: Group, states: Collection[str], types: Collection[str]) -> bool:
    has_state = not states or group.state_name.lower() in states
    return has_state and (not types or group.kind in types)


def _listed(group: Group) -> Values:
    return {
        "group_id": group.group_id,
        "protocol_type": group.protocol_type or "",
        "group_state": group.state_name,
        "group_type": group.kind,
    }


API = Api(key=16, first=0, last=5, handle=handle)
