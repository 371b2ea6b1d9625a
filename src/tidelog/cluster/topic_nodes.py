"""The writes that make, grow and mend a topic's nodes, in groups that belong together.

A topic exists when its own node does; that node and its settings are in the first group. States
that are missing, because a process died between two groups, are made at the next start, so
every order that keeps the first group first is safe.
"""

from collections.abc import Iterator
from dataclasses import replace

from tidelog.base.coordination import Check, Create, Operation, SetData
from tidelog.base.ports import Entropy
from tidelog.cluster import paths
from tidelog.cluster.image import NO_STATE, PartitionInfo, TopicInfo
from tidelog.cluster.znodes import (
    Assignment,
    State,
    encode_config,
    encode_state,
    encode_topic,
    id_text,
)

Group = list[Operation]


def random_topic_id(entropy: Entropy) -> bytes:
    """A random UUID as Kafka makes them: its text never begins with a dash, which command lines
    would take for an option; the version bits keep it apart from the reserved ids."""
    while True:
        drawn = bytearray(entropy.random_bytes(16))
        drawn[6] = drawn[6] & 0x0F | 0x40
        drawn[8] = drawn[8] & 0x3F | 0x80
        topic_id = bytes(drawn)
        if not id_text(topic_id).startswith("-"):
            return topic_id


def topic_data(topic: TopicInfo) -> bytes:
    return encode_topic(
        topic.topic_id,
        [
            Assignment(
                replicas=partition.replicas,
                adding=partition.adding_replicas,
                removing=partition.removing_replicas,
            )
            for partition in topic.partitions
        ],
    )


def creation(topic: TopicInfo, *, config_is_there: bool = False) -> Iterator[Group]:
    """All nodes of a new topic. Settings left over from another of that name are replaced."""
    path, data = paths.topic_config(topic.name), encode_config(topic.config)
    config = SetData(path=path, data=data) if config_is_there else Create(path=path, data=data)
    yield [
        Create(path=paths.topic(topic.name), data=topic_data(topic)),
        config,
        new_incarnation(topic),
        Create(path=paths.partitions(topic.name)),
    ]
    for number in range(len(topic.partitions)):
        yield new_state(topic, number)


def new_incarnation(topic: TopicInfo) -> Create:
    return Create(path=paths.incarnation(topic.name, id_text(topic.topic_id)))


def is_incarnation(name: str, topic_id: bytes) -> Check:
    """Holds until the topic is deleted, and never again."""
    return Check(path=paths.incarnation(name, id_text(topic_id)), version=0)


def growth(before: TopicInfo, topic: TopicInfo) -> Iterator[Group]:
    """The nodes that make a topic as it is what it will be."""
    path = paths.topic(topic.name)
    yield [SetData(path=path, data=topic_data(topic), version=before.version)]
    for number in range(len(before.partitions), len(topic.partitions)):
        yield new_state(topic, number)


def new_state(topic: TopicInfo, number: int) -> Group:
    return [
        Create(path=paths.partition(topic.name, number)),
        Create(path=paths.state(topic.name, number), data=state_data(topic.partitions[number])),
    ]


def state_data(partition: PartitionInfo) -> bytes:
    return encode_state(
        State(
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=partition.isr,
            controller_epoch=partition.controller_epoch,
            broker_epochs=partition.broker_epochs,
            elr=partition.elr,
        )
    )


def with_state(partition: PartitionInfo, state: State, version: int) -> PartitionInfo:
    """What is known of a partition when its state node has been read."""
    return replace(
        partition,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        controller_epoch=state.controller_epoch,
        broker_epochs=state.broker_epochs,
        elr=state.elr,
        state_version=version,
    )


def changed_state(topic: str, number: int, partition: PartitionInfo) -> Group:
    """`partition` is as it will be, but with the version its node has now."""
    assert partition.state_version != NO_STATE, f"{topic}-{number} has no state node to change"
    return [
        SetData(
            path=paths.state(topic, number),
            data=state_data(partition),
            version=partition.state_version,
        )
    ]


def written(partition: PartitionInfo) -> PartitionInfo:
    """What is known of a partition after its changed state was written."""
    return replace(partition, state_version=partition.state_version + 1)
