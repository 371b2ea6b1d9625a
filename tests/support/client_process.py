"""A client in a process of its own, which is killed and frozen like any other.

It runs one of the programs beside this file, which notes what it does. What it says on its own
account is kept for when something is wrong.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from support.cluster_processes import wait_until
from support.notes import count_notes
from tidelog.world.real.mortal import mortal

SECONDS_MAX: Final = 120.0


class ClientProcess:
    def __init__(self, program: str, folder: Path, name: str, *arguments: str) -> None:
        """`program` is the name of its file. It is given the file for its notes, its own name, and
        the arguments."""
        self.name = name
        self._said = folder / f"{name}.log"
        self._notes = folder / f"{name}.notes"
        self._notes.touch()
        place = Path(__file__).with_name(program)
        self._command = [sys.executable, str(place), str(self._notes), name, *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """The thread that calls this must outlive the process."""
        assert not self.is_running, f"{self.name} does not run yet"
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(
                mortal(self._command, signal.SIGKILL),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(SECONDS_MAX)
            self._process = None

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, f"{self.name} was started"
        os.kill(self._process.pid, number)

    def wait_for(self, what: str) -> None:
        """Until it notes it once more."""
        self.wait_until_noted(what, count_notes(self._notes, what) + 1)

    def wait_until_noted(self, what: str, times: int = 1) -> None:
        def is_noted() -> bool:
            assert self.is_running, f"{self.name} ended: {self.words}"
            return count_notes(self._notes, what) >= times

        wait_until(is_noted, f"{self.name} notes {what}: {self.words}", SECONDS_MAX)

    @property
    def words(self) -> str:
        """The last of its notes, and of what it said."""
        noted = self._notes.read_text(encoding="utf-8").splitlines()[-3:]
        return f"{noted} {self._said.read_text(encoding='utf-8', errors='replace')[-1000:]}"
