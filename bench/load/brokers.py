"""The brokers that are compared, each one process on loopback with its data in a folder of its own.

`Tidelog` is started as its users start it, `Kafka` with the heap and the collector its own scripts
choose. `start` waits for the first answer to an ApiVersions request and says how long that took.
"""

import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from bench.load.target import Target, api_versions_request
from bench.peers.kafka_peer import KafkaHome

DELETES_AT_ONCE = {
    "log.segment.delete.delay.ms": "100",
    "log.retention.check.interval.ms": "300",
    "log.initial.task.delay.ms": "300",
}
"""A topic that is deleted gives its memory and disk to who writes next, not minutes later."""
_START_SECONDS_MAX = 60
_STOP_SECONDS_MAX = 60
_DELETE_SECONDS_MAX = 60
_POLL_SECONDS = 0.002
_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
JVM = [
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
]


class Broker:
    name = ""

    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder
        self.address = ("127.0.0.1", free_port())
        self.settings = DELETES_AT_ONCE
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> float:
        """Seconds to the first answer."""
        with (self.folder / "broker.log").open("ab") as log:
            began = time.monotonic()
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log)
        while not _answers(self.address):
            if self._process.poll() is not None or time.monotonic() > began + _START_SECONDS_MAX:
                last = (self.folder / "broker.log").read_text(errors="replace").strip()
                self.stop()
                raise RuntimeError(f"{self.name} did not start: {last[-300:]}")
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - began

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                print(f"{self.name} did not stop and is killed", file=sys.stderr)
                self._process.kill()
                self._process.wait()
            self._process = None

    def await_deleted(self, topic: str) -> None:
        """So that whoever writes next finds the memory that its pages had. Memory that was never
        used, or not for seconds, may cost a virtual machine more than all the rest of a write."""
        deadline = time.monotonic() + _DELETE_SECONDS_MAX
        while any((self.folder / "logs").glob(f"{topic}-*")):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} has not deleted the files of {topic}")
            time.sleep(0.02)

    def target(self, client: str = "java") -> Target:
        return Target(*self.address, client)


class Tidelog(Broker):
    name = "tidelog"

    def command(self) -> list[str]:
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.address[1]}",
            "log.dirs": str(self.folder / "logs"),
            **self.settings,
        }
        program = str(Path(sys.executable).with_name("tidelog"))
        given = [f"--set={name}={value}" for name, value in settings.items()]
        return [program, "server", *given]


class Kafka(Broker):
    name = "Kafka"

    def __init__(self, folder: Path, home: KafkaHome) -> None:
        super().__init__(folder)
        self._home = home
        self._controller = f"127.0.0.1:{free_port()}"
        self._properties = folder / "server.properties"
        self._write_properties()
        arguments = ["format", "--cluster-id", _CLUSTER_ID, "--config", str(self._properties)]
        done = home.java("kafka.tools.StorageTool", *arguments)
        if done.status != 0:
            raise RuntimeError(f"Kafka's folder could not be made: {done.out}{done.err}")

    def _write_properties(self) -> None:
        lines = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self._controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.address[1]},CONTROLLER://{self._controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.folder / "logs"),
            "metadata.log.dir": str(self.folder / "metadata"),
            "offsets.topic.replication.factor": "1",
            **self.settings,
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))

    def command(self) -> list[str]:
        self._write_properties()
        logging = f"-Dlog4j2.configurationFile={self._home.folder / 'log4j2.yaml'}"
        jars = f"{self._home.folder / 'jars'}/*"
        return ["java", *JVM, logging, "-cp", jars, "kafka.Kafka", str(self._properties)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(address: tuple[str, int]) -> bool:
    with socket.socket() as probe:
        probe.settimeout(5)
        if probe.connect_ex(address) != 0:
            return False
        probe.sendall(api_versions_request())
        try:
            return len(probe.recv(64)) > 0
        except OSError:
            return False
