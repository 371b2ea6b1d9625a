"""How far moves are where a broker does not say how much it has (T3)."""

import threading
from typing import Any

import pytest

from support import scripted_brokers
from support.scripted_brokers import scripted
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicPartition
from tidelog.cli.reassign_view import look
from tidelog.client import apis
from tidelog.client.client import Client


def test_a_move_is_looked_at_though_a_broker_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is frozen, say, and its session ends after a while: `verify --wait` waits on."""
    is_over = threading.Event()

    def answer(broker: int, api: int, _body: Any) -> dict[str, Any]:
        if api == apis.LIST_REASSIGNMENTS.key:
            row = {"partition_index": 0, "replicas": [1, 2], "adding_replicas": [2]}
            topics = [{"name": "orders", "partitions": [{**row, "removing_replicas": []}]}]
            return {"error_code": ErrorCode.none, "error_message": None, "topics": topics}
        if broker == 2:
            is_over.wait()
        sized = {"partition_index": 0, "partition_size": 300, "offset_lag": 0}
        held = [{"name": "orders", "partitions": [{**sized, "is_future_key": False}]}]
        return {"results": [{"error_code": ErrorCode.none, "log_dir": "/data", "topics": held}]}

    for api, version in ((apis.LIST_REASSIGNMENTS, 0), (apis.DESCRIBE_LOG_DIRS, 1)):
        monkeypatch.setitem(scripted_brokers._SERVED_MAX, api.key, version)
    partition: dict[str, Any] = {"partition_index": 0, "leader_id": 1, "error_code": ErrorCode.none}
    partition |= {"replica_nodes": [1, 2], "isr_nodes": [1]}
    topic = {"name": "orders", "partitions": [partition], "error_code": ErrorCode.none}
    with (
        scripted(answer, [topic]) as brokers,
        Client(brokers.addresses[1], timeout_ms=2_000) as client,
    ):
        try:
            (found,) = look(client, [TopicPartition("orders", 0)], {})
        finally:
            is_over.set()
    assert (found.status, found.copied) == ("moving", "?")
