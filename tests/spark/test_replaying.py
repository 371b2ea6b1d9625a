"""A part of a topic is copied to another one by a Spark job, all of it and as it was (P6)."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from pyspark.sql import SparkSession

from clients.confluent import consumer, read
from support.cluster_processes import wait_until
from support.servers import Server
from support.topic_rows import by_confluent
from tidelog.base.errors import BadValue
from tidelog.cli.replay import run
from tidelog.client.client import Client
from tidelog.client.places import find_ranges, parse_place
from tidelog.spark.replaying import Replay, run_replay

TIME_MS = 1_700_000_000_000
MANY = 120_000


def planned(
    bootstrap: str, topic: str, into: str, where: tuple[str, str], *, keeps_partitions: bool = False
) -> Replay:
    places = parse_place("--from", where[0]), parse_place("--to", where[1])
    with Client(bootstrap) as client:
        found = find_ranges(client, client.cluster([topic]).topic(topic), *places)
        return Replay(
            bootstrap=bootstrap,
            ranges=tuple(one for one in found if one.start < one.end),
            into=into,
            keeps_partitions=keeps_partitions,
        )


def contents(message: Any) -> tuple[Any, ...]:
    return message.key(), message.value(), message.headers(), message.timestamp()


def test_records_are_copied_as_they_were_to_the_same_partitions(
    spark: SparkSession, log_server: Server, new_topic: Any
) -> None:
    bootstrap = log_server.address
    topic, copy = new_topic(3), new_topic(4, max_message_bytes=3_000_000)
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 3_000_000})
    for number in range(300):
        producer.produce(
            topic,
            key=None if number % 7 == 0 else b"%d" % number,
            value=None if number % 5 == 0 else b"value %d" % number,
            headers=[("n", b"%d" % number), ("none", None)] if number % 3 else None,
            partition=number % 2,
            timestamp=TIME_MS + number * 1000,
        )
    assert producer.flush(60) == 0
    where = ("0:10,1:20", "0:140,1:150")
    assert run_replay(spark, planned(bootstrap, topic, copy, where, keeps_partitions=True)) == 260
    wanted = read(bootstrap, topic, 300, partitions=3)
    copied = read(bootstrap, copy, 260, partitions=4)
    for partition, first, last in ((0, 10, 140), (1, 20, 150)):
        before = [contents(one) for one in wanted if one.partition() == partition]
        after = [contents(one) for one in copied if one.partition() == partition]
        assert after == before[first:last], "in their order"


def test_a_time_span_is_copied_to_where_keys_belong(
    spark: SparkSession, log_server: Server, new_topic: Any
) -> None:
    bootstrap = log_server.address
    topic, copy = new_topic(1), new_topic(2)
    # A batch of a mebibyte would be refused by this one.
    small = new_topic(1, max_message_bytes=5_000)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(100):
        producer.produce(topic, b"x" * 200, b"%d" % number, timestamp=TIME_MS + number)
    assert producer.flush(60) == 0
    where = (f"{TIME_MS + 25}ms", f"{TIME_MS + 75}ms")
    for into, partitions in ((copy, 2), (small, 1)):
        assert run_replay(spark, planned(bootstrap, topic, into, where)) == 50
        copied = read(bootstrap, into, 50, partitions=partitions)
        assert {int(one.key()) for one in copied} == set(range(25, 75))
        assert {one.partition() for one in copied} == set(range(partitions))


def test_what_was_aborted_is_not_copied(
    spark: SparkSession, log_server: Server, new_topic: Any
) -> None:
    bootstrap = log_server.address
    topic, copy = new_topic(1), new_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for value, end in (
        (b"bad", producer.abort_transaction),
        (b"good", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce(topic, value)
        assert producer.flush(60) == 0
        end(30)
    assert run_replay(spark, planned(bootstrap, topic, copy, ("earliest", "latest"))) == 1
    assert [row.value for row in by_confluent(bootstrap, copy)] == [b"good"]


def test_a_replay_that_fails_says_why_in_a_line(
    spark: SparkSession, log_server: Server, new_topic: Any
) -> None:
    bootstrap = log_server.address
    topic, small = new_topic(1), new_topic(1, max_message_bytes=1_000)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"x" * 5_000)
    assert producer.flush(60) == 0
    with pytest.raises(BadValue, match=f"^replay to {small}: .*MESSAGE_TOO_LARGE.*{small}-0") as no:
        run(spark, planned(bootstrap, topic, small, ("earliest", "latest")))
    assert "\n" not in str(no.value)


@pytest.mark.usefixtures("only_long")
def test_an_interrupted_replay_says_so_and_the_next_one_copies_all(
    spark: SparkSession, log_server: Server, new_topic: Any
) -> None:
    """At least once: what the first one has written stays."""
    bootstrap = log_server.address
    topic, copy = new_topic(4), new_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for number in range(MANY):
        producer.produce(topic, b"v" * 200, b"%d" % number, partition=number % 4)
        producer.poll(0)
    assert producer.flush(60) == 0
    replaying = ("replay", topic, "--from", "earliest", "--into", copy, "--execute")
    tidelog = str(Path(sys.executable).with_name("tidelog"))
    with subprocess.Popen(
        [tidelog, *replaying, "-b", bootstrap], stderr=subprocess.PIPE, text=True
    ) as command:
        wait_until(lambda: end_of(bootstrap, copy) > 0, "some are copied", 60)
        command.send_signal(signal.SIGINT)
        _, said = command.communicate(timeout=60)
    assert said == f"tidelog: interrupted: some records may have been written to {copy}\n"
    assert command.returncode == 130
    assert 0 < end_of(bootstrap, copy) < MANY
    assert run(spark, planned(bootstrap, topic, copy, ("earliest", "latest"))) == MANY
    assert {int(row.key or b"") for row in by_confluent(bootstrap, copy)} == set(range(MANY))


def end_of(bootstrap: str, topic: str) -> int:
    with consumer(bootstrap) as reader:
        return int(reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1])
