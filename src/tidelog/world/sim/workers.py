"""Workers without processes: a task runs on the simulated disk when its result is asked for.

Arguments and results pass through JSON as they do on the way to a real worker, so what
works here works there.
"""

from collections.abc import Mapping
from typing import Any

from tidelog.base.errors import TaskError
from tidelog.base.ports import Disk, Job
from tidelog.world.tasks import encode_argument, run_task


class SimJob:
    def __init__(self, disk: Disk, task: str, argument: str) -> None:
        self._disk = disk
        self._task = task
        self._argument = argument
        self._outcome: dict[str, Any] | OSError | TaskError | None = None

    def result(self) -> dict[str, Any]:
        if self._outcome is None:
            try:
                self._outcome = run_task(self._disk, self._task, self._argument)
            except (OSError, TaskError) as error:
                self._outcome = error
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


class SimWorkers:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def start(self, task: str, argument: Mapping[str, Any]) -> Job:
        return SimJob(self._disk, task, encode_argument(task, argument))
