"""Bytes of strangers as text for a terminal, and the two kinds of lines that a dump consists of.

Keys and payloads are shown as UTF-8, with U+FFFD where Java's decoder puts it. Characters that
would move the cursor, colour the screen or break the line (control characters, line and
paragraph separators, changes of writing direction) are shown escaped, as in `\\n` or `\\x1b`:
so a record is always one line, and a payload cannot pretend to be another.
"""

import re
from typing import Final

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}".encode()
# A surrogate written in UTF-8 is one mistake to Java and up to three to Python.
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Problem(str):
    """A line that says what is wrong with a file; all other lines are plain strings."""

    __slots__ = ()


def printable(data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = _SURROGATE.sub(_REPLACEMENT, data).decode("utf-8", "replace")
    return text if text.isprintable() else _UNSAFE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    character = match.group()
    short = _SHORT.get(character)
    if short is not None:
        return short
    return f"\\x{ord(character):02x}" if character < "\u0100" else f"\\u{ord(character):04x}"
