"""What commands print: lines that are safe for a terminal, plain tables, JSON, and outcomes."""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from io import TextIOWrapper
from typing import Annotated, Any, Final

import typer

from tidelog.base.errors import KafkaError

_CELL_WIDTH_MAX: Final = 48
# JSON itself escapes what is below the blank, but neither C1 controls nor changes of direction.
_BEYOND_ASCII: Final = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_UNSAFE: Final = re.compile(f"[\x00-\x08\x0a-\x1f{_BEYOND_ASCII}]")
_UNSAFE_IN_JSON: Final = re.compile(f"[{_BEYOND_ASCII}]")


class Format(StrEnum):
    text = "text"
    table = "table"
    json = "json"


FormatOption = Annotated[
    Format | None, typer.Option("--format", help="Kafka's layout (text), a table, or JSON.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="The same as --format json.")]


def say(line: str) -> None:
    _write(_UNSAFE.sub(_escaped, line))


def say_json(value: Any) -> None:
    _write(json_text(value, indent=2))


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON with letters of all languages as they are, and nothing that a terminal acts on."""
    return _UNSAFE_IN_JSON.sub(_escaped, json.dumps(value, indent=indent, ensure_ascii=False))


def checked(text: str) -> str:
    """The same, if it is text. A byte that is none raises an error, which is explained to whoever
    has typed it: librdkafka would die of it."""
    text.encode()
    return text


def _write(text: str) -> None:
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stdout.write(f"{text}\n")


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match.group()):04x}"


def say_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as wide as their contents, up to a limit: a cell that is wider moves the rest of
    its line, and no other. Nothing is cut, nothing is wrapped."""
    lines = [list(headings), *([str(cell) for cell in row] for row in rows)]
    widths = [_width(column) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        say("  ".join(cells).rstrip())


def _width(cells: Iterable[str]) -> int:
    return max(len(cell) for cell in cells if len(cell) <= _CELL_WIDTH_MAX)


def complain(error: object) -> None:
    sys.stdout.flush()
    typer.echo(f"tidelog: {error}", err=True)


def remark(text: str) -> None:
    """For a person who looks on; scripts and files are spared it."""
    if sys.stderr.isatty():
        sys.stdout.flush()
        typer.echo(text, err=True)


def counted(count: int) -> str:
    return f"{count} {'record' if count == 1 else 'records'}"


def report(outcomes: Mapping[str, KafkaError | None], done: str) -> None:
    """A line for each: `done` with the name in it, or what went wrong; then status 1."""
    for name, error in outcomes.items():
        if error is None:
            say(done.format(name))
        else:
            complain(error)
    if any(outcomes.values()):
        raise typer.Exit(1)
