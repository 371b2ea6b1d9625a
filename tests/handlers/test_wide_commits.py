"""Offsets of very many partitions at once, kept in parts: all of them, and nothing beyond the
transaction they belong to (A4, X30)."""

from typing import Any

import pytest

from support.group_node import FIND_COORDINATOR, OFFSET_FETCH, GroupNode, commit_row
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import CONSUMER_OFFSETS
from tidelog.partition import Partition

INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 22, 24, 25, 26, 28
MANY = 1100
NONE = {ErrorCode.none}


class Producer:
    def __init__(self, node: GroupNode, name: str) -> None:
        values: dict[str, Any] = {"transactional_id": name, "transaction_timeout": 60_000}
        begun = node.ask(INIT_PRODUCER_ID, 4, producer_id=-1, producer_epoch=-1, **values)
        assert begun.error_code is ErrorCode.none
        self.fields: dict[str, Any] = {
            "transactional_id": name,
            "producer_id": begun.producer_id,
            "producer_epoch": begun.producer_epoch,
        }


@pytest.fixture(scope="module")
def node() -> GroupNode:
    made = GroupNode(transaction_state_log_num_partitions="1")
    made.create("orders", MANY)
    made.ask(FIND_COORDINATOR, 4, key_type=1, coordinator_keys=["t"])
    assert made.loop.run_until(lambda: not made.coordinators.transactions.is_loading)
    return made


def commit_values(producer: Producer, group_id: str) -> dict[str, Any]:
    rows = [commit_row(index, index + 7) for index in range(MANY)]
    return {
        **producer.fields,
        "group_id": group_id,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": "orders", "partitions": rows}],
    }


def offsets_of(node: GroupNode, group_id: str) -> dict[int, int]:
    groups = [{"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": None}]
    (group,) = node.ask(OFFSET_FETCH, 9, groups=groups, require_stable=False).groups
    return {
        row.partition_index: row.committed_offset
        for topic in group.topics
        for row in topic.partitions
    }


def end(node: GroupNode, producer: Producer, *, commit: bool) -> ErrorCode:
    answer = node.ask(END_TXN, 3, committed=commit, **producer.fields)
    node.loop.run_for(1000)
    assert isinstance(answer.error_code, ErrorCode)
    return answer.error_code


def journal_of(node: GroupNode, group_id: str) -> Partition:
    index = node.coordinators.groups.index_of(group_id)
    assert index is not None
    return node.partition(CONSUMER_OFFSETS, index)


def test_all_offsets_of_a_transaction_count_when_it_is_committed(node: GroupNode) -> None:
    producer = Producer(node, "whole")
    added = node.ask(ADD_OFFSETS, 3, group_id="whole", **producer.fields)
    assert added.error_code is ErrorCode.none
    answer = node.ask(TXN_OFFSET_COMMIT, 3, **commit_values(producer, "whole"))
    assert {row.error_code for row in answer.topics[0].partitions} == NONE
    assert [row.partition_index for row in answer.topics[0].partitions] == list(range(MANY))
    assert offsets_of(node, "whole") == {}
    assert end(node, producer, commit=True) is ErrorCode.none
    assert offsets_of(node, "whole") == {index: index + 7 for index in range(MANY)}


@pytest.mark.parametrize("version", [3, 5])
def test_what_comes_when_the_transaction_has_ended_does_not_begin_another(
    node: GroupNode, version: int
) -> None:
    """Whenever it ends while its offsets are being kept, nothing stays open (X30)."""
    for turns in range(0, 90, 3):
        name = f"cut-{version}-{turns}"
        producer = Producer(node, name)
        if version == 3:
            node.ask(ADD_OFFSETS, 3, group_id=name, **producer.fields)
        wide = node.begin(TXN_OFFSET_COMMIT, version, "PLAINTEXT", **commit_values(producer, name))
        assert not wide.sent, "it takes several slices"
        for _ in range(turns):
            node.loop.turn()
        node.ask(END_TXN, version, committed=False, **producer.fields)
        node.answer(wide, TXN_OFFSET_COMMIT, version)
        node.loop.run_for(1000)
        journal = journal_of(node, name)
        assert journal.last_stable_offset == journal.high_watermark, f"after {turns} turns"
        assert offsets_of(node, name) == {}


def test_a_transaction_takes_very_many_partitions(node: GroupNode) -> None:
    producer = Producer(node, "added")
    fields = {f"v3_and_below_{name}": value for name, value in producer.fields.items()}
    topics = [{"name": "orders", "partitions": list(range(MANY))}]
    wide = node.begin(ADD_PARTITIONS, 3, "PLAINTEXT", **fields, v3_and_below_topics=topics)
    assert not wide.sent, "it takes several slices"
    answer = node.answer(wide, ADD_PARTITIONS, 3)
    rows = answer.results_by_topic_v3_and_below[0].results_by_partition
    assert {row.partition_error_code for row in rows} == NONE
    assert [row.partition_index for row in rows] == list(range(MANY))
    shown = node.ask(65, 0, transactional_ids=["added"]).transaction_states[0]
    assert sorted(shown.topics[0].partitions) == list(range(MANY))
