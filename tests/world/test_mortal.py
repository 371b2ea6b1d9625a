"""What a command starts ends with it, also when it is killed."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from tidelog.world.real.mortal import mortal

SECONDS_MAX = 30
PARENT = """
import subprocess, sys, time
from signal import SIGTERM
from tidelog.world.real.mortal import mortal
child = subprocess.Popen(mortal(["sleep", "600"], SIGTERM), start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""


def is_there(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_process_ends_with_the_one_that_started_it_however_that_went() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        command = Path(f"/proc/{child}/cmdline")
        deadline = time.monotonic() + SECONDS_MAX
        while not command.read_bytes().startswith(b"sleep\0"):
            assert time.monotonic() < deadline, "it becomes what it shall be"
        parent.kill()
    while is_there(child):
        assert time.monotonic() < deadline, "it ends"


def test_it_is_the_command_itself_that_runs_and_its_end_is_seen() -> None:
    ended = subprocess.run(mortal([sys.executable, "-c", "exit(7)"], signal.SIGTERM), check=False)
    assert ended.returncode == 7
