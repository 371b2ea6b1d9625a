"""Our own cluster as `tidelog up` starts it: a ZooKeeper and three brokers, each a process."""

import signal
from pathlib import Path

from bench.load.brokers import free_port
from bench.peers.cluster import BROKERS, Cluster, Node, Settings
from tidelog.cli.local_cluster import LocalBroker
from tidelog.world.real.zookeeper_server import Place, ZooKeeperServer


class TidelogNode(Node):
    def __init__(self, number: int, folder: Path, settings: Settings) -> None:
        self.number = number
        self.address = ("127.0.0.1", free_port())
        self.logs = folder / f"broker-{number}"
        self._broker = LocalBroker(number, self.address[1], folder, settings)

    @property
    def pid(self) -> int:
        return self._broker.process_id

    @property
    def has_ended(self) -> bool:
        return self._broker.status is not None

    def start(self) -> None:
        self._broker.start()

    def end(self, number: signal.Signals) -> None:
        self._broker.end(number)


class TidelogCluster(Cluster):
    name = "tidelog"

    def __init__(self, folder: Path, settings: Settings) -> None:
        super().__init__(folder)
        place = Place(folder=folder / "zookeeper", port=free_port())
        self._zookeeper = ZooKeeperServer(place)
        shared = {**settings, "zookeeper.connect": self._zookeeper.address}
        for number in range(1, BROKERS + 1):
            self.nodes[number] = TidelogNode(number, folder, shared)

    @property
    def coordination_pids(self) -> list[int]:
        return [self._zookeeper.process_id]

    def start(self) -> float:
        self._zookeeper.start()
        self._zookeeper.wait_until_serving()
        return super().start()

    def stop(self) -> None:
        super().stop()
        self._zookeeper.stop()
