"""Whole brokers in one simulated cluster: production `Broker` objects on one virtual clock.

Each broker is a machine with a disk and a host of its own; what runs there is a process, which
ends with a clean stop, a `kill` or a loss of power. A process that has ended does nothing more:
its timers and callbacks are dropped, its connections end or fall silent, its session is closed
by its guard or times out. All is drawn from one seed, so a run can be repeated.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from support.brokers import CREATE_TOPICS, PORT, SimClient
from support.sim_machines import SESSION_TIMEOUT_MS, SimGround, SimMachine, SimProcess
from tidelog.base.settings import Settings
from tidelog.broker import Broker
from tidelog.partition import Partition
from tidelog.world.sim.coordination import SimCoordination
from tidelog.world.sim.disk import Loss

GUARD_MS = 10
LAG_MS_MAX = 4_000
CLUSTER_SETTINGS: Mapping[str, object] = {
    "zookeeper.connect": "simulated:2181",
    "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
    "log.dirs": "/data",
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": LAG_MS_MAX,
    "controlled.shutdown.retry.backoff.ms": 300,
    "connections.max.idle.ms": 1 << 40,
    "auto.leader.rebalance.enable": False,
}


class SimCluster(SimGround):
    def __init__(self, brokers: int = 3, seed: int = 0, **settings: Any) -> None:
        super().__init__(seed)
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.machines = {number: SimMachine(self, number) for number in range(1, brokers + 1)}
        for number in self.machines:
            self.begin(number)
        for number in self.machines:
            self.wait_started(number)

    # -- brokers come and go

    @property
    def alive(self) -> list[int]:
        return [number for number, machine in self.machines.items() if machine.process is not None]

    def add(self, broker_id: int, **settings: Any) -> None:
        self.machines[broker_id] = SimMachine(self, broker_id)
        self.start(broker_id, **settings)

    def begin(self, broker_id: int, **settings: Any) -> None:
        """Starts the process and does not wait."""
        machine = self.machines[broker_id]
        assert machine.process is None, f"{machine.name} runs already"
        machine.settings |= {name.replace("_", "."): value for name, value in settings.items()}
        own = {"broker.id": broker_id, "listeners": f"PLAINTEXT://{machine.name}:{PORT}"}
        named = {**CLUSTER_SETTINGS, **own, **self._settings, **machine.settings}
        machine.process = SimProcess(self, machine, Settings.of(named))

    def wait_started(self, broker_id: int) -> None:
        started = self.process(broker_id).started
        self.wait(lambda: bool(started), f"broker {broker_id} starts")
        if started[0] is not None:
            raise started[0]

    def start(self, broker_id: int, **settings: Any) -> None:
        self.begin(broker_id, **settings)
        self.wait_started(broker_id)

    def stop(self, broker_id: int) -> None:
        """Ends it as SIGTERM does."""
        machine, process = self.machines[broker_id], self.process(broker_id)
        ended: list[bool] = []
        process.broker.stop(lambda: ended.append(True))
        self.wait(lambda: bool(ended), f"broker {broker_id} stops")
        owners = [session.session_id for session in process.sessions]
        self.wait(
            lambda: not any(self.ensemble.has_session(owner) for owner in owners),
            "its session ends",
        )
        process.end()
        process.host.die()
        machine.disk.process_dies()
        machine.process = None

    def kill(self, broker_id: int, *, guard: bool = True) -> None:
        """The process dies; its guard, if there is one, closes its session."""
        machine, process = self.machines[broker_id], self.process(broker_id)
        process.end()
        process.host.die()
        for session in process.sessions:
            session.die()
            if guard:
                self.loop.after(GUARD_MS, session.expire)
        machine.disk.process_dies()
        machine.process = None

    def lose_power(self, broker_id: int, loss: Loss = "all") -> None:
        """The machine dies: nobody is told, and what was not synced is lost."""
        machine, process = self.machines[broker_id], self.process(broker_id)
        process.end()
        process.host.vanish()
        for session in process.sessions:
            session.die()
        machine.disk.machine_dies(loss)
        machine.process = None

    def process(self, broker_id: int) -> SimProcess:
        found = self.machines[broker_id].process
        assert found is not None, f"broker {broker_id} does not run"
        return found

    def broker(self, broker_id: int) -> Broker:
        return self.process(broker_id).broker

    def session(self, broker_id: int) -> SimCoordination:
        return self.process(broker_id).sessions[-1]

    # -- the network

    def cut(self, source: int, target: int, *, one_way: bool = False) -> None:
        names = self.machines[source].name, self.machines[target].name
        self.network.cut(*names, one_way=one_way)

    def isolate(self, broker_id: int) -> None:
        """From the other brokers; clients still reach it, and the coordinator does."""
        for other in self.machines:
            if other != broker_id:
                self.cut(broker_id, other)

    def client(self, broker_id: int) -> SimClient:
        return SimClient(self, self.machines[broker_id].name)

    def broker_client(self, broker_id: int) -> SimClient:
        """A connection to where brokers talk to one another."""
        broker = self.broker(broker_id)
        port = next(
            port for name, _, port in broker.endpoints if name == broker.inter_broker_listener
        )
        return SimClient(self, self.machines[broker_id].name, port)

    # -- time

    def run_for(self, duration_ms: int) -> None:
        self.loop.run_for(duration_ms)

    def wait(self, condition: Callable[[], bool], what: str, within_ms: int = 60_000) -> None:
        assert self.loop.run_until(condition, within_ms), f"within {within_ms} ms: {what}"

    # -- what stands in the tree

    def node(self, path: str) -> Any:
        return json.loads(self.ensemble.tree.get(path).data)

    def state(self, topic: str, index: int = 0) -> Any:
        return self.node(f"/brokers/topics/{topic}/partitions/{index}/state")

    def leader(self, topic: str, index: int = 0) -> int:
        return int(self.state(topic, index)["leader"])

    def isr(self, topic: str, index: int = 0) -> list[int]:
        return sorted(self.state(topic, index)["isr"])

    def replicas(self, topic: str, index: int = 0) -> list[int]:
        found = self.node(f"/brokers/topics/{topic}")["partitions"][str(index)]
        return [int(member) for member in found]

    @property
    def controller(self) -> int:
        """The broker that is in office; waits for one."""
        tree = self.ensemble.tree
        self.wait(lambda: tree.exists("/controller") is not None, "there is a controller")
        return int(self.node("/controller")["brokerid"])

    # -- replicas

    def replica(self, broker_id: int, topic: str, index: int = 0) -> Partition | None:
        """The replica that a broker holds, if it runs and holds one."""
        machine = self.machines.get(broker_id)
        process = None if machine is None else machine.process
        return None if process is None else process.broker.partitions.held(topic, index)

    def held(self, broker_id: int, topic: str, index: int = 0) -> Partition:
        found = self.replica(broker_id, topic, index)
        assert found is not None, f"broker {broker_id} has no replica of {topic}-{index}"
        return found

    def leads(self, broker_id: int, topic: str, index: int = 0) -> bool:
        """Whether a broker leads and everybody who could be asked says so."""
        found = self.replica(broker_id, topic, index)
        if found is None or not found.is_led or self.leader(topic, index) != broker_id:
            return False
        return all(self._names_leader(other, topic, index, broker_id) for other in self.alive)

    def _names_leader(self, broker_id: int, topic: str, index: int, leader: int) -> bool:
        known = self.broker(broker_id).metadata.image.topics.get(topic)
        return known is not None and known.partitions[index].leader == leader

    def wait_led(self, topic: str, index: int = 0, by: int | None = None) -> int:
        """Waits until somebody leads, or `by` does."""

        def is_led() -> bool:
            leader = self.leader(topic, index)
            return (
                by in (None, leader) and leader in self.alive and self.leads(leader, topic, index)
            )

        self.wait(is_led, f"{topic}-{index} is led by {'somebody' if by is None else by}")
        return self.leader(topic, index)

    def wait_led_elsewhere(self, topic: str, broker_id: int) -> None:
        """Somebody leads and knows it, and not that broker."""

        def is_led() -> bool:
            leader = self.replica(self.leader(topic), topic)
            return self.leader(topic) != broker_id and leader is not None and leader.is_led

        self.wait(is_led, f"{topic} is led by somebody else than {broker_id}")

    def wait_isr(self, topic: str, *members: int, index: int = 0) -> None:
        """Waits for an in-sync set, of all replicas if none are named, and its leader's."""
        wanted = sorted(members or self.replicas(topic, index))

        def is_there() -> bool:
            leader = self.replica(self.leader(topic, index), topic, index)
            known = () if leader is None else leader.replica.isr.isr
            return self.isr(topic, index) == wanted == sorted(known)

        self.wait(is_there, f"the in-sync set of {topic}-{index} is {wanted}")

    def wait_caught_up(self, topic: str, index: int = 0) -> None:
        """All replicas are in sync, with equal ends and high watermarks (H3)."""
        self.wait_isr(topic, index=index)

        def is_even() -> bool:
            held = [self.held(member, topic, index) for member in self.replicas(topic, index)]
            ends = {found.log.log_end_offset for found in held}
            return len(ends) == 1 and {found.high_watermark for found in held} == ends

        self.wait(is_even, f"all replicas of {topic}-{index} have everything")

    def create(
        self,
        topic: str,
        partitions: int = 1,
        replicas: Sequence[Sequence[int]] | None = None,
        **configs: Any,
    ) -> None:
        """Makes a topic, spread or with its replicas named, and waits until it is led."""
        answer = self.ask_create(topic, partitions, replicas, **configs)
        assert answer.error_code.name == "none", answer.error_message
        for index in range(partitions if replicas is None else len(replicas)):
            self.wait_led(topic, index)
            self.wait_isr(topic, index=index)

    def ask_create(
        self,
        topic: str,
        partitions: int = 1,
        replicas: Sequence[Sequence[int]] | None = None,
        factor: int = 3,
        **configs: Any,
    ) -> Any:
        wanted = {
            "name": topic,
            "num_partitions": partitions if replicas is None else -1,
            "replication_factor": min(factor, len(self.machines)) if replicas is None else -1,
            "assignments": [
                {"partition_index": index, "broker_ids": list(brokers)}
                for index, brokers in enumerate(replicas or ())
            ],
            "configs": [
                {"name": name.replace("_", "."), "value": str(value)}
                for name, value in configs.items()
            ],
        }
        client = self.client(self.controller)
        answer = client.ask(CREATE_TOPICS, 7, topics=[wanted], timeout=10_000, validate_only=False)
        client.link.close()
        return answer.topics[0]
