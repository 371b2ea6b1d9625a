"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, in every version (A5)."""

from typing import Any

import pytest

from support.admin_node import versions
from support.group_node import DELETE, DESCRIBE, LIST, GroupNode
from tidelog.base.errors import ErrorCode

HEARTBEAT, CONSUMER_DESCRIBE = 68, 69


@pytest.fixture(scope="module")
def node() -> GroupNode:
    made = GroupNode()
    made.create("orders", partitions=6)
    return made


def beat(node: GroupNode, version: int, **values: Any) -> Any:
    full = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout": 30_000,
        "subscribed_topic_names": ("orders",),
        "topic_partitions": (),
    }
    return node.ask(HEARTBEAT, version, **{**full, **values})


def describe(node: GroupNode, version: int, *group_ids: str) -> Any:
    asked: dict[str, Any] = {"group_ids": group_ids, "include_authorized_operations": False}
    return node.ask(CONSUMER_DESCRIBE, version, **asked).groups


@pytest.mark.parametrize("version", versions(HEARTBEAT))
def test_a_member_joins_is_told_what_to_read_and_leaves(node: GroupNode, version: int) -> None:
    group_id = f"joined-{version}"
    told = beat(node, version, group_id=group_id)
    assert (told.error_code, told.member_id, told.member_epoch) == (ErrorCode.none, "m", 1)
    assert told.heartbeat_interval.total_seconds() == 5
    (topic,) = told.assignment.topic_partitions
    info = node.metadata.image.topics["orders"]
    assert topic.topic_id.bytes == info.topic_id
    assert topic.partitions == tuple(range(len(info.partitions)))
    short = {"rebalance_timeout": -1, "subscribed_topic_names": None, "topic_partitions": None}
    again = beat(node, version, group_id=group_id, member_epoch=1, **short)
    assert (again.error_code, again.assignment) == (ErrorCode.none, None)
    left = beat(node, version, group_id=group_id, member_epoch=-1, **short)
    assert (left.error_code, left.member_epoch) == (ErrorCode.none, -1)


@pytest.mark.parametrize("version", versions(HEARTBEAT))
def test_what_a_member_says_it_has_is_read_from_all_rows(node: GroupNode, version: int) -> None:
    group_id = f"owned-{version}"
    topic_id = node.metadata.image.topics["orders"].topic_id
    beat(node, version, group_id=group_id)
    beat(node, version, group_id=group_id, member_id="other")
    everything = [{"topic_id": topic_id, "partitions": (p,)} for p in (0, 1, 2, 3, 4, 5)]
    for _ in range(2):
        told = beat(node, version, group_id=group_id, member_epoch=1, topic_partitions=everything)
        assert told.member_epoch == 1, "it has not given up anything"


@pytest.mark.parametrize("version", versions(HEARTBEAT))
@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"group_id": ""}, ErrorCode.invalid_request),
        ({"server_assignor": "best"}, ErrorCode.unsupported_assignor),
        ({"member_epoch": 7}, ErrorCode.group_id_not_found),
    ],
)
def test_a_heartbeat_that_cannot_be_is_refused_with_a_reason(
    node: GroupNode, version: int, wrong: dict[str, Any], code: ErrorCode
) -> None:
    told = beat(node, version, **{"group_id": "refused", **wrong})
    assert (told.error_code, told.member_id, told.assignment) == (code, None, None)
    assert told.error_message


def test_the_first_version_names_members_and_the_second_leaves_that_to_them(
    node: GroupNode,
) -> None:
    assert beat(node, 0, group_id="named", member_id="").member_id
    assert beat(node, 1, group_id="named", member_id="").error_code is ErrorCode.invalid_request


def test_the_broker_finds_the_topics_of_a_regular_expression(node: GroupNode) -> None:
    told = beat(node, 1, group_id="by", subscribed_topic_names=None, subscribed_topic_regex="ord.*")
    assert len(told.assignment.topic_partitions) == 1
    bad = beat(node, 1, group_id="by", subscribed_topic_names=None, subscribed_topic_regex="(")
    assert bad.error_code is ErrorCode.invalid_regular_expression


