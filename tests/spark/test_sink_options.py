"""What a writer may be told; the rest is refused with the option, the value and what is allowed."""

import subprocess
import sys
from collections.abc import Mapping

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidelog.base.errors import BadValue
from tidelog.spark.sink import TidelogStreamWriter, TidelogWriter
from tidelog.spark.sink_columns import check_columns
from tidelog.spark.sink_options import SinkOptions

NEEDED = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def parse(options: Mapping[str, str]) -> SinkOptions:
    return SinkOptions.parse({**NEEDED, **options}, is_stream=False)


def test_options_have_the_defaults_of_a_careful_producer() -> None:
    found = parse({})
    assert found.topic is None
    assert (found.sending.acks, found.sending.is_idempotent) == (-1, True)
    assert (found.sending.in_flight_max, found.sending.delivery_timeout_ms) == (5, 120_000)
    assert (found.batching.compression, found.batching.request_bytes_max) == (0, 1 << 20)


def test_options_are_read_in_any_case_as_spark_hands_them_over() -> None:
    options = {"TOPIC": " t ", "kafka.Compression.Type": "ZSTD", "KAFKA.ACKS": "1"}
    found = parse({**options, "checkpointlocation": "/c", "DELIVERY": "at-least-once"})
    assert (found.topic, found.batching.compression) == ("t", 4)
    assert (found.sending.acks, found.sending.is_idempotent) == (1, False)


def test_a_batch_is_never_larger_than_a_request() -> None:
    options = {"kafka.batch.size": "100000", "kafka.max.request.size": "5000"}
    assert parse(options).batching.batch_bytes == 5000


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        (
            "txnAppId",
            "nightly",
            "must be left out: it is for batch writes with delivery=exactly-once",
        ),
        ("txnVersion", "3", "must be left out"),
        ("delivery", "at-most-once", "must be at-least-once or exactly-once"),
        ("kafka.acks", "2", "must be all or -1 or 1 or 0"),
        ("kafka.compression.type", "brotli", "must be none or gzip or snappy or lz4 or zstd"),
        ("kafka.batch.size", "0", "must be a whole number of at least 1"),
        ("kafka.batch.size", str(1 << 40), "must be a whole number of 1 to 67108864"),
        ("kafka.linger.ms", "-1", "must be a whole number of at least 0"),
        ("kafka.max.request.size", "1m", "must be a whole number"),
        ("kafka.max.in.flight.requests.per.connection", "6", "must be a whole number of 1 to 5"),
        ("kafka.enable.idempotence", "yes", "must be true or false"),
        ("kafka.security.protocol", "SASL_SSL", "TLS and SASL are not supported"),
        ("kafka.sasl.mechanism", "PLAIN", "TLS and SASL are not supported"),
        ("kafka.ssl.keystore.location", "/k", "TLS and SASL are not supported"),
        ("kafka.key.serializer", "x", "written as bytes"),
        ("kafka.value.serializer", "x", "written as bytes"),
        ("kafka.transactional.id", "x", "named after the query"),
        ("kafka.partitioner.class", "x", "give each row a partition"),
        ("includeHeaders", "true", "is for reading"),
        ("path", "/p", "topics have no path"),
        ("topic", "a/b", "must be the name of a topic"),
        ("topic", "", "must be the name of a topic"),
        ("kafka.bootstrap.servers", "http://a", "must be HOST:PORT"),
        ("kafka.compresion.type", "zstd", "did you mean kafka.compression.type?"),
        ("startingOffsets", "5", "there is no such option; allowed are kafka.bootstrap.servers"),
    ],
)
def test_what_cannot_be_acted_on_is_refused_by_name(name: str, value: str, why: str) -> None:
    with pytest.raises(BadValue) as raised:
        parse({name: value})
    assert f"option {name}={value!r}: ".lower() in str(raised.value).lower()
    assert why in str(raised.value)


