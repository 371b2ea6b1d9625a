"""The tasks a worker can run, by name.

A task is a function of the disk and a JSON argument with a JSON result. The table names
functions as text, so that whoever only starts tasks does not import what they are made of:
the broker's process must stay free of numba, numpy and pyarrow.
"""

import json
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from tidelog.base.errors import TaskError
from tidelog.base.ports import Disk

TASKS: Mapping[str, str] = {
    "about": "tidelog.world.tasks:about",
    "clean": "tidelog.log.cleaning:clean",
    "find time": "tidelog.records.time_finder:run",
    "inspect": "tidelog.records.inspector:run",
    "inspect many": "tidelog.records.inspector:run",
    "scan": "tidelog.log.scanning:scan",
}


def about(disk: Disk, argument: Mapping[str, Any]) -> dict[str, Any]:
    """Tells of the process that runs tasks, and what it sees in a folder."""
    return {
        "pid": os.getpid(),
        "niceness": os.nice(0),
        "modules": sorted(sys.modules),
        "names": disk.list(argument["folder"]),
    }


def encode_argument(task: str, argument: Mapping[str, Any]) -> str:
    assert task in TASKS, f"no task {task!r}; there are {', '.join(sorted(TASKS))}"
    return json.dumps(argument)


def run_task(disk: Disk, task: str, argument: str) -> dict[str, Any]:
    """Raises `OSError` as it came, and `TaskError` for anything else that went wrong."""
    module, _, function = TASKS[task].partition(":")
    try:
        result = getattr(import_module(module), function)(disk, json.loads(argument))
        decoded: dict[str, Any] = json.loads(json.dumps(result))
    except OSError:
        raise
    except Exception as error:
        raise TaskError(f"{task}: {type(error).__name__}: {error}") from error
    return decoded
