"""Ctrl-C at any moment of a start or an end: the process ends without a word, with a shell's 130.

What is interrupted is chosen by what is imported, so that no test depends on how long that takes.
"""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

STATUSES = (130, -signal.SIGINT)
"""Of a command that was interrupted; of a process that had not come to one yet. A shell shows both
as 130."""
INTERRUPTIBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
IMMUNE = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
"""As with nohup, or in the background of a script, where these tests may be run too."""
PROGRAM = """
import atexit, os, signal, sys
from tidelog.cli.entry import main

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

left = int(sys.argv.pop(1))

def count(event, _):
    global left
    if event == "import":
        left -= 1
        if left == 0:
            interrupt()

if left == 0:
    atexit.register(interrupt)
else:
    sys.addaudithook(count)
main()
"""


def interrupted(
    at: int, *arguments: str, folder: Path, before: str = INTERRUPTIBLE
) -> subprocess.CompletedProcess[str]:
    """A command that is interrupted when it looks for its n-th module; at the end, with 0."""
    command = [sys.executable, "-P", "-c", before + PROGRAM, str(at), *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("at", [1, 2, 30, 100, 225, 300, 400, 500])
def test_a_server_that_is_interrupted_while_it_is_loaded_ends_without_a_word(
    at: int, tmp_path: Path
) -> None:
    ended = interrupted(at, "server", folder=tmp_path)
    assert (ended.stdout, ended.stderr) == ("", "")
    assert ended.returncode in STATUSES
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["topics", "consume", "up", "znode"])
@pytest.mark.parametrize("at", [50, 225])
def test_so_does_any_other_command(command: str, at: int, tmp_path: Path) -> None:
    ended = interrupted(at, command, "--help", folder=tmp_path)
    assert ended.stderr == ""
    assert ended.returncode in STATUSES


def test_so_does_one_that_is_interrupted_when_it_has_done_its_work(tmp_path: Path) -> None:
    ended = interrupted(0, "--version", folder=tmp_path)
    assert ended.stdout.startswith("tidelog ")
    assert ended.stderr == ""
    assert ended.returncode == -signal.SIGINT


def test_an_interrupt_is_ignored_where_it_was_before(tmp_path: Path) -> None:
    ended = interrupted(100, "--version", folder=tmp_path, before=IMMUNE)
    assert (ended.returncode, ended.stderr) == (0, "")
