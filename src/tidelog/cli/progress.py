"""How far a long piece of work is, on one line of the terminal that is written over and over, and
Ctrl-C, which is heard only where that is told.

Compiled loops call back into Python, and an exception that comes up there crashes the process: so
Ctrl-C waits until the work is between two of its steps. A second one ends the process at once.
Scripts and files are spared the line; it is gone when the work is done.
"""

import signal
import sys
import time
from types import TracebackType
from typing import Any, Final

_EVERY_SECONDS: Final = 0.2


class ProgressLine:
    def __init__(self, what: str | None = None) -> None:
        """`what` follows the number, as in `records written`; without it no line is shown."""
        self._what = what
        self._is_shown = what is not None and sys.stderr.isatty()
        self._told = 0.0
        self._width = 0

    def tell(self, count: int) -> None:
        now = time.monotonic()
        if now - self._told >= _EVERY_SECONDS:
            self._told = now
            self._show(f"{count:,} {self._what}")

    def clear(self) -> None:
        self._show("")

    def _show(self, text: str) -> None:
        if self._is_shown and (text or self._width):
            sys.stderr.write(f"\r{text.ljust(self._width)}" + ("" if text else "\r"))
            sys.stderr.flush()
            self._width = len(text)


class Progress:
    """Of work that this process does itself, in steps; `tell` is called between them."""

    def __init__(self, what: str | None = None) -> None:
        self._line = ProgressLine(what)
        self._is_interrupted = False
        self._before: Any = None

    def __enter__(self) -> "Progress":
        self._before = signal.signal(signal.SIGINT, self._heard)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._before)
        self._line.clear()
        if kind is None:
            self._check()

    def tell(self, count: int) -> None:
        self._check()
        self._line.tell(count)

    def _check(self) -> None:
        if self._is_interrupted:
            raise KeyboardInterrupt

    def _heard(self, _number: int, _frame: object) -> None:
        self._is_interrupted = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)
