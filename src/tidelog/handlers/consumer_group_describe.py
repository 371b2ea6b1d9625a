"""ConsumerGroupDescribe, API 69: groups of the newer protocol, what their members have and are to
have (A5)."""

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.assignors import Assignment
from tidelog.groups.consumer_group import NO_TARGET, ConsumerGroup
from tidelog.groups.consumer_member import Member
from tidelog.groups.shard import GroupShard
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import Values, error_fields
from tidelog.handlers.group_requests import Description, describe_groups
from tidelog.handlers.rows import answer_in_slices

_CLASSIC: Final = 0
_CONSUMER: Final = 1
_NOTHING: Final[Values] = {
    "group_state": "",
    "group_epoch": 0,
    "assignment_epoch": 0,
    "assignor_name": "",
    "members": (),
}


def handle(node: Node, request: Request) -> None:
    description = Description(of=partial(_of, node), missing=_missing)
    work = describe_groups(node, request, request.body.group_ids, description)
    answer_in_slices(node, request, work)


def _of(node: Node, shard: GroupShard, group_id: str) -> tuple[Values, Iterable[Values]]:
    if not group_id:
        raise KafkaError(ErrorCode.invalid_group_id, "a group needs a name")
    group = shard.consumer.find(group_id)
    shown = {**_described(group), "assignor_name": shard.consumer.assignor_of(group)}
    members = list(group.members.values())
    targets = group.targets
    return shown, (_member(node, one, targets.get(one.member_id, NO_TARGET)) for one in members)


def _described(group: ConsumerGroup) -> Values:
    return {
        "group_state": group.state_name,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
    }


def _member(node: Node, member: Member, target: Assignment) -> Values:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.topics,
        "subscribed_topic_regex": member.pattern or None,
        "assignment": _assignment(node, member.works_on()),
        "target_assignment": _assignment(node, target),
        "member_type": _CONSUMER if member.classic is None else _CLASSIC,
    }


def _assignment(node: Node, assignment: Assignment) -> dict[str, Any]:
    """Topics that are gone are left out."""
    names = node.metadata.image.topic_names
    rows = [
        {
            "topic_id": topic_id,
            "topic_name": names[topic_id],
            "partitions": assignment[topic_id],
        }
        for topic_id in sorted(assignment)
        if topic_id in names
    ]
    return {"topic_partitions": rows}


def _missing(error: KafkaError) -> Values:
    return {**error_fields(error), **_NOTHING}


API = Api(key=69, first=0, last=1, handle=handle)