def test_a_write_of_a_series_has_a_name_and_a_number() -> None:
    exactly_once = {"delivery": "exactly-once"}
    found = parse({**exactly_once, "txnAppId": "nightly", "txnVersion": "3"})
    assert (found.is_exactly_once, found.series) == (True, ("nightly", 3))
    assert parse(exactly_once).series is None
    for wrong in ({"txnAppId": "nightly"}, {"txnVersion": "3"}, {"txnAppId": "a/b"}):
        with pytest.raises(BadValue, match="with a txnVersion"):
            parse({**exactly_once, **wrong})
    with pytest.raises(BadValue, match=r"must be true where delivery is exactly-once"):
        parse({**exactly_once, "kafka.acks": "1"})
    with pytest.raises(BadValue, match=r"txnAppId='a': must be left out"):
        SinkOptions.parse({**NEEDED, **exactly_once, "txnAppId": "a"}, is_stream=True)


def test_brokers_must_be_named() -> None:
    with pytest.raises(BadValue, match=r"option kafka.bootstrap.servers is missing"):
        SinkOptions.parse({"topic": "t"}, is_stream=False)


def test_idempotence_needs_all_acks() -> None:
    with pytest.raises(BadValue, match=r"kafka.acks='1': must be all"):
        parse({"kafka.acks": "1", "kafka.enable.idempotence": "true"})
    assert not parse({"kafka.enable.idempotence": "false"}).sending.is_idempotent


def header(first: str, first_kind: DataType, second: str, second_kind: DataType) -> DataType:
    return ArrayType(StructType().add(first, first_kind).add(second, second_kind))


KINDS: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
    "map<string,binary>": MapType(StringType(), BinaryType()),
    "headers": header("key", StringType(), "value", BinaryType()),
    "headers of text": header("key", StringType(), "value", StringType()),
    "headers in reverse": header("value", BinaryType(), "key", StringType()),
}


@pytest.mark.parametrize(
    "columns",
    [
        "value binary",
        "value string, key string, partition int, timestamp timestamp",
        "value binary, key binary, headers headers, offset bigint, timestampType int",
        "value string, topic int",
    ],
)
def test_columns_of_the_right_types_are_taken_and_others_left_alone(columns: str) -> None:
    check_columns(schema(columns), "topic")


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ("key string", "column value is missing: it must be string or binary; there are key"),
        ("value bigint", "column value is bigint: must be string or binary"),
        ("value string, key int", "column key is int: must be string or binary"),
        ("value string, partition bigint", "column partition is bigint: must be int"),
        ("value string, timestamp bigint", "column timestamp is bigint: must be timestamp"),
        ("value string, timestamp timestamp_ntz", "timestamp_ntz: must be timestamp"),
        ("value string, headers map<string,binary>", "headers is map<string,binary>: must be"),
        ("value string, headers headers of text", "must be array<struct"),
        ("value string, headers headers in reverse", "must be array<struct"),
        ("value string, value string", "column value: there are 2 of this name"),
    ],
)
def test_columns_of_other_types_are_refused(columns: str, why: str) -> None:
    for is_stream in (False, True):
        with pytest.raises(BadValue) as raised:
            writer(columns, is_stream=is_stream)
        assert why in str(raised.value)


def writer(columns: str, *, is_stream: bool) -> object:
    options = parse({"topic": "t"})
    if is_stream:
        return TidelogStreamWriter(options, schema(columns))
    return TidelogWriter(options, schema(columns), overwrite=False)


def schema(columns: str) -> StructType:
    fields = StructType()
    for column in columns.split(", "):
        name, _, kind = column.partition(" ")
        fields.add(name, KINDS[kind])
    return fields


def test_there_must_be_a_topic() -> None:
    with pytest.raises(BadValue, match="no topic to write to: name it with the option topic"):
        check_columns(schema("value string"), None)
    with pytest.raises(BadValue, match="column topic is int: must be string or binary"):
        check_columns(schema("value string, topic int"), None)


def test_a_driver_does_without_the_compiled_loops() -> None:
    """They take most of a second to load, and only executors run them."""
    script = (
        "import sys, tidelog.spark.sink, tidelog.spark.dead_letters\n"
        "print(*({'numba', 'llvmlite'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
