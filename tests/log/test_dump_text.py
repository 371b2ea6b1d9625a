"""Text of strangers on a terminal: decoded as Java does it, and harmless."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.log.dump_text import printable

BAD = "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        ("värde ✓ 🎉".encode(), "värde ✓ 🎉"),
        (b"a\nb\r\n\tc", "a\\nb\\r\\n\\tc"),
        (b"\x1b[2J\x00\x7f\xc2\x9b", "\\x1b[2J\\x00\\x7f\\x9b"),
        ("\u2028\u202e\u2066".encode(), "\\u2028\\u202e\\u2066"),
        (b"\xff\xfe", BAD * 2),
        (b"\xc3\x28", f"{BAD}("),
        (b"\xe2\x82", BAD),
        (b"\xf0\x9f\x98", BAD),
        (b"\xed\xa0\x80 \xed\xa0", f"{BAD} {BAD}"),
        (b"\xf4\x90\x80\x80", BAD * 4),
        (b"\xc0\x80", BAD * 2),
        (b'{"a": "\\n"}', '{"a": "\\n"}'),
    ],
)
def test_bytes_are_shown_as_java_reads_them_and_escaped(data: bytes, text: str) -> None:
    assert printable(data) == text


@given(st.binary(max_size=64))
def test_any_bytes_become_one_harmless_line(data: bytes) -> None:
    text = printable(data)
    assert len(text.splitlines()) <= 1
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text)
    text.encode("utf-8")


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_ordinary_text_is_shown_unchanged(text: str) -> None:
    assert printable(text.encode()) == text
