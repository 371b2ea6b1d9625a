"""ConsumerGroupDescribe, API 69: groups of the newer protocol, what their members have and are to
have (A5)."""

from typing import Any, Final

from tidelog.base.errors import KafkaError
from tidelog.groups.assignors import Assignment
from tidelog.groups.consumer_group import NO_TARGET, ConsumerGroup
from tidelog.groups.consumer_member import Member, partitions_of
from tidelog.groups.errors import told
from tidelog.groups.shard import GroupShard
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import NO_ERROR, Values, error_fields
from tidelog.handlers.group_requests import all_settled
from tidelog.handlers.rows import Answering, Rows, answer_in_slices

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
    answer_in_slices(node, request, _answering(node, request))


def _answering(node: Node, request: Request) -> Answering:
    groups = Rows(request, "groups")
    shards: dict[int, GroupShard] = {}
    for group_id in request.body.group_ids:
        try:
            shard = node.coordinators.groups.find(group_id)
            shards[id(shard)] = shard
            group = shard.consumer.find(group_id)
        except KafkaError as error:
            groups.put({**error_fields(error), **_NOTHING, "group_id": group_id})
        else:
            shown = {**_described(group), "assignor_name": shard.consumer.assignor_of(group)}
            members = Rows(request, "groups", "members")
            for member in list(group.members.values()):
                members.put(_member(node, member, group.targets.get(member.member_id, NO_TARGET)))
                yield None
            groups.put({**shown, "members": members})
        yield None
    failure = yield from all_settled(shards.values())
    if failure is not None:
        return {"groups": [_failed(group_id, failure) for group_id in request.body.group_ids]}
    return {"groups": groups}


def _described(group: ConsumerGroup) -> Values:
    return {
        **NO_ERROR,
        "group_id": group.group_id,
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
        "assignment": _assignment(node, partitions_of(member.held)),
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


def _failed(group_id: str, failure: KafkaError) -> Values:
    known = KafkaError(told(failure), failure.message)
    return {**error_fields(known), **_NOTHING, "group_id": group_id}


API = Api(key=69, first=0, last=1, handle=handle)
