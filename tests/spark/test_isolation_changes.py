"""A query that comes back with another isolation level: nothing is lost by that, or read twice."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from support.servers import new_server
from tidelog.client.client import Client
from tidelog.client.sockets import now_ms
from tidelog.client.topics import NewTopic, create_topics
from tidelog.spark.logs import BrokerLogs
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


@pytest.mark.parametrize("is_bounded", [False, True])
def test_a_transaction_that_was_read_into_holds_back_what_follows_and_no_more(
    tmp_path: Path, is_bounded: bool
) -> None:
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
        first = after(server.address, {"start": "earliest"}, "read_uncommitted")
        assert first["to"]["t"]["partitions"] == {"0": 1}
        assert after(server.address, first, "read_committed", is_bounded=is_bounded) == first
        producer.produce("t", b"2")
        producer.commit_transaction()
        second = after(server.address, first, "read_committed", is_bounded=is_bounded)
        assert second["from"]["t"]["partitions"] == {"0": 1}
        assert second["to"]["t"]["partitions"] == {"0": 3}, "with the marker"
    finally:
        server.close()
