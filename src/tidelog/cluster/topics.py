"""Planning new topics and more partitions: what was asked for becomes a checked `TopicInfo`.

Nothing here touches the coordinator. A plan holds for one request: it knows the names and the
number of partitions that the request has used so far. What cannot be done raises `KafkaError`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.base.ids import is_internal
from tidelog.base.ports import Entropy
from tidelog.base.settings import Settings, topic_settings
from tidelog.cluster.assignment import Replicas, Spread, assign
from tidelog.cluster.image import NO_TOPIC_ID, Image, PartitionInfo, TopicInfo
from tidelog.cluster.requests import USE_DEFAULT, NewTopic
from tidelog.cluster.topic_names import NewNames, check_name
from tidelog.cluster.topic_nodes import topic_data
from tidelog.cluster.znodes import NODE_BYTES_MAX, encode_config

PARTITIONS_PER_REQUEST_MAX: Final = 10_000
"""As Kafka's controller has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a plan is made for."""

    image: Image
    settings: Settings
    entropy: Entropy
    controller_epoch: int


class TopicPlan:
    """Plans the topics, or the growth of topics, of one request."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._image = situation.image
        self._names = NewNames(situation.image)
        self._partitions_left = PARTITIONS_PER_REQUEST_MAX

    def create(self, new: NewTopic) -> TopicInfo:
        """A topic as it will be, but for its id."""
        configs = _configs(new)
        if new.assignment is None:
            check_name(new.name)
            assignment = self._new_assignment(new)
        else:
            assignment = self._given_assignment(new, new.assignment)
        self._names.take(new.name)
        check_topic_config(self._situation.settings, configs)
        return _fitting(
            TopicInfo(
                name=new.name,
                topic_id=NO_TOPIC_ID,
                partitions=tuple(map(self._new_partition, assignment)),
                config=configs,
            )
        )

    def grow(self, name: str, count: int, given: Sequence[Sequence[int]] | None) -> TopicInfo:
        """A topic with more partitions."""
        topic = self._growing(name)
        added = count - len(topic.partitions)
        if added <= 0:
            raise KafkaError(
                ErrorCode.invalid_partitions,
                f"the topic {name} has {len(topic.partitions)} partitions already and can only "
                f"get more, not {count}",
            )
        self._use(added)
        if given is None:
            assignment = self._grown_assignment(topic, added)
        else:
            assignment = self._given_growth(topic, added, given)
        partitions = tuple(map(self._new_partition, assignment))
        grown = topic.partitions + partitions
        return _fitting(replace(topic, partitions=grown, version=topic.version + 1))

    def _new_assignment(self, new: NewTopic) -> list[Replicas]:
        settings = self._situation.settings
        count = new.partition_count
        if count == USE_DEFAULT:
            count = settings.whole("num.partitions")
        replicas = new.replication_factor
        if replicas == USE_DEFAULT:
            replicas = settings.whole("default.replication.factor")
        if count <= 0:
            raise KafkaError(
                ErrorCode.invalid_partitions, f"a topic has at least 1 partition, not {count}"
            )
        self._check_replication_factor(replicas)
        self._use(count)
        spread = Spread(start_index=self._draw(), shift=self._draw())
        return assign(self._image.brokers.values(), count, replicas, spread)

    def _check_replication_factor(self, replicas: int) -> None:
        alive = len(self._image.brokers)
        if not 0 < replicas <= alive:
            raise KafkaError(
                ErrorCode.invalid_replication_factor,
                f"the replication factor must be from 1 to the {alive} brokers that are alive, "
                f"not {replicas}",
            )

    def _given_assignment(
        self, new: NewTopic, given: Mapping[int, Sequence[int]]
    ) -> list[Replicas]:
        if (new.partition_count, new.replication_factor) != (USE_DEFAULT, USE_DEFAULT):
            raise KafkaError(
                ErrorCode.invalid_request,
                f"the topic {new.name} has both an assignment and a number of partitions or "
                "replicas; only one of them can be used",
            )
        check_name(new.name)
        self._use(len(given))
        if not given or set(given) != set(range(len(given))):
            raise _bad_assignment("the partitions must be numbered from 0 without gaps")
        return self._checked([given[number] for number in range(len(given))], len(given[0]))

    def _growing(self, name: str) -> TopicInfo:
        topic = self._image.topics.get(name)
        if topic is None:
            raise unknown_topic(self._image, name)
        if is_internal(name):
            raise KafkaError(
                ErrorCode.invalid_partitions,
                f"coordinators find groups and transactional ids by the number of partitions of "
                f"{name}: with another one nothing of before would be found",
            )
        if any(p.adding_replicas or p.removing_replicas for p in topic.partitions):
            raise KafkaError(
                ErrorCode.reassignment_in_progress,
                f"partitions of the topic {name} are being reassigned; add some when that is done",
            )
        return topic

    def _grown_assignment(self, topic: TopicInfo, added: int) -> list[Replicas]:
        """Goes on from where the topic's first partition lies."""
        self._check_replication_factor(topic.replication_factor)
        first = topic.partitions[0].replicas[0]
        in_order = sorted(self._image.brokers)
        start = next((at for at, found in enumerate(in_order) if found >= first), 0)
        spread = Spread(start_index=start, shift=start, first_partition=len(topic.partitions))
        return assign(self._image.brokers.values(), added, topic.replication_factor, spread)

    def _given_growth(
        self, topic: TopicInfo, added: int, given: Sequence[Sequence[int]]
    ) -> list[Replicas]:
        if len(given) != added:
            raise _bad_assignment(
                f"{added} partitions are added, but replicas are given for {len(given)}"
            )
        return self._checked(given, topic.replication_factor)

    def _checked(self, given: Sequence[Sequence[int]], replicas: int) -> list[Replicas]:
        for brokers in given:
            if not brokers or len(set(brokers)) < len(brokers):
                raise _bad_assignment(f"{list(brokers)} must be brokers that are named once each")
            if len(brokers) != replicas:
                raise _bad_assignment(
                    f"all partitions must have {replicas} replicas, not as {list(brokers)}"
                )
            unknown = [broker_id for broker_id in brokers if broker_id not in self._image.brokers]
            if unknown:
                raise _bad_assignment(f"there is no broker {unknown[0]} alive")
        return [tuple(brokers) for brokers in given]

    def _use(self, partitions: int) -> None:
        if partitions > self._partitions_left:
            raise KafkaError(
                ErrorCode.policy_violation,
                f"one request can make at most {PARTITIONS_PER_REQUEST_MAX} partitions",
            )
        self._partitions_left -= partitions

    def _new_partition(self, replicas: Replicas) -> PartitionInfo:
        brokers = self._image.brokers
        return PartitionInfo(
            replicas=replicas,
            isr=replicas,
            leader=replicas[0],
            leader_epoch=0,
            state_version=0,
            controller_epoch=self._situation.controller_epoch,
            broker_epochs={broker_id: brokers[broker_id].epoch for broker_id in replicas},
        )

    def _draw(self) -> int:
        return int.from_bytes(self._situation.entropy.random_bytes(4)) % len(self._image.brokers)


