"""Running a pipeline project: once or again and again, with its progress and its lag shown.

Spark's own runner does the work, at a Connect server; what it prints is passed on in fewer words.
After each run the checkpoints say how far the flows have read their topics.
"""

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import TextIOBase
from pathlib import Path
from typing import Final

from tidelog.base.errors import BadValue, KafkaError
from tidelog.cli.connect_server import ConnectServer
from tidelog.cli.pipeline_project import Project
from tidelog.cli.printing import complain, say, say_table
from tidelog.cli.spark_session import HERE, check_remote
from tidelog.client.client import Client
from tidelog.client.errors import Unreachable
from tidelog.spark.worker_python import worker_variables

_EVENT: Final = re.compile(r"\d{4}-\d\d-\d\d (\d\d:\d\d:\d\d): (.*)")
_FLOW: Final = re.compile(r"Flow (\S+) (?:is|has) (\w+)\.?(.*)")
_TOLD: Final = frozenset(("RUNNING", "COMPLETED", "FAILED", "STOPPED", "SKIPPED", "EXCLUDED"))
_CAUSE: Final = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|BadValue|DataLost|Unreachable): .+")
_CATALOG: Final = "spark_catalog.default."
_LOG: Final = "spark.log"
_LOOK_SECONDS: Final = 1.0
_AGAIN_SECONDS: Final = 30.0


@contextmanager
def connect(
    project: Project, master: str | None, remote: str | None
) -> Iterator[Callable[[], str]]:
    """Tells, for each run, the address of a Connect server: of the one that was named, or of one
    that is started here, and again should it die."""
    if remote is not None:
        yield lambda: _found(remote)
        return
    log = project.folder / _LOG
    say(f"starting Spark on {master or HERE} (its log: {log})")
    with ConnectServer(project.folder, master or HERE, log) as server, _Keeper(server, log) as kept:
        yield kept.address


def _found(remote: str) -> str:
    check_remote(remote)
    return remote


class _Keeper:
    """Starts a server again at the same address when it has died, also in the middle of a run: its
    client asks on and on, for minutes, until somebody is there to say that the run is lost."""

    def __init__(self, server: ConnectServer, log: Path) -> None:
        self._server = server
        self._log = log
        self._is_up = True
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "_Keeper":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def address(self) -> str:
        with self._lock:
            if not self._server.is_running:
                if self._is_up:
                    old = self._log.replace(f"{self._log}.old")
                    complain(f"Spark has ended, and is started again (its log until then: {old})")
                self._is_up = False
                self._server.start()
                self._is_up = True
            return self._server.address

    def _watch(self) -> None:
        while not self._is_over.wait(_LOOK_SECONDS if self._is_up else _AGAIN_SECONDS):
            try:
                self.address()
            except BadValue as error:
                complain(error)


def run_once(
    project: Project, remote: str, *, full_refresh: bool = False, tell: Callable[[str], None] = say
) -> float:
    """How many seconds it took; `tell` is given a line for each thing that happens."""
    os.environ["SPARK_REMOTE"] = remote
    os.environ.update({**worker_variables(), **os.environ})
    from pyspark.errors import PySparkException
    from pyspark.pipelines.cli import run

    began = time.monotonic()
    with redirect_stdout(RunLines(tell)):
        try:
            run(project.spec, [], full_refresh, [], False)
        except PySparkException as error:
            raise BadValue(f"pipeline {project.name}: {cause(str(error))}") from error
    return time.monotonic() - began


class RunLines(TextIOBase):
    """What Spark's runner prints, line by line, without what nobody needs."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._out = sys.stdout
        self._pending = ""
        self._is_failure = False
        """Whether what comes is the long story of something that failed."""
        self._is_explained = False

    def write(self, text: str) -> int:
        *lines, self._pending = (self._pending + text).split("\n")
        for line in lines:
            told = self._shortened(line)
            if told:
                with redirect_stdout(self._out):
                    self._tell(told)
        return len(text)

    def _shortened(self, line: str) -> str | None:
        if _EVENT.fullmatch(line):
            self._is_failure, self._is_explained = "failed" in line.lower(), False
            return shorten(line)
        if not self._is_failure:
            return line
        if self._is_explained or not _CAUSE.fullmatch(line):
            return None
        self._is_explained = True
        return f"         {line}"


def shorten(line: str) -> str | None:
    """An event of Spark's; None if it is not worth telling."""
    event = _EVENT.fullmatch(line)
    assert event is not None, line
    when, what = event.groups()
    flow = _FLOW.fullmatch(what)
    if flow is not None:
        name, state, rest = flow.groups()
        is_told = state in _TOLD
        return f"{when} {name.removeprefix(_CATALOG)} {state.lower()}{rest}" if is_told else None
    return f"{when} {what}" if "failed" in what.lower() else None


def cause(text: str) -> str:
    """The line that says what went wrong, out of pages: the last one that names a Python error,
    or else the first."""
    lines = [line for line in text.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if _CAUSE.fullmatch(line)), lines[0])


def show_lag(project: Project) -> None:
    """A line for each partition of each flow, if it is known where its checkpoints and brokers
    are."""
    from tidelog.spark.checkpoints import read_positions
    from tidelog.spark.lag import measure_lag

    if project.storage is None or project.bootstrap is None:
        return
    rows: list[tuple[object, ...]] = []
    try:
        with Client(project.bootstrap) as client:
            for flow, read in read_positions(project.storage).items():
                name = flow.split("/")[-2]
                for lag in measure_lag(client, read, int(time.time() * 1000)):
                    behind = "?" if lag.time_ms < 0 else f"{lag.time_ms / 1000:.1f} s"
                    place = lag.partition
                    rows.append(
                        (name, place.topic, place.partition, lag.read, lag.end, lag.records, behind)
                    )
    except (KafkaError, Unreachable) as error:
        say(f"lag: not known: {error}")
        return
    if rows:
        say_table(("FLOW", "TOPIC", "PARTITION", "READ TO", "END", "LAG", "TIME BEHIND"), rows)
