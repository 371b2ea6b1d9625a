"""Who leads a partition now, and under which id its topic goes: what a bulk reader or writer must
know before it can ask, and asks for again when a broker sends it away.
"""

from dataclasses import dataclass
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.client.client import Client
from tidelog.client.cluster import NO_LEADER, Partition, Topic, id_of_text

PAUSE_MS: Final = 100
"""Between two attempts, while one broker takes over from another."""

MOVED: Final = frozenset(
    (
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
        ErrorCode.replica_not_available,
        ErrorCode.broker_not_available,
        ErrorCode.listener_not_found,
        ErrorCode.kafka_storage_error,
    )
)
"""Errors after which it helps to look for the leader again."""

NOT_LEADING: Final = frozenset(
    (
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
    )
)
"""What is said by one who was named as the leader and is not. Whoever named it may be cut off from
the others, and would name it for ever: then all are to be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Led:
    leader: int
    leader_epoch: int
    topic_id: bytes | None
    """None from brokers that have none."""


def find_leader(client: Client, topic: str, partition: int) -> Led:
    return leader_of(client.cluster([topic]).topic(topic), partition)


def leader_of(topic: Topic, partition: int) -> Led:
    found = partition_of(topic, partition)
    if found.leader == NO_LEADER:
        why = f"{topic.name}: nobody leads partition {partition}"
        raise KafkaError(ErrorCode.leader_not_available, why)
    topic_id = None if topic.topic_id is None else id_of_text(topic.topic_id)
    return Led(leader=found.leader, leader_epoch=found.leader_epoch, topic_id=topic_id)


def partition_of(topic: Topic, index: int) -> Partition:
    partitions = topic.partitions
    if index in range(len(partitions)) and partitions[index].index == index:
        return partitions[index]
    for partition in partitions:
        if partition.index == index:
            return partition
    raise KafkaError(
        ErrorCode.unknown_topic_or_partition,
        f"{topic.name} has no partition {index}, it has {len(partitions)}",
    )
