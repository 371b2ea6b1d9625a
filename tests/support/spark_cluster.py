"""A standalone Spark cluster out of the installed PySpark: a master and two workers, in processes
of their own (trap 21).

The workers have different addresses, as machines have.
"""

import os
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final

from support.cluster_processes import wait_until
from support.ports import free_ports
from tidelog.cli.connect_server import spark_home
from tidelog.world.real.mortal import mortal

_HOSTS: Final = ("127.0.0.12", "127.0.0.13")
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_START_SECONDS_MAX: Final = 60.0
_STOP_SECONDS_MAX: Final = 20.0


class SparkCluster:
    """Started and ended by `with`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._port, self._ui_port = free_ports(2)
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    @property
    def work_dirs(self) -> list[Path]:
        """Each of a worker: an executor runs in a folder below."""
        return [self.folder / host for host in _HOSTS]

    def __enter__(self) -> "SparkCluster":
        self.folder.mkdir(parents=True, exist_ok=True)
        place = ("--host", "127.0.0.1", "--port", str(self._port))
        self._start("master", _MASTER, *place, "--webui-port", str(self._ui_port))
        self._wait_for("master", "New state: ALIVE")
        for host, work_dir in zip(_HOSTS, self.work_dirs, strict=True):
            size = ("--cores", "2", "--memory", "2g", "--webui-port", str(free_ports(1)[0]))
            place = ("--host", host, "--work-dir", str(work_dir))
            self._start(host, _WORKER, *place, *size, self.master)
        for host in _HOSTS:
            self._wait_for(host, "Successfully registered with master")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The workers first, which end their executors."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(_STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, name: str, *arguments: str) -> None:
        environment = {
            **os.environ,
            "SPARK_HOME": str(spark_home()),
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        program = str(spark_home() / "bin" / "spark-class")
        with self._log(name).open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    mortal([program, *arguments], signal.SIGTERM),
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def _wait_for(self, name: str, line: str) -> None:
        log = self._log(name)
        what = f"{name} says: {line} (see {log})"
        wait_until(lambda: line in log.read_text(errors="replace"), what, _START_SECONDS_MAX)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"
