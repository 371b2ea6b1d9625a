"""Options of a source: what is taken, and that everything else is refused by name with the value
and what is allowed (row P1)."""

import re
from typing import Any

import pytest

from tidelog.base.errors import BadValue
from tidelog.spark.bounds import Offsets, Place, Times
from tidelog.spark.options import KNOWN, REFUSED, SourceOptions

NEEDED = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "events"}


def parse(is_stream: bool = True, **options: Any) -> SourceOptions:
    """With `_` for the dots in an option's name."""
    given = {name.replace("_", "."): value for name, value in options.items()}
    return SourceOptions.parse(NEEDED | given, is_stream=is_stream)


def refusal(is_stream: bool = True, **options: Any) -> str:
    with pytest.raises(BadValue) as raised:
        parse(is_stream, **options)
    return str(raised.value)


def test_defaults_are_those_of_the_connector_of_spark() -> None:
    """P1"""
    stream, batch = parse(), parse(is_stream=False)
    assert stream.starting == Place(mark=-1)
    assert batch.starting == Place(mark=-2)
    assert batch.ending == Place(mark=-1)
    assert stream.fail_on_data_loss
    assert stream.limits.delay_ms_max == 15 * 60 * 1000
    assert stream.limits.rows_max is stream.limits.rows_min is stream.limits.bytes_max is None
    assert ",".join(stream.columns) == "key,value,topic,partition,offset,timestamp,timestampType"
    assert not stream.connecting.committed_only


def test_names_are_taken_in_any_case() -> None:
    """P1: Spark hands them over in lower case."""
    assert parse(STARTINGoffsets="EARLIEST").starting == Place(mark=-2)
    assert parse(includeheaders="TRUE").columns[-1] == "headers"


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_options_that_are_not_acted_on_are_refused_by_name(name: str) -> None:
    given = f"{name}keystore.location" if name.endswith(".") else name
    with pytest.raises(BadValue, match=re.escape(given)) as raised:
        SourceOptions.parse(NEEDED | {given: "some value"}, is_stream=True)
    assert "'some value'" in str(raised.value)


def test_an_unknown_option_is_refused_with_what_it_may_have_meant() -> None:
    why = refusal(startingOffset="latest")
    assert "startingoffset='latest'" in why
    assert "did you mean startingOffsets?" in why
    assert all(name in why for name in KNOWN)
    assert "kafka.heartbeat.interval.ms='1'" in refusal(kafka_heartbeat_interval_ms="1")


