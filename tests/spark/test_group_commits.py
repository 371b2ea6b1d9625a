"""Queries commit to a group how far they are, and batches go on where the last one ended (P3)."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_tidelog import commit_read
from support.servers import Server
from tidelog.base.errors import BadValue
from tidelog.client.client import Client
from tidelog.client.offsets import committed_offsets
from tidelog.spark.options import SourceOptions

SECONDS_MAX = 120


@pytest.fixture
def bootstrap(log_server: Server) -> str:
    return log_server.address


def produce(bootstrap: str, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value.encode(), partition=0)
    assert producer.flush(30) == 0


def committed(bootstrap: str, group: str) -> list[int]:
    with Client(bootstrap) as client:
        return list(committed_offsets(client, group).values())


def run(spark: SparkSession, bootstrap: str, topic: str, group: str, folder: Path) -> None:
    reader = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="2")
    rows = reader.option("kafka.group.id", group).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(folder))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(SECONDS_MAX), "the query comes to its end"
    finally:
        query.stop()


def test_a_query_commits_how_far_it_is_the_last_batch_too_trap_6(
    spark: SparkSession, bootstrap: str, new_topic: Any, tmp_path: Path
) -> None:
    topic = new_topic()
    produce(bootstrap, topic, ["a", "b", "c", "d", "e"])
    run(spark, bootstrap, topic, f"of-{topic}", tmp_path / "checkpoint")
    assert committed(bootstrap, f"of-{topic}") == [5]


def test_a_group_that_others_are_members_of_is_refused(
    spark: SparkSession, bootstrap: str, new_topic: Any, tmp_path: Path
) -> None:
    topic = new_topic()
    produce(bootstrap, topic, ["a"])
    group = f"taken-{topic}"
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        member.subscribe([topic])
        while not member.assignment():
            member.poll(0.1)
        with pytest.raises(PySparkException, match=f"group {group} has members"):
            run(spark, bootstrap, topic, group, tmp_path / "checkpoint")
    finally:
        member.close()


def test_batches_go_on_where_the_group_is(
    spark: SparkSession, bootstrap: str, new_topic: Any
) -> None:
    topic = new_topic()
    group = f"batches-{topic}"

    def take() -> list[bytes]:
        reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
        reader = reader.options(subscribe=topic, startingOffsets="committed")
        rows = reader.option("kafka.group.id", group).load()
        values = [row.value for row in rows.collect()]
        commit_read(rows, bootstrap, group)
        return values

    produce(bootstrap, topic, ["a", "b"])
    assert take() == [b"a", b"b"], "a group that has said nothing is at the beginning"
    produce(bootstrap, topic, ["c"])
    assert take() == [b"c"]
    assert take() == []
    assert committed(bootstrap, group) == [3]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"startingOffsets": "committed"}, "option kafka.group.id is missing"),
        ({"kafka.group.id": " "}, "must be the name of a group"),
        ({"groupIdPrefix": "x"}, "with kafka.group.id"),
    ],
)
def test_a_group_must_be_named_whole(options: dict[str, str], why: str) -> None:
    needed = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
    for is_stream in (True, False):
        with pytest.raises(BadValue, match=why):
            SourceOptions.parse({**needed, **options}, is_stream=is_stream)
