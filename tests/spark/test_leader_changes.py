"""A task of the sink, while the leader that it writes to is killed (P1); tasks of the source are in
`test_crashes.py`.
"""

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from clients.confluent import consumer
from support.cluster_processes import BrokerProcess, Cluster, wait_until
from support.log_ends import log_end
from support.topic_rows import by_confluent

ROWS = 80_000
IN_THE_MIDDLE = 2
"""Batches of 10,000, of which each task gets four."""
TOPIC = "sunk"


def end_of(bootstrap: str, partition: int) -> int:
    with consumer(bootstrap) as reader:
        place = TopicPartition(TOPIC, partition)
        return log_end(reader, place)


def test_a_sink_task_writes_each_row_once_though_the_leader_is_killed_under_it(
    spark: SparkSession, brokers: Cluster, tmp_path: Path
) -> None:
    """P1, I1: within a task, nothing is lost and nothing is written twice."""
    half, closed = tmp_path / "half", tmp_path / "closed"
    closed.touch()
    brokers.create(TOPIC, partitions=2)

    def hold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == IN_THE_MIDDLE:
                half.touch()
                while closed.exists():
                    time.sleep(0.01)
            yield batch

    def kill_when_it_has_begun() -> BrokerProcess:
        ends = [partial(end_of, brokers.bootstrap, partition) for partition in range(2)]
        try:
            wait_until(half.exists, "a task has more to come", 120)
            wait_until(lambda: all(end() for end in ends), "some are written", 60)
            leader = brokers.leader(TOPIC)
            leader.kill()
            return leader
        finally:
            closed.unlink()

    rows = spark.range(0, ROWS, 1, 2).mapInArrow(hold, "id bigint")
    rows = rows.selectExpr("cast(id as string) value", "cast(id % 2 as int) partition")
    writer = rows.write.format("tidelog").option("kafka.bootstrap.servers", brokers.bootstrap)
    writer = writer.option("topic", TOPIC).option("kafka.linger.ms", "0").mode("append")
    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill_when_it_has_begun)
        writer.save()
        first = killing.result()
    assert brokers.leader(TOPIC) is not first
    brokers.heal()
    written = [int(row.value or b"") for row in by_confluent(brokers.bootstrap, TOPIC, 2)]
    assert sorted(written) == list(range(ROWS))
