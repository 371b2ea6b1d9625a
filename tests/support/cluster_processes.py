# mypy: disable-error-code="import-untyped"
"""A cluster of real processes: ZooKeeper, brokers, and the proxied links between all of them.

`Cluster` starts and heals it; `BrokerProcess` is one broker, which may be stopped, killed and
paused, and keeps its addresses and its data. Brokers reach one another, and ZooKeeper, over
`links` only; clients reach them directly. What ZooKeeper holds is read past the links, in
`tree`, by a client of its own.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from support.link_proxy import Links, owner_of
from support.ports import free_ports
from tidelog.client.client import Client
from tidelog.client.topics import NewTopic, create_topics, delete_topics
from tidelog.world.real.mortal import mortal
from tidelog.world.real.zookeeper_server import Place, ZooKeeperServer

ZOOKEEPER: Final = "zookeeper"
START_SECONDS_MAX: Final = 60
STOP_SECONDS_MAX: Final = 60
_LISTENS: Final = b"listening on"
_numbers = count(1)

QUICK: Final = {
    "zookeeper.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "1500",
    "controlled.shutdown.retry.backoff.ms": "300",
    "replica.socket.timeout.ms": "3000",
    "controller.socket.timeout.ms": "3000",
    "log.segment.delete.delay.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.cleaner.backoff.ms": "200",
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "2000",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "500",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
"""So that faults which wait for a timeout do not take minutes; and leaders change by them alone."""
SAFE: Final = {"default.replication.factor": "3", "min.insync.replicas": "2"}


def wait_until(holds: Callable[[], Any], what: str, seconds_max: float = 60.0) -> float:
    """Until it holds; how long that took."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > seconds_max:
            raise AssertionError(f"not after {seconds_max:.0f} s: {what}")
        time.sleep(0.02)
    return time.monotonic() - began


class BrokerProcess:
    def __init__(self, broker_id: int, folder: Path, port: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.broker_id = broker_id
        self.name = str(broker_id)
        self.log_dir = folder / "logs"
        self.output = folder.with_suffix(".log")
        self.address = f"127.0.0.1:{port}"
        self.settings: dict[str, str] = {}
        self.environment: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._written = 0

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def process_id(self) -> int:
        assert self._process is not None, f"broker {self.broker_id} runs"
        return self._process.pid

    def launch(self) -> None:
        """Returns at once. The thread that calls this must outlive the process."""
        assert not self.is_running, f"broker {self.broker_id} does not run yet"
        command = [str(Path(sys.executable).with_name("tidelog")), "server"]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        with self.output.open("ab") as output:
            self._written = output.tell()
            self._process = subprocess.Popen(
                mortal(command, signal.SIGKILL),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, **self.environment},
            )

    def wait_until_started(self) -> float:
        def listens() -> bool:
            if not self.is_running:
                raise AssertionError(f"broker {self.broker_id} ended: {self.words}")
            return _LISTENS in self.output.read_bytes()[self._written :]

        return wait_until(listens, f"broker {self.broker_id} starts", START_SECONDS_MAX)

    def start(self) -> float:
        self.launch()
        return self.wait_until_started()

    def wait_until_ended(self, seconds_max: float = STOP_SECONDS_MAX) -> int:
        """Its status."""
        assert self._process is not None, f"broker {self.broker_id} was started"
        status = self._process.wait(seconds_max)
        self._process = None
        return status

    def stop(self) -> None:
        self.signal(signal.SIGTERM)
        status = self.wait_until_ended()
        assert status == 0, f"broker {self.broker_id} ended with {status}: {self.words}"

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait_until_ended()

    def kill_machine(self) -> None:
        """The broker and all its children at once: nobody is left who knows that it died."""
        self.pause()
        for child in children_of(self.process_id):
            os.kill(child, signal.SIGKILL)
        self.kill()

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process_id, number)

    def close(self) -> None:
        if self.is_running:
            self.resume()
            self.kill()

    @property
    def words(self) -> str:
        """The last of what it said since it was started."""
        said = self.output.read_bytes()[self._written :].decode(errors="replace")
        return "\n".join(said.splitlines()[-25:])


