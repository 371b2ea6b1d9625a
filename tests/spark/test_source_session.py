"""Topics as DataFrames and streams in a real session (rows P1, P2, P3)."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import AnalysisException, StreamingQueryException

from clients.confluent import send
from clients.samples import SAMPLES, TIME, Sample
from support.new_topics import NewTopicMaker
from support.servers import Server
from support.topic_rows import Row, as_row, by_confluent

SECONDS_MAX = 180


def numbered(first: int, count: int) -> list[Sample]:
    return [Sample(key=b"%d" % n, value=b"value %d" % n) for n in range(first, first + count)]


def fill(server: Server, topic: str, samples: list[Sample], **arguments: Any) -> None:
    send(Producer({"bootstrap.servers": server.address}), topic, samples, **arguments)


def with_options(reader: Any, server: Server, topic: str, **options: Any) -> Any:
    named = {name.replace("_", "."): str(value) for name, value in options.items()}
    all_options = {"kafka.bootstrap.servers": server.address, "subscribe": topic, **named}
    return reader.format("tidelog").options(**all_options).load()


class Collected:
    """Rows by batch: what a query handed to its sink, each time it did."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[Row]]] = []

    def take(self, frame: Any, batch_id: int) -> None:
        self.batches.append((batch_id, sorted(as_row(row) for row in frame.collect())))

    def rows(self) -> list[Row]:
        return sorted(row for _, rows in self.batches for row in rows)


def run(frame: Any, checkpoint: Path) -> Collected:
    """Everything there is now, as Trigger.AvailableNow has it."""
    collected = Collected()
    writer = frame.writeStream.foreachBatch(collected.take)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(SECONDS_MAX)
    return collected


def test_a_topic_is_a_dataframe_with_all_that_confluent_reads(
    spark: Any, log_server: Server, new_topic: NewTopicMaker
) -> None:
    """P1, P2"""
    topic = new_topic(2)
    for partition in range(2):
        fill(log_server, topic, SAMPLES[partition::2], partition=partition, timestamp=TIME)
    frame = with_options(spark.read, log_server, topic, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    rows = frame.collect()
    assert sorted(map(as_row, rows)) == by_confluent(log_server.address, topic, 2)
    assert {row["headers"] is None for row in rows if not row["headers"]} == {True}
    some = with_options(spark.read, log_server, topic, columns="offset,partition")
    assert some.columns == ["offset", "partition"]
    assert some.count() == len(SAMPLES)


def test_a_query_goes_on_where_it_ended_and_a_batch_that_is_run_again_is_the_same(
    spark: Any, log_server: Server, new_topic: NewTopicMaker, tmp_path: Path
) -> None:
    """P1, P3: the last commit is taken away, as if the driver had been killed before it."""
    topic = new_topic(2)
    fill(log_server, topic, numbered(0, 30), partition=0)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 20, "includeHeaders": "true"}
    first = run(with_options(spark.readStream, log_server, topic, **options), tmp_path)
    assert [len(rows) for _, rows in first.batches] == [20, 10]
    (tmp_path / "commits" / "1").unlink()
    (tmp_path / "commits" / ".1.crc").unlink(missing_ok=True)
    fill(log_server, topic, numbered(30, 7), partition=1)
    fill(log_server, topic, numbered(37, 4), partition=0)
    second = run(with_options(spark.readStream, log_server, topic, **options), tmp_path)
    assert second.batches[0] == first.batches[1]
    once = {row for _, rows in (first.batches[:1] + second.batches) for row in rows}
    assert sorted(once) == by_confluent(log_server.address, topic, 2)
    assert len(second.rows()) == 10 + 7 + 4


def test_a_query_from_the_latest_on_reads_what_comes_and_shows_its_lag(
    spark: Any, log_server: Server, new_topic: NewTopicMaker, tmp_path: Path
) -> None:
    """P1, P3: records that come in while the query starts are not passed over (trap 1)."""
    topic = new_topic()
    fill(log_server, topic, numbered(0, 5))
    collected = Collected()
    frame = with_options(spark.readStream, log_server, topic, includeHeaders="true")
    writer = frame.writeStream.foreachBatch(collected.take)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        _until(lambda: query.lastProgress is not None, query)
        fill(log_server, topic, numbered(5, 3))
        _until(lambda: len(collected.rows()) == 3, query)
        # A batch is reported on after its rows were taken.
        _until(lambda: _end(query)["to"][topic]["partitions"] == {"0": 8}, query)
    finally:
        query.stop()
    assert collected.rows() == by_confluent(log_server.address, topic)[5:]
    (shown,) = query.lastProgress.sources
    assert json.loads(shown.latestOffset)["to"] == _end(query)["to"]
    assert len(_end(query)["to"][topic]["id"]) == 22


def _end(query: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(query.lastProgress.sources[0].endOffset)
    return found


def _until(holds: Any, query: Any) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert query.exception() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_bad_options_are_refused_before_any_job_starts(
    spark: Any, log_server: Server, new_topic: NewTopicMaker, tmp_path: Path
) -> None:
    topic = new_topic()
    with pytest.raises(AnalysisException, match=r"option minPartitions='few': must be a whole"):
        with_options(spark.read, log_server, topic, minPartitions="few")
    with pytest.raises(AnalysisException, match=r"option kafka\.ssl\.ca='x': .* not supported"):
        with_options(spark.readStream, log_server, topic, kafka_ssl_ca="x")
    ending = with_options(spark.readStream, log_server, topic, endingOffsets="latest")
    writer = ending.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(StreamingQueryException, match="left out of a stream"):
        _run_to_its_end(writer)


def _run_to_its_end(writer: Any) -> None:
    query = writer.start()
    try:
        query.awaitTermination(SECONDS_MAX)
    finally:
        query.stop()


def test_a_topic_that_was_made_again_ends_the_query_with_its_name(
    spark: Any, log_server: Server, new_topic: NewTopicMaker, tmp_path: Path
) -> None:
    """P3"""
    topic = new_topic()
    fill(log_server, topic, numbered(0, 5))
    options = {"startingOffsets": "earliest", "includeHeaders": "true"}
    run(with_options(spark.readStream, log_server, topic, **options), tmp_path)
    new_topic.delete(topic)
    new_topic.again(topic)
    fill(log_server, topic, numbered(0, 9))
    with pytest.raises(StreamingQueryException, match=f"topic {topic} was deleted and made again"):
        run(with_options(spark.readStream, log_server, topic, **options), tmp_path)
    options["failOnDataLoss"] = "false"
    after = run(with_options(spark.readStream, log_server, topic, **options), tmp_path)
    assert after.rows() == by_confluent(log_server.address, topic)
