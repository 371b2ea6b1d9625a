"""How a broker enters the cluster: the base nodes, the cluster's id, its own number, its epoch.

First it prepares: a broker whose log dirs belong to another cluster is refused before it shows
itself. Then, when its logs are open, it registers with a node that lives as long as its session;
the zxid that made it is the broker's epoch. In every session it looks first whether the tree is
still its cluster's: in another's nobody knows its topics, and they would be removed. Every step
can be repeated: what is there already, because another broker was quicker or an answer was lost,
is taken as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tidelog.base.coordination import (
    Coordination,
    CoordinationError,
    Create,
    Delete,
    Node,
    Operation,
    SetData,
    Stat,
    Trouble,
    WatchKind,
    Written,
)
from tidelog.base.errors import BadValue
from tidelog.base.ports import Clock, Entropy, Loop
from tidelog.cluster import paths
from tidelog.cluster.image import BrokerInfo
from tidelog.cluster.topic_nodes import random_topic_id
from tidelog.cluster.writing import Ask, gather, insist
from tidelog.cluster.znodes import (
    decode_broker,
    decode_cluster_id,
    decode_controller_epoch,
    encode_broker,
    encode_cluster_id,
    id_text,
)

Failure = CoordinationError | BadValue

ROUNDING_MS: Final = 1000
"""ZooKeeper rounds the end of a session up to its ticks."""


_NODES: Final = (*paths.BASE, paths.CLUSTER_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    cluster_id: str
    broker_id: int


class Preparation:
    """What a broker needs to know before it opens its logs."""

    def __init__(
        self, coordination: Coordination, entropy: Entropy, broker_id: int, reserved_id_max: int
    ) -> None:
        self._coordination = coordination
        self._entropy = entropy
        self._broker_id = broker_id
        self._reserved_id_max = reserved_id_max
        self._expected_cluster_id: str | None = None
        self._cluster_id = ""
        self._done: Callable[[Prepared | Failure], None] = lambda _: None

    def start(
        self, expected_cluster_id: str | None, done: Callable[[Prepared | Failure], None]
    ) -> None:
        self._expected_cluster_id = expected_cluster_id
        self._done = done
        self._make_base_nodes()

    def _make_base_nodes(self) -> None:
        """Mostly all of them are there. Everybody may ask whether a node is, also who may not read
        what is above it."""
        asks: list[Ask[Stat | CoordinationError | None]] = [
            partial(self._coordination.exists, path) for path in _NODES
        ]
        gather(asks, self._looked)

    def _looked(self, answers: list[Stat | CoordinationError | None]) -> None:
        missing = []
        for path, answer in zip(_NODES, answers, strict=True):
            if isinstance(answer, CoordinationError):
                self._done(answer)
                return
            if answer is None:
                missing.append(path)
        if missing:
            self._coordination.write([self._new(path) for path in missing], self._made_base_nodes)
        else:
            self._coordination.get(paths.CLUSTER_ID, self._got_cluster_id)

    def _new(self, path: str) -> Operation:
        if path != paths.CLUSTER_ID:
            return Create(path=path)
        return Create(path=path, data=encode_cluster_id(id_text(random_topic_id(self._entropy))))

    def _made_base_nodes(self, result: list[Written] | CoordinationError) -> None:
        """Looks again in any case; another broker may have been quicker with some of them."""
        if isinstance(result, CoordinationError) and result.trouble is not Trouble.node_exists:
            self._done(result)
        else:
            self._make_base_nodes()

    def _got_cluster_id(self, node: Node | CoordinationError) -> None:
        if isinstance(node, CoordinationError):
            self._done(node)
            return
        try:
            self._cluster_id = _cluster_id(node, self._expected_cluster_id)
        except BadValue as error:
            self._done(error)
            return
        if self._broker_id < 0:
            take = SetData(path=paths.BROKER_SEQUENCE, data=b"")
            self._coordination.write([take], self._took_number)
        else:
            self._end()

    def _took_number(self, result: list[Written] | CoordinationError) -> None:
        """The node's version is a counter that nobody can draw the same number from."""
        if isinstance(result, CoordinationError):
            self._done(result)
            return
        stat = result[0]
        assert isinstance(stat, Stat)
        self._broker_id = self._reserved_id_max + stat.version
        self._end()

    def _end(self) -> None:
        self._done(Prepared(cluster_id=self._cluster_id, broker_id=self._broker_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    broker: BrokerInfo
    """With its epoch."""
    controller_epoch: int
    """That of the last controller that was elected before; -1 if there was none."""


class Registration:
    """One attempt in one session; it ends with a session that expired, never with a connection
    that was lost."""

    def __init__(
        self,
        coordination: Coordination,
        clock: Clock,
        loop: Loop,
        broker: BrokerInfo,
        session_timeout_ms: int,
    ) -> None:
        self._coordination = coordination
        self._clock = clock
        self._loop = loop
        self._broker = broker
        self._session_timeout_ms = session_timeout_ms
        self._path = paths.broker(broker.broker_id)
        self._past_sessions: frozenset[int] = frozenset()
        self._is_creating = False
        self._is_waiting = False
        self._is_last_try = False
        self._is_done = False
        self.is_cancelled = False
        self._done: Callable[[Registered | Failure], None] = lambda _: None

    def start(
        self,
        cluster_id: str,
        past_sessions: frozenset[int],
        done: Callable[[Registered | Failure], None],
    ) -> None:
        """`past_sessions` are those of this process: what is left of them can go."""
        self._past_sessions = past_sessions

        def end(result: Registered | Failure) -> None:
            self._is_done = True
            done(result)

        self._done = end
        ask = partial(self._coordination.get, paths.CLUSTER_ID)
        insist(ask, partial(self._got_cluster_id, cluster_id))

    def _got_cluster_id(self, expected: str, node: Node | CoordinationError) -> None:
        if isinstance(node, CoordinationError):
            self._done(node)
            return
        try:
            _cluster_id(node, expected)
        except BadValue as error:
            self._done(error)
            return
        self._create()

    def _create(self) -> None:
        self._is_creating = True
        data = encode_broker(self._broker, self._clock.now_ms())
        create = Create(path=self._path, data=data, ephemeral=True)

        def created(result: list[Written] | CoordinationError) -> None:
            if isinstance(result, CoordinationError) and result.trouble is not Trouble.node_exists:
                self._done(result)
            else:
                insist(partial(self._coordination.get, self._path), self._looked)

        insist(partial(self._coordination.write, [create]), created)

    def _looked(self, node: Node | CoordinationError) -> None:
        if isinstance(node, CoordinationError):
            if node.trouble is Trouble.no_node:
                self._create()
            else:
                self._done(node)
            return
        owner = node.stat.ephemeral_owner
        if owner == self._coordination.session_id:
            broker = replace(self._broker, epoch=node.stat.created_zxid)
            ask = partial(self._coordination.get, paths.CONTROLLER_EPOCH)
            insist(ask, partial(self._got_controller_epoch, broker))
        elif owner in self._past_sessions:
            self._delete(node)
        elif self._is_last_try:
            self._done(_taken(self._broker.broker_id, node))
        else:
            self._wait()

    def _got_controller_epoch(self, broker: BrokerInfo, node: Node | CoordinationError) -> None:
        """Read after the registration, so that it is no older: a controller of before, which may
        not know that it was deposed, can be told from the others from the first request on."""
        epoch = -1
        if isinstance(node, Node):
            try:
                epoch = decode_controller_epoch(node.data)
            except BadValue as error:
                self._done(BadValue(f"{paths.CONTROLLER_EPOCH} cannot be read: {error}"))
                return
        elif node.trouble is not Trouble.no_node:
            self._done(node)
            return
        self._done(Registered(broker=broker, controller_epoch=epoch))

    def _delete(self, node: Node) -> None:
        delete = Delete(path=self._path, version=node.stat.version)

        def deleted(result: list[Written] | CoordinationError) -> None:
            if isinstance(result, CoordinationError) and result.trouble is not Trouble.no_node:
                self._done(result)
            else:
                self._create()

        insist(partial(self._coordination.write, [delete]), deleted)

    def _wait(self) -> None:
        """It may be a predecessor's, whose session is over soon."""
        self._is_creating = False
        if not self._is_waiting:
            self._is_waiting = True
            at_ms = self._clock.monotonic_ms() + self._session_timeout_ms + ROUNDING_MS
            self._loop.call_at(at_ms, self._try_last)

        def look(done: Callable[[Stat | CoordinationError | None], None]) -> None:
            self._coordination.exists(self._path, done, self._moved)

        insist(look, self._looked_again)

    def _moved(self, _kind: WatchKind, _path: str) -> None:
        self._try_again()

    def _looked_again(self, stat: Stat | CoordinationError | None) -> None:
        if isinstance(stat, CoordinationError):
            if not self._is_creating and not self.is_cancelled:
                self._done(stat)
        elif stat is None:
            self._try_again()

    def _try_last(self) -> None:
        self._is_last_try = True
        self._try_again()

    def _try_again(self) -> None:
        if not self.is_cancelled and not self._is_creating and not self._is_done:
            self._create()


def _cluster_id(node: Node, expected: str | None) -> str:
    try:
        found = decode_cluster_id(node.data)
    except BadValue as error:
        raise BadValue(f"{paths.CLUSTER_ID} cannot be read: {error}") from error
    if expected not in (None, found):
        raise BadValue(
            f"the log dirs belong to the cluster {expected}, but the coordinator is that of "
            f"{found}; start with the log dirs and the zookeeper.connect that belong together"
        )
    return found


def _taken(broker_id: int, node: Node) -> BadValue:
    try:
        other = decode_broker(broker_id, node.data, node.stat.created_zxid)
        where = " at " + ", ".join(f"{host}:{port}" for host, port in other.endpoints.values())
    except BadValue:
        where = ", whose registration cannot be read"
    return BadValue(
        f"broker.id={broker_id} is taken by a broker{where} (session "
        f"{node.stat.ephemeral_owner:#x}); stop it, wait until its session is over, or choose "
        "another broker.id"
    )
