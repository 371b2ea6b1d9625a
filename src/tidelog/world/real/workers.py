"""Work that burns CPU, in a child process: `tidelog.worker`.

The child is started with the first task, kept while there are tasks now and then, and replaced
if it died; tasks run one after another, in the order they were started. A task fails if the
child dies during it, also one it was handed while dying. A thread waits for the answers. The
child ends when its input closes, so it never outlives this process, however this one ends; and
that is how it is sent away when there was nothing to do for a while.
"""

import json
import select
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

from tidelog.base.errors import ChildDied, NotStarted, TaskError
from tidelog.base.ports import Job
from tidelog.world.tasks import encode_argument

_COMMAND = (sys.executable, "-P", "-m", "tidelog.cli.worker_entry")
IDLE_MS = 10_000


class RealJob:
    def __init__(self, task: str, argument: str) -> None:
        self.task = task
        self.request = json.dumps({"task": task, "argument": argument}) + "\n"
        self._answer: dict[str, Any] = {}
        self._ended = threading.Event()

    def end(self, answer: dict[str, Any]) -> None:
        self._answer = answer
        self._ended.set()

    def result(self) -> dict[str, Any]:
        self._ended.wait()
        if "result" in self._answer:
            result: dict[str, Any] = self._answer["result"]
            return result
        message, number = self._answer["error"], self._answer["errno"]
        if number is not None:
            raise OSError(number, message, self._answer["path"])
        if not self._answer.get("is_started", True):
            raise NotStarted(message)
        if self._answer.get("has_died", False):
            raise ChildDied(message)
        raise TaskError(message)


class RealWorkers:
    def __init__(self, idle_ms: int = IDLE_MS) -> None:
        self._idle_ms = idle_ms
        self._lock = threading.Lock()
        self._child: subprocess.Popen[str] | None = None
        self._jobs: deque[RealJob] = deque()
        self._is_sent = False
        self._closed = False

    def start(self, task: str, argument: Mapping[str, Any]) -> Job:
        job = RealJob(task, encode_argument(task, argument))
        with self._lock:
            assert not self._closed, "these workers are closed"
            self._jobs.append(job)
            if len(self._jobs) == 1:
                self._go_on()
        return job

    def close(self) -> None:
        """Ends the child, and with an error the tasks that were not done."""
        with self._lock:
            self._closed = True
            child = self._child
        if child is not None:
            child.kill()
            child.wait()

    def _send_first(self) -> None:
        """Only one task is ever in the pipes, so neither side can block the other. If the
        child has died, the thread that waits for its answers sends the task to the next."""
        if self._child is None:
            self._child = self._start_child()
        assert self._child.stdin is not None
        if self._child.poll() is not None:
            return
        try:
            self._child.stdin.write(self._jobs[0].request)
            self._child.stdin.flush()
        except BrokenPipeError:
            return
        self._is_sent = True

    def _start_child(self) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )
        threading.Thread(target=self._receive, args=(child,), name="worker", daemon=True).start()
        return child

    def _receive(self, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        answers = select.poll()
        answers.register(child.stdout, select.POLLIN)
        while answers.poll(self._idle_ms) or not self._is_sent_away(child):
            line = child.stdout.readline()
            if not line.endswith("\n"):
                break
            self._end_first(json.loads(line))
        child.stdout.close()
        self._bury(child, child.wait())

    def _end_first(self, answer: dict[str, Any]) -> None:
        with self._lock:
            self._finish_first(answer)
            self._go_on()

    def _is_sent_away(self, child: subprocess.Popen[str]) -> bool:
        """Unless it has something to do, which may take as long as it likes."""
        with self._lock:
            if self._jobs:
                return False
            self._child = None
            _close_input(child)
            return True

    def _bury(self, child: subprocess.Popen[str], code: int) -> None:
        with self._lock:
            if self._child is not child:
                return
            _close_input(child)
            self._child = None
            if self._is_sent:
                self._finish_first(_death(self._jobs[0].task, code))
            self._go_on()

    def _finish_first(self, answer: dict[str, Any]) -> None:
        self._is_sent = False
        self._jobs.popleft().end(answer)

    def _go_on(self) -> None:
        """Hands out the next task. Where no child can be started, for want of memory, say,
        that task fails, and the next one tries again."""
        while self._jobs:
            task = self._jobs[0].task
            if self._closed:
                self._finish_first(_failure(f"{task}: the workers were closed"))
                continue
            try:
                self._send_first()
            except OSError as error:
                why = f"{task}: no worker process could be started: {error}"
                self._finish_first(_failure(why) | {"is_started": False})
                continue
            return


class WorkersByTask:
    """One child for each kind of task, so that none waits behind one of another kind."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers: dict[str, RealWorkers] = {}

    def start(self, task: str, argument: Mapping[str, Any]) -> Job:
        with self._lock:
            workers = self._workers.setdefault(task, RealWorkers())
        return workers.start(task, argument)

    def close(self) -> None:
        with self._lock:
            workers = list(self._workers.values())
        for each in workers:
            each.close()


def _close_input(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    try:
        child.stdin.close()
    except BrokenPipeError:
        # What was buffered for a dead child; its job ends with an error of its own.
        return


def _death(task: str, code: int) -> dict[str, Any]:
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    return _failure(f"{task}: the worker process {how}") | {"has_died": True}


def _failure(message: str) -> dict[str, Any]:
    return {"error": message, "errno": None, "path": None}
