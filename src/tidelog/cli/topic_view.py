"""How topics are shown: Kafka's own layout, tables, or JSON; and which partitions a filter keeps.

A partition is under its minimum if fewer replicas are in sync than `min.insync.replicas`, which
counts as the number of its replicas where it is larger (A2), or if nobody leads it (T5).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog.cli.printing import Format, say, say_json, say_table
from tidelog.client.cluster import NO_LEADER, Partition, Topic
from tidelog.client.configs import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Partitions that one of these applies to are shown; all are if none is set."""

    under_replicated: bool = False
    unavailable: bool = False
    under_min_isr: bool = False
    at_min_isr: bool = False
    only_overrides: bool = False

    @property
    def are_for_partitions(self) -> bool:
        return self.under_replicated or self.unavailable or self.needs_minimum

    @property
    def needs_minimum(self) -> bool:
        return self.under_min_isr or self.at_min_isr

    def keep(self, partition: Partition, min_isr: int, alive: Collection[int]) -> bool:
        if not self.are_for_partitions:
            return True
        in_sync, replicas = len(partition.isr), len(partition.replicas)
        wanted = min(min_isr, replicas)
        return (
            (self.under_replicated and in_sync < replicas)
            or (self.unavailable and partition.leader not in alive)
            or (self.under_min_isr and (partition.leader == NO_LEADER or in_sync < wanted))
            or (self.at_min_isr and in_sync == wanted)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    topic: Topic
    partitions: Sequence[Partition]
    """Those to be shown."""
    configs: Mapping[str, str | None]
    """What was set for the topic or for its brokers."""


def view_topic(
    topic: Topic, configs: Sequence[Config], filters: Filters, alive: Collection[int]
) -> TopicView:
    min_isr = next((int(c.value or 1) for c in configs if c.name == "min.insync.replicas"), 1)
    kept = [p for p in topic.partitions if filters.keep(p, min_isr, alive)]
    set_ones = {config.name: config.value for config in configs if not config.is_default}
    return TopicView(topic=topic, partitions=kept, configs=set_ones)


def show_topics(views: Sequence[TopicView], filters: Filters, how: Format) -> None:
    if filters.are_for_partitions:
        views = [view for view in views if view.partitions]
    if how is Format.json:
        say_json([_plain(view) for view in views])
    elif how is Format.table:
        _show_table(views, filters)
    else:
        _show_as_kafka_does(views, filters)


def _show_as_kafka_does(views: Sequence[TopicView], filters: Filters) -> None:
    for view in views:
        topic = view.topic
        if not filters.are_for_partitions:
            configs = ",".join(f"{name}={value}" for name, value in view.configs.items())
            identity = f"\tTopicId: {topic.topic_id}" if topic.topic_id is not None else ""
            say(
                f"Topic: {topic.name}{identity}\tPartitionCount: {len(topic.partitions)}\t"
                f"ReplicationFactor: {topic.replication_factor}\tConfigs: {configs}"
            )
        for partition in () if filters.only_overrides else view.partitions:
            say(
                f"\tTopic: {topic.name}\tPartition: {partition.index}\t"
                f"Leader: {_leader(partition)}\tReplicas: {_joined(partition.replicas)}\t"
                f"Isr: {_joined(partition.isr)}"
            )


def _show_table(views: Sequence[TopicView], filters: Filters) -> None:
    if filters.only_overrides:
        rows = [(v.topic.name, name, value) for v in views for name, value in v.configs.items()]
        say_table(("TOPIC", "CONFIG", "VALUE"), rows)
        return
    say_table(
        ("TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR"),
        [
            (view.topic.name, p.index, _leader(p), _joined(p.replicas), _joined(p.isr))
            for view in views
            for p in view.partitions
        ],
    )


def _plain(view: TopicView) -> dict[str, Any]:
    return {
        "topic": view.topic.name,
        "topic_id": view.topic.topic_id,
        "is_internal": view.topic.is_internal,
        "partition_count": len(view.topic.partitions),
        "replication_factor": view.topic.replication_factor,
        "configs": view.configs,
        "partitions": [
            {
                "partition": partition.index,
                "leader": None if partition.leader == NO_LEADER else partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": partition.replicas,
                "isr": partition.isr,
                "offline_replicas": partition.offline_replicas,
            }
            for partition in view.partitions
        ],
    }


def _leader(partition: Partition) -> str:
    return "none" if partition.leader == NO_LEADER else str(partition.leader)


def _joined(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
