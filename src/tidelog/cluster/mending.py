"""What a controller puts right when it starts, planned from what stands in the tree.

A topic may lack its id (older Kafka) or states (its maker died half-way); every partition that
this broker leads gets a new leader epoch, because a process that restarted may have lost what
it had not fsynced; and one whose leader is gone is led by a replica in sync that is alive.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial

from tidelog.base.coordination import (
    Coordination,
    CoordinationError,
    Create,
    SetData,
    Stat,
)
from tidelog.base.ports import Entropy
from tidelog.cluster import paths
from tidelog.cluster.image import NO_LEADER, NO_STATE, NO_TOPIC_ID, PartitionInfo, TopicInfo
from tidelog.cluster.topic_nodes import (
    Group,
    changed_state,
    new_state,
    random_topic_id,
    topic_data,
    written,
)
from tidelog.cluster.writing import Ask, gather


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Who starts, and who is there."""

    broker_id: int
    alive: Collection[int]
    controller_epoch: int


@dataclass(slots=True)
class Mended:
    """The topics as they will be, and the writes that make them so."""

    topics: list[TopicInfo] = field(default_factory=list)
    changes: list[Group] = field(default_factory=list)
    new_states: list[Group] = field(default_factory=list)
    """The parents of a state may or may not be there: `without_existing` looks."""


def mend(topics: Collection[TopicInfo], restart: Restart, entropy: Entropy) -> Mended:
    mended = Mended()
    for topic in topics:
        with_id = _with_id(topic, entropy, mended)
        mended.topics.append(_with_states(with_id, restart, mended))
    return mended


def without_existing(
    coordination: Coordination,
    groups: list[Group],
    done: Callable[[list[Group] | CoordinationError], None],
) -> None:
    """The same groups without the nodes that are there already."""
    wanted = list(dict.fromkeys(node.path for group in groups for node in group))
    asks: list[Ask[Stat | CoordinationError | None]] = [
        partial(coordination.exists, path) for path in wanted
    ]

    def looked(stats: list[Stat | CoordinationError | None]) -> None:
        missing: set[str] = set()
        for path, stat in zip(wanted, stats, strict=True):
            if isinstance(stat, CoordinationError):
                done(stat)
                return
            if stat is None:
                missing.add(path)
        left = [[node for node in group if node.path in missing] for group in groups]
        done([group for group in left if group])

    gather(asks, looked)


def _with_id(topic: TopicInfo, entropy: Entropy, mended: Mended) -> TopicInfo:
    if topic.topic_id != NO_TOPIC_ID:
        return topic
    found = replace(topic, topic_id=random_topic_id(entropy))
    mended.changes.append(
        [SetData(path=paths.topic(topic.name), data=topic_data(found), version=topic.version)]
    )
    return replace(found, version=topic.version + 1)


def _with_states(topic: TopicInfo, restart: Restart, mended: Mended) -> TopicInfo:
    partitions = list(topic.partitions)
    made: list[int] = []
    for number, partition in enumerate(topic.partitions):
        wanted = _wanted(partition, restart)
        if wanted is None:
            continue
        if partition.state_version == NO_STATE:
            partitions[number] = replace(wanted, state_version=0)
            made.append(number)
        else:
            mended.changes.append(changed_state(topic.name, number, wanted))
            partitions[number] = written(wanted)
    whole = replace(topic, partitions=tuple(partitions))
    if made:
        mended.new_states.append([Create(path=paths.partitions(topic.name))])
        mended.new_states.extend(new_state(whole, number) for number in made)
    return whole


def _wanted(partition: PartitionInfo, restart: Restart) -> PartitionInfo | None:
    """How a partition shall be; None if it is to stay as it is."""
    if partition.state_version == NO_STATE:
        alive = tuple(found for found in partition.replicas if found in restart.alive)
        return _led(partition, alive, restart) if alive else None
    if partition.leader == restart.broker_id:
        return _next_epoch(partition, restart)
    if partition.leader in restart.alive:
        return None
    in_sync = tuple(
        found for found in partition.replicas if found in partition.isr and found in restart.alive
    )
    if in_sync:
        return _led(partition, in_sync, restart)
    if partition.leader == NO_LEADER:
        return None
    return _next_epoch(replace(partition, leader=NO_LEADER), restart)


def _led(partition: PartitionInfo, isr: tuple[int, ...], restart: Restart) -> PartitionInfo:
    return _next_epoch(replace(partition, leader=isr[0], isr=isr), restart)


def _next_epoch(partition: PartitionInfo, restart: Restart) -> PartitionInfo:
    return replace(
        partition,
        leader_epoch=partition.leader_epoch + 1,
        controller_epoch=restart.controller_epoch,
    )
