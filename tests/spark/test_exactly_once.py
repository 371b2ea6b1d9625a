"""From a topic through Spark to a topic, exactly once (P4); the steps are in `test_deciding.py`."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from clients.confluent import read
from support.servers import Server
from tidelog.client.client import Client
from tidelog.client.transactions import TransactionFilter, list_transactions

SECONDS_MAX = 120


@pytest.fixture
def bootstrap(log_server: Server) -> str:
    return log_server.address


def produce(bootstrap: str, topic: str, values: list[str], *, is_aborted: bool = False) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"into-{topic}",
            "transaction.timeout.ms": 5_000,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value.encode())
    producer.flush(30)
    if is_aborted:
        producer.abort_transaction(30)
    else:
        producer.commit_transaction(30)


def stream(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(subscribe=topic, startingOffsets="earliest", **options).load()


def copy(rows: DataFrame, bootstrap: str, topic: str, checkpoint: Path) -> None:
    writer = rows.selectExpr("value").writeStream.format("tidelog")
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
    writer = writer.option("delivery", "exactly-once")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(SECONDS_MAX), "the query comes to its end"
    finally:
        query.stop()


def committed(bootstrap: str, topic: str, count: int) -> list[str]:
    found = read(bootstrap, topic, count, isolation_level="read_committed")
    return [message.value().decode() for message in found]


def test_what_was_committed_goes_through_once_and_what_was_aborted_does_not(
    spark: SparkSession, bootstrap: str, new_topic: Any, tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic()
    produce(bootstrap, source, ["a", "b"])
    produce(bootstrap, source, ["never"], is_aborted=True)
    produce(bootstrap, source, ["c"])
    options = {"kafka.isolation.level": "read_committed", "maxOffsetsPerTrigger": "3"}
    rows = stream(spark, bootstrap, source, **options)
    copy(rows, bootstrap, target, tmp_path / "checkpoint")
    produce(bootstrap, source, ["d"])
    copy(rows, bootstrap, target, tmp_path / "checkpoint")
    assert sorted(committed(bootstrap, target, 4)) == ["a", "b", "c", "d"]
    query = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    with Client(bootstrap) as client:
        assert list_transactions(client, TransactionFilter(states=("Ongoing",))) == []
        names = [one.transactional_id for one in list_transactions(client, TransactionFilter())]
    runs = {name.rsplit("/", 2)[0] for name in names if name.startswith(f"tl/{query}/")}
    assert {run.rpartition("/")[2] for run in runs} >= {"0", "1"}, "others in each batch"
    everything = spark.read.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
    seen = everything.options(subscribe=target, **{"kafka.isolation.level": "read_committed"})
    assert Counter(row.value for row in seen.load().collect()) == Counter([b"a", b"b", b"c", b"d"])


def test_a_source_does_not_wait_for_a_transaction_that_is_open(
    spark: SparkSession, bootstrap: str, new_topic: Any
) -> None:
    topic = new_topic()
    produce(bootstrap, topic, ["a", "b"])
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"open-{topic}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"later")
    producer.flush(30)
    reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.options(subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    assert sorted(row.value for row in reader.load().collect()) == [b"a", b"b"]
    producer.commit_transaction(30)
    assert sorted(row.value for row in reader.load().collect()) == [b"a", b"b", b"later"]


def test_a_write_of_a_series_is_written_once(
    spark: SparkSession, bootstrap: str, new_topic: Any
) -> None:
    topic = new_topic()

    def write(values: list[str], version: int) -> None:
        rows = spark.createDataFrame([(value,) for value in values], "value string")
        writer = rows.write.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
        writer = writer.option("topic", topic).option("delivery", "exactly-once")
        writer.options(txnAppId=f"app-{topic}", txnVersion=version).mode("append").save()

    write(["a", "b"], 0)
    write(["a", "b"], 0)
    write(["c"], 1)
    write(["a", "b"], 0)
    write(["d"], 3)
    with pytest.raises(Exception, match="number 2 is not written and cannot be"):
        write(["never"], 2)
    assert sorted(committed(bootstrap, topic, 4)) == ["a", "b", "c", "d"]


def test_a_write_that_fails_leaves_nothing_for_readers_of_what_is_committed(
    spark: SparkSession, bootstrap: str, new_topic: Any
) -> None:
    topic = new_topic()
    rows = spark.range(100, numPartitions=2).selectExpr(
        "if(id < 99, cast(id as string), raise_error('on purpose')) value"
    )
    writer = rows.write.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
    writer = writer.options(topic=topic, delivery="exactly-once")
    with pytest.raises(Exception, match="on purpose"):
        writer.mode("append").save()
    produce(bootstrap, topic, ["after"])
    assert committed(bootstrap, topic, 1) == ["after"]
