"""What `Metadata` can be asked for, and what it tells its listeners.

These are plain values: the handlers of CreateTopics and its relatives make the first ones from
a request; the broker opens, closes and reconfigures logs by a `Change`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from tidelog.base.errors import KafkaError
from tidelog.cluster.image import TopicInfo

USE_DEFAULT: Final = -1
"""As partition count: `num.partitions`; as replication factor: `default.replication.factor`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    name: str
    partition_count: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignment: Mapping[int, Sequence[int]] | None = None
    """The replicas of each partition, the preferred leader first; then both counts stay -1."""
    configs: Mapping[str, str | None] = field(default_factory=dict)


class NewPartitions(NamedTuple):
    name: str
    partition_count: int
    """How many partitions the topic shall have in all."""
    assignment: Sequence[Sequence[int]] | None = None
    """The replicas of each partition that is added."""


ConfigOperation = Literal["set", "delete", "append", "subtract"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    kind: Literal["topic", "broker"]
    name: str
    """The topic, or the broker's number; empty for the default of all brokers."""
    changes: Mapping[str, tuple[ConfigOperation, str | None]]
    replace: bool = False
    """The older AlterConfigs: what is not named goes back to its default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is different now. The image shows it already when a listener is told."""

    created: tuple[TopicInfo, ...] = ()
    deleted: tuple[TopicInfo, ...] = ()
    """Their data must be gone, or out of the way, when the listener returns. A listener may be
    told of the same one again, after a deletion that was interrupted."""
    grown: tuple[tuple[TopicInfo, int], ...] = ()
    """A topic, and how many partitions it had before."""
    topic_configs: tuple[str, ...] = ()
    """Topics whose own settings changed."""
    broker_config: bool = False
    """Whether the settings of this broker may have changed: `Metadata.settings` has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """Where the replicas of a partition shall be."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None
    """The preferred leader first; None goes back to where they were before what is under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OngoingReassignment:
    topic: str
    partition: int
    replicas: tuple[int, ...]
    """Those that leave among them."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]


ElectionKind = Literal["preferred", "unclean"]
Elected = Mapping[tuple[str, int], KafkaError | None]
"""Of each partition, by topic and number, None if its leader was elected, or why not."""
