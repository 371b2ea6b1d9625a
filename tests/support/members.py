"""Brokers without sockets and logs: their metadata, on a simulated ensemble that they share, with
simulated messages between them and hosts that only note what they are told.

A `Cluster` runs on virtual time. A member can be killed after any number of writes, and what
stands in the tree is looked at directly, without going through the code under test.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from support.control_peers import Exchange
from support.recording_host import Disk, RecordingHost
from tidelog.base.coordination import (
    Create,
    Delete,
    Node,
    Operation,
    SetData,
    Watch,
    Written,
)
from tidelog.base.errors import KafkaError
from tidelog.base.settings import Settings
from tidelog.cluster.image import BrokerInfo, TopicInfo
from tidelog.cluster.metadata import Change, ConfigChange, Metadata, NewTopic
from tidelog.cluster.requests import ConfigOperation
from tidelog.cluster.surroundings import Surroundings
from tidelog.cluster.znodes import encode_broker
from tidelog.world.sim.coordination import CoordinationFaults, SimCoordination
from tidelog.world.sim.ensemble import SimEnsemble
from tidelog.world.sim.entropy import SimEntropy
from tidelog.world.sim.loop import SimLoop
from tidelog.world.znode_tree import When

Item = TypeVar("Item")
SESSION_MS = 18_000


class DeadlyEnsemble(SimEnsemble):
    """Kills a member right after it has written so many times."""

    writes_left: int | None = None
    kill: Callable[[], None] | None = None
    on_write: Callable[[str], object] = staticmethod(lambda _path: None)
    """Told of each path that is written."""
    on_attempt: Callable[[Sequence[Operation]], object] = staticmethod(lambda _operations: None)
    """Told of each write, also of those that fail."""
    on_read: Callable[[str], object] = staticmethod(lambda _path: None)
    """Told of each node that was read."""

    def get(self, session_id: int, path: str, watch: Watch | None) -> Node:
        node = super().get(session_id, path, watch)
        self.on_read(path)
        return node

    def write(self, session_id: int, operations: Sequence[Operation]) -> list[Written]:
        self.on_attempt(operations)
        answers = super().write(session_id, operations)
        for operation in operations:
            self.on_write(operation.path)
        if self.writes_left is not None and self.kill is not None:
            self.writes_left -= 1
            if self.writes_left == 0:
                self.kill()
        return answers


@dataclass
class Member:
    loop: SimLoop
    coordination: SimCoordination
    metadata: Metadata
    host: RecordingHost
    exchange: Exchange
    changes: list[Change] = field(default_factory=list)
    is_dead: bool = False

    def start(self, expected_cluster_id: str | None = None) -> Exception | None:
        answers: list[Exception | None] = []
        self.begin(answers.append, expected_cluster_id)
        self.loop.run_until(lambda: bool(answers) or self.is_dead)
        return answers[0] if answers else None

    def begin(
        self, done: Callable[[Exception | None], None], expected_cluster_id: str | None = None
    ) -> None:
        """Prepares and joins."""

        def prepared(error: Exception | None) -> None:
            if error is not None:
                done(error)
                return
            self.host.own_id = self.metadata.broker_id
            self.exchange.reachable[self.metadata.broker_id] = self.metadata.handle
            self.metadata.join(done)

        self.metadata.prepare(prepared, expected_cluster_id)

    def ask(self, call: Callable[[Callable[[list[Item]], None]], None]) -> list[Item]:
        """The results, or none if the member died over it."""
        answers: list[list[Item]] = []
        call(answers.append)
        assert not answers, "an answer never comes inside the call"
        self.loop.run_until(lambda: bool(answers) or self.is_dead)
        assert answers or self.is_dead, "every request is answered"
        return answers[0] if answers else []

    def create(
        self, *topics: NewTopic, validate_only: bool = False
    ) -> list[TopicInfo | KafkaError]:
        return self.ask(lambda done: self.metadata.create_topics(topics, validate_only, done))

    def delete(self, *topics: str | bytes) -> list[TopicInfo | KafkaError]:
        return self.ask(lambda done: self.metadata.delete_topics(topics, done))

    def grow(
        self, name: str, count: int, assignment: Sequence[Sequence[int]] | None = None
    ) -> list[TopicInfo | KafkaError]:
        wanted = [(name, count, assignment)]
        return self.ask(lambda done: self.metadata.create_partitions(wanted, False, done))

    def alter(
        self,
        kind: Literal["topic", "broker"],
        name: str,
        changes: Mapping[str, tuple[ConfigOperation, str | None]],
        replace: bool = False,
    ) -> list[KafkaError | None]:
        change = ConfigChange(kind=kind, name=name, changes=changes, replace=replace)
        return self.alter_all([change])

    def alter_all(
        self, changes: Sequence[ConfigChange], validate_only: bool = False
    ) -> list[KafkaError | None]:
        results: list[list[KafkaError | None]] = []
        self.metadata.alter_configs(changes, validate_only, results.append)
        self.loop.run_until(lambda: bool(results) or self.is_dead)
        return results[0] if results else []

    def die(self) -> None:
        self.is_dead = True
        self.coordination.die()
        self.metadata.close()
        if self.exchange.reachable.get(self.metadata.broker_id) == self.metadata.handle:
            del self.exchange.reachable[self.metadata.broker_id]

    def stop(self) -> None:
        """Leaves, and ends its session."""
        left: list[bool] = []
        self.metadata.leave(lambda: left.append(True))
        assert self.loop.run_until(lambda: bool(left))
        self.metadata.close()
        self.coordination.close()
        self.is_dead = True
        del self.exchange.reachable[self.metadata.broker_id]

    @property
    def is_controller(self) -> bool:
        return self.metadata.controller_epoch is not None


class Cluster:
    def __init__(self, seed: int = 0) -> None:
        self.loop = SimLoop(seed=seed)
        self.ensemble = DeadlyEnsemble(self.loop.clock)
        self.entropy = SimEntropy(seed)
        self.exchange = Exchange(self.loop)
        self.disks: dict[int, Disk] = {}

    def member(
        self,
        broker_id: int = 0,
        *,
        rack: str | None = None,
        faults: CoordinationFaults | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> Member:
        coordination = SimCoordination(self.loop, self.ensemble, faults)
        broker = BrokerInfo(
            broker_id=broker_id, endpoints={"PLAINTEXT": ("host", 9092 + broker_id)}, rack=rack
        )
        disk = self.disks.setdefault(broker_id, Disk()) if broker_id >= 0 else Disk()
        host = RecordingHost(disk)
        made: list[Member] = []
        peers = self.exchange.peers(lambda: made[0].metadata.broker_id, lambda: not made[0].is_dead)
        around = Surroundings(
            coordination=coordination,
            clock=self.loop.clock,
            entropy=self.entropy,
            loop=self.loop,
            peers=peers,
            host=host,
        )
        metadata = Metadata(around, Settings.of(settings or {}), broker)
        member = Member(self.loop, coordination, metadata, host, self.exchange)
        made.append(member)
        metadata.on_change(member.changes.append)
        return member

    def started(self, broker_id: int = 0, **settings: str) -> Member:
        """A member that is ready; settings are written with underscores."""
        named = {name.replace("_", "."): value for name, value in settings.items()}
        member = self.member(broker_id, settings=named)
        assert member.start() is None
        return member

    def register_others(self, *broker_ids: int, racks: Mapping[int, str] | None = None) -> None:
        """Brokers that do nothing but be there."""
        for broker_id in broker_ids:
            other = BrokerInfo(
                broker_id=broker_id,
                endpoints={"PLAINTEXT": ("other", 9092)},
                rack=(racks or {}).get(broker_id),
            )
            self.put(f"/brokers/ids/{broker_id}", encode_broker(other, 0))

    def kill(self, member: Member) -> None:
        """The process dies, and its guard ends its session at once."""
        session_id = member.coordination.session_id
        member.die()
        self.ensemble.end_session(session_id)

    def kill_after(self, member: Member, writes: int) -> None:
        """The member dies right after so many more writes, before it hears of the last."""
        self.ensemble.writes_left = writes
        self.ensemble.kill = member.die

    def forget_the_dead(self) -> None:
        """Until the sessions of members that died are over."""
        self.ensemble.writes_left = None
        self.loop.run_for(2 * SESSION_MS)

    def paths(self, below: str = "/") -> list[str]:
        return [path for path, _ in self.ensemble.tree.walk(below)]

    def exists(self, path: str) -> bool:
        return self.ensemble.tree.exists(path) is not None

    def json(self, path: str) -> Any:
        return json.loads(self.data(path))

    def data(self, path: str) -> bytes:
        return self.ensemble.tree.get(path).data

    def put(self, path: str, data: bytes, session_id: int = 0) -> None:
        """Writes a node as somebody else would, with the parents it lacks; with a session it is
        that one's."""
        tree = self.ensemble.tree
        names = path.strip("/").split("/")
        for depth in range(1, len(names)):
            parent = "/" + "/".join(names[:depth])
            if not self.exists(parent):
                self._write(Create(path=parent))
        is_there = tree.exists(path) is not None
        create = Create(path=path, data=data, ephemeral=session_id != 0)
        self._write(SetData(path=path, data=data) if is_there else create, session_id)

    def delete(self, path: str) -> None:
        """As an operator would, and watches are told."""
        self._write_watched(Delete(path=path))

    def put_watched(self, path: str, data: bytes) -> None:
        self._write_watched(Create(path=path, data=data))

    def _write_watched(self, operation: Operation) -> None:
        session_id = self.ensemble.begin_session(lambda _watch, _kind, _path: None)
        self.ensemble.write(session_id, [operation])
        self.ensemble.end_session(session_id)

    def _write(self, operation: Operation, session_id: int = 0) -> None:
        tree = self.ensemble.tree
        tree.write([operation], When(tree.zxid + 1, self.loop.clock.now_ms(), session_id))
