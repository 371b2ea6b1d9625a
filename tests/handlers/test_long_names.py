"""Names as long as a string may be, in whatever groups and transactions are asked.

They are answered with a code that a client knows, and their connection stays. What says what is
wrong names them, and must not become too long for that (A3, A5).
"""

from typing import Any

import pytest

from support.group_node import (
    DELETE,
    DESCRIBE,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN,
    OFFSET_COMMIT,
    GroupNode,
    commit_row,
    join_values,
)
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import CONSUMER_OFFSETS
from tidelog.wire.values import STRING_BYTES_MAX

CONSUMER_HEARTBEAT, CONSUMER_DESCRIBE, LIST_TRANSACTIONS = 68, 69, 66
LONG = "x" * STRING_BYTES_MAX
WIDE = "\N{GRINNING FACE}" * (STRING_BYTES_MAX // 4)


@pytest.fixture(scope="module")
def node() -> GroupNode:
    made = GroupNode()
    made.create("orders", 2)
    return made


def named(letter: str) -> str:
    return letter + LONG[1:]


def beat(node: GroupNode, **values: Any) -> Any:
    given = {
        "group_id": LONG,
        "member_id": LONG,
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 60_000,
        "subscribed_topic_names": ["orders"],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": (),
        **values,
    }
    return node.ask(CONSUMER_HEARTBEAT, 1, **given)


def test_a_group_of_a_long_name_and_its_members_work(node: GroupNode) -> None:
    joined = node.member(named("a"), group_instance_id=named("b"))
    assert len(joined.member_id.encode()) <= STRING_BYTES_MAX
    answer = node.commit(
        9,
        group_id=named("a"),
        generation_id_or_member_epoch=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=named("b"),
    )
    assert {row.error_code for row in answer.topics[0].partitions} == {ErrorCode.none}
    shown = node.ask(DESCRIBE, 6, groups=[named("a")], include_authorized_operations=False)
    assert shown.groups[0].error_code is ErrorCode.none
    assert shown.groups[0].members[0].group_instance_id == named("b")


@pytest.mark.parametrize("name", [LONG, WIDE], ids=["long", "wide"])
def test_an_instance_of_a_long_name_gets_an_id_that_can_be_told(node: GroupNode, name: str) -> None:
    group_id = f"instances-{len(name)}"
    joined = node.join(9, group_id=group_id, group_instance_id=name)
    assert joined.error_code is ErrorCode.none
    assert len(joined.member_id.encode()) <= STRING_BYTES_MAX
    again = node.join(9, group_id=group_id, group_instance_id=name)
    assert again.error_code is ErrorCode.none


def test_long_names_that_are_not_known_are_refused_and_change_nothing(node: GroupNode) -> None:
    ends = [node.partition(CONSUMER_OFFSETS, n).log.log_end_offset for n in range(2)]
    unknown = ErrorCode.unknown_member_id
    whose: dict[str, Any] = {"group_id": named("c"), "member_id": LONG, "group_instance_id": LONG}
    assert node.ask(HEARTBEAT, 4, generation_id=1, **whose).error_code is unknown
    joined = node.ask(JOIN, 9, **join_values(LONG, group_id=named("c")))
    assert (joined.error_code, joined.member_id) == (unknown, LONG)
    rows = [{"name": "orders", "partitions": [commit_row(0, 1)]}]
    asked: dict[str, Any] = {**whose, "generation_id_or_member_epoch": 3, "topics": rows}
    committed = node.ask(OFFSET_COMMIT, 9, **asked).topics[0].partitions[0]
    assert committed.error_code is ErrorCode.group_id_not_found
    missing = ErrorCode.group_id_not_found
    shown = node.ask(DESCRIBE, 6, groups=[named("c")], include_authorized_operations=False)
    assert shown.groups[0].error_code is missing
    shown = node.ask(
        CONSUMER_DESCRIBE, 1, group_ids=[named("c")], include_authorized_operations=False
    )
    assert shown.groups[0].error_code is missing
    assert node.ask(DELETE, 2, groups_names=[named("c")]).results[0].error_code is missing
    asked = {"key_type": 9, "coordinator_keys": [LONG]}
    found = node.ask(FIND_COORDINATOR, 4, **asked).coordinators[0]
    assert found.error_code is ErrorCode.invalid_request
    assert ends == [node.partition(CONSUMER_OFFSETS, n).log.log_end_offset for n in range(2)]


def test_members_of_the_newer_protocol_are_told_in_bounded_sentences(node: GroupNode) -> None:
    group_id = named("d")
    assert beat(node, group_id=group_id, instance_id=LONG).error_code is ErrorCode.none
    refused: dict[ErrorCode, dict[str, Any]] = {
        ErrorCode.fenced_member_epoch: {"member_epoch": 7},
        ErrorCode.unknown_member_id: {"member_epoch": 7, "member_id": named("y")},
        ErrorCode.unsupported_assignor: {"server_assignor": LONG},
        ErrorCode.invalid_regular_expression: {"subscribed_topic_regex": named("(")},
        ErrorCode.unreleased_instance_id: {"instance_id": LONG, "member_id": named("z")},
        ErrorCode.group_id_not_found: {"group_id": named("e"), "member_epoch": 7},
    }
    for code, values in refused.items():
        answer = beat(node, **{"group_id": group_id, **values})
        assert answer.error_code is code
        assert answer.error_message


def test_an_error_says_what_a_string_has_room_for() -> None:
    for name in (LONG, WIDE):
        error = KafkaError(ErrorCode.invalid_request, f"begins {name} {name} ends")
        assert error.message.startswith("begins ")
        assert error.message.endswith(" ends")
        assert len(error.message.encode()) <= STRING_BYTES_MAX
    assert KafkaError(ErrorCode.none, "short").message == "short"
