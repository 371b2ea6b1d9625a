"""Lines as records, with the properties of kafka-console-producer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import BadValue
from tidelog.cli.record_lines import InputRecord, line_reader

KEYED = {"parse.key": "true", "key.separator": ":"}
FULL = {**KEYED, "parse.headers": "true", "null.marker": "NULL"}


@pytest.mark.parametrize(
    ("properties", "line", "expected"),
    [
        ({}, b"a:b\tc", InputRecord(value=b"a:b\tc")),
        ({}, b"", InputRecord(value=b"")),
        ({"parse.key": "true"}, b"k\tv\tw", InputRecord(key=b"k", value=b"v\tw")),
        (KEYED, b"k:v:w", InputRecord(key=b"k", value=b"v:w")),
        (KEYED, b":", InputRecord(key=b"", value=b"")),
        (
            FULL,
            b"a:1,b:NULL,a:\tk:v",
            InputRecord(key=b"k", value=b"v", headers=(("a", b"1"), ("b", None), ("a", b""))),
        ),
        (FULL, b"NULL\tNULL:NULL", InputRecord(key=None, value=None)),
        (FULL, b"\tk:v", InputRecord(key=b"k", value=b"v")),
        (
            {**FULL, "parse.key": "false"},
            b"a:1\tv",
            InputRecord(value=b"v", headers=(("a", b"1"),)),
        ),
        ({**KEYED, "ignore.error": "true"}, b"only", InputRecord(value=b"only")),
    ],
)
def test_a_line_becomes_headers_key_and_value(
    properties: dict[str, str], line: bytes, expected: InputRecord
) -> None:
    assert line_reader(properties).read(line, 1) == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"no tab", r"line 7 has no headers delimiter '\\t': 'no tab'"),
        (b"a:1\tno key", "line 7 has no key separator ':': 'no key'"),
        (b"a\tk:v", "line 7 has a header without ':': 'a'"),
        (b"a\0b:1\tk:v", "line 7 has a header whose name has a NUL"),
        (b"x" * 100, r"'x{60}'\.\.\."),
    ],
)
def test_a_line_that_lacks_a_part_is_refused_with_its_number(line: bytes, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        line_reader(FULL).read(line, 7)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"parse.keys": "true"}, "--property parse.keys: must be one of parse.key, "),
        ({"key.separator": ""}, "--property key.separator=: must not be empty"),
    ],
)
def test_properties_that_mean_nothing_are_refused(properties: dict[str, str], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        line_reader(properties)


@given(st.binary(), st.binary().filter(lambda key: b":" not in key))
def test_any_bytes_are_kept_as_they_are(value: bytes, key: bytes) -> None:
    assert line_reader({}).read(value, 1) == InputRecord(value=value)
    assert line_reader(KEYED).read(key + b":" + value, 1) == InputRecord(key=key, value=value)
