"""What clients are told of brokers, partitions and settings, for Metadata and its relatives.

Addresses depend on the listener a request came through: a broker without that listener cannot
be reached by this client, so it counts as offline. Without an authorizer a client may do
everything a resource allows.
"""

from collections.abc import Mapping
from typing import Any, Final

from tidelog.base.errors import ErrorCode
from tidelog.cluster.config_view import ConfigView
from tidelog.cluster.image import NO_LEADER, Image, PartitionInfo

NO_OPERATIONS_ASKED: Final = -(1 << 31)
_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = 3, 4, 5, 6, 7, 8
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 9, 10, 11, 12


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS: Final = _bits(
    _READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS
)
GROUP_OPERATIONS: Final = _bits(_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
CLUSTER_OPERATIONS: Final = _bits(
    _CREATE,
    _ALTER,
    _DESCRIBE,
    _CLUSTER_ACTION,
    _DESCRIBE_CONFIGS,
    _ALTER_CONFIGS,
    _IDEMPOTENT_WRITE,
)


def nodes(image: Image, listener: str) -> list[tuple[int, str, int, str | None]]:
    """Number, host, port and rack of every broker that has the listener."""
    return [
        (broker_id, *broker.endpoints[listener], broker.rack)
        for broker_id, broker in sorted(image.brokers.items())
        if listener in broker.endpoints
    ]


def controller(image: Image, listener: str) -> int:
    """Which broker to send changes to, if the client can reach it."""
    return image.controller_id if _has(image, image.controller_id, listener) else NO_LEADER


def partition_fields(
    image: Image, index: int, partition: PartitionInfo, listener: str
) -> Mapping[str, Any]:
    """A partition as Metadata and DescribeTopicPartitions show it."""
    can_lead = _has(image, partition.leader, listener)
    return {
        "error_code": ErrorCode.none,
        "partition_index": index,
        "leader_id": partition.leader if can_lead else NO_LEADER,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "offline_replicas": [b for b in partition.replicas if not _has(image, b, listener)],
    }


def config_fields(view: ConfigView) -> Mapping[str, Any]:
    """A setting as DescribeConfigs and CreateTopics show it."""
    return {
        "name": view.name,
        "value": view.value,
        "read_only": view.read_only,
        "config_source": view.source,
        "is_sensitive": view.is_sensitive,
        "synonyms": [
            {"name": synonym.name, "value": synonym.value, "source": synonym.source}
            for synonym in view.synonyms
        ],
        "config_type": view.config_type,
        "documentation": view.documentation,
    }


def reachable(image: Image, brokers: tuple[int, ...], listener: str) -> tuple[int, ...]:
    return tuple(broker_id for broker_id in brokers if _has(image, broker_id, listener))


def _has(image: Image, broker_id: int, listener: str) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and listener in broker.endpoints
