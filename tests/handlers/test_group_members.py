"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup, in every version (A5)."""

from typing import Any

import pytest

from support.admin_node import AdminNode, versions
from support.group_node import HEARTBEAT, JOIN, LEAVE, SYNC, GroupNode, join_values
from tidelog.base.errors import ErrorCode


@pytest.fixture(scope="module")
def node() -> GroupNode:
    return GroupNode()


def heartbeat(node: AdminNode, version: int, joined: Any, group_id: str = "g") -> ErrorCode:
    values = {"generation_id": joined.generation_id, "member_id": joined.member_id}
    answer = node.ask(HEARTBEAT, version, group_id=group_id, group_instance_id=None, **values)
    assert isinstance(answer.error_code, ErrorCode)
    return answer.error_code


def leave(node: AdminNode, version: int, group_id: str, *members: tuple[str, str | None]) -> Any:
    named = [{"member_id": m, "group_instance_id": i, "reason": "done"} for m, i in members]
    return node.ask(LEAVE, version, group_id=group_id, member_id=members[0][0], members=named)


@pytest.mark.parametrize("version", versions(JOIN))
def test_one_that_joins_is_the_leader_of_its_group(node: GroupNode, version: int) -> None:
    group_id = f"joined-{version}"
    joined = node.join(version, group_id=group_id)
    assert (joined.error_code, joined.generation_id) == (ErrorCode.none, 1)
    assert joined.protocol_name == "range"
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("test-")
    (member,) = joined.members
    assert member.member_id == joined.member_id
    assert member.metadata == b"\0\1\0\0\0\1\0\6orders\0\0\0\0"
    if version >= 7:
        assert joined.protocol_type == "consumer"


@pytest.mark.parametrize("version", versions(JOIN))
def test_an_id_is_given_first_from_version_4_on(node: GroupNode, version: int) -> None:
    answer = node.ask(JOIN, version, **join_values(group_id=f"first-{version}"))
    is_first = answer.error_code is ErrorCode.member_id_required
    assert is_first == (version >= 4)
    assert answer.member_id


@pytest.mark.parametrize("version", versions(JOIN))
@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"session_timeout": 5999}, ErrorCode.invalid_session_timeout),
        ({"session_timeout": 1_800_001}, ErrorCode.invalid_session_timeout),
        ({"protocols": ()}, ErrorCode.inconsistent_group_protocol),
        ({"member_id": "made-up"}, ErrorCode.unknown_member_id),
    ],
)
def test_a_join_that_cannot_be_is_refused(
    node: GroupNode, version: int, changed: dict[str, Any], code: ErrorCode
) -> None:
    values = {**join_values(group_id=f"refused-{version}"), **changed}
    answer = node.ask(JOIN, version, **values)
    assert (answer.error_code, answer.generation_id, answer.leader) == (code, -1, "")
    assert answer.member_id == values["member_id"]
    assert answer.protocol_name == ("" if version < 7 else None)


@pytest.mark.parametrize("version", versions(SYNC))
def test_a_member_is_told_what_the_leader_said(node: GroupNode, version: int) -> None:
    group_id = f"synced-{version}"
    joined = node.join(5, group_id=group_id)
    work = [{"member_id": joined.member_id, "assignment": b"work"}]
    synced = node.sync(version, joined, assignments=work, group_id=group_id)
    assert (synced.error_code, synced.assignment) == (ErrorCode.none, b"work")
    if version >= 5:
        assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")
    stranger = node.sync(version, joined, member_id="made-up", group_id=group_id)
    assert (stranger.error_code, stranger.assignment) == (ErrorCode.unknown_member_id, b"")
    nameless = node.sync(version, joined, group_id="")
    assert nameless.error_code is ErrorCode.invalid_group_id


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_a_sync_must_name_its_protocol_from_version_5_on(node: GroupNode, missing: str) -> None:
    """Otherwise a leader that leaves it out would decide for the whole group."""
    group_id = f"unnamed-{missing}"
    joined = node.join(5, group_id=group_id)
    refused = node.sync(5, joined, group_id=group_id, **{missing: None})
    assert refused.error_code is ErrorCode.inconsistent_group_protocol
    work = [{"member_id": joined.member_id, "assignment": b"work"}]
    synced = node.sync(5, joined, assignments=work, group_id=group_id)
    assert (synced.error_code, synced.assignment) == (ErrorCode.none, b"work")


@pytest.mark.parametrize("version", versions(HEARTBEAT))
def test_a_heartbeat_of_a_member_is_good(node: GroupNode, version: int) -> None:
    joined = node.member(f"alive-{version}")
    assert heartbeat(node, version, joined, f"alive-{version}") is ErrorCode.none
    assert heartbeat(node, version, joined, "no-such") is ErrorCode.unknown_member_id
    assert heartbeat(node, version, joined, "") is ErrorCode.invalid_group_id


