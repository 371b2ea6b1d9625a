"""Queries commit to a group how far they are, and batches go on where the last one ended (P3)."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_tidelog import commit_read
from support.scripted_brokers import scripted
from support.servers import Server
from tidelog.base.errors import BadValue, ErrorCode
from tidelog.client.client import Client
from tidelog.client.offsets import commit_offsets, committed_offsets
from tidelog.client.sockets import now_ms
from tidelog.spark.group_commits import PATIENCE_MS, PAUSE_MS, GroupCommits
from tidelog.spark.offsets import Planned, TopicOffsets
from tidelog.spark.options import SourceOptions
from tidelog.spark.stream_reader import TidelogStreamReader

SECONDS_MAX = 120
FIND_COORDINATOR: Final = 10
OFFSET_COMMIT: Final = 8


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


class AwayCoordinator:
    """Of all groups. Until it is back nobody knows who it is."""

    def __init__(self) -> None:
        self.is_back = False
        self.committed: list[int] = []

    def __call__(self, _: int, api: int, body: Any) -> Mapping[str, Any]:
        if api == FIND_COORDINATOR:
            code = ErrorCode.none if self.is_back else ErrorCode.coordinator_not_available
            found = {"node_id": 1, "host": "", "port": 0, "error_code": code, "error_message": None}
            return {"coordinators": [{"key": key, **found} for key in body.coordinator_keys]}
        assert api == OFFSET_COMMIT
        (topic,) = body.topics
        (one,) = topic.partitions
        self.committed.append(one.committed_offset)
        done = {"partition_index": one.partition_index, "error_code": ErrorCode.none}
        return {"topics": [{"name": topic.name, "partitions": [done]}]}


def parsed(address: str) -> SourceOptions:
    options = {"kafka.bootstrap.servers": address, "subscribe": "t", "kafka.group.id": "g"}
    return SourceOptions.parse(options, is_stream=True)


def reached(offset: int) -> dict[str, Any]:
    positions = {"t": TopicOffsets(topic_id=None, offsets={0: offset})}
    return Planned(start=positions, end=positions).to_json()


def ask_once(coordinator: AwayCoordinator, address: str) -> None:
    """What this process asks for the first time may take longer than a commit has."""
    coordinator.is_back = True
    with Client(address) as client:
        commit_offsets(client, "g", {("t", 0): 0})
    coordinator.is_back = False
    coordinator.committed.clear()


def test_a_coordinator_that_is_away_is_not_asked_for_again_and_again() -> None:
    """P3: neither by each batch nor by a query that is idle; once it is back the group goes on."""
    at_ms = 0
    coordinator = AwayCoordinator()
    with scripted(coordinator) as brokers:
        ask_once(coordinator, brokers.addresses[1])
        before = len(brokers.asked)
        commits = GroupCommits(parsed(brokers.addresses[1]), lambda: at_ms, is_patient=False)
        commits.reached(reached(1))
        tried = len(brokers.asked)
        assert tried > before
        coordinator.is_back = True
        for offset in (1, 1, 2, 3):
            at_ms = PAUSE_MS - 1
            commits.reached(reached(offset))
        assert len(brokers.asked) == tried
        at_ms = PAUSE_MS
        for offset in (3, 4):
            commits.reached(reached(offset))
        assert coordinator.committed == [3, 4]
        commits.close()


def test_a_query_that_ends_with_what_is_there_commits_its_last_batch_whatever_failed_before() -> (
    None
):
    """P3: nobody does it later."""
    coordinator = AwayCoordinator()
    with scripted(coordinator) as brokers:
        options = parsed(brokers.addresses[1])
        hasty = replace(options, connecting=replace(options.connecting, timeout_ms=PATIENCE_MS))
        commits = GroupCommits(hasty, lambda: 0, is_patient=True)
        commits.reached(reached(1))
        coordinator.is_back = True
        commits.reached(reached(2))
        assert coordinator.committed == [2]
        commits.close()


def test_no_batch_waits_long_for_a_coordinator_that_is_away() -> None:
    """P3: a query goes by its checkpoint, and not by the group."""
    with scripted(AwayCoordinator()) as brokers:
        reader = TidelogStreamReader(parsed(brokers.addresses[1]))
        began_ms = now_ms()
        reader.commit(reached(1))
        assert now_ms() - began_ms < 10 * PATIENCE_MS
        reader.stop()


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
