"""A cluster as its Metadata shows it: brokers, topics, and who leads and holds their partitions."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.client.addresses import Address

NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    broker_id: int
    address: Address
    rack: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    index: int
    leader: int
    """-1 if there is none."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    name: str
    topic_id: str | None
    """In Kafka's form of 22 characters; None from brokers that have none."""
    is_internal: bool
    partitions: tuple[Partition, ...]

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas) if self.partitions else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    cluster_id: str | None
    controller_id: int
    brokers: Mapping[int, Broker]
    topics: Mapping[str, Topic]
    """Sorted by name."""
    refused: Mapping[str, KafkaError]
    """Why there is nothing to say of a topic that was asked for."""

    def topic(self, name: str) -> Topic:
        if name in self.topics:
            return self.topics[name]
        unknown = KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name}")
        raise self.refused.get(name, unknown)


class Leaderships:
    """The newest that was heard of each partition. A broker that is cut off from the others tells
    of leaders that were deposed meanwhile, itself perhaps among them: whoever believes it finds
    a log that seems to have been cut off. It does not tell of partitions that were added, either,
    which then seem to be gone: topics grow, and never shrink."""

    def __init__(self) -> None:
        self._newest: dict[str, dict[int, Partition]] = {}

    def corrected(self, heard: Cluster) -> Cluster:
        topics = {name: self._topic(topic) for name, topic in heard.topics.items()}
        return replace(heard, topics=topics)

    def _topic(self, topic: Topic) -> Topic:
        if topic.topic_id is None:
            # Nobody knows whether it is still the same topic.
            return topic
        newest = self._newest.setdefault(topic.topic_id, {})
        for heard in topic.partitions:
            known = newest.get(heard.index)
            if known is None or known.leader_epoch <= heard.leader_epoch:
                newest[heard.index] = heard
        return replace(topic, partitions=tuple(newest[index] for index in sorted(newest)))


def read_cluster(answer: Any) -> Cluster:
    """From a response to Metadata of any version this client knows."""
    good = [topic for topic in answer.topics if topic.error_code is ErrorCode.none]
    bad = [topic for topic in answer.topics if topic.error_code is not ErrorCode.none]
    return Cluster(
        cluster_id=answer.cluster_id,
        controller_id=answer.controller_id,
        brokers={broker.node_id: _broker(broker) for broker in answer.brokers},
        topics={topic.name: _topic(topic) for topic in sorted(good, key=lambda t: t.name or "")},
        refused={topic.name or "": _refusal(topic) for topic in bad},
    )


def _broker(broker: Any) -> Broker:
    return Broker(
        broker_id=broker.node_id, address=Address(broker.host, broker.port), rack=broker.rack
    )


def _topic(topic: Any) -> Topic:
    topic_id = getattr(topic, "topic_id", None)
    ordered = sorted(topic.partitions, key=lambda partition: int(partition.partition_index))
    return Topic(
        name=topic.name,
        topic_id=None if topic_id is None else text_of_id(topic_id.bytes),
        is_internal=topic.is_internal,
        partitions=tuple(_partition(partition) for partition in ordered),
    )


def _partition(partition: Any) -> Partition:
    return Partition(
        index=partition.partition_index,
        leader=partition.leader_id,
        leader_epoch=getattr(partition, "leader_epoch", -1),
        replicas=partition.replica_nodes,
        isr=partition.isr_nodes,
        offline_replicas=getattr(partition, "offline_replicas", ()),
    )


def _refusal(topic: Any) -> KafkaError:
    code: ErrorCode = topic.error_code
    if code is ErrorCode.unknown_topic_or_partition:
        return KafkaError(code, f"there is no topic {topic.name}")
    return KafkaError(code, f"topic {topic.name}: {code.name.replace('_', ' ')}")


def text_of_id(topic_id: bytes) -> str:
    return urlsafe_b64encode(topic_id).decode().rstrip("=")


def id_of_text(text: str) -> bytes:
    """The other way round."""
    return urlsafe_b64decode(text + "==")
