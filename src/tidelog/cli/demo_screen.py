"""How the demo looks: a heading a step, a few sentences, small tables, quoted output.

Colours and widths follow the terminal; without one it is plain text of 80 columns. Prose
is kept narrow, because lines of 200 letters cannot be read.
"""

import re
from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Final

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_WIDTH_MAX: Final = 100
_INDENT: Final = "  "
_NUMBER: Final = re.compile(r"\d[\d,]*(\.\d+)?( ?(x|ms|s|MB|days))?")


class Screen:
    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._width = min(self._console.width, _WIDTH_MAX)
        self._steps = 0

    def title(self, text: str) -> None:
        self._console.print()
        self._lines(text, style="bold")

    def step(self, title: str) -> None:
        """Begins the next step."""
        self._steps += 1
        self._console.print()
        self._lines(f"{self._steps}. {title}", style="bold cyan")

    def say(self, text: str) -> None:
        """What was done."""
        self._lines(text, first=_INDENT, rest=_INDENT)

    def notice(self, text: str) -> None:
        """What is remarkable about it."""
        self._lines(text, first=f"{_INDENT}> ", rest=_INDENT * 2, style="green")

    def command(self, text: str) -> None:
        """A command to try: never wrapped, so that it can be copied."""
        self._console.print(Text(_INDENT * 2 + text), soft_wrap=True)

    def quote(self, *lines: str) -> None:
        """What a command printed, with a hanging indent where it is too wide."""
        for line in lines:
            self._lines(line, first=_INDENT * 2, rest=_INDENT * 4, style="dim")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Numbers to the right, everything else to the left."""
        cells = [[_shown(value) for value in row] for row in rows]
        table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False, show_edge=False)
        for index, column in enumerate(columns):
            is_number = all(_NUMBER.fullmatch(row[index]) for row in cells)
            table.add_column(column, justify="right" if is_number else "left")
        for row in cells:
            table.add_row(*row)
        self._console.print()
        self._console.print(Padding(table, (0, 0, 0, len(_INDENT)), expand=False))
        self._console.print()

    def _lines(self, text: str, *, first: str = "", rest: str = "", style: str = "") -> None:
        for line in wrap(
            text,
            self._width,
            initial_indent=first,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        ):
            self._console.print(Text(line, style=style), soft_wrap=True)


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
