"""How the demo looks: a heading a step, a few sentences, small tables, quoted output.

Colours and widths follow the terminal; without one it is plain text of 80 columns. Prose
is kept narrow, because lines of 200 letters cannot be read.
"""

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Final

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_WIDTH_MAX: Final = 100
_INDENT: Final = 2


class Screen:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._width = min(console.width, _WIDTH_MAX)
        self._steps = 0

    def title(self, text: str) -> None:
        self._print(Text(text, style="bold"), indent=0)

    def step(self, title: str) -> None:
        """Begins the next step."""
        self._steps += 1
        heading = Text(f"{self._steps}. {title}", style="bold cyan")
        self._console.print()
        self._print(heading, indent=0)

    def say(self, text: str) -> None:
        """What was done."""
        self._print(Text(text))

    def notice(self, text: str) -> None:
        """What is remarkable about it."""
        self._print(Text.assemble(("> ", "green"), text))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Numbers to the right, everything else to the left."""
        cells = [[_shown(value) for value in row] for row in rows]
        table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False, show_edge=False)
        for index, column in enumerate(columns):
            is_text = any(not _is_number(row[index]) for row in cells)
            table.add_column(column, justify="left" if is_text else "right")
        for row in cells:
            table.add_row(*map(Text, row))
        self._console.print()
        self._print(table)
        self._console.print()

    def quote(self, lines: Iterable[str]) -> None:
        """Output of a command, wrapped with a hanging indent where it is too wide."""
        for line in lines:
            width = self._width - 2 * _INDENT
            for part in wrap(line, width, subsequent_indent="    ", break_on_hyphens=False):
                self._print(Text(part, style="dim"), indent=2 * _INDENT)

    def _print(self, what: Text | Table, *, indent: int = _INDENT) -> None:
        padded = Padding(what, (0, 0, 0, indent), expand=False)
        self._console.print(padded, width=self._width, highlight=False)


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _is_number(text: str) -> bool:
    return text[:1].isdigit()
