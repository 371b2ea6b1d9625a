"""A task of the sink, while the leader that it writes to is killed (P1); tasks of the source are in
`test_crashes.py`.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
from confluent_kafka import TopicPartition
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from clients.confluent import consumer
from support import doors
from support.cluster_processes import BrokerProcess, Cluster, wait_until
from support.doors import Doors
from support.topic_rows import by_confluent

ROWS = 60_000
TOPIC = "sunk"


def end_of(bootstrap: str, partition: int) -> int:
    with consumer(bootstrap) as reader:
        place = TopicPartition(TOPIC, partition)
        return int(reader.get_watermark_offsets(place, timeout=10)[1])


def test_a_sink_task_writes_each_row_once_though_the_leader_is_killed_under_it(
    spark: SparkSession, brokers: Cluster, tmp_path: Path
) -> None:
    """P1, I1: within a task, nothing is lost and nothing is written twice."""
    # Workers cannot import what only tests can.
    cloudpickle.register_pickle_by_value(doors)
    gate = Doors(tmp_path)
    gate.close("half")
    brokers.create(TOPIC, partitions=2)

    def hold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 1:
                gate.go_through("half")
            yield batch

    def kill_when_it_has_begun() -> BrokerProcess:
        ends = [partial(end_of, brokers.bootstrap, partition) for partition in range(2)]
        wait_until(lambda: all(end() for end in ends), "some are written", 60)
        gate.wait_for_somebody("half")
        leader = brokers.leader(TOPIC)
        leader.kill()
        gate.open("half")
        return leader

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
