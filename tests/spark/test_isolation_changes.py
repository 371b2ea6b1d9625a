"""A query that comes back with another isolation level: nothing is lost by that, or read twice."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from support.servers import new_server
from tidelog.base.ids import TopicPartition
from tidelog.client.client import Client
from tidelog.client.offsets import commit_offsets
from tidelog.client.sockets import now_ms
from tidelog.client.topics import NewTopic, create_topics
from tidelog.spark.batch_planning import batch_tasks
from tidelog.spark.logs import BrokerLogs
from tidelog.spark.losses import DataLoss
from tidelog.spark.options import SourceOptions
from tidelog.spark.stream_planning import StreamPlanner

Json = dict[str, Any]


def after(address: str, start: Json, level: str, *, is_bounded: bool = False) -> Json:
    """The end of the next batch."""
    given = {
        "kafka.bootstrap.servers": address,
        "subscribe": "t",
        "startingOffsets": "earliest",
        "kafka.isolation.level": level,
        "fetchOffset.retryIntervalMs": "10",
    }
    options = SourceOptions.parse(given, is_stream=True)
    logs = BrokerLogs(options.connecting, options.subscription)
    try:
        planner = StreamPlanner(options, logs, now_ms)
        if is_bounded:
            planner.stop_at_what_is_there()
        return planner.next(start, is_limited=False)
    finally:
        logs.close()


@contextmanager
def open_transaction(tmp_path: Path) -> Iterator[tuple[str, Producer]]:
    """A topic `t` with one record, whose transaction goes on."""
    server = new_server(tmp_path, {"transaction.state.log.num.partitions": "1"})
    try:
        server.start()
        with Client(server.address) as client:
            assert not any(create_topics(client, [NewTopic(name="t", partition_count=1)]).values())
        settings = {"bootstrap.servers": server.address, "transactional.id": "x", "log_level": 0}
        producer = Producer(settings)
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("t", b"1")
        assert producer.flush(30) == 0
        yield server.address, producer
    finally:
        server.close()


def planned(address: str, **places: str) -> list[tuple[int, int]]:
    """What a batch reads of committed records."""
    given = {
        "kafka.bootstrap.servers": address,
        "subscribe": "t",
        "kafka.group.id": "g",
        "kafka.isolation.level": "read_committed",
        "fetchOffset.retryIntervalMs": "10",
        **places,
    }
    tasks = batch_tasks(SourceOptions.parse(given, is_stream=False))
    return [(task.start, task.end) for task in tasks]


@pytest.mark.parametrize("start", ["committed", '{"t":{"0":1}}'])
def test_a_batch_may_begin_in_a_transaction_that_was_read_into(tmp_path: Path, start: str) -> None:
    with open_transaction(tmp_path) as (address, producer):
        with Client(address) as client:
            commit_offsets(client, "g", {TopicPartition("t", 0): 1})
        assert planned(address, startingOffsets=start) == []
        producer.produce("t", b"2")
        producer.commit_transaction()
        assert planned(address, startingOffsets=start) == [(1, 3)]
        with pytest.raises(DataLoss, match=r"t-0: offset 4 of .* is not there, only 0 to 3"):
            planned(address, startingOffsets='{"t":{"0":4}}')


@pytest.mark.parametrize("is_bounded", [False, True])
def test_a_transaction_that_was_read_into_holds_back_what_follows_and_no_more(
    tmp_path: Path, is_bounded: bool
) -> None:
    with open_transaction(tmp_path) as (address, producer):
        first = after(address, {"start": "earliest"}, "read_uncommitted")
        assert first["to"]["t"]["partitions"] == {"0": 1}
        assert after(address, first, "read_committed", is_bounded=is_bounded) == first
        producer.produce("t", b"2")
        producer.commit_transaction()
        second = after(address, first, "read_committed", is_bounded=is_bounded)
        assert second["from"]["t"]["partitions"] == {"0": 1}
        assert second["to"]["t"]["partitions"] == {"0": 3}, "with the marker"
