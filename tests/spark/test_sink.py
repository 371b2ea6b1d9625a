"""DataFrames written into topics with `format("tidelog")` (P1), read back with confluent-kafka."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from clients.confluent import consumer, read
from clients.samples import CODECS, KEYS, stored_batches, stored_codecs
from support.servers import Server

HEADERS = "array<struct<key:string,value:binary>>"
TIME = datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)
TIME_MS = 1_700_000_000_123


@pytest.fixture
def bootstrap(log_server: Server) -> str:
    return log_server.address


def write(rows: DataFrame, bootstrap: str, mode: str = "append", **options: str) -> None:
    """Options with `_` for `.`."""
    named = {name.replace("_", "."): value for name, value in options.items()}
    writer = rows.write.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
    writer.options(**named).mode(mode).save()


def count_of(bootstrap: str, topic: str, partitions: int = 1) -> int:
    """How many records there are."""
    with consumer(bootstrap) as reader:
        ends = [
            reader.get_watermark_offsets(TopicPartition(topic, index), timeout=60)[1]
            for index in range(partitions)
        ]
    return sum(ends)


def refusal(rows: DataFrame, bootstrap: str, mode: str = "append", **options: str) -> str:
    with pytest.raises(PySparkException) as raised:
        write(rows, bootstrap, mode, **options)
    return str(raised.value)


def test_every_column_arrives_as_it_was(
    spark: SparkSession, bootstrap: str, new_topic: Any
) -> None:
    topic = new_topic(3)
    headers = [("a", b"1"), ("a", b""), ("ž", None)]
    rows = spark.createDataFrame(
        [(b"key", b"\x00\xff", topic, 2, headers, TIME), (None, None, topic, 1, None, None)],
        f"key binary, value binary, topic string, partition int, headers {HEADERS}, "
        "timestamp timestamp",
    )
    write(rows, bootstrap)
    empty, full = sorted(read(bootstrap, topic, 2, partitions=3), key=lambda m: m.partition())
    assert (full.partition(), full.key(), full.value()) == (2, b"key", b"\x00\xff")
    assert full.headers() == headers
    assert full.timestamp() == (1, TIME_MS)
    assert (empty.partition(), empty.key(), empty.value()) == (1, None, None)
    assert not empty.headers()
    assert abs(empty.timestamp()[1] - datetime.now(UTC).timestamp() * 1000) < 60_000


def test_headers_that_are_null_or_empty_are_none(
    spark: SparkSession, bootstrap: str, new_topic: Any
) -> None:
    topic = new_topic()
    rows = spark.createDataFrame([("a", None), ("b", [])], f"value string, headers {HEADERS}")
    write(rows.coalesce(1), bootstrap, topic=topic)
    assert [m.headers() for m in read(bootstrap, topic, 2)] == [None, None]


def test_text_is_written_as_utf8_and_other_columns_are_left_alone(
    spark: SparkSession, bootstrap: str, new_topic: Any
) -> None:
    topic = new_topic()
    rows = spark.createDataFrame([("ключ", "値 🌊", 7)], "key string, value string, offset bigint")
    write(rows, bootstrap, topic=topic)
    (message,) = read(bootstrap, topic, 1)
    assert (message.key(), message.value()) == ("ключ".encode(), "値 🌊".encode())


def test_keys_go_where_other_clients_put_them(
    spark: SparkSession, bootstrap: str, new_topic: Any
) -> None:
    ours, theirs = new_topic(7), new_topic(7)
    rows = spark.createDataFrame([(key, key) for key in KEYS], "key binary, value binary")
    write(rows, bootstrap, topic=ours)
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    for key in KEYS:
        producer.produce(theirs, key=key, value=key)
    assert producer.flush(60) == 0
    places = [
        {m.key(): m.partition() for m in read(bootstrap, topic, len(KEYS), partitions=7)}
        for topic in (ours, theirs)
    ]
    assert places[0] == places[1]
    assert len(set(places[0].values())) > 3


def test_small_writes_without_keys_reach_every_partition(
    spark: SparkSession, bootstrap: str, new_topic: Any
) -> None:
    topic = new_topic(2)
    one = spark.range(40, numPartitions=20).selectExpr("cast(id as string) value")
    write(one, bootstrap, topic=topic)
    found = read(bootstrap, topic, 40, partitions=2)
    assert {message.partition() for message in found} == {0, 1}
    assert sorted(int(message.value()) for message in found) == list(range(40))


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_compressed_as_the_option_says(
    spark: SparkSession, log_server: Server, new_topic: Any, codec: str
) -> None:
    topic = new_topic()
    rows = spark.range(500).selectExpr("cast(id as string) key", "repeat('tide', 20) value")
    write(rows, log_server.address, topic=topic, kafka_compression_type=codec)
    found = read(log_server.address, topic, 500)
    assert {message.value() for message in found} == {b"tide" * 20}
    assert sorted(int(message.key()) for message in found) == list(range(500))
    assert stored_codecs(log_server.log_dir, topic) == {CODECS[codec]}


@pytest.mark.parametrize(("acks", "idempotent"), [("all", True), ("1", False), ("0", False)])
def test_what_brokers_confirm_is_up_to_the_option(
    spark: SparkSession, log_server: Server, new_topic: Any, acks: str, idempotent: bool
) -> None:
    topic = new_topic()
    rows = spark.range(1000).selectExpr("cast(id as string) value")
    write(rows, log_server.address, topic=topic, kafka_acks=acks)
    assert len({m.value() for m in read(log_server.address, topic, 1000)}) == 1000
    headers = stored_batches(Path(log_server.log_dir), topic)
    assert all((header.producer_id >= 0) == idempotent for header in headers)


def test_each_row_may_name_its_topic(spark: SparkSession, bootstrap: str, new_topic: Any) -> None:
    topics = [new_topic(count) for count in (1, 4, 2)]
    named = spark.createDataFrame(
        [(n, name) for n, name in enumerate(topics)], "n int, topic string"
    )
    rows = (
        spark.range(600)
        .selectExpr("cast(id as string) value", "cast(id as string) key", "id % 3 n")
        .join(named, "n")
    )
    write(rows, bootstrap)
    for number, (topic, count) in enumerate(zip(topics, (1, 4, 2), strict=True)):
        found = read(bootstrap, topic, 200, partitions=count)
        assert sorted(int(m.value()) for m in found) == list(range(number, 600, 3))
        assert count_of(bootstrap, topic, count) == 200


def test_the_option_topic_counts_before_the_column(
    spark: SparkSession, bootstrap: str, new_topic: Any
) -> None:
    topic = new_topic()
    rows = spark.createDataFrame([("a", "no topic of this name")], "value string, topic string")
    write(rows, bootstrap, topic=topic)
    assert count_of(bootstrap, topic) == 1


def test_a_record_of_ten_megabytes_is_written_where_it_is_allowed(
    spark: SparkSession, bootstrap: str, new_topic: Any
) -> None:
    topic = new_topic(1, max_message_bytes=11 << 20)
    rows = spark.range(2).selectExpr(f"repeat('x', {10 << 20}) value").coalesce(1)
    write(rows, bootstrap, topic=topic, kafka_max_request_size=str(11 << 20))
    settings = {"fetch_message_max_bytes": 12 << 20, "fetch_max_bytes": 12 << 20}
    assert [len(m.value()) for m in read(bootstrap, topic, 2, **settings)] == [10 << 20] * 2
    assert "kafka.max.request.size" in refusal(rows, bootstrap, topic=topic)
    small = new_topic(1, max_message_bytes=1000)
    many = spark.range(300).selectExpr("cast(id as string) value").coalesce(1)
    write(many, bootstrap, topic=small)
    assert count_of(bootstrap, small) == 300, "in batches as the topic takes them"
    large = spark.range(1).selectExpr("repeat('x', 2000) value")
    assert "max.message.bytes" in refusal(large, bootstrap, topic=small)


def test_a_topic_that_is_not_there_is_made_if_brokers_are_set_so(
    spark: SparkSession, bootstrap: str, new_topic: Any
) -> None:
    topic = f"{new_topic()}-made"
    write(spark.createDataFrame([("a",)], "value string"), bootstrap, topic=topic)
    assert count_of(bootstrap, topic) == 1


def test_nothing_is_written_for_no_rows(
    spark: SparkSession, bootstrap: str, new_topic: Any
) -> None:
    topic = new_topic()
    write(spark.range(0).selectExpr("cast(id as string) value"), bootstrap, topic=topic)
    assert count_of(bootstrap, topic) == 0


def test_rows_that_cannot_be_written_are_refused(
    spark: SparkSession, bootstrap: str, new_topic: Any
) -> None:
    topic = new_topic(2)
    rows = spark.range(2).selectExpr("cast(id as string) value", "id key", "5 partition")
    assert "column key is bigint: must be string or binary" in refusal(rows, bootstrap, topic=topic)
    why = f"partition 5 of topic {topic}: must be 0 to 1"
    assert why in refusal(rows.drop("key"), bootstrap, topic=topic)
    assert count_of(bootstrap, topic, 2) == 0


def test_rows_without_topic_are_refused(spark: SparkSession, bootstrap: str) -> None:
    rows = spark.createDataFrame([("a", None)], "value string, topic string")
    assert "1 of 1 rows have no topic" in refusal(rows, bootstrap)
    assert "no topic to write to" in refusal(rows.select("value"), bootstrap)
    strange = spark.createDataFrame([("a", "no topic/")], "value string, topic string")
    assert "no topic/" in refusal(strange, bootstrap)


def test_rows_can_only_be_appended_traps_10_and_16(
    spark: SparkSession, bootstrap: str, new_topic: Any
) -> None:
    topic = new_topic()
    rows = spark.createDataFrame([("a",)], "value string")
    assert '.mode("append")' in refusal(rows, bootstrap, "overwrite", topic=topic)
    for mode in ("error", "ignore"):
        with pytest.raises(AnalysisException, match="Append"):
            write(rows, bootstrap, mode, topic=topic)
    assert count_of(bootstrap, topic) == 0


def test_an_option_that_is_not_acted_on_is_refused_before_any_job_starts(
    spark: SparkSession, bootstrap: str
) -> None:
    rows = spark.range(1).selectExpr("assert_true(id = 5) value", "raise_error('a job') key")
    options = {"topic": "t", "kafka_sasl_mechanism": "PLAIN"}
    why = "option kafka.sasl.mechanism='PLAIN': connections are plain"
    assert why in refusal(rows, bootstrap, **options)


def test_a_broker_that_is_not_there_is_named(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("a",)], "value string")
    assert "cannot reach 127.0.0.1:9: connection refused" in refusal(rows, "127.0.0.1:9", topic="t")


def test_a_topic_is_copied_as_it_was_read(
    spark: SparkSession, bootstrap: str, new_topic: Any
) -> None:
    topic, copy = new_topic(2), new_topic(2)
    rows = spark.range(500).selectExpr(
        "cast(id as string) key",
        "repeat('x', 10) value",
        "timestamp_millis(id) timestamp",
        "array(named_struct('key', 'n', 'value', cast(cast(id as string) as binary))) headers",
    )
    write(rows, bootstrap, topic=topic)
    reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
    found = reader.option("subscribe", topic).option("includeHeaders", "true").load()
    write(found, bootstrap, topic=copy)
    shown = [
        sorted(
            (m.key(), m.value(), m.partition(), m.offset(), m.timestamp(), m.headers())
            for m in read(bootstrap, name, 500, partitions=2)
        )
        for name in (topic, copy)
    ]
    assert shown[0] == shown[1]
