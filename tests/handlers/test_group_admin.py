"""DescribeGroups, ListGroups, DeleteGroups and OffsetDelete, in every version (A5)."""

from typing import Any

import pytest

from support.admin_node import AdminNode, versions
from support.group_node import DELETE, DESCRIBE, LIST, OFFSET_DELETE, GroupNode, commit_row
from tidelog.base.errors import ErrorCode

NOT_TOLD = -(1 << 31)


@pytest.fixture(scope="module")
def node() -> GroupNode:
    made = GroupNode()
    made.create("orders", partitions=2)
    return made


def describe(node: AdminNode, version: int, *group_ids: str) -> list[Any]:
    answer = node.ask(DESCRIBE, version, groups=group_ids, include_authorized_operations=False)
    return list(answer.groups)


def listed(node: AdminNode, version: int, **filters: Any) -> dict[str, Any]:
    filters = {"states_filter": (), "types_filter": (), **filters}
    answer = node.ask(LIST, version, **filters)
    assert answer.error_code is ErrorCode.none
    return {group.group_id: group for group in answer.groups}


@pytest.mark.parametrize("version", versions(DESCRIBE))
def test_a_group_is_described_with_its_members(node: GroupNode, version: int) -> None:
    joined = node.member(f"shown-{version}", group_instance_id="one")
    (group,) = describe(node, version, f"shown-{version}")
    assert (group.error_code, group.group_state) == (ErrorCode.none, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.client_id) == (joined.member_id, "test")
    assert member.client_host == "/10.0.0.9"
    assert member.member_assignment == b"work"
    assert member.member_metadata.startswith(b"\0\1")
    if version >= 4:
        assert member.group_instance_id == "one"


@pytest.mark.parametrize("version", versions(DESCRIBE))
def test_a_group_there_is_not_is_dead(node: GroupNode, version: int) -> None:
    (group,) = describe(node, version, "nobody")
    assert (group.group_id, group.group_state, group.members) == ("nobody", "Dead", ())
    if version >= 6:
        assert group.error_code is ErrorCode.group_id_not_found
        assert "nobody" in group.error_message
    else:
        assert group.error_code is ErrorCode.none


@pytest.mark.parametrize("version", [v for v in versions(DESCRIBE) if v >= 3])
def test_who_asks_is_told_what_he_may_do_with_a_group(node: GroupNode, version: int) -> None:
    """Read, delete, describe, and describe and alter its settings, as Apache Kafka tells it."""
    node.member(f"mine-{version}")
    groups = (f"mine-{version}", "nobody")
    mine, nobody = (
        group.authorized_operations
        for group in node.ask(
            DESCRIBE, version, groups=groups, include_authorized_operations=True
        ).groups
    )
    assert mine == 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
    assert nobody == (mine if version < 6 else NOT_TOLD), "from version 6 on that is an error"
    (group,) = describe(node, version, f"mine-{version}")
    assert group.authorized_operations == NOT_TOLD


def test_a_group_between_generations_shows_no_work(node: GroupNode) -> None:
    node.join(9, group_id="between")
    (group,) = describe(node, 5, "between")
    assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
    assert group.members[0].member_metadata == b""


@pytest.mark.parametrize("version", versions(DESCRIBE))
def test_without_a_coordinator_nothing_is_described(version: int) -> None:
    (group,) = describe(AdminNode(), version, "g")
    assert group.error_code is ErrorCode.coordinator_not_available


@pytest.mark.parametrize("version", versions(LIST))
def test_all_groups_are_listed(node: GroupNode, version: int) -> None:
    node.member("with-members")
    node.commit(9, "with-offsets")
    groups = listed(node, version)
    assert groups["with-members"].protocol_type == "consumer"
    assert groups["with-offsets"].protocol_type == ""
    if version >= 4:
        assert groups["with-members"].group_state == "Stable"
        assert groups["with-offsets"].group_state == "Empty"
    if version >= 5:
        assert groups["with-members"].group_type == "classic"


