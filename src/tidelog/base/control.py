"""What the controller and the brokers tell one another.

They are Kafka's LeaderAndIsr, StopReplica, UpdateMetadata and ControlledShutdown as they were
while ZooKeeper coordinated it, reduced to what is used, and one of our own, ReplicaStates. All
carry the controller's epoch, so that an older controller is refused, and the epoch of the broker
they are meant for, so that a broker that has restarted does not act on what its predecessor
was to do. The classes describe their fields as kio's do: one codec reads and writes them all.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

LEADER_AND_ISR: Final = 4
STOP_REPLICA: Final = 5
UPDATE_METADATA: Final = 6
CONTROLLED_SHUTDOWN: Final = 7
REPLICA_STATES: Final = 16_000

VERSIONS: Final = {
    LEADER_AND_ISR: 7,
    STOP_REPLICA: 4,
    UPDATE_METADATA: 8,
    CONTROLLED_SHUTDOWN: 3,
    REPLICA_STATES: 0,
}
"""The one version of each; all are flexible. They are neither advertised nor taken on a listener
that clients use."""


def _is(kafka_type: str) -> Any:
    return field(metadata={"kafka_type": kafka_type})


def _may_be(kafka_type: str, tag: int, default: int) -> Any:
    """A field that brokers of an earlier version neither write nor look at."""
    return field(default=default, metadata={"kafka_type": kafka_type, "tag": tag})


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlEntity:
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState(ControlEntity):
    """A partition as its state node has it."""

    index: int = _is("int32")
    controller_epoch: int = _is("int32")
    leader: int = _is("int32")
    leader_epoch: int = _is("int32")
    partition_epoch: int = _is("int32")
    """The version of the state node."""
    isr: tuple[int, ...] = _is("int32")
    isr_epochs: tuple[int, ...] = _is("int64")
    """The broker epoch under which each member of `isr` is in it."""
    elr: tuple[int, ...] = _is("int32")
    elr_epochs: tuple[int, ...] = _is("int64")
    replicas: tuple[int, ...] = _is("int32")
    adding_replicas: tuple[int, ...] = _is("int32")
    removing_replicas: tuple[int, ...] = _is("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState(ControlEntity):
    name: str = _is("string")
    topic_id: bytes = _is("topic_id")
    partitions: tuple[PartitionState, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest(ControlEntity):
    """What a broker shall lead and follow. A full one has everything it holds a replica of: what
    else it finds on its disks belongs to topics that are gone, unless they could not be read."""

    controller_id: int = _is("int32")
    controller_epoch: int = _is("int32")
    broker_epoch: int = _is("int64")
    is_full: bool = _is("bool")
    topics: tuple[TopicState, ...] = ()
    unreadable: tuple[str, ...] = _is("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionError(ControlEntity):
    index: int = _is("int32")
    error_code: int = _is("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicErrors(ControlEntity):
    topic_id: bytes = _is("topic_id")
    partitions: tuple[PartitionError, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrResponse(ControlEntity):
    """Only partitions with an error are listed."""

    error_code: int = _is("int16")
    topics: tuple[TopicErrors, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPartition(ControlEntity):
    index: int = _is("int32")
    leader_epoch: int = _is("int32")
    """Stops only what is not of a later epoch; -1 stops it in any case: its topic is gone."""
    delete: bool = _is("bool")


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTopic(ControlEntity):
    name: str = _is("string")
    topic_id: bytes = _is("topic_id")
    partitions: tuple[StopPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest(ControlEntity):
    controller_id: int = _is("int32")
    controller_epoch: int = _is("int32")
    broker_epoch: int = _is("int64")
    topics: tuple[StopTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaResponse(ControlEntity):
    error_code: int = _is("int16")
    topics: tuple[TopicErrors, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlEndpoint(ControlEntity):
    listener: str = _is("string")
    host: str = _is("string")
    port: int = _is("int32")
    protocol: str = _is("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBroker(ControlEntity):
    broker_id: int = _is("int32")
    epoch: int = _is("int64")
    rack: str | None = _is("string")
    endpoints: tuple[ControlEndpoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValue(ControlEntity):
    name: str = _is("string")
    value: str = _is("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata(ControlEntity):
    name: str = _is("string")
    topic_id: bytes = _is("topic_id")
    config: tuple[ConfigValue, ...] = ()
    partitions: tuple[PartitionState, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest(ControlEntity):
    """What changed in the cluster. `brokers` are always all; a full one has all topics too.
    A broker that is told something for the first time is told this before anything else."""

    controller_id: int = _is("int32")
    controller_epoch: int = _is("int32")
    broker_epoch: int = _is("int64")
    is_full: bool = _is("bool")
    brokers: tuple[LiveBroker, ...] = ()
    topics: tuple[TopicMetadata, ...] = ()
    """Whole topics: those that changed."""
    deleted_topic_ids: tuple[bytes, ...] = _is("topic_id")
    unreadable: tuple[str, ...] = _is("string")
    number: int = _may_be("int64", tag=0, default=0)
    """Higher than that of any other that this controller made before, so that one that comes late
    is known; 0 where it is not said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataResponse(ControlEntity):
    error_code: int = _is("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownRequest(ControlEntity):
    broker_id: int = _is("int32")
    broker_epoch: int = _is("int64")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingPartition(ControlEntity):
    topic: str = _is("string")
    index: int = _is("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownResponse(ControlEntity):
    error_code: int = _is("int16")
    remaining: tuple[RemainingPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPartition(ControlEntity):
    index: int = _is("int32")
    leader_epoch: int = _is("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTopic(ControlEntity):
    topic_id: bytes = _is("topic_id")
    partitions: tuple[AskedPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatesRequest(ControlEntity):
    """How far replicas of leaderless partitions are. Only a replica that knows of the leader
    epoch it is asked under answers: then it follows nobody, and its log stays as it is."""

    controller_id: int = _is("int32")
    controller_epoch: int = _is("int32")
    broker_epoch: int = _is("int64")
    topics: tuple[AskedTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatePartition(ControlEntity):
    index: int = _is("int32")
    error_code: int = _is("int16")
    leader_epoch: int = _is("int32")
    last_epoch: int = _is("int32")
    """The epoch of the last record; -1 in an empty log."""
    log_end_offset: int = _is("int64")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStateTopic(ControlEntity):
    topic_id: bytes = _is("topic_id")
    partitions: tuple[ReplicaStatePartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatesResponse(ControlEntity):
    error_code: int = _is("int16")
    topics: tuple[ReplicaStateTopic, ...] = ()


ControlRequest = (
    LeaderAndIsrRequest
    | StopReplicaRequest
    | UpdateMetadataRequest
    | ControlledShutdownRequest
    | ReplicaStatesRequest
)

REQUESTS: Final[dict[int, type[Any]]] = {
    LEADER_AND_ISR: LeaderAndIsrRequest,
    STOP_REPLICA: StopReplicaRequest,
    UPDATE_METADATA: UpdateMetadataRequest,
    CONTROLLED_SHUTDOWN: ControlledShutdownRequest,
    REPLICA_STATES: ReplicaStatesRequest,
}
RESPONSES: Final[dict[int, type[Any]]] = {
    LEADER_AND_ISR: LeaderAndIsrResponse,
    STOP_REPLICA: StopReplicaResponse,
    UPDATE_METADATA: UpdateMetadataResponse,
    CONTROLLED_SHUTDOWN: ControlledShutdownResponse,
    REPLICA_STATES: ReplicaStatesResponse,
}
