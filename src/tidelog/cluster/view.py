"""The cluster as this broker was told of it: what UpdateMetadata makes of the image.

A request may be acted on and its answer lost, so it comes again; and one that was given up may
arrive after later ones. So nothing here goes back: a partition's state is replaced by a newer one
only, and a topic that was deleted does not return, because ids are never used twice.
A topic's settings are those it was made with; changes of them come by `config_following`.
"""

from dataclasses import replace
from typing import Final

from tidelog.base.control import LiveBroker, PartitionState, TopicMetadata, UpdateMetadataRequest
from tidelog.cluster.image import Image, PartitionInfo, TopicInfo
from tidelog.cluster.messages import broker_info, partition_info
from tidelog.cluster.requests import Change

_UNREADABLE: Final = "the controller cannot read it"
_DELETED_KEPT_MAX: Final = 10_000


class View:
    def __init__(self, image: Image) -> None:
        self._image = image
        self._brokers: tuple[LiveBroker, ...] | None = None
        """As they were told last: mostly they are the same again."""
        self._deleted: dict[bytes, None] = {}

    def update(self, request: UpdateMetadataRequest) -> Change:
        """What is different now."""
        image = self._image
        image.controller_id = request.controller_id
        if request.brokers != self._brokers:
            self._brokers = request.brokers
            image.brokers = {broker.broker_id: broker_info(broker) for broker in request.brokers}
        known = image.unreadable
        image.unreadable = {name: known.get(name, _UNREADABLE) for name in request.unreadable}
        told = [topic for topic in request.topics if topic.topic_id not in self._deleted]
        gone = self._gone(request)
        replaced = [image.topics.get(topic.name) for topic in told]
        gone += [
            before
            for before, topic in zip(replaced, told, strict=True)
            if before is not None and before.topic_id not in (topic.topic_id, *_ids(gone))
        ]
        for topic in gone:
            self._remove(topic)
        return self._put(told, gone)

    def _gone(self, request: UpdateMetadataRequest) -> list[TopicInfo]:
        image = self._image
        if request.is_full:
            staying = {topic.topic_id for topic in request.topics}
            return [topic for topic in image.topics.values() if topic.topic_id not in staying]
        for topic_id in request.deleted_topic_ids:
            self._bury(topic_id)
        names = [image.topic_names.get(topic_id) for topic_id in request.deleted_topic_ids]
        return [image.topics[name] for name in names if name is not None]

    def _remove(self, topic: TopicInfo) -> None:
        """One that cannot be read now is there still, and returns when it can be."""
        if topic.name not in self._image.unreadable:
            self._bury(topic.topic_id)
        self._image.remove_topic(topic.name)

    def _bury(self, topic_id: bytes) -> None:
        self._deleted[topic_id] = None
        while len(self._deleted) > _DELETED_KEPT_MAX:
            del self._deleted[next(iter(self._deleted))]

    def _put(self, told: list[TopicMetadata], gone: list[TopicInfo]) -> Change:
        created: list[TopicInfo] = []
        grown: list[tuple[TopicInfo, int]] = []
        for topic in told:
            before = self._image.topics.get(topic.name)
            now = _topic(before, topic)
            self._image.put_topic(now)
            if before is None:
                created.append(now)
            elif len(now.partitions) > len(before.partitions):
                grown.append((now, len(before.partitions)))
        return Change(created=tuple(created), deleted=tuple(gone), grown=tuple(grown))


def _ids(topics: list[TopicInfo]) -> list[bytes]:
    return [topic.topic_id for topic in topics]


def _topic(before: TopicInfo | None, told: TopicMetadata) -> TopicInfo:
    if before is None:
        return TopicInfo(
            name=told.name,
            topic_id=told.topic_id,
            partitions=tuple(map(partition_info, told.partitions)),
            config={item.name: item.value for item in told.config},
        )
    known = before.partitions
    partitions = [
        _newer(known[index], state) if index < len(known) else partition_info(state)
        for index, state in enumerate(told.partitions)
    ]
    return replace(before, partitions=(*partitions, *known[len(partitions) :]))


def _newer(known: PartitionInfo, told: PartitionState) -> PartitionInfo:
    """An assignment can change while the state stays."""
    is_older = (told.leader_epoch, told.partition_epoch) < (known.leader_epoch, known.state_version)
    if is_older:
        return known
    is_same = (
        (told.leader_epoch, told.partition_epoch) == (known.leader_epoch, known.state_version)
        and told.replicas == known.replicas
        and told.adding_replicas == known.adding_replicas
        and told.removing_replicas == known.removing_replicas
    )
    return known if is_same else partition_info(told)
