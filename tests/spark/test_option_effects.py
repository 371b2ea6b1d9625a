"""What options of source and sink do to whoever is at the other end (P1, P2)."""

import random
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from clients.confluent import consumer
from support.cluster_processes import wait_until
from support.new_topics import NewTopicMaker
from support.scripted_brokers import scripted
from support.servers import Server
from support.topic_rows import by_confluent, read_tasks, source
from tidelog.base.ids import TopicPartition as Place
from tidelog.client.errors import Unreachable
from tidelog.spark.logs import BrokerLogs
from tidelog.spark.offsets import TopicOffsets
from tidelog.spark.options import SourceOptions
from tidelog.spark.sink_options import SinkOptions
from tidelog.spark.stream_planning import StreamPlanner

TIME = 1_700_000_000_000


def logs_of(bootstrap: str, **options: Any) -> tuple[SourceOptions, BrokerLogs]:
    """With `_` for the dots in an option's name."""
    given = {name.replace("_", "."): str(value) for name, value in options.items()}
    parsed = SourceOptions.parse({"kafka.bootstrap.servers": bootstrap, **given}, is_stream=True)
    return parsed, BrokerLogs(parsed.connecting, parsed.subscription)


def test_of_times_out_of_order_the_first_record_that_is_as_late_counts(
    log_server: Server, new_topic: NewTopicMaker
) -> None:
    """As for another reader of the same topic."""
    topic = new_topic(2)
    chosen = random.Random(7)
    producer = Producer({"bootstrap.servers": log_server.address, "batch.num.messages": 3})
    for number in range(60):
        when = TIME + chosen.randrange(100)
        producer.produce(topic, b"v", partition=number % 2, timestamp=when)
        producer.poll(0)
    assert producer.flush(60) == 0
    _, logs = logs_of(log_server.address, subscribe=topic)
    with consumer(log_server.address) as other:
        for when in range(TIME - 1, TIME + 101, 3):
            asked = [TopicPartition(topic, one, when) for one in range(2)]
            found = other.offsets_for_times(asked, timeout=60)
            ours = logs.since({Place(topic, one): when for one in range(2)})
            assert [ours[Place(topic, one.partition)] for one in found] == [
                one.offset if one.offset >= 0 else -1 for one in found
            ]
    logs.close()


def test_a_stream_by_pattern_takes_in_topics_that_are_made_later(
    log_server: Server, new_topic: NewTopicMaker
) -> None:
    """Found anywhere in a name, as Spark's own connector does it; `^` and `$` are for who wants
    whole names."""
    new_topic.again("pattern-1")
    parsed, logs = logs_of(log_server.address, subscribePattern="pattern-[12]")
    clock = iter(range(0, 1 << 30, 60_000))
    query = StreamPlanner(parsed, logs, lambda: next(clock))
    first = query.next(query.initial(), is_limited=False)
    for topic in ("a-pattern-2b", "pattern-3", "pattern-2"):
        new_topic.again(topic)
    producer = Producer({"bootstrap.servers": log_server.address})
    for topic in ("pattern-2", "a-pattern-2b", "pattern-3"):
        producer.produce(topic, b"since it was made")
    assert producer.flush(60) == 0
    second = query.next(first, is_limited=False)
    found = [(one.topic, one.start, one.end) for one in query.tasks(first, second)]
    assert found == [("a-pattern-2b", 0, 1), ("pattern-2", 0, 1)]
    logs.close()


def test_a_topic_that_is_known_and_not_found_is_looked_for_again(
    log_server: Server, new_topic: NewTopicMaker
) -> None:
    """As often as was said, also where the query goes by a pattern."""
    options = {"fetchOffset_numRetries": 1_000, "fetchOffset_retryIntervalMs": 50}
    _, logs = logs_of(log_server.address, subscribePattern="^known-before$", **options)
    assert logs.latest() == {}
    maker = threading.Thread(target=new_topic.again, args=("known-before",))
    maker.start()
    known = {"known-before": TopicOffsets(topic_id=None, offsets={})}
    assert list(logs.latest(known)) == ["known-before"]
    maker.join()
    logs.close()


@pytest.fixture
def silent() -> Iterator[str]:
    """Somebody who takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_brokers_are_waited_for_as_long_as_was_said(silent: str) -> None:
    options = {"kafka_request_timeout_ms": 400, "fetchOffset_numRetries": 0}
    _, logs = logs_of(silent, subscribe="t", **options)
    began = time.monotonic()
    with pytest.raises(Unreachable):
        logs.latest()
    assert 0.3 < time.monotonic() - began < 25
    logs.close()


def test_a_stream_waits_for_enough_records_and_no_longer_than_was_said(
    log_server: Server, new_topic: NewTopicMaker
) -> None:
    """P1: `minOffsetsPerTrigger`, `maxTriggerDelay`."""
    topic = new_topic()
    limits = {"minOffsetsPerTrigger": 5, "maxTriggerDelay": "1s", "startingOffsets": "earliest"}
    made = source(log_server.address, subscribe=topic, includeHeaders="true", **limits)
    reader: Any = made.streamReader(made.schema())
    start, rows = reader.initialOffset(), []
    began = time.monotonic()
    for count in (5, 4):
        produce(log_server, topic, count)
        end = next_end(reader, start)
        rows += read_tasks(reader, reader.partitions(start, end))
        start = end
    assert time.monotonic() - began >= 0.99, "the second batch was too small"
    reader.stop()
    assert rows == by_confluent(log_server.address, topic)
    assert len(rows) == 9


def test_a_stream_from_a_time_after_all_records_begins_with_the_next_one(
    log_server: Server, new_topic: NewTopicMaker
) -> None:
    """P1: `startingOffsetsByTimestampStrategy`."""
    topic = new_topic()
    produce(log_server, topic, 3)
    late = {"startingTimestamp": TIME + 9999, "startingOffsetsByTimestampStrategy": "latest"}
    made = source(log_server.address, subscribe=topic, includeHeaders="true", **late)
    reader: Any = made.streamReader(made.schema())
    start = next_end(reader, reader.initialOffset())
    produce(log_server, topic, 2)
    rows = read_tasks(reader, reader.partitions(start, next_end(reader, start)))
    reader.stop()
    assert rows == by_confluent(log_server.address, topic)[3:]
    assert len(rows) == 2


def next_end(reader: Any, start: Any) -> Any:
    """Of the next batch, for which brokers are asked again and again."""
    limit, ends = reader.getDefaultReadLimit(), [start]

    def is_planned() -> bool:
        ends.append(reader.latestOffset(start, limit))
        return bool(ends[-1] != start)

    wait_until(is_planned, "there is a next batch")
    return ends[-1]


def produce(server: Server, topic: str, count: int) -> None:
    sender = Producer({"bootstrap.servers": server.address})
    for number in range(count):
        sender.produce(topic, b"%d" % number, timestamp=TIME)
    assert sender.flush(60) == 0


def test_source_and_sink_go_by_the_name_they_were_given() -> None:
    with scripted(lambda *_: {}) as brokers:
        address = brokers.addresses[1]
        _, logs = logs_of(address, subscribePattern="t", kafka_client_id="reader")
        assert logs.latest() == {}
        logs.close()
        assert brokers.clients == {"reader"}
        given = {"kafka.bootstrap.servers": address, "kafka.client.id": "writer"}
        with SinkOptions.parse(given, is_stream=False).sending.client() as client:
            client.cluster([])
        assert brokers.clients == {"reader", "writer"}