@pytest.mark.parametrize("version", versions(CONSUMER_DESCRIBE))
def test_a_group_is_described_with_what_its_members_have(node: GroupNode, version: int) -> None:
    group_id = f"described-{version}"
    beat(node, 1, group_id=group_id, instance_id="i", rack_id="r")
    shown, unknown, nameless = describe(node, version, group_id, "nothing", "")
    assert (shown.error_code, shown.group_state, shown.assignor_name) == (
        ErrorCode.none,
        "Stable",
        "uniform",
    )
    assert (shown.group_epoch, shown.assignment_epoch) == (1, 1)
    (member,) = shown.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("m", "i", "r")
    assert (member.member_epoch, member.subscribed_topic_names) == (1, ("orders",))
    assert member.assignment == member.target_assignment
    (topic,) = member.assignment.topic_partitions
    assert topic.topic_name == "orders"
    if version >= 1:
        assert member.member_type == 1
    assert (unknown.error_code, unknown.members) == (ErrorCode.group_id_not_found, ())
    assert (nameless.error_code, nameless.members) == (ErrorCode.invalid_group_id, ())
    asked: dict[str, Any] = {"group_ids": (group_id,), "include_authorized_operations": True}
    (shown,) = node.ask(CONSUMER_DESCRIBE, version, **asked).groups
    assert shown.authorized_operations == 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


@pytest.mark.parametrize("version", versions(CONSUMER_DESCRIBE))
def test_what_a_member_has_not_given_up_yet_is_shown_as_its_own(
    node: GroupNode, version: int
) -> None:
    group_id = f"giving-up-{version}"
    beat(node, 1, group_id=group_id)
    beat(node, 1, group_id=group_id, member_id="other")
    told = beat(node, 1, group_id=group_id, member_epoch=1, topic_partitions=None)
    (kept,) = told.assignment.topic_partitions
    assert len(kept.partitions) == 3
    (group,) = describe(node, version, group_id)
    shown = {member.member_id: member for member in group.members}
    (has,) = shown["m"].assignment.topic_partitions
    (is_to_have,) = shown["m"].target_assignment.topic_partitions
    assert (has.partitions, is_to_have.partitions) == (tuple(range(6)), kept.partitions)
    assert shown["other"].assignment.topic_partitions == ()


def test_groups_of_the_newer_protocol_are_listed_by_type_and_dead_to_the_older_describe(
    node: GroupNode,
) -> None:
    beat(node, 1, group_id="listed")
    listed = node.ask(LIST, 5, states_filter=(), types_filter=("consumer",)).groups
    (found,) = [group for group in listed if group.group_id == "listed"]
    assert (found.group_state, found.group_type, found.protocol_type) == (
        "Stable",
        "consumer",
        "consumer",
    )
    asked: dict[str, Any] = {"groups": ("listed",), "include_authorized_operations": False}
    (dead,) = node.ask(DESCRIBE, 5, **asked).groups
    assert (dead.error_code, dead.group_state) == (ErrorCode.none, "Dead")


def test_a_group_of_the_newer_protocol_is_deleted_when_it_has_no_members(node: GroupNode) -> None:
    beat(node, 1, group_id="deleted")
    (refused,) = node.ask(DELETE, 2, groups_names=("deleted",)).results
    assert refused.error_code is ErrorCode.non_empty_group
    beat(node, 1, group_id="deleted", member_epoch=-1)
    (done,) = node.ask(DELETE, 2, groups_names=("deleted",)).results
    assert done.error_code is ErrorCode.none
    assert describe(node, 1, "deleted")[0].error_code is ErrorCode.group_id_not_found


def test_a_broker_that_is_not_to_serve_the_newer_protocol_says_so() -> None:
    node = GroupNode(group_coordinator_rebalance_protocols="classic")
    told = beat(node, 1)
    assert told.error_code is ErrorCode.unsupported_version
    assert "group.coordinator.rebalance.protocols" in told.error_message
