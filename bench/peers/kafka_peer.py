"""Apache Kafka beside us: its jars through Maven, one broker on loopback, and its own tools.

`KafkaHome.find()` is the way in: it fetches the jars once into a folder outside the repository
(`TIDELOG_KAFKA_PEER`, or `kafka-peer` in the temporary folder) and is None, with the reason
said, where Java or Maven is not at hand. Nothing in the product or its tests needs this.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

DUMP_TOOL = "org.apache.kafka.tools.DumpLogSegments"
_START_SECONDS_MAX = 60
_STOP_SECONDS_MAX = 60
_LOGGING = """
Configuration:
  status: ERROR
  Appenders:
    Console:
      name: err
      target: SYSTEM_ERR
      PatternLayout:
        pattern: "%d %p %m (%c)%n"
  Loggers:
    Root:
      level: WARN
      AppenderRef:
        - ref: err
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    status: int
    out: str
    err: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaHome:
    folder: Path

    @classmethod
    def find(cls) -> "KafkaHome | None":
        default = Path(tempfile.gettempdir()) / "kafka-peer"
        home = cls(folder=Path(os.environ.get("TIDELOG_KAFKA_PEER", default)))
        for program in ("java",) if home._has_jars() else ("java", "mvn"):
            if shutil.which(program) is None:
                print(f"Apache Kafka is not at hand: there is no `{program}` here", file=sys.stderr)
                return None
        return home if home._has_jars() or home._fetch() else None

    def java(self, main_class: str, *arguments: str, cwd: Path | None = None) -> Output:
        command = self.command(main_class, "256m") + list(arguments)
        done = subprocess.run(command, cwd=cwd, capture_output=True, check=False)
        return Output(
            status=done.returncode,
            out=done.stdout.decode(errors="surrogateescape"),
            err=done.stderr.decode(errors="surrogateescape"),
        )

    def dump(self, files: Sequence[str], *flags: str, cwd: Path | None = None) -> Output:
        return self.java(DUMP_TOOL, "--files", ",".join(files), *flags, cwd=cwd)

    def command(self, main_class: str, heap: str) -> list[str]:
        # -XX:-UsePerfData and TieredStopAtLevel keep the many short runs of the tools quick.
        return [
            "java",
            f"-Xmx{heap}",
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
            "-XX:TieredStopAtLevel=1",
            "-Dfile.encoding=UTF-8",
            "-Dstdout.encoding=UTF-8",
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.yaml'}",
            "-cp",
            f"{self.folder / 'jars'}/*",
            main_class,
        ]

    def _has_jars(self) -> bool:
        return any((self.folder / "jars").glob("kafka-tools-*.jar"))

    def _fetch(self) -> bool:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "log4j2.yaml").write_text(_LOGGING)
        pom = Path(__file__).with_name("pom.xml")
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={self.folder / 'jars'}"]
        done = subprocess.run(["mvn", "-q", "-B", "-f", str(pom), *goal], check=False)
        if done.returncode != 0:
            print("Apache Kafka is not at hand: Maven could not fetch it", file=sys.stderr)
        return done.returncode == 0


class Broker:
    """One combined KRaft node on loopback, with its data in `folder`."""

    def __init__(self, home: KafkaHome, folder: Path, settings: Mapping[str, str]) -> None:
        self._home = home
        self._folder = folder
        self.log_dir = folder / "logs"
        self._port, controller_port = _free_port(), _free_port()
        self.address = f"127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        lines = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.log_dir),
            "metadata.log.dir": str(folder / "metadata"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            **settings,
        }
        self._properties = folder / "server.properties"
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))

    def format(self, cluster_id: str) -> None:
        arguments = ["format", "--cluster-id", cluster_id, "--config", str(self._properties)]
        done = self._home.java("kafka.tools.StorageTool", *arguments)
        if done.status != 0:
            raise RuntimeError(f"format failed: {done.out}{done.err}")

    def start(self) -> None:
        command = [*self._home.command("kafka.Kafka", "512m"), str(self._properties)]
        with (self._folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + _START_SECONDS_MAX
        while not _answers(self._port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no broker; see {self._folder / 'broker.log'}")
            time.sleep(0.2)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(_STOP_SECONDS_MAX)
            self._process = None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
