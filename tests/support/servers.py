"""Broker processes for tests: started on loopback, stopped or killed, started again.

`new_server` gives one of ours. With `TIDELOG_TEST_PEER=kafka` in the environment it gives Apache
Kafka instead (Java needed, see bench/peers), so that anyone can check a test against Kafka itself.
A server keeps its address and its log dir over restarts, and `close` leaves no process behind.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from support.ports import free_ports
from tidelog.cli.free_ports import HOST
from tidelog.world.real.mortal import mortal

ROOT: Final = Path(__file__).parents[2]
PEER: Final = os.environ.get("TIDELOG_TEST_PEER", "")
_START_SECONDS_MAX: Final = 60
_STOP_SECONDS_MAX: Final = 60
_KAFKA_CLUSTER_ID: Final = "tests-of-tidelog-00000"
_LISTENS: Final = b"listening on"


class Server(Protocol):
    log_dir: Path
    address: str

    def start(self) -> None:
        """Returns when the server accepts connections."""

    def stop(self) -> None:
        """SIGTERM, and waits for the end."""

    def kill(self) -> None:
        """SIGKILL, and waits for the end."""

    def close(self) -> None:
        """Ends whatever is left."""


def new_server(folder: Path, settings: Mapping[str, str]) -> Server:
    """Not started yet; all it writes is under `folder`."""
    if PEER == "kafka":
        return _apache_kafka(folder, settings)
    assert PEER == "", f"TIDELOG_TEST_PEER={PEER}: `kafka` is the only other broker known here"
    return TidelogServer(folder, settings)


class TidelogServer:
    def __init__(
        self, folder: Path, settings: Mapping[str, str], *, files_max: int | None = None
    ) -> None:
        """`files_max` is how many files its process may have open, if not as many as this one."""
        folder.mkdir(parents=True, exist_ok=True)
        self._files_max = files_max
        self.log_dir = folder / "logs"
        self.address = f"{HOST}:{free_ports(1)[0]}"
        self.output = folder / "server.log"
        self._settings = {
            "listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(self.log_dir),
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: list[int] = []

    @property
    def process_id(self) -> int:
        assert self._process is not None, "the server runs"
        return self._process.pid

    def start(self) -> None:
        assert self._process is None, "the server does not run yet"
        command = [str(Path(sys.executable).with_name("tidelog")), "server"]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        if self._files_max is not None:
            limiting = f'ulimit -n {self._files_max}; exec "$@"'
            command = ["sh", "-c", limiting, "sh", *command]
        with self.output.open("ab") as output:
            before = output.tell()
            self._process = subprocess.Popen(
                mortal(command, signal.SIGKILL),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._groups.append(self._process.pid)
        deadline = time.monotonic() + _START_SECONDS_MAX
        while _LISTENS not in self.output.read_bytes()[before:]:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"no server: {self.output.read_text()}")
            time.sleep(0.02)

    def stop(self) -> None:
        status = self._end(signal.SIGTERM)
        assert status == 0, f"ended with {status}: {self.output.read_text()}"

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """Child processes are in the server's process group, so none of them survives it."""
        for group in self._groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if self._process is not None:
            self._process.wait(_STOP_SECONDS_MAX)
            self._process = None

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None, "the server runs"
        self._process.send_signal(number)
        return self.wait_until_ended()

    def wait_until_ended(self) -> int:
        """Its status."""
        assert self._process is not None, "the server runs"
        status = self._process.wait(_STOP_SECONDS_MAX)
        self._process = None
        return status


def _apache_kafka(folder: Path, settings: Mapping[str, str]) -> Server:
    sys.path.append(str(ROOT))
    from bench.peers.kafka_peer import Broker, KafkaHome

    class ApacheKafka(Broker):
        def close(self) -> None:
            self.kill()

    home = KafkaHome.find()
    assert home is not None, "TIDELOG_TEST_PEER=kafka needs Apache Kafka's jars and Java"
    # Kafka makes its folder itself, and moves deleted logs away only after a minute.
    server = ApacheKafka(home, folder / "kafka", settings)
    server.format(_KAFKA_CLUSTER_ID)
    return server
