"""`parse_properties` reads what Java's `Properties.load` reads, and says where it cannot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import BadValue
from tidelog.base.properties import parse_properties

ODD_TEXT = st.text(alphabet=st.sampled_from("ab =:#!\\\n\r\t\fu0dD8é\ud83d\udc00\x00"), max_size=40)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a\t=\f1", {"a": "1"}),
        ("  a = 1 ", {"a": "1 "}),
        ("a==1", {"a": "=1"}),
        ("a = : 1", {"a": ": 1"}),
        ("a  1 = 2", {"a": "1 = 2"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=1", {"": "1"}),
        ("# a=1\n! b=2\n   # c=3\nd=4", {"d": "4"}),
        ("a=1 # not a comment", {"a": "1 # not a comment"}),
        ("a=1\rb=2\r\nc=3\n\n\n", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("", {}),
        ("\n \t\f\n", {}),
    ],
)
def test_names_values_and_comments_are_told_apart_as_in_java(
    text: str, expected: dict[str, str]
) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1,\\\n   2,\\\r\n\t3", {"a": "1,2,3"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\\\\\nb", {"a": "1\\b"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("a=1\\\n# part of the value", {"a": "1# part of the value"}),
        ("# a comment is not joined\\\na=1", {"a": "1"}),
        ("a=1\\", {"a": "1"}),
        ("\\\na=1", {"a": "1"}),
        ("\\\n# a comment\na=1", {"a": "1"}),
        ("\\", {}),
        ("\\\n\\\n", {}),
    ],
)
def test_a_backslash_at_the_end_joins_the_next_line(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"a=\t\n\r\f\q\"\\", {"a": '\t\n\r\fq"\\'}),
        (r"a\=b\:c\ d=1", {"a=b:c d": "1"}),
        (r"\#a=\ 1", {"#a": " 1"}),
        (r"a=\u0041\u00e9", {"a": "Aé"}),
        (r"a=\u005cu0041", {"a": "\\u0041"}),
        (r"\u0061=1", {"a": "1"}),
        (r"a=\ud83d\ude00", {"a": "😀"}),
        ("a=😀", {"a": "😀"}),
        ("a=\\u\\\n0041", {"a": "A"}),
    ],
)
def test_escapes_become_characters(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=1\nb=\\u12", r"line 2: \\u12: must be \\u and four hexadecimal digits"),
        ("\n\n\\uzzzz=1", r"line 3: \\uzzzz: must be"),
        ("a=\\u+123", r"line 1: \\u\+123: must be"),
        ("a=1\\\n2\\\n\\u00", r"line 1: \\u00: must be"),
        ("a=\\ud83d", "line 1: half of a"),
        ("a=\\ude00\\ud83d", "line 1: half of a"),
    ],
)
def test_what_java_would_not_read_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        parse_properties(text)


@given(st.one_of(st.text(max_size=80), ODD_TEXT))
def test_garbage_is_read_or_refused_and_what_was_read_can_be_encoded(text: str) -> None:
    try:
        properties = parse_properties(text)
    except BadValue as error:
        refusal = str(error)
    else:
        for name, value in properties.items():
            (name + value).encode()
        return
    assert refusal.startswith("line ")


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=12), max_size=5))
def test_escaped_text_comes_back(properties: dict[str, str]) -> None:
    text = "\n".join(f"{_escape(name)}={_escape(value)}" for name, value in properties.items())
    assert parse_properties(text) == properties


def _escape(text: str) -> str:
    units = text.encode("utf-16-be")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))