def children_of(process_id: int) -> list[int]:
    """Of all its threads."""
    found = []
    for thread in Path(f"/proc/{process_id}/task").iterdir():
        with suppress(OSError):
            found += (thread / "children").read_text(encoding="ascii").split()
    return [int(word) for word in found]


class Cluster:
    def __init__(
        self, folder: Path, zookeeper: ZooKeeperServer, settings: Mapping[str, str], size: int = 3
    ) -> None:
        self.folder = folder
        self.zookeeper = zookeeper
        self.links = Links(self._source_of)
        self._chroot = f"/cluster-{os.getpid()}-{next(_numbers)}"
        self.brokers: dict[int, BrokerProcess] = {}
        for broker_id in range(1, size + 1):
            self.brokers[broker_id] = self.new_broker(broker_id, settings)
        self.tree = Tree(f"{zookeeper.address}{self._chroot}")

    def new_broker(
        self, broker_id: int, settings: Mapping[str, str], folder: str = ""
    ) -> BrokerProcess:
        """One more, not started, and not one of those that `heal` starts."""
        port, replication_port = free_ports(2)
        made = BrokerProcess(broker_id, self.folder / (folder or f"broker-{broker_id}"), port)
        host, _, zookeeper_port = self.zookeeper.address.rpartition(":")
        proxied = self.links.open(made.name, ("127.0.0.1", replication_port))
        way = self.links.open(ZOOKEEPER, (host, int(zookeeper_port)), made.name)
        made.settings = {
            "broker.id": made.name,
            "listeners": f"PLAINTEXT://{made.address},REPLICATION://127.0.0.1:{replication_port}",
            "advertised.listeners": f"PLAINTEXT://{made.address},REPLICATION://127.0.0.1:{proxied}",
            "inter.broker.listener.name": "REPLICATION",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT",
            "zookeeper.connect": f"127.0.0.1:{way}{self._chroot}",
            "log.dirs": str(made.log_dir),
            **settings,
        }
        return made

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def start(self) -> None:
        for broker in self.brokers.values():
            broker.launch()
        for broker in self.brokers.values():
            broker.wait_until_started()
        self.tree.connect()

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.close()
        self.links.close()
        self.tree.close()

    def heal(self) -> None:
        """Links, ZooKeeper and brokers are as they should be; what did not run is started."""
        self.links.heal()
        if not self.zookeeper.is_running:
            self.start_zookeeper()
        started = []
        for broker in self.brokers.values():
            if broker.is_running:
                broker.resume()
            else:
                broker.launch()
                started.append(broker)
        for broker in started:
            broker.wait_until_started()

    def start_anew(self) -> None:
        """Whatever state it is in: all brokers are killed first."""
        for broker in self.brokers.values():
            broker.close()
        self.heal()

    def start_zookeeper(self) -> None:
        """What was killed leaves its record of itself, so that is forgotten first."""
        self.zookeeper.kill()
        self.zookeeper.start()
        self.zookeeper.wait_until_serving(60)

    def names_except(self, *broker_ids: int) -> list[str]:
        return [str(broker_id) for broker_id in self.brokers if broker_id not in broker_ids]

    def create(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        assignment: Sequence[Sequence[int]] = (),
    ) -> None:
        """With three replicas each, or as assigned; led, and in sync, when this returns."""
        topic = NewTopic(
            name=name, partition_count=partitions, configs=configs or {}, assignment=assignment
        )
        self.create_all([topic])
        self.wait_in_sync(name)

    def create_all(self, topics: list[NewTopic]) -> None:
        with Client(self.bootstrap) as client:
            refused = [error for error in create_topics(client, topics).values() if error]
        assert refused == []

    def delete(self, name: str) -> None:
        with Client(self.bootstrap) as client:
            assert delete_topics(client, [name]) == {name: None}

    def is_in_sync(self, topic: str, partition: int) -> bool:
        state = self.tree.state(topic, partition)
        replicas = self.tree.replicas(topic).get(partition, [])
        return bool(state) and state["leader"] >= 0 and sorted(state["isr"]) == sorted(replicas)

    def wait_in_sync(self, topic: str, seconds_max: float = 60.0) -> float:
        """Until the ISR of each partition is full; how long that took."""

        def is_in_sync() -> bool:
            indexes = self.tree.replicas(topic)
            return bool(indexes) and all(self.is_in_sync(topic, index) for index in indexes)

        return wait_until(is_in_sync, f"{topic} is in sync", seconds_max)

    def leader(self, topic: str, partition: int = 0) -> BrokerProcess:
        return self.brokers[self.leader_id(topic, partition)]

    def leader_id(self, topic: str, partition: int = 0) -> int:
        found = [-1]

        def is_led() -> bool:
            found[0] = self.tree.leader(topic, partition)
            return found[0] >= 0

        wait_until(is_led, f"{topic} has a leader")
        return found[0]

    def follower(self, topic: str, partition: int = 0) -> BrokerProcess:
        leader = self.leader_id(topic, partition)
        return self.brokers[next(b for b in sorted(self.brokers) if b != leader)]

    def controller(self) -> BrokerProcess:
        found = [-1]

        def is_there() -> bool:
            found[0] = self.tree.controller()
            return found[0] in self.brokers

        wait_until(is_there, "there is a controller")
        return self.brokers[found[0]]

    def _source_of(self, port: int, dialled_port: int) -> str | None:
        running = {
            broker.name: [broker.process_id]
            for broker in self.brokers.values()
            if broker.is_running
        }
        return owner_of(port, dialled_port, running)