def test_groups_are_listed_by_state_and_type(node: GroupNode) -> None:
    node.member("with-members")
    node.commit(9, "with-offsets")
    stable = listed(node, 5, states_filter=("STABLE", "dead"))
    assert "with-members" in stable
    assert "with-offsets" not in stable
    assert "with-offsets" in listed(node, 4, states_filter=("empty",))
    assert "with-members" in listed(node, 5, types_filter=("Classic",))
    assert listed(node, 5, types_filter=("share",)) == {}
    assert "with-members" not in listed(
        node, 5, types_filter=("classic",), states_filter=("Empty",)
    )


def test_where_there_are_no_groups_none_are_listed() -> None:
    assert listed(AdminNode(), 5) == {}


@pytest.mark.parametrize("version", versions(DELETE))
def test_groups_without_members_are_deleted(node: GroupNode, version: int) -> None:
    node.member("with-members")
    node.commit(9, "doomed")
    answer = node.ask(DELETE, version, groups_names=("doomed", "with-members", "nobody", "doomed"))
    assert [(result.group_id, result.error_code) for result in answer.results] == [
        ("doomed", ErrorCode.none),
        ("with-members", ErrorCode.non_empty_group),
        ("nobody", ErrorCode.group_id_not_found),
    ]
    assert "doomed" not in listed(node, 5)


@pytest.mark.parametrize("setting", ["message_max_bytes", "offsets_topic_segment_bytes"])
def test_a_group_that_is_deleted_leaves_no_offsets_however_small_batches_must_be(
    setting: str,
) -> None:
    """Else whoever has its name next would go on where it was."""
    node = GroupNode(**{setting: "20000"})
    topic = "t" * 240
    node.create("orders")
    node.create(topic, partitions=280)
    for start in range(0, 280, 40):
        rows = [commit_row(index, 5) for index in range(start, start + 40)]
        answer = node.commit(9, topics=[{"name": topic, "partitions": rows}])
        assert {row.error_code for row in answer.topics[0].partitions} == {ErrorCode.none}
    (deleted,) = node.ask(DELETE, 2, groups_names=("g",)).results
    assert deleted.error_code is ErrorCode.none
    assert node.coordinators.groups.find("g").offsets.of_group("g") == {}


def test_without_a_coordinator_nothing_is_deleted() -> None:
    answer = AdminNode().ask(DELETE, 2, groups_names=("g",))
    assert answer.results[0].error_code is ErrorCode.coordinator_not_available


def delete_offsets(node: AdminNode, group_id: str, **topics: list[int]) -> Any:
    named = [
        {"name": name, "partitions": [{"partition_index": index} for index in indexes]}
        for name, indexes in topics.items()
    ]
    return node.ask(OFFSET_DELETE, 0, group_id=group_id, topics=named)


def test_offsets_are_deleted_for_partitions_there_are(node: GroupNode) -> None:
    node.commit(9, "some")
    answer = delete_offsets(node, "some", orders=[0, 7], nothing=[0])
    assert answer.error_code is ErrorCode.none
    unknown = ErrorCode.unknown_topic_or_partition
    assert [row.error_code for topic in answer.topics for row in topic.partitions] == [
        ErrorCode.none,
        unknown,
        unknown,
    ]
    offsets = node.coordinators.groups.find("some").offsets.of_group("some")
    assert list(offsets["orders"]) == [1]


def test_what_is_read_is_not_deleted(node: GroupNode) -> None:
    node.member("reading")
    answer = delete_offsets(node, "reading", orders=[0])
    code = ErrorCode.group_subscribed_to_topic
    assert answer.topics[0].partitions[0].error_code is code


@pytest.mark.parametrize(
    ("group_id", "code"),
    [("nobody", ErrorCode.group_id_not_found), ("", ErrorCode.invalid_group_id)],
)
def test_offsets_of_no_group_cannot_be_deleted(
    node: GroupNode, group_id: str, code: ErrorCode
) -> None:
    answer = delete_offsets(node, group_id, orders=[0])
    assert (answer.error_code, answer.topics) == (code, ())
