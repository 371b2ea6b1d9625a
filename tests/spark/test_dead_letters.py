"""Records that do not decode go to a dead-letter topic with their origin and the reason, and the
others go on (A6, P6).
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from clients.confluent import read
from support.servers import Server
from tidelog.spark.dead_letters import Parsed, expression, json_value, split

SCHEMA = "id bigint, name string"
TIME = datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)
COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)
Headers = list[tuple[str, bytes | None]] | None


def records(spark: SparkSession, *values: bytes | None, headers: Headers = None) -> DataFrame:
    rows = [(b"k", value, "orders", 3, n, TIME, headers) for n, value in enumerate(values)]
    return spark.createDataFrame(rows, COLUMNS)


def headers_of(row: Any) -> dict[str, str | None]:
    return {h.key: None if h.value is None else bytes(h.value).decode() for h in row.headers}


def test_what_decodes_goes_on_with_all_its_columns(spark: SparkSession) -> None:
    good, bad = split(records(spark, b'{"id": 1, "name": "a"}', b'{"id": 2}'), json_value(SCHEMA))
    assert [(row.offset, row.parsed.id, row.parsed.name) for row in good.collect()] == [
        (0, 1, "a"),
        (1, 2, None),
    ]
    assert good.columns == [*(part.split(" ")[0] for part in COLUMNS.split(", ")), "parsed"]
    assert good.schema["parsed"].dataType.simpleString() == "struct<id:bigint,name:string>"
    assert bad.count() == 0


def test_numbers_that_only_spark_knows_decode(spark: SparkSession) -> None:
    values = [b'{"x": NaN}', b'{"x": -INF}', b'{"x": NaN}, "y": 0']
    good, bad = split(records(spark, *values), json_value("x double"))
    assert [str(row.parsed.x) for row in good.collect()] == ["nan", "-inf"]
    assert [bytes(row.value) for row in bad.collect()] == [values[-1]]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"poison", "value is not JSON of id bigint, name string"),
        (b"", "value is not JSON of id bigint, name string"),
        (b"[1]", "value is not JSON of id bigint, name string"),
        (b'{"id": "one"}', "value is not JSON of id bigint, name string"),
        (b'{"id": 1', "value is not JSON of id bigint, name string"),
        (b'{"id": 1}\n{"id": 2}', "value is not JSON of id bigint, name string"),
        (b'{"id": 1}, {"id": 2}', "value is not JSON of id bigint, name string"),
        (b'{"id": 1}}', "value is not JSON of id bigint, name string"),
        (b'{"id": 1}]', "value is not JSON of id bigint, name string"),
        (b'{"id": 1}, "x": 2', "value is not JSON of id bigint, name string"),
        (b'{"id": 1}, "end": 0}', "value is not JSON of id bigint, name string"),
        (b'{"id": 1}], "x": [2', "value is not JSON of id bigint, name string"),
        (b"\xff\xfe", "value is not UTF-8"),
        (None, "value is null"),
    ],
)
def test_what_does_not_decode_is_a_dead_letter_with_its_origin_and_reason(
    spark: SparkSession, value: bytes | None, reason: str
) -> None:
    good, bad = split(records(spark, b'{"id": 1}', value), json_value(SCHEMA), stage="silver")
    (row,) = bad.collect()
    assert (row.topic, row.key, row.value) == ("orders.dlq", b"k", value)
    assert headers_of(row) == {
        "tidelog.dlq.topic": "orders",
        "tidelog.dlq.partition": "3",
        "tidelog.dlq.offset": "1",
        "tidelog.dlq.timestamp": "1700000000123",
        "tidelog.dlq.reason": reason,
        "tidelog.dlq.stage": "silver",
        "tidelog.dlq.attempt": "1",
    }
    assert [one.offset for one in good.collect()] == [0]


def test_a_record_keeps_its_headers_and_counts_its_attempts(spark: SparkSession) -> None:
    old: Headers = [
        ("trace", b"\x00\xff"),
        ("none", None),
        ("tidelog.dlq.offset", b"7"),
        ("tidelog.dlq.attempt", b"4"),
    ]
    _, bad = split(records(spark, b"poison", headers=old), json_value(SCHEMA))
    (row,) = bad.collect()
    found = [(header.key, header.value) for header in row.headers]
    assert found[:2] == [("trace", b"\x00\xff"), ("none", None)]
    assert len(found) == 9, "the headers of the last attempt are replaced"
    assert (dict(found)["tidelog.dlq.offset"], dict(found)["tidelog.dlq.attempt"]) == (b"0", b"5")


def test_an_attempt_that_is_no_number_counts_as_none(spark: SparkSession) -> None:
    strange: Headers = [("tidelog.dlq.attempt", b"many")]
    _, bad = split(records(spark, b"poison", headers=strange), json_value(SCHEMA))
    assert headers_of(bad.first())["tidelog.dlq.attempt"] == "1"


def test_attempts_that_cannot_be_counted_further_stop_no_query(spark: SparkSession) -> None:
    """A6: anybody can write such a header, and a query would fail at it again and again."""
    most: Headers = [("tidelog.dlq.attempt", b"2147483647")]
    _, bad = split(records(spark, b"poison", headers=most), json_value(SCHEMA))
    assert headers_of(bad.first())["tidelog.dlq.attempt"] == "2147483647"


def test_records_that_were_read_without_headers_have_none_to_keep(spark: SparkSession) -> None:
    plain = records(spark, b"poison").drop("headers")
    _, bad = split(plain, json_value(SCHEMA), has_headers=False)
    assert len(headers_of(bad.first())) == 7


def test_any_expression_can_decode(spark: SparkSession) -> None:
    number = expression(sql.col("value").cast("string").try_cast("int"), "not a number")
    good, bad = split(records(spark, b"12", b"twelve"), number)
    assert [row.parsed for row in good.collect()] == [12]
    assert headers_of(bad.first())["tidelog.dlq.reason"] == "not a number"
    text = sql.col("value").cast("string")
    long = Parsed(
        content=text, reason=sql.when(sql.length(text) > 3, sql.concat(text, sql.lit("!")))
    )
    good, bad = split(records(spark, b"12", b"twelve"), long)
    assert [row.parsed for row in good.collect()] == ["12"]
    assert headers_of(bad.first())["tidelog.dlq.reason"] == "twelve!"


def test_a_stream_does_not_stop_at_poison(
    spark: SparkSession, log_server: Server, new_topic: Any, tmp_path: Path
) -> None:
    """From topic to topics: results to one, dead letters to the other."""
    bootstrap = log_server.address
    topic = new_topic(2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        value = b"poison" if number % 5 == 0 else b'{"id": %d}' % number
        producer.produce(topic, value=value, key=b"%d" % number, headers=[("n", b"%d" % number)])
    assert producer.flush(60) == 0
    source = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
    source = source.option("subscribe", topic).option("startingOffsets", "earliest")
    good, bad = split(source.option("includeHeaders", "true").load(), json_value(SCHEMA))
    result = good.selectExpr("key", "cast(parsed.id as string) value", f"'{topic}.result' topic")
    for name, rows in (("good", result), ("bad", bad)):
        writer = rows.writeStream.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
        writer = writer.option("checkpointLocation", str(tmp_path / name))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(120), "the query comes to its end"
    assert {message.key() for message in read(bootstrap, f"{topic}.result", 16)} == {
        b"%d" % number for number in range(20) if number % 5
    }
    letters = read(bootstrap, f"{topic}.dlq", 4)
    assert {letter.key() for letter in letters} == {b"0", b"5", b"10", b"15"}
    for letter in letters:
        headers = dict(letter.headers())
        assert letter.value() == b"poison"
        assert headers["n"] == letter.key()
        assert headers["tidelog.dlq.topic"] == topic.encode()
        origin = (int(headers["tidelog.dlq.partition"]), int(headers["tidelog.dlq.offset"]))
        sources = {(m.partition(), m.offset()): m for m in read(bootstrap, topic, 20, partitions=2)}
        assert sources[origin].key() == letter.key()
