"""What is piped comes as it was written, in however many pieces."""

import os
from io import BytesIO

import pytest

from tidelog.cli.piped_lines import piped_lines


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a", [b"a"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\n\nb\n", [b"a\r", b"", b"b"]),
        (b"x" * 200_000 + b"\n" + b"y" * 70_000, [b"x" * 200_000, b"y" * 70_000]),
    ],
)
def test_lines_are_what_lies_between_newlines(written: bytes, lines: list[bytes]) -> None:
    assert list(piped_lines(BytesIO(written))) == lines


def test_who_reads_a_pipe_is_told_that_nothing_has_come_and_loses_nothing_by_it() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        found = piped_lines(stream)
        assert next(found) is None
        os.write(writing, b"one\ntw")
        assert next(found) == b"one"
        assert next(found) is None
        os.write(writing, b"o\nthree")
        assert next(found) == b"two"
        os.close(writing)
        assert list(found) == [b"three"]
