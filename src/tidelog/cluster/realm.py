"""What a controller knows while it is in office; shared by all that acts for it.

The image is the tree's, apart from what leaders have written and not announced yet; it differs
from the view that every broker has of what it was told. Everything here ends with the office.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from tidelog.base.coordination import Check, CoordinationError, Trouble
from tidelog.base.settings import Settings
from tidelog.cluster import paths
from tidelog.cluster.effective import topic_rules
from tidelog.cluster.elections import Known, Report, Situation, TopicRules
from tidelog.cluster.image import Image, PartitionInfo, TopicInfo
from tidelog.cluster.leadership import Office

_log = logging.getLogger(__name__)

PartitionName = tuple[str, int]


@dataclass(slots=True, kw_only=True)
class Realm:
    office: Office
    broker_id: int
    settings: Callable[[], Settings]
    """The broker's own, with what was changed while it runs."""
    image: Image = field(default_factory=Image)
    shutting_down: dict[int, int] = field(default_factory=dict)
    """Brokers that want to stop, and the epoch they said it under."""
    offline: dict[PartitionName, dict[int, int]] = field(default_factory=dict)
    """Replicas whose log dir failed: by broker, with its epoch then."""
    reports: dict[PartitionName, dict[int, Report | None]] = field(default_factory=dict)
    """How far replicas of leaderless partitions are; None of those that did not say."""
    is_over: bool = False
    end: Callable[[], None] = lambda: None
    """Gives the office up: there is another controller."""
    _rules: dict[str, tuple[object, object, TopicRules]] = field(default_factory=dict)

    @property
    def fence(self) -> Check:
        return self.office.fence

    def end_by(self, errors: Iterable[CoordinationError | None]) -> None:
        """Gives the office up if one of the errors says that it is lost."""
        for error in errors:
            if error is not None and is_end(error) and not self.is_over:
                _log.warning("no longer controller under epoch=%d: %s", self.office.epoch, error)
                self.end()

    def situation(self) -> Situation:
        brokers = self.image.brokers
        strategy: Literal["strict", "first-isr"] = "strict"
        if self.settings().text("leader.recovery.strategy") == "first-isr":
            strategy = "first-isr"
        return Situation(
            live={broker_id: broker.epoch for broker_id, broker in brokers.items()},
            controller_epoch=self.office.epoch,
            shutting_down=frozenset(self.shutting_down),
            strategy=strategy,
        )

    def rules(self, topic: TopicInfo) -> TopicRules:
        settings = self.settings()
        made = self._rules.get(topic.name)
        if made is not None and made[0] is topic.config and made[1] is settings:
            return made[2]
        rules = topic_rules(settings, topic)
        self._rules[topic.name] = (topic.config, settings, rules)
        return rules

    def known(self, name: PartitionName) -> Known:
        """Replicas are offline until their broker restarts, or says that it can serve them."""
        offline, reports = self.offline.get(name), self.reports.get(name)
        if offline is None and reports is None:
            return _NOTHING
        brokers = self.image.brokers
        return Known(
            offline=frozenset(
                broker_id
                for broker_id, epoch in (offline or {}).items()
                if broker_id in brokers and brokers[broker_id].epoch == epoch
            ),
            reports=reports or {},
        )

    def partition(self, name: PartitionName) -> PartitionInfo | None:
        topic = self.image.topics.get(name[0])
        if topic is None or not 0 <= name[1] < len(topic.partitions):
            return None
        return topic.partitions[name[1]]

    def put_partitions(self, name: str, changed: dict[int, PartitionInfo], version: int) -> None:
        """Replaces partitions of a topic; `version` is that of the topic's own node. What replicas
        said, or did not, was said of the epoch they were asked under."""
        topic = self.image.topics[name]
        for index, partition in changed.items():
            if partition.leader_epoch != topic.partitions[index].leader_epoch:
                self.reports.pop((name, index), None)
        partitions = tuple(
            changed.get(index, partition) for index, partition in enumerate(topic.partitions)
        )
        self.image.topics[name] = replace(topic, partitions=partitions, version=version)

    def put_config(self, name: str, config: Mapping[str, str]) -> None:
        self.image.topics[name] = replace(self.image.topics[name], config=config)

    def forget_topic(self, topic: TopicInfo) -> None:
        self.image.remove_topic(topic.name)
        self._rules.pop(topic.name, None)
        for index in range(len(topic.partitions)):
            self.offline.pop((topic.name, index), None)
            self.reports.pop((topic.name, index), None)


_NOTHING = Known()
_LOST_RACE = frozenset((Trouble.bad_version, Trouble.no_node, Trouble.node_exists))


def is_lost_race(error: CoordinationError) -> bool:
    """Whether somebody else was quicker, as opposed to an office that is lost or a coordinator
    that did not answer."""
    return error.trouble in _LOST_RACE and error.path != paths.CONTROLLER_EPOCH


def is_end(error: CoordinationError) -> bool:
    """Whether the office is lost by that."""
    if error.trouble is Trouble.session_expired:
        return True
    return error.trouble in _LOST_RACE and error.path == paths.CONTROLLER_EPOCH
