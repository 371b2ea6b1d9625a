"""A Spark Connect server in a process of its own, out of the installed PySpark.

Declarative pipelines run at such a server, and several runs at one that stays warm. It keeps its
tables and their catalog in a project's folder, as `conf/spark-defaults.conf` there says, and ends
with whoever started it.
"""

import os
import signal
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final

from tidelog.base.errors import BadValue
from tidelog.cli.free_ports import HOST, free_ports
from tidelog.cli.spark_session import spark_environment
from tidelog.world.real.mortal import mortal

_CLASS: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
_START_SECONDS_MAX: Final = 120.0
_STOP_SECONDS_MAX: Final = 20.0
_LOOK_SECONDS: Final = 0.1
_LINES_SHOWN: Final = 5


class ConnectServer:
    """Ended by `with`, and started unless it was; sessions are made with its `address`."""

    def __init__(self, folder: Path, master: str, log: Path) -> None:
        """`folder` is the project's, which has `conf`."""
        self._folder = folder
        self._master = master
        self._log = log
        (self._port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"sc://{HOST}:{self._port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> "ConnectServer":
        if self._process is None:
            self.start()
        return self

    def start(self) -> None:
        """Returns when it answers."""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                mortal(self._command(), signal.SIGTERM),
                cwd=self._folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is for whoever started it, who then stops it.
                start_new_session=True,
            )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _command(self) -> list[str]:
        settings = {
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": str(self._port),
        }
        chosen = [part for item in settings.items() for part in ("--conf", "=".join(item))]
        where = ["--class", _CLASS, "--name", "tidelog pipeline", "--master", self._master]
        return [str(spark_home() / "bin" / "spark-submit"), *where, *chosen, "spark-internal"]

    def _environment(self) -> dict[str, str]:
        # Where this process is a client of such a server, a variable says of which.
        ours = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
        return {
            **ours,
            "SPARK_HOME": str(spark_home()),
            "SPARK_CONF_DIR": str(self._folder / "conf"),
            "SPARK_CONNECT_MODE": "0",
            **spark_environment(self._master),
        }

    def _wait(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_SECONDS_MAX
        while not self._answers():
            if self._process.poll() is not None:
                raise BadValue(f"Spark did not start: see {self._log}\n{self._last_words()}")
            if time.monotonic() > deadline:
                raise BadValue(f"Spark did not start in {_START_SECONDS_MAX:.0f} s: {self._log}")
            time.sleep(_LOOK_SECONDS)

    def _answers(self) -> bool:
        try:
            socket.create_connection((HOST, self._port), 1).close()
        except OSError:
            return False
        return True

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        told = [line for line in lines if "Exception" in line or "ERROR" in line] or lines
        return "\n".join(told[-_LINES_SHOWN:])


def spark_home() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise BadValue("this needs PySpark: pip install 'tidelog[spark]'")
    return Path(spec.origin).parent
