"""Lines into records, for `tidelog produce`: with kafka-console-producer's properties a line is
`headers TAB key TAB value`, of which headers and key are there only if they were asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidelog.base.errors import BadValue

Header = tuple[str, bytes | None]
READER_PROPERTIES: Final = (
    "parse.key",
    "parse.headers",
    "key.separator",
    "headers.delimiter",
    "headers.separator",
    "headers.key.separator",
    "null.marker",
    "ignore.error",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRecord:
    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReader:
    parse_key: bool = False
    parse_headers: bool = False
    key_separator: bytes = b"\t"
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None
    ignore_error: bool = False
    """Takes a line without a separator whole, as a value."""

    def read(self, line: bytes, number: int) -> InputRecord:
        headers, rest = self._cut(line, number, "headers delimiter", self.headers_delimiter)
        key, value = self._cut(rest, number, "key separator", self.key_separator)
        return InputRecord(
            value=self._unless_null(value),
            key=None if key is None else self._unless_null(key),
            headers=() if headers is None else self._headers(headers, number),
        )

    def _cut(
        self, text: bytes, number: int, what: str, separator: bytes
    ) -> tuple[bytes | None, bytes]:
        wanted = self.parse_key if what == "key separator" else self.parse_headers
        if not wanted:
            return None, text
        before, found, after = text.partition(separator)
        if found:
            return before, after
        if self.ignore_error:
            return None, text
        raise BadValue(f"line {number} has no {what} {separator.decode()!r}: {_shortened(text)}")

    def _headers(self, text: bytes, number: int) -> tuple[Header, ...]:
        if self._unless_null(text) is None or not text:
            return ()
        return tuple(self._header(part, number) for part in text.split(self.headers_separator))

    def _header(self, part: bytes, number: int) -> Header:
        name, found, value = part.partition(self.headers_key_separator)
        if found:
            return _name(name, number), self._unless_null(value)
        if self.ignore_error:
            return _name(name, number), None
        separator = self.headers_key_separator.decode()
        raise BadValue(f"line {number} has a header without {separator!r}: {_shortened(part)}")

    def _unless_null(self, text: bytes) -> bytes | None:
        return None if self.null_marker is not None and text == self.null_marker else text


def line_reader(properties: Mapping[str, str]) -> LineReader:
    """From Kafka's properties; what they do not name has Kafka's default."""
    unknown = sorted(set(properties) - set(READER_PROPERTIES))
    if unknown:
        raise BadValue(f"--property {unknown[0]}: must be one of {', '.join(READER_PROPERTIES)}")
    flags = ("parse.key", "parse.headers", "ignore.error")
    chosen: dict[str, Any] = {}
    for name, value in properties.items():
        is_flag = name in flags
        chosen[name.replace(".", "_")] = is_true(value) if is_flag else value.encode()
        if name.endswith(("separator", "delimiter")) and not value:
            raise BadValue(f"--property {name}=: must not be empty")
    return LineReader(**chosen)


def is_true(text: str) -> bool:
    return text.strip().lower() == "true"


def _name(name: bytes, number: int) -> str:
    """Only text can be one: of anything else librdkafka would die. It takes a NUL for its end."""
    what = "a header whose name has a NUL"
    try:
        if b"\0" not in name:
            return name.decode()
    except UnicodeDecodeError:
        what = "a header whose name is no text in UTF-8"
    raise BadValue(f"line {number} has {what}: {_shortened(name)}")


def _shortened(text: bytes) -> str:
    shown = repr(text[:60].decode("utf-8", "replace"))
    return f"{shown}..." if len(text) > 60 else shown