def test_a_fetch_is_as_large_as_both_of_its_settings_allow() -> None:
    def size(**options: Any) -> int:
        return parse(**options).connecting.partition_bytes_max

    assert size() == 8 * 1024 * 1024
    assert size(kafka_fetch_max_bytes="1000") == 1000
    assert size(kafka_fetch_max_bytes="99999999") == size()
    both: dict[str, Any] = {
        "kafka_fetch_max_bytes": "1000",
        "kafka_max_partition_fetch_bytes": "500",
    }
    assert size(**both) == 500


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"subscribe": ""}, "exactly one of subscribe, subscribePattern, assign"),
        ({"assign": '{"a":[0]}'}, "subscribe and assign are given"),
        ({"subscribe": "a,a"}, "each once"),
        ({"subscribe": "a/b"}, "letters, digits"),
        ({"kafka_bootstrap_servers": "http://a"}, "HOST:PORT"),
        ({"kafka_bootstrap_servers": " "}, "HOST:PORT"),
        ({"startingOffsets": "newest"}, "earliest or latest, or JSON"),
        ({"startingOffsets": ""}, "earliest or latest, or JSON"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "-2 for the earliest"),
        ({"startingOffsets": '{"a":{"x":1}}'}, "JSON with a number for each partition"),
        ({"startingOffsets": '{"a":{"0":true}}'}, "JSON with a number for each partition"),
        ({"startingOffsets": "{broken"}, "JSON with a number for each partition"),
        ({"startingTimestamp": "yesterday"}, "a whole number of at least 0"),
        ({"startingOffsetsByTimestamp": '{"a":{"0":-1}}'}, "none below 0"),
        ({"startingOffsetsByTimestamp": "5"}, "JSON with a number for each partition"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "error or latest"),
        ({"endingOffsets": "latest"}, "left out of a stream"),
        ({"endingTimestamp": "5"}, "left out of a stream"),
        ({"endingOffsetsByTimestamp": "{}"}, "left out of a stream"),
        ({"failOnDataLoss": "no"}, "true or false"),
        ({"includeHeaders": "1"}, "true or false"),
        ({"minPartitions": "0"}, "a whole number of at least 1"),
        ({"maxRecordsPerPartition": "-5"}, "a whole number of at least 1"),
        ({"maxBytesPerPartition": "1k"}, "a whole number of at least 1"),
        ({"maxOffsetsPerTrigger": "1e6"}, "a whole number of at least 1"),
        ({"maxBytesPerTrigger": str(1 << 63)}, "a whole number of at least 1"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "at most maxOffsetsPerTrigger, 8",
        ),
        ({"maxTriggerDelay": "soon"}, "a time such as 15m"),
        ({"columns": "key,price"}, "some of key, value, topic"),
        ({"columns": ""}, "some of key, value, topic"),
        ({"columns": "key,Key"}, "each once"),
        ({"columns": "key", "includeHeaders": "true"}, "with headers in it"),
        ({"fetchOffset_numRetries": "-1"}, "a whole number of at least 0"),
        ({"fetchOffset_retryIntervalMs": "x"}, "a whole number of at least 0"),
        ({"kafkaConsumer_pollTimeoutMs": "0"}, "a whole number of at least 1"),
        ({"kafka_isolation_level": "serializable"}, "read_uncommitted or read_committed"),
        ({"kafka_max_partition_fetch_bytes": "999999999"}, "1 to 67108864"),
        ({"kafka_fetch_max_bytes": "0"}, "a whole number of at least 1"),
        ({"kafka_fetch_max_wait_ms": "-1"}, "a whole number of at least 0"),
        ({"kafka_request_timeout_ms": "0"}, "a whole number of at least 1"),
    ],
)
def test_a_bad_value_is_refused_with_name_value_and_what_is_allowed(
    options: dict[str, Any], allowed: str
) -> None:
    why = refusal(**options)
    name, value = next(iter(options.items()))
    assert allowed in why
    if value.strip():
        assert name.replace("_", ".") in why or name in why


