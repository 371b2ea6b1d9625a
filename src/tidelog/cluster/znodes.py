"""What stands in the nodes of the tree: Kafka 3.9's JSON, both ways.

An `encode_` function gives the bytes Kafka would write, keys in its order; the `decode_` one
reads them, and what Kafka's older versions wrote. A node that cannot be read raises `BadValue`.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.base.errors import BadValue
from tidelog.base.settings import read_listeners
from tidelog.cluster import fields
from tidelog.cluster.image import BrokerInfo

NODE_BYTES_MAX: Final = 1_000_000
"""ZooKeeper refuses a node of 1 MiB and more."""
_ID_BYTES: Final = 16
_EPOCH_MAX: Final = (1 << 31) - 1


def id_text(topic_id: bytes) -> str:
    """16 bytes as Kafka writes an id: url-safe base64 of 22 characters."""
    return urlsafe_b64encode(topic_id).decode().rstrip("=")


def id_bytes(text: str) -> bytes:
    try:
        found = urlsafe_b64decode(text.rstrip("=") + "==")
    except ValueError as error:
        raise BadValue(f"{text[:30]} is not a base64 id") from error
    if len(found) != _ID_BYTES or id_text(found) != text.rstrip("="):
        raise BadValue(f"{text[:30]} is not the base64 of 16 bytes")
    return found


def encode_broker(broker: BrokerInfo, timestamp_ms: int) -> bytes:
    """Host and port at the top are those of the first listener without security, for old
    clients."""
    plain = next((name for name in broker.endpoints if _protocol(broker, name) == "PLAINTEXT"), "")
    host, port = broker.endpoints.get(plain, (None, -1))
    rack = {} if broker.rack is None else {"rack": broker.rack}
    return fields.encode(
        {
            "features": {},
            "listener_security_protocol_map": {
                name: _protocol(broker, name) for name in broker.endpoints
            },
            "endpoints": [f"{name}://{_address(*at)}" for name, at in broker.endpoints.items()],
            "jmx_port": -1,
            **rack,
            "host": host,
            "port": port,
            "timestamp": str(timestamp_ms),
            "version": 5,
        }
    )


def decode_broker(broker_id: int, data: bytes, epoch: int) -> BrokerInfo:
    found = fields.decode(data)
    if fields.whole(found, "version") < 2:
        endpoints = {"PLAINTEXT": (fields.text(found, "host"), fields.whole(found, "port"))}
    else:
        endpoints = _decode_endpoints(found.get("endpoints"))
    return BrokerInfo(
        broker_id=broker_id,
        endpoints=endpoints,
        protocols=fields.texts(found, "listener_security_protocol_map"),
        rack=fields.optional_text(found, "rack"),
        epoch=epoch,
    )


def _decode_endpoints(value: object) -> dict[str, tuple[str, int]]:
    if not isinstance(value, list) or not value or not all(isinstance(x, str) for x in value):
        raise BadValue("endpoints is not a list of NAME://host:port")
    return {at.name: (at.host, at.port) for at in read_listeners(",".join(value))}


def _protocol(broker: BrokerInfo, listener: str) -> str:
    return broker.protocols.get(listener, listener)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Who holds one partition; adding and removing are of a reassignment under way."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


def encode_topic(topic_id: bytes, assignments: Sequence[Assignment]) -> bytes:
    numbered = {str(number): assignment for number, assignment in enumerate(assignments)}
    return fields.encode(
        {
            "removing_replicas": {n: list(a.removing) for n, a in numbered.items() if a.removing},
            "partitions": {n: list(a.replicas) for n, a in numbered.items()},
            "topic_id": id_text(topic_id),
            "adding_replicas": {n: list(a.adding) for n, a in numbered.items() if a.adding},
            "version": 3,
        }
    )


def decode_topic(data: bytes) -> tuple[bytes | None, tuple[Assignment, ...]]:
    """The id, which topics made before Kafka 2.8 lack, and the partitions from 0 on."""
    found = fields.decode(data)
    adding = fields.mapping(found, "adding_replicas")
    removing = fields.mapping(found, "removing_replicas")
    partitions = fields.mapping(found, "partitions")
    numbers = [str(number) for number in range(len(partitions))]
    if not partitions or set(numbers) != set(partitions):
        raise BadValue("partitions are not numbered from 0 without gaps")
    topic_id = fields.optional_text(found, "topic_id")
    return None if topic_id is None else id_bytes(topic_id), tuple(
        Assignment(
            replicas=_replicas(partitions[number]),
            adding=fields.broker_ids(adding.get(number, []), "adding_replicas"),
            removing=fields.broker_ids(removing.get(number, []), "removing_replicas"),
        )
        for number in numbers
    )


def _replicas(value: object) -> tuple[int, ...]:
    replicas = fields.broker_ids(value, "partitions")
    if not replicas:
        raise BadValue("a partition has no replicas")
    return replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    broker_epochs: Mapping[int, int] = field(default_factory=dict)
    """The epoch of each broker when it was last known to have what the ISR has. One that is not
    there is not known: Apache Kafka wrote the state."""
    elr: tuple[int, ...] = ()


def encode_state(state: State) -> bytes:
    """The last two keys are not Kafka's, whose decoder leaves out what it does not know."""
    known = [member for member in (*state.isr, *state.elr) if member in state.broker_epochs]
    return fields.encode(
        {
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
            "broker_epochs": {str(member): state.broker_epochs[member] for member in known},
            "elr": list(state.elr),
        }
    )