@pytest.mark.parametrize("version", versions(LEAVE))
def test_a_member_leaves(node: GroupNode, version: int) -> None:
    joined = node.member(f"left-{version}")
    answer = leave(node, version, f"left-{version}", (joined.member_id, None))
    assert answer.error_code is ErrorCode.none
    again = leave(node, version, f"left-{version}", (joined.member_id, None))
    if version >= 3:
        assert again.error_code is ErrorCode.none
        (member,) = again.members
        assert (member.member_id, member.group_instance_id) == (joined.member_id, None)
        assert member.error_code is ErrorCode.unknown_member_id
    else:
        assert again.error_code is ErrorCode.unknown_member_id


@pytest.mark.parametrize("version", [v for v in versions(LEAVE) if v >= 3])
def test_static_members_are_sent_away_together(node: GroupNode, version: int) -> None:
    group_id = f"sent-{version}"
    node.member(group_id, group_instance_id="one")
    answer = leave(node, version, group_id, ("", "one"), ("", "two"))
    assert answer.error_code is ErrorCode.none
    assert [(m.group_instance_id, m.error_code) for m in answer.members] == [
        ("one", ErrorCode.none),
        ("two", ErrorCode.unknown_member_id),
    ]
    assert leave(node, version, "", ("", "one")).error_code is ErrorCode.invalid_group_id


def test_without_its_topic_there_is_no_coordinator() -> None:
    node = AdminNode()
    code = ErrorCode.coordinator_not_available
    assert node.ask(JOIN, 9, **join_values()).error_code is code
    values: dict[str, Any] = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    values["group_instance_id"] = None
    assert node.ask(HEARTBEAT, 4, **values).error_code is code
    assert node.ask(SYNC, 4, **values, assignments=()).error_code is code
    assert leave(node, 4, "g", ("m", None)).error_code is code


def test_while_it_is_loaded_a_heartbeat_counts_and_nothing_else_is_known() -> None:
    node = GroupNode()
    joined = node.member()
    index = node.coordinators.groups.index_of("g")
    assert index is not None
    partition = node.partition("__consumer_offsets", index)
    node.coordinators.led_changed(partition)
    assert node.coordinators.groups.is_loading
    values = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id}
    wire = node.begin(HEARTBEAT, 4, "PLAINTEXT", **values, group_instance_id=None)
    assert node.answer(wire, HEARTBEAT, 4).error_code is ErrorCode.none
    node.coordinators.led_changed(partition)
    wire = node.begin(JOIN, 9, "PLAINTEXT", **join_values(joined.member_id))
    refusal = node.answer(wire, JOIN, 9)
    assert refusal.error_code is ErrorCode.coordinator_load_in_progress
    assert node.loop.run_until(lambda: not node.coordinators.groups.is_loading)
    assert heartbeat(node, 4, joined) is ErrorCode.none


def test_two_members_share_a_group() -> None:
    node = GroupNode()
    first = node.member()
    promised = node.ask(JOIN, 9, **join_values())
    waiting = node.begin(JOIN, 9, "PLAINTEXT", **join_values(promised.member_id))
    assert heartbeat(node, 4, first) is ErrorCode.rebalance_in_progress
    again = node.ask(JOIN, 9, **join_values(first.member_id))
    second = node.answer(waiting, JOIN, 9)
    assert (again.generation_id, second.generation_id) == (2, 2)
    assert len(again.members) == 2
    assert second.members == ()
    assert second.leader == first.member_id
    wire = node.begin(
        SYNC,
        5,
        "PLAINTEXT",
        group_id="g",
        generation_id=2,
        member_id=second.member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocol_name="range",
        assignments=(),
    )
    node.loop.run_for(10)
    assert wire.sent == []
    work = [
        {"member_id": first.member_id, "assignment": b"one"},
        {"member_id": second.member_id, "assignment": b"two"},
    ]
    assert node.sync(5, again, assignments=work).assignment == b"one"
    assert node.answer(wire, SYNC, 5).assignment == b"two"


def test_a_broker_that_stops_sends_away_those_who_wait() -> None:
    node = GroupNode()
    node.member()
    promised = node.ask(JOIN, 9, **join_values())
    waiting = node.begin(JOIN, 9, "PLAINTEXT", **join_values(promised.member_id))
    done: list[bool] = []
    node.stop(lambda: done.append(True))
    assert node.loop.run_until(lambda: bool(done))
    assert node.answer(waiting, JOIN, 9).error_code is ErrorCode.not_coordinator
