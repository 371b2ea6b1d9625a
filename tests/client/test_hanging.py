"""Transactions that hang, as a client looks for them (A4)."""

from collections.abc import Mapping
from typing import Any

import pytest
from typer.testing import CliRunner

from support import scripted_brokers
from support.scripted_brokers import scripted
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TRANSACTION_STATE, TopicPartition
from tidelog.cli.main import app
from tidelog.client.client import Client
from tidelog.client.hanging import Search, find_hanging

DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 61, 65, 66
ONE = TopicPartition("orders", 0)


@pytest.fixture(autouse=True)
def serving(monkeypatch: pytest.MonkeyPatch) -> None:
    for api in (DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS):
        monkeypatch.setitem(scripted_brokers._SERVED_MAX, api, 0)


def topic(name: str, *leaders: int) -> dict[str, Any]:
    partitions = [
        {
            "error_code": ErrorCode.none if leader >= 0 else ErrorCode.leader_not_available,
            "partition_index": index,
            "leader_id": leader,
            "leader_epoch": 0,
            "replica_nodes": [1, 2],
            "isr_nodes": [leader] if leader >= 0 else [],
            "offline_replicas": [],
        }
        for index, leader in enumerate(leaders)
    ]
    named = {"name": name, "topic_id": None, "is_internal": False}
    return {"error_code": ErrorCode.none, **named, "partitions": partitions}


def answer(_broker: int, api: int, _body: Any) -> Mapping[str, Any]:
    """A transaction is open in a partition, and none that is led now knows of it."""
    if api == LIST_TRANSACTIONS:
        return {
            "error_code": ErrorCode.none,
            "unknown_state_filters": [],
            "transaction_states": [],
        }
    producer = {
        "producer_id": 7,
        "producer_epoch": 1,
        "last_sequence": 0,
        "last_timestamp": 1,
        "coordinator_epoch": 0,
        "current_txn_start_offset": 0,
    }
    row = {"error_code": ErrorCode.none, "error_message": None, "partition_index": ONE.partition}
    partitions = [{**row, "active_producers": [producer]}]
    return {"topics": [{"name": ONE.topic, "partitions": partitions}]}


def hanging(*leaders: int) -> dict[TopicPartition, list[int]]:
    """What is found, with leaders of the partitions that coordinators keep their ids in."""
    topics = [topic(ONE.topic, 1), topic(TRANSACTION_STATE, *leaders)]
    search = Search(partitions=[ONE], broker=None, before_ms=2)
    with (
        scripted(answer, topics) as brokers,
        Client(brokers.addresses[1], timeout_ms=5_000) as client,
    ):
        found = find_hanging(client, search)
    return {one: [each.producer_id for each in found[one]] for one in found}


def test_a_transaction_that_no_coordinator_knows_hangs() -> None:
    assert hanging(1, 2) == {ONE: [7]}


def test_nothing_is_said_to_hang_while_a_coordinator_is_missing_that_may_know_of_it() -> None:
    """V14: it may have decided to commit; to abort it in one partition would tear it apart."""
    with pytest.raises(KafkaError, match="nobody leads __transaction_state-1") as told:
        hanging(1, -1)
    assert told.value.code is ErrorCode.coordinator_not_available


def test_who_aborts_one_is_told_that_a_coordinator_is_missing_that_may_know_of_it() -> None:
    """As he is told where one does know of it: it is his decision."""
    topics = [topic(ONE.topic, 1), topic(TRANSACTION_STATE, 1, -1)]
    with scripted(answer, topics) as brokers:
        asked = ["transactions", "abort", "orders:0", "--start-offset", "0", "--bootstrap-server"]
        done = CliRunner().invoke(app, [*asked, brokers.addresses[1]])
    assert done.exit_code == 0, done.output
    assert "it may not hang: nobody leads __transaction_state-1" in done.stderr
