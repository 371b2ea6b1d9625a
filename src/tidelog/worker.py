"""The child process that does work which burns CPU.

It reads one JSON line a task on its standard input, `{"task", "argument"}`, and answers with
one line on its standard output: `{"result"}`, or `{"error", "errno", "path"}` where errno and
path are null unless it was the disk's error. When its input closes, its parent has gone,
and it ends at once, in the middle of a task if need be: nobody would use what it writes,
and a new parent must not find it writing.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any, TextIO

from tidelog.base.errors import TaskError
from tidelog.base.ports import Disk
from tidelog.world.real.disk import RealDisk
from tidelog.world.tasks import run_task

NICENESS = 5


def main() -> None:
    os.nice(NICENESS)
    # Ctrl-C reaches the whole process group; when to stop is the parent's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = _take_over_stdout()
    disk = RealDisk()
    for line in _lines_until_parent_dies():
        print(json.dumps(answer(disk, json.loads(line))), file=answers, flush=True)


def answer(disk: Disk, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"result": run_task(disk, request["task"], request["argument"])}
    except OSError as error:
        return {"error": error.strerror, "errno": error.errno, "path": error.filename}
    except TaskError as error:
        # Imported here: it is of no use while all goes well.
        from traceback import print_exc

        print_exc()
        return {"error": str(error), "errno": None, "path": None}


def _take_over_stdout() -> TextIO:
    """Whatever a task prints goes to standard error, not between the answers."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _lines_until_parent_dies() -> Iterator[str]:
    lines: SimpleQueue[str] = SimpleQueue()

    def receive() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=receive, name="parent", daemon=True).start()
    while True:
        yield lines.get()