def test_a_pattern_is_of_the_syntax_of_python_and_its_refusal_says_so() -> None:
    """The possessive quantifier of Java's `a*+` exists in Python 3.11 too; `\\Q…\\E` does not."""
    given = {"kafka.bootstrap.servers": "a:1", "subscribePattern": r"\Qa.b\E.*"}
    with pytest.raises(BadValue, match="of Python's syntax, not Java's"):
        SourceOptions.parse(given, is_stream=True)
    good = SourceOptions.parse(given | {"subscribePattern": "ev.*"}, is_stream=True)
    assert good.subscription.pattern == re.compile("ev.*")


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"startingOffsets": "latest"}, "earliest, or JSON"),
        ({"startingOffsets": '{"events":{"0":-1}}'}, "-1 (latest)"),
        ({"endingOffsets": "earliest"}, "latest, or JSON"),
        ({"endingOffsets": '{"events":{"0":-2}}'}, "-2 (earliest)"),
        ({"maxOffsetsPerTrigger": "5"}, "left out of a batch"),
        ({"maxBytesPerTrigger": "5"}, "left out of a batch"),
        ({"minOffsetsPerTrigger": "5"}, "left out of a batch"),
        ({"maxTriggerDelay": "5"}, "left out of a batch"),
    ],
)
def test_what_a_batch_cannot_use_is_refused(options: dict[str, Any], allowed: str) -> None:
    assert allowed in refusal(is_stream=False, **options)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"maxOffsetsPerTrigger": "1e6"}, "maxOffsetsPerTrigger='1e6': must be a whole number"),
        ({"maxBytesPerTrigger": "5MB"}, "maxBytesPerTrigger='5MB': must be a whole number"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay='soon': must be a time such as"),
        ({"startingOffsets": "newest"}, "startingOffsets='newest': must be earliest or latest, or"),
        (
            {"startingOffsets": '{"t":{"0":-1}}', "maxOffsetsPerTrigger": "x"},
            "maxOffsetsPerTrigger='x': must be a whole number",
        ),
        ({"endingOffsets": "newest"}, "endingOffsets='newest': must be latest, or"),
        ({"endingTimestamp": "1", "startingOffsets": "latest"}, "must be earliest, or"),
        ({"ENDINGOFFSETS": "latest", "maxOffsetsPerTrigger": "5"}, "left out of a batch"),
    ],
)
def test_nobody_is_told_the_rules_of_the_other_kind_of_query(
    options: dict[str, str], why: str
) -> None:
    """Spark asks for the columns before it says whether it is a stream or a batch."""
    with pytest.raises(BadValue, match=re.escape(why)):
        SourceOptions.parse_for_either(NEEDED | options)


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "latest", "maxOffsetsPerTrigger": "5"},
        {"startingOffsets": "earliest"},
        {"endingOffsets": '{"t":{"0":-1}}'},
        {"endingTimestamp": "5", "startingTimestamp": "4"},
        {"endingTimestamp": "5", "startingTimestamp": "5"},
        {"endingTimestamp": "5", "startingOffsetsByTimestamp": '{"t":{"0":5}}'},
    ],
)
def test_what_does_for_a_stream_or_for_a_batch_is_taken(options: dict[str, str]) -> None:
    assert SourceOptions.parse_for_either(NEEDED | options).columns[0] == "key"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"startingTimestamp": "5", "endingTimestamp": "4"},
            "endingTimestamp: a batch ends at 4, before startingTimestamp, 5",
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"t":{"0":5,"1":5}}',
                "endingOffsetsByTimestamp": '{"t":{"0":5,"1":4}}',
            },
            "endingOffsetsByTimestamp: t-1 ends at 4, before startingOffsetsByTimestamp, 5",
        ),
        (
            {"startingTimestamp": "5", "endingOffsetsByTimestamp": '{"t":{"0":9,"1":4}}'},
            "endingOffsetsByTimestamp: t-1 ends at 4, before startingTimestamp, 5",
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":3,"1":9}}', "endingTimestamp": "5"},
            "endingTimestamp: t-1 ends at 5, before startingOffsetsByTimestamp, 9",
        ),
    ],
)
def test_times_that_are_crossed_are_refused_before_anything_is_read(
    options: dict[str, str], why: str
) -> None:
    """P1: as Spark's connector does it; nothing at all would be read, and nobody be told."""
    with pytest.raises(BadValue, match=re.escape(why)):
        SourceOptions.parse_for_either(NEEDED | options)


def test_a_time_for_all_counts_more_than_times_and_these_more_than_offsets() -> None:
    """P1: the order of precedence of Spark's connector."""
    offsets: dict[str, Any] = {"startingOffsets": '{"events":{"0":5}}'}
    each: dict[str, Any] = {"startingOffsetsByTimestamp": '{"events":{"0":7}}'}
    one: dict[str, Any] = {"startingTimestamp": "9"}
    assert parse(**offsets).starting == Offsets(
        option="startingOffsets", offsets={"events": {0: 5}}
    )
    assert parse(**offsets, **each).starting == Times(
        option="startingOffsetsByTimestamp", for_each={"events": {0: 7}}, latest_if_none=False
    )
    assert parse(**offsets, **each, **one).starting == Times(
        option="startingTimestamp", for_all=9, latest_if_none=False
    )


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [
        ("15m", 900_000),
        ("2min", 120_000),
        ("30s", 30_000),
        ("500ms", 500),
        ("77", 77),
        ("1h", 3_600_000),
    ],
)
def test_times_are_written_as_spark_writes_them(text: str, delay_ms: int) -> None:
    assert parse(maxTriggerDelay=text).limits.delay_ms_max == delay_ms


def test_columns_are_given_in_the_order_they_are_asked_for() -> None:
    assert parse(columns="offset, timestamptype,HEADERS").columns == (
        "offset",
        "timestampType",
        "headers",
    )