class Tree:
    """What ZooKeeper says. While it cannot be asked, it says nothing."""

    def __init__(self, connect: str) -> None:
        self.client = KazooClient(hosts=connect, timeout=30, connection_retry={"max_tries": -1})

    def connect(self) -> None:
        self.client.start(60)

    def close(self) -> None:
        self.client.stop()
        self.client.close()

    def get(self, path: str) -> dict[str, Any]:
        try:
            data, _ = self.client.get_async(path).get(timeout=10)
        except (KazooException, KazooTimeoutError):
            return {}
        found: dict[str, Any] = json.loads(data)
        return found

    def children(self, path: str) -> list[str]:
        try:
            return sorted(self.client.get_children_async(path).get(timeout=10))
        except (KazooException, KazooTimeoutError):
            return []

    def state(self, topic: str, partition: int = 0) -> dict[str, Any]:
        return self.get(f"/brokers/topics/{topic}/partitions/{partition}/state")

    def replicas(self, topic: str) -> dict[int, list[int]]:
        found = self.get(f"/brokers/topics/{topic}").get("partitions", {})
        return {int(index): brokers for index, brokers in found.items()}

    def leader(self, topic: str, partition: int = 0) -> int:
        return int(self.state(topic, partition).get("leader", -1))

    def isr(self, topic: str, partition: int = 0) -> list[int]:
        return sorted(self.state(topic, partition).get("isr", []))

    def controller(self) -> int:
        return int(self.get("/controller").get("brokerid", -1))

    def controller_epoch(self) -> int:
        try:
            data, _ = self.client.get_async("/controller_epoch").get(timeout=10)
        except (KazooException, KazooTimeoutError):
            return -1
        return int(data)

    def broker_epoch(self, broker_id: int) -> int:
        """Of its registration; -1 if it has none."""
        try:
            found = self.client.exists_async(f"/brokers/ids/{broker_id}").get(timeout=10)
        except (KazooException, KazooTimeoutError):
            return -1
        return -1 if found is None else int(found.czxid)

    def registered(self) -> list[int]:
        return [int(name) for name in self.children("/brokers/ids")]


def new_zookeeper(folder: Path) -> ZooKeeperServer:
    """It serves."""
    server = ZooKeeperServer(Place(folder=folder, port=free_ports(1)[0]))
    server.start()
    server.wait_until_serving(60)
    return server
