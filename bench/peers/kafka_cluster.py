"""Three combined KRaft nodes of Apache Kafka, with its own scripts' heap and collector."""

import signal
import subprocess
from pathlib import Path

from bench.load.brokers import JVM, free_port
from bench.peers.cluster import BROKERS, Cluster, Node, Settings
from bench.peers.kafka_peer import KafkaHome

_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
_STOP_SECONDS_MAX = 60


class KafkaNode(Node):
    def __init__(self, number: int, folder: Path, home: KafkaHome) -> None:
        folder.mkdir(parents=True)
        self.number = number
        self.address = ("127.0.0.1", free_port())
        self.controller = f"127.0.0.1:{free_port()}"
        self.logs = folder / "logs"
        self._folder, self._home = folder, home
        self._properties = folder / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def format(self, voters: str, settings: Settings) -> None:
        listener = f"127.0.0.1:{self.address[1]}"
        lines = {
            "process.roles": "broker,controller",
            "node.id": str(self.number),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{listener},CONTROLLER://{self.controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.logs),
            "metadata.log.dir": str(self._folder / "metadata"),
            **settings,
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        arguments = ["format", "--cluster-id", _CLUSTER_ID, "--config", str(self._properties)]
        done = self._home.java("kafka.tools.StorageTool", *arguments)
        if done.status != 0:
            raise RuntimeError(f"Kafka's folder could not be made: {done.out}{done.err}")

    def start(self) -> None:
        logging = f"-Dlog4j2.configurationFile={self._home.folder / 'log4j2.yaml'}"
        jars = f"{self._home.folder / 'jars'}/*"
        command = ["java", *JVM, logging, "-cp", jars, "kafka.Kafka", str(self._properties)]
        with (self._folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        try:
            self._process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class KafkaCluster(Cluster):
    name = "Kafka"

    def __init__(self, folder: Path, settings: Settings, home: KafkaHome) -> None:
        super().__init__(folder)
        nodes = [KafkaNode(number, folder / str(number), home) for number in range(1, BROKERS + 1)]
        voters = ",".join(f"{node.number}@{node.controller}" for node in nodes)
        for node in nodes:
            node.format(voters, settings)
            self.nodes[node.number] = node
