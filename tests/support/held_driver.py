"""A streaming query in a process of its own, and kills of whatever it depends on, in each of its
phases.

A `HeldDriver` starts the query, and starts it again where that was killed. What its checkpoint and
its table say is read here without Spark.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from support.cluster_processes import children_of, wait_until
from support.doors import Doors
from support.held_query import FAILURES, FINISH
from support.held_source import FOLDER, PLANNING, notes_in
from support.servers import ROOT
from support.topic_rows import Row, rows_of
from tidelog.spark.offsets import Planned, each_partition, read_offset
from tidelog.spark.worker_python import worker_variables

SECONDS_MAX: Final = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What a task has read of a range of a partition."""

    batch: int
    partition: int
    start: int
    end: int
    rows: list[Row]


class HeldDriver:
    def __init__(self, folder: Path, bootstrap: str, *topics: str) -> None:
        """From a topic into a table, or into the second one."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.doors = Doors(folder / "doors")
        self._arguments = [str(folder), bootstrap, *topics]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = Path(__file__).with_name("held_query.py")
        environment = {
            **os.environ,
            FOLDER: str(self.folder),
            "PYTHONPATH": str(ROOT / "tests"),
            **worker_variables(),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with (self.folder / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(program), *self._arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Python and Java at once."""
        assert self._process is not None, "the driver runs"
        process, self._process = self._process, None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        if self._process is not None:
            self.kill()

    def finish(self) -> None:
        """All that there is gets to where it is written, and the driver ends by itself."""
        assert self._process is not None, "the driver runs"
        (self.folder / FINISH).touch()
        status = self._process.wait(SECONDS_MAX)
        assert status == 0, (self.folder / "output").read_text()[-2000:]
        self._process = None

    def wait_until(self, holds: Callable[[], Any], what: str) -> None:
        def does_hold() -> bool:
            assert self._process is not None, "the driver runs"
            ended = self._process.poll()
            assert ended is None, (self.folder / "output").read_text()[-2000:]
            return bool(holds())

        wait_until(does_hold, what, SECONDS_MAX)

    def planner(self) -> int:
        return self.doors.last_passed_by(PLANNING)

    def stop_between_the_commits(self, make_a_batch: Callable[[], None]) -> None:
        """Returns when a batch is in the table and Spark has not noted yet that it is done, with
        the driver stopped. That is a matter of milliseconds: a batch for which it was too late is
        let pass."""
        deadline = time.monotonic() + SECONDS_MAX
        is_between = False
        while not is_between:
            batch = self.planned() + 1
            make_a_batch()
            while not self._metadata(batch).exists():
                assert time.monotonic() < deadline, "never between the two commits of a batch"
                time.sleep(0.001)
            self.signal_driver(signal.SIGSTOP)
            is_between = not self._commit(batch).exists()
            if not is_between:
                self.signal_driver(signal.SIGCONT)

    def signal_driver(self, number: signal.Signals) -> None:
        assert self._process is not None, "the driver runs"
        (java,) = [one for one in children_of(self._process.pid) if _is_java(one)]
        os.kill(java, number)

    # -- what is on disk

    def query(self) -> str:
        """Its id, which stays the same over restarts."""
        found: str = json.loads((self.folder / "checkpoint" / "metadata").read_text())["id"]
        return found

    def failures(self) -> list[str]:
        """Of queries, not of drivers."""
        file = self.folder / FAILURES
        return file.read_text().split("\0")[:-1] if file.exists() else []

    def planned(self) -> int:
        """The last batch that Spark has logged; -1 if there is none."""
        return _last(self.folder / "checkpoint" / "offsets")

    def committed(self) -> int:
        return _last(self.folder / "checkpoint" / "commits")

    def plan_text(self, batch: int) -> str:
        return (self.folder / "checkpoint" / "offsets" / str(batch)).read_text()

    def plan(self, batch: int) -> Planned:
        found = read_offset(json.loads(self.plan_text(batch).splitlines()[-1]))
        assert isinstance(found, Planned)
        return found

    def read_so_far(self) -> int:
        """Records before the end of the last batch that is done."""
        last = self.committed()
        return 0 if last < 0 else sum(at for _, at in each_partition(self.plan(last).end))

    def has_written_a_file(self) -> bool:
        """Of a batch that is not in the table yet."""
        files = set((self.folder / "table").glob("*.parquet"))
        done = {path for batch in range(self.committed() + 1) for path in self._files(batch)}
        return any(_is_whole(path) for path in files - done)

    def table(self, batch: int) -> list[Row]:
        """What a batch has put into the table."""
        return rows_of(
            part for path in self._files(batch) for part in pq.ParquetFile(path).read().to_batches()
        )

    def attempts(self) -> list[Attempt]:
        """Of tasks, to read what they were to read, however they ended."""
        return [_attempt(path) for path in sorted(notes_in(self.folder).iterdir())]

    def _files(self, batch: int) -> list[Path]:
        lines = self._metadata(batch).read_text().splitlines()[1:]
        return [Path(json.loads(line)["path"].removeprefix("file://")) for line in lines]

    def _metadata(self, batch: int) -> Path:
        return self.folder / "table" / "_spark_metadata" / str(batch)

    def _commit(self, batch: int) -> Path:
        return self.folder / "checkpoint" / "commits" / str(batch)


def _attempt(note: Path) -> Attempt:
    """Up to where its process was killed."""
    batch, partition, start, end, *_ = map(int, note.name.split("_"))
    parts: list[Any] = []
    with note.open("rb") as file, suppress(pa.ArrowInvalid, OSError):
        while True:
            parts += pa.ipc.open_stream(file)
    return Attempt(batch=batch, partition=partition, start=start, end=end, rows=rows_of(parts))


def _last(folder: Path) -> int:
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _is_whole(path: Path) -> bool:
    return path.read_bytes()[-4:] == b"PAR1"


def _is_java(process_id: int) -> bool:
    return Path(f"/proc/{process_id}/cmdline").read_bytes().split(b"\0")[0].endswith(b"java")
