"""Reading Java's `.properties` text, the form of `server.properties` and `meta.properties`.

Lines that begin with # or ! are comments. A name ends at the first =, : or blank that is not
escaped; a backslash at the end of a line joins the next one to it; `\\uXXXX` is a character.
As in Java, the last value given to a name counts.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tidelog.base.errors import BadValue

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX: Final = frozenset("0123456789abcdefABCDEF")


def parse_properties(text: str) -> dict[str, str]:
    """Names and values. What Java would not read is refused with its line number."""
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        name_end = _end_of_name(line)
        value_start = _start_of_value(line, name_end)
        name = _unescape(line[:name_end], number)
        properties[name] = _unescape(line[value_start:], number)
    return properties


def read_properties(file: Path) -> dict[str, str]:
    try:
        return parse_properties(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise BadValue(f"{file}: must be text in UTF-8: {error}") from None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, blank lines and line joins, each with the number it began on."""
    joined = ""
    first_number = 0
    is_joining = False
    for number, line in enumerate(_natural_lines(text), start=1):
        stripped = line.lstrip(_BLANKS)
        if not joined:
            if stripped.startswith(("#", "!")) or (not stripped and not is_joining):
                is_joining = False
                continue
            first_number = number
        is_joining = _ends_in_join(stripped)
        joined += stripped[:-1] if is_joining else stripped
        if not is_joining and joined:
            yield first_number, joined
            joined = ""
    if joined:
        yield first_number, joined


def _natural_lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _ends_in_join(line: str) -> bool:
    backslashes = len(line) - len(line.rstrip("\\"))
    return backslashes % 2 == 1


def _end_of_name(line: str) -> int:
    position = 0
    while position < len(line):
        if line[position] == "\\":
            position += 2
        elif line[position] in "=:" or line[position] in _BLANKS:
            return position
        else:
            position += 1
    return len(line)


def _start_of_value(line: str, name_end: int) -> int:
    """After the blanks around at most one = or :."""
    rest = line[name_end:].lstrip(_BLANKS)
    if rest.startswith(("=", ":")):
        rest = rest[1:].lstrip(_BLANKS)
    return len(line) - len(rest)


def _unescape(text: str, number: int) -> str:
    if "\\" in text:
        text = "".join(_characters(text, number))
    return _join_surrogates(text, number)


def _characters(text: str, number: int) -> Iterator[str]:
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            yield character if character != "\\" else ""
            continue
        escaped = text[position]
        position += 1
        if escaped == "u":
            yield _unicode_escape(text[position : position + 4], number)
            position += 4
        else:
            yield _ESCAPES.get(escaped, escaped)


def _unicode_escape(digits: str, number: int) -> str:
    if len(digits) < 4 or not _HEX.issuperset(digits):
        raise BadValue(f"line {number}: \\u{digits}: must be \\u and four hexadecimal digits")
    return chr(int(digits, 16))


def _join_surrogates(text: str, number: int) -> str:
    """Java writes a character beyond U+FFFF as two escapes, which are one character here."""
    if not any("\ud800" <= character <= "\udfff" for character in text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise BadValue(
            f"line {number}: half of a \\u surrogate pair must not stand alone"
        ) from None
