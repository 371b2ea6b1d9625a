"""How far a long piece of work is, on one line of the terminal that is written over and over.

Scripts and files are spared it; it is gone when the work is done.
"""

import sys
import time
from types import TracebackType
from typing import Final

_EVERY_SECONDS: Final = 0.2


class Progress:
    def __init__(self, what: str) -> None:
        """`what` follows the number, as in `records written`."""
        self._what = what
        self._is_shown = sys.stderr.isatty()
        self._told = 0.0
        self._width = 0

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._show("")

    def tell(self, count: int) -> None:
        now = time.monotonic()
        if now - self._told >= _EVERY_SECONDS:
            self._told = now
            self._show(f"{count:,} {self._what}")

    def _show(self, text: str) -> None:
        if self._is_shown and (text or self._width):
            sys.stderr.write(f"\r{text.ljust(self._width)}" + ("" if text else "\r"))
            sys.stderr.flush()
            self._width = len(text)
