"""Records as lines, with the properties of kafka-console-consumer, and as JSON."""

import json
from dataclasses import replace

import pytest

from tidelog.base.errors import BadValue
from tidelog.cli.record_text import OutputRecord, as_it_is, json_line, record_format

RECORD = OutputRecord(
    topic="orders",
    partition=2,
    offset=7,
    leader_epoch=3,
    timestamp=1000,
    timestamp_type="CreateTime",
    key=b"k",
    value=b"v",
    headers=(("a", b"1"), ("b", None)),
)
EVERYTHING = {
    f"print.{name}": "true" for name in ("timestamp", "partition", "offset", "headers", "key")
}


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, b"v\n"),
        ({"print.key": "true"}, b"k\tv\n"),
        ({"print.key": "true", "key.separator": ":", "line.separator": "|"}, b"k:v|"),
        ({"print.key": "TRUE", "print.value": "false"}, b"k\n"),
        (EVERYTHING, b"CreateTime:1000\tPartition:2\tOffset:7\ta:1,b:null\tk\tv\n"),
        ({"print.epoch": "true", "print.offset": "true"}, b"Offset:7\tEpoch:3\tv\n"),
        ({"print.headers": "true", "headers.separator": ";", "null.literal": "-"}, b"a:1;b:-\tv\n"),
    ],
)
def test_a_record_is_printed_as_kafka_prints_it(
    properties: dict[str, str], expected: bytes
) -> None:
    assert record_format(properties, as_it_is).line(RECORD) == expected


def test_what_a_record_does_not_have_is_named() -> None:
    bare = replace(RECORD, key=None, value=None, headers=(), timestamp_type="")
    line = record_format(EVERYTHING, as_it_is).line(bare)
    assert line == b"NO_TIMESTAMP\tPartition:2\tOffset:7\tNO_HEADERS\tnull\tnull\n"


def test_numbers_of_java_clients_are_read() -> None:
    java = "org.apache.kafka.common.serialization."
    wanted = {
        "print.key": "true",
        "key.deserializer": f"{java}StringDeserializer",
        "value.deserializer": f"{java}LongDeserializer",
    }
    form = record_format(wanted, as_it_is)
    assert form.line(replace(RECORD, value=(-5).to_bytes(8, signed=True))) == b"k\t-5\n"
    with pytest.raises(BadValue, match="LongDeserializer takes 8 bytes, not 1"):
        form.line(RECORD)
    with pytest.raises(BadValue, match="must be one of StringDeserializer, "):
        record_format({"value.deserializer": "com.example.Mine"}, as_it_is)


def test_properties_of_a_formatter_that_mean_nothing_are_refused() -> None:
    with pytest.raises(
        BadValue, match=r"--property print\.keys: must be one of print\.timestamp, "
    ):
        record_format({"print.keys": "true"}, as_it_is)


def test_only_contents_are_made_safe_and_separators_stay() -> None:
    form = record_format({"print.key": "true", "print.headers": "true"}, lambda _: b"?")
    assert form.line(RECORD) == b"?:?,?:null\t?\t?\n"


def test_json_has_every_field_of_a_record() -> None:
    assert json.loads(json_line(RECORD)) == {
        "topic": "orders",
        "partition": 2,
        "offset": 7,
        "timestamp": 1000,
        "key": "k",
        "value": "v",
        "headers": [{"key": "a", "value": "1"}, {"key": "b", "value": None}],
    }


def test_bytes_that_are_no_text_are_in_base64() -> None:
    shown = json.loads(json_line(replace(RECORD, key=None, value=b"\xff\x00")))
    assert shown["key"] is None
    assert shown["value_base64"] == "/wA="
    assert "value" not in shown


def test_a_line_of_json_is_one_line_that_no_terminal_acts_on() -> None:
    value = "a\nb\u2028ü\x1b[2J\x9b2J\u202e"
    line = json_line(replace(RECORD, value=value.encode())).decode()
    assert line.removesuffix("\n").isprintable()
    assert json.loads(line)["value"] == value