def decode_state(data: bytes) -> State:
    found = fields.decode(data)
    isr = fields.broker_ids(found.get("isr"), "isr")
    elr = fields.broker_ids(found.get("elr", []), "elr")
    return State(
        leader=fields.whole(found, "leader"),
        leader_epoch=fields.whole(found, "leader_epoch", 0),
        isr=isr,
        controller_epoch=fields.whole(found, "controller_epoch", 0),
        broker_epochs=fields.broker_epochs(found, "broker_epochs"),
        elr=tuple(member for member in elr if member not in isr),
    )


def encode_config(config: Mapping[str, str]) -> bytes:
    return fields.encode({"version": 1, "config": dict(config)})


def decode_config(data: bytes) -> dict[str, str]:
    """An empty node is an empty config, as Kafka has it."""
    return fields.texts(fields.decode(data), "config") if data else {}


def encode_config_change(entity_path: str) -> bytes:
    """Announces a change of `topics/<name>`, `brokers/<id>` or `brokers/<default>`."""
    return fields.encode({"version": 2, "entity_path": entity_path})


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    return fields.encode(
        {
            "version": 2,
            "brokerid": broker_id,
            "timestamp": str(timestamp_ms),
            "kraftControllerEpoch": -1,
        }
    )


def decode_controller(data: bytes) -> int:
    return fields.whole(fields.decode(data), "brokerid")


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    if not data.isdigit() or len(data) > 10 or int(data) >= _EPOCH_MAX:
        raise BadValue(f"{data[:30]!r} is not a controller epoch")
    return int(data)


def encode_cluster_id(cluster_id: str) -> bytes:
    return fields.encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    found = fields.text(fields.decode(data), "id")
    if not found:
        raise BadValue("the id is empty")
    return found


def encode_producer_id_block(broker_id: int, block: range) -> bytes:
    return fields.encode(
        {
            "version": 1,
            "broker": broker_id,
            "block_start": str(block.start),
            "block_end": str(block.stop - 1),
        }
    )


def decode_producer_id_block(data: bytes) -> range:
    found: dict[str, Any] = fields.decode(data)
    block = range(
        fields.whole_in_text(found, "block_start"), fields.whole_in_text(found, "block_end") + 1
    )
    if not block:
        raise BadValue(f"block_start={block.start} is behind block_end={block.stop - 1}")
    return block
