"""What the coordinator knows of the cluster, as one broker holds it in memory.

The `Image` belongs to the loop: `Metadata` changes it when a write is durable, everyone else
only reads. Its entries are values that are replaced, never altered, so whoever holds one keeps
a consistent view of that topic or broker.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

NO_LEADER: Final = -1
NO_STATE: Final = -1
"""The `state_version` and epochs of a partition whose state node was not written yet."""
NO_CONTROLLER: Final = -1
NO_TOPIC_ID: Final = bytes(16)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    broker_id: int
    """-1 where the broker is still to be given a number."""
    endpoints: Mapping[str, tuple[str, int]]
    """Host and port that clients are told, by listener name, in the order of the settings."""
    protocols: Mapping[str, str] = field(default_factory=dict)
    """The security protocol by listener name; a listener not named speaks what it is called.
    `Metadata` fills in what its broker's settings say."""
    rack: str | None = None
    epoch: int = -1
    """The zxid that made its registration: every incarnation of a broker has a larger one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    """NO_LEADER while nobody leads."""
    leader_epoch: int
    state_version: int
    """The state node's version, for conditional writes; NO_STATE while there is no such node."""
    controller_epoch: int = NO_STATE
    adding_replicas: tuple[int, ...] = ()
    """Also those that a reassignment under way no longer wants: they are in both."""
    removing_replicas: tuple[int, ...] = ()
    broker_epochs: Mapping[int, int] = field(default_factory=dict)
    """The epoch under which each broker is a member of `isr` or `elr`. A member that is registered
    under another one has restarted since, and may have lost what it had not fsynced."""
    elr: tuple[int, ...] = ()
    """Eligible leaders: who left the ISR when it was, or became, too small for anything to be
    committed without them, so they have all that was. Nobody is in both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    name: str
    topic_id: bytes
    partitions: tuple[PartitionInfo, ...]
    config: Mapping[str, str] = field(default_factory=dict)
    """The topic's own settings, as text; `cluster.effective` adds what it falls back to."""
    version: int = 0
    """The topic node's version, for conditional writes."""

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas) if self.partitions else 0


class Image:
    """The brokers, topics and settings of the cluster. Read it from the loop at any time."""

    __slots__ = (
        "broker_configs",
        "brokers",
        "controller_id",
        "default_broker_config",
        "deleting",
        "topic_names",
        "topics",
        "unreadable",
    )

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerInfo] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.topic_names: dict[bytes, str] = {}
        self.controller_id: int = NO_CONTROLLER
        self.broker_configs: dict[int, dict[str, str]] = {}
        self.default_broker_config: dict[str, str] = {}
        self.deleting: dict[str, TopicInfo] = {}
        """Topics whose deletion was accepted but is not finished; they are not in `topics`.
        One that could not be read is here without partitions."""
        self.unreadable: dict[str, str] = {}
        """Topics that are there but could not be read, and why. Their data must be left alone."""

    def put_topic(self, topic: TopicInfo) -> None:
        """Adds a topic, or replaces what was known of it."""
        self.remove_topic(topic.name)
        self.topics[topic.name] = topic
        if topic.topic_id != NO_TOPIC_ID:
            self.topic_names[topic.topic_id] = topic.name

    def remove_topic(self, name: str) -> None:
        """Forgets a topic; fine if it is not known."""
        known = self.topics.pop(name, None)
        if known is not None:
            self.topic_names.pop(known.topic_id, None)

    def may_be(self, name: str, topic_id: bytes | None) -> bool:
        """Whether what was kept under a topic's name and that id can be the topic's: if either is
        not known, nobody can say that it is not. It cannot be that of a topic that is gone."""
        if topic_id is None or name in self.unreadable:
            return True
        known = self.topics.get(name)
        return known is not None and known.topic_id in (NO_TOPIC_ID, topic_id)
