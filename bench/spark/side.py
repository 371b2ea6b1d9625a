"""Spark processes that are compared: each a session of its own that is handed jobs.

`tidelog` runs with the PySpark that the project is tested with, the connector with the last one it
is published for. Files, topics and memory of workers are looked after by who asks. Sources of the
bench's own are found by PySpark as any other is, in modules that are named so: looking for them is
then part of the first query, which it would not be if they were registered.
"""

import compileall
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.load.processes import family, memory_of
from bench.peers.spark_peer import SparkHome
from tidelog.client.nearby_sockets import SWITCH
from tidelog.spark.worker_python import worker_variables

Source = tuple[str, str]
"""Its module here, and its class."""

ROOT = Path(__file__).parents[2]
_STOP_SECONDS_MAX = 30
_WORKER = b"pyspark.daemon"
PYTHON = Path(sys.executable)
ROW_SOURCE = ("row_source", "RowSource")
READY_SOURCE = ("ready_source", "ReadySource")
CONSTANT_SOURCE = ("constant_source", "ConstantSource")


class Session:
    def __init__(
        self,
        python: Path,
        settings: Mapping[str, str],
        folder: Path,
        *,
        variables: Mapping[str, str] | None = None,
        sources: Sequence[Source] = (),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for module, name in sources:
            found = f"from bench.spark.{module} import {name} as DefaultSource\n"
            (folder / f"pyspark_{module}.py").write_text(found)
        # kio loads hypothesis where it is installed, which takes longer than all the rest. It is
        # for those who test, and not there where tidelog is used.
        (folder / "hypothesis.py").write_text('raise ImportError("not here")\n')
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": str(python),
            "PYTHONPATH": os.pathsep.join(
                [str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")]
            ),
            "SPARK_LOCAL_IP": "127.0.0.1",
            **(variables or {}),
        }
        environment.pop("SPARK_HOME", None)
        self._log = folder / "spark.log"
        given = {"spark.local.dir": str(folder / "local"), **settings}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(python), "-m", "bench.spark.session", json.dumps(given)],
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.version = str(self._answer()["version"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def ask(self, do: str, **job: Any) -> tuple[int, float]:
        """Rows and seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **job}) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        return answer["rows"], answer["seconds"]

    def worker_mb_max(self) -> float:
        """The most that any of its Python workers has taken so far."""
        return max(memory_of(pid).most_mb for pid in family(self._process.pid) if _is_worker(pid))

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"Spark ended: {self._log.read_text(errors='replace')[-600:]}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


def _is_worker(pid: int) -> bool:
    try:
        return _WORKER in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def our_session(
    folder: Path,
    *,
    is_plain: bool = False,
    is_far: bool = False,
    sources: Sequence[Source] = (ROW_SOURCE, READY_SOURCE),
) -> Iterator[Session]:
    """With sources of the bench's own beside `tidelog`, by a program that calls `use_this_python`,
    unless it is a plain one; and as if the broker was on another machine, if it is a far one."""
    shutil.rmtree(folder, ignore_errors=True)
    # As they are where the package is installed.
    compileall.compile_dir(ROOT / "src", quiet=1)
    variables = {} if is_plain else dict(worker_variables())
    if is_far:
        variables[SWITCH] = "no"
    with Session(PYTHON, {}, folder, variables=variables, sources=sources) as session:
        yield session


@contextmanager
def connector_session(home: SparkHome, folder: Path) -> Iterator[Session]:
    shutil.rmtree(folder, ignore_errors=True)
    with Session(home.python, {"spark.jars": home.jars}, folder) as session:
        yield session
