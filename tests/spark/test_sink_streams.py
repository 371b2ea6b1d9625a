"""Streams written into topics: output modes, restarts, and what each kind of query does with the
sink (P1, traps 7 and 16). Read back with confluent-kafka.
"""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from clients.confluent import consumer, read
from support.servers import Server

SECONDS_MAX = 120


@pytest.fixture
def bootstrap(log_server: Server) -> str:
    return log_server.address


class Input:
    """A folder that is read as a stream: one file is one micro-batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._files = 0
        folder.mkdir()

    def add(self, *words: str) -> None:
        lines = "".join(json.dumps({"word": word}) + "\n" for word in words)
        file = self._folder / f"{self._files}.json"
        file.write_text(lines)
        # Spark takes the oldest first, and one millisecond may hold two files.
        os.utime(file, (self._files, self._files))
        self._files += 1

    def stream(self) -> DataFrame:
        reader = self._spark.readStream.schema("word string").option("maxFilesPerTrigger", 1)
        return reader.json(str(self._folder))

    def counts(self) -> DataFrame:
        counted = self.stream().groupBy("word").count()
        return counted.selectExpr("word key", "cast(count as string) value")


@pytest.fixture
def words(spark: SparkSession, tmp_path: Path) -> Input:
    return Input(spark, tmp_path / "input")


def run(
    rows: DataFrame, bootstrap: str, folder: Path, mode: str = "append", **options: str
) -> None:
    """To the end of what there is."""
    writer = rows.writeStream.format("tidelog").outputMode(mode)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    finish(writer.option("kafka.bootstrap.servers", bootstrap).options(**options))


def finish(writer: DataStreamWriter) -> None:
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(SECONDS_MAX), "the query comes to its end"
    finally:
        query.stop()


def found(bootstrap: str, topic: str) -> list[tuple[Any, Any]]:
    """Keys and values of all records there are."""
    with consumer(bootstrap) as reader:
        _, end = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
    return [(message.key(), message.value()) for message in read(bootstrap, topic, end)]


def test_appended_rows_are_written_and_a_restart_goes_on_behind_them(
    words: Input, bootstrap: str, new_topic: Any, tmp_path: Path
) -> None:
    topic = new_topic()
    rows = words.stream().selectExpr("word value")
    words.add("a", "b")
    words.add("c")
    run(rows, bootstrap, tmp_path, topic=topic)
    words.add("d")
    run(rows, bootstrap, tmp_path, topic=topic)
    assert sorted(found(bootstrap, topic)) == [
        (None, b"a"),
        (None, b"b"),
        (None, b"c"),
        (None, b"d"),
    ]


def test_complete_mode_appends_the_whole_result_each_time_trap_16(
    words: Input, bootstrap: str, new_topic: Any, tmp_path: Path
) -> None:
    topic = new_topic()
    words.add("a", "b", "a")
    words.add("b")
    run(words.counts(), bootstrap, tmp_path, "complete", topic=topic)
    assert Counter(found(bootstrap, topic)) == Counter(
        {(b"a", b"2"): 2, (b"b", b"1"): 1, (b"b", b"2"): 1}
    )


def test_update_mode_is_refused_by_spark_and_works_in_foreach_batch_trap_16(
    words: Input, bootstrap: str, new_topic: Any, tmp_path: Path
) -> None:
    topic = new_topic()
    words.add("a", "b", "a")
    words.add("b")
    with pytest.raises(StreamingQueryException, match="does not support Update mode"):
        run(words.counts(), bootstrap, tmp_path, "update", topic=topic)

    def publish(rows: DataFrame, _batch_id: int) -> None:
        writer = rows.write.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
        writer.option("topic", topic).mode("append").save()

    writer = words.counts().writeStream.outputMode("update").foreachBatch(publish)
    finish(writer.option("checkpointLocation", str(tmp_path / "update")))
    assert Counter(found(bootstrap, topic)) == Counter(
        {(b"a", b"2"): 1, (b"b", b"1"): 1, (b"b", b"2"): 1}
    )


def test_a_batch_that_fails_is_written_again_when_the_query_starts_again(
    words: Input, bootstrap: str, new_topic: Any, tmp_path: Path
) -> None:
    topic = new_topic()
    words.add("a", "0")
    rows = words.stream().coalesce(1)
    bad = rows.selectExpr("word value", "if(word = '0', 9, 0) partition")
    with pytest.raises(StreamingQueryException, match=f"partition 9 of topic {topic}"):
        run(bad, bootstrap, tmp_path, topic=topic)
    good = rows.selectExpr("word value", "0 partition")
    run(good, bootstrap, tmp_path, topic=topic)
    assert found(bootstrap, topic) == [(None, b"a"), (None, b"0")]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"topic": "t", "delivery": "exactly-once", "txnAppId": "a"}, "it is for batch writes"),
        ({"topic": "t", "kafka.ssl.key.location": "k"}, "TLS and SASL are not supported"),
        ({}, "no topic to write to"),
    ],
)
def test_what_cannot_be_acted_on_stops_a_stream_before_it_writes(
    words: Input, bootstrap: str, tmp_path: Path, options: dict[str, str], why: str
) -> None:
    words.add("a")
    with pytest.raises(StreamingQueryException, match=why):
        run(words.stream().selectExpr("word value"), bootstrap, tmp_path, **options)
