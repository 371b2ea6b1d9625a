"""How a broker enters the cluster: base nodes, cluster id, its number, its registration.

`Registration.start` goes through these steps and ends with who this broker is, or with an error
that says what to do. Every step can be repeated: what is there already, because another
broker was quicker or an answer was lost, is taken as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from tidelog.base.coordination import (
    Coordination,
    CoordinationError,
    Create,
    Node,
    Operation,
    SetData,
    Stat,
    Trouble,
    Written,
)
from tidelog.base.errors import BadValue
from tidelog.base.ports import Clock, Entropy
from tidelog.cluster import paths
from tidelog.cluster.image import BrokerInfo
from tidelog.cluster.topic_nodes import random_topic_id
from tidelog.cluster.writing import Ask, gather
from tidelog.cluster.znodes import (
    decode_broker,
    decode_cluster_id,
    encode_broker,
    encode_cluster_id,
    id_text,
)

Failure = CoordinationError | BadValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    cluster_id: str
    broker: BrokerInfo
    """With its number and its epoch."""


Done = Callable[[Registered | Failure], None]


class Registration:
    """One start of one broker."""

    def __init__(
        self,
        coordination: Coordination,
        clock: Clock,
        entropy: Entropy,
        broker: BrokerInfo,
        reserved_id_max: int,
    ) -> None:
        self._coordination = coordination
        self._clock = clock
        self._entropy = entropy
        self._broker = broker
        self._reserved_id_max = reserved_id_max
        self._expected_cluster_id: str | None = None
        self._cluster_id = ""
        self._done: Done = lambda _: None

    def start(self, expected_cluster_id: str | None, done: Done) -> None:
        """A broker that was in another cluster before is refused before it shows itself."""
        self._expected_cluster_id = expected_cluster_id
        self._done = done
        self._make_base_nodes()

    def _make_base_nodes(self) -> None:
        wanted: list[Operation] = [Create(path=path) for path in paths.BASE]
        new_id = id_text(random_topic_id(self._entropy))
        wanted.append(Create(path=paths.CLUSTER_ID, data=encode_cluster_id(new_id)))
        asks: list[Ask[Stat | CoordinationError | None]] = [
            partial(self._coordination.exists, node.path) for node in wanted
        ]

        def looked(stats: list[Stat | CoordinationError | None]) -> None:
            failed = next((stat for stat in stats if isinstance(stat, CoordinationError)), None)
            missing = [node for node, stat in zip(wanted, stats, strict=True) if stat is None]
            if failed is not None:
                self._done(failed)
            elif missing:
                self._coordination.write(missing, self._made_base_nodes)
            else:
                self._coordination.get(paths.CLUSTER_ID, self._got_cluster_id)

        gather(asks, looked)

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
            self._cluster_id = decode_cluster_id(node.data)
        except BadValue as error:
            self._done(BadValue(f"{paths.CLUSTER_ID} cannot be read: {error}"))
            return
        if self._expected_cluster_id not in (None, self._cluster_id):
            self._done(
                BadValue(
                    f"the log dirs belong to the cluster {self._expected_cluster_id}, but the "
                    f"coordinator is that of {self._cluster_id}; start with the log dirs or the "
                    "coordinator that belong together"
                )
            )
        elif self._broker.broker_id < 0:
            take = SetData(path=paths.BROKER_SEQUENCE, data=b"")
            self._coordination.write([take], self._took_number)
        else:
            self._register()

    def _took_number(self, result: list[Written] | CoordinationError) -> None:
        """The node's version is a counter that nobody can draw the same number from."""
        if isinstance(result, CoordinationError):
            self._done(result)
            return
        stat = result[0]
        assert isinstance(stat, Stat)
        self._broker = replace(self._broker, broker_id=self._reserved_id_max + stat.version)
        self._register()

    def _register(self) -> None:
        path = paths.broker(self._broker.broker_id)
        data = encode_broker(self._broker, self._clock.now_ms())
        create = Create(path=path, data=data, ephemeral=True)

        def created(result: list[Written] | CoordinationError) -> None:
            if isinstance(result, CoordinationError) and result.trouble is not Trouble.node_exists:
                self._done(result)
            else:
                self._coordination.get(path, self._looked_at_registration)

        self._coordination.write([create], created)

    def _looked_at_registration(self, node: Node | CoordinationError) -> None:
        if isinstance(node, CoordinationError):
            self._done(node)
        elif node.stat.ephemeral_owner != self._coordination.session_id:
            self._done(_taken(self._broker.broker_id, node))
        else:
            broker = replace(self._broker, epoch=node.stat.created_zxid)
            self._done(Registered(cluster_id=self._cluster_id, broker=broker))


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