def check_topic_config(settings: Settings, configs: Mapping[str, str]) -> None:
    try:
        topic_settings(settings, configs)
    except BadValue as error:
        raise KafkaError(ErrorCode.invalid_config, str(error)) from error
    if len(encode_config(configs)) > NODE_BYTES_MAX:
        raise KafkaError(
            ErrorCode.invalid_config, f"the settings take more than {NODE_BYTES_MAX} bytes"
        )


def unknown_topic(image: Image, name: str) -> KafkaError:
    """The error for a topic that is not there, with why if that is known."""
    if name in image.deleting:
        why = f"the topic {name} is being deleted"
    elif name in image.unreadable:
        why = f"the topic {name} cannot be read: {image.unreadable[name]}"
    else:
        why = f"there is no topic {name}"
    return KafkaError(ErrorCode.unknown_topic_or_partition, why)


def _configs(new: NewTopic) -> dict[str, str]:
    configs: dict[str, str] = {}
    for name, value in new.configs.items():
        if value is None:
            raise KafkaError(ErrorCode.invalid_config, f"{name} has no value")
        configs[name] = value
    return configs


def _fitting(topic: TopicInfo) -> TopicInfo:
    if len(topic_data(topic)) > NODE_BYTES_MAX:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            f"the replicas of {len(topic.partitions)} partitions take more than "
            f"{NODE_BYTES_MAX} bytes",
        )
    return topic


def _bad_assignment(why: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_replica_assignment, why)
