"""Doors in a program that is tested: where one is closed, whoever comes to it waits, and a test
sees who waits where. So a process is killed at a place and not at a time.

A door is a file in a folder; the program passes it wherever it likes, and never waits at one that
is open.
"""

import os
import time
from pathlib import Path
from typing import Final

_LOOK_S: Final = 0.01
_SECONDS_MAX: Final = 240.0


class Doors:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    # -- for the test

    def close(self, name: str) -> None:
        # Who came just when it was opened may have said that he waits, and went on.
        self._waiting(name).unlink(missing_ok=True)
        self._closed(name).touch()

    def open(self, name: str) -> None:
        """Whoever waits goes on."""
        self._closed(name).unlink()
        self._waiting(name).unlink(missing_ok=True)

    def wait_for_somebody(self, name: str) -> int:
        """The process that waits there."""
        return self._wait_for_process(self._waiting(name))

    def last_passed_by(self, name: str) -> int:
        """The process that came there last."""
        return self._wait_for_process(self._passed(name))

    # -- for the program

    def go_through(self, name: str) -> None:
        _write(self._passed(name), str(os.getpid()))
        if self._closed(name).exists():
            _write(self._waiting(name), str(os.getpid()))
        while self._closed(name).exists():
            time.sleep(_LOOK_S)

    def _closed(self, name: str) -> Path:
        return self._folder / f"{name}.closed"

    def _waiting(self, name: str) -> Path:
        return self._folder / f"{name}.waiting"

    def _passed(self, name: str) -> Path:
        return self._folder / f"{name}.passed"

    def _wait_for_process(self, file: Path) -> int:
        deadline = time.monotonic() + _SECONDS_MAX
        while not file.exists():
            assert time.monotonic() < deadline, f"{file.name}: nobody came in {_SECONDS_MAX} s"
            time.sleep(_LOOK_S)
        return int(file.read_text())


def _write(file: Path, text: str) -> None:
    """Whole, or not at all."""
    fresh = file.with_suffix(f".{os.getpid()}")
    fresh.write_text(text)
    fresh.replace(file)
