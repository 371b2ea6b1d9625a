"""Between the image and the messages: what a controller sends of it, and what a broker makes of
what it was sent."""

from collections.abc import Iterable, Mapping
from itertools import count

from tidelog.base.control import (
    ConfigValue,
    ControlEndpoint,
    LiveBroker,
    PartitionState,
    TopicMetadata,
    TopicState,
)
from tidelog.cluster.image import BrokerInfo, Image, PartitionInfo, TopicInfo


class Told:
    """Brokers and partitions as messages, made once for all brokers that are told of them."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._topics = image.topics
        """The image's own: always what holds now."""
        self._made: dict[str, tuple[TopicInfo, tuple[PartitionState, ...]]] = {}
        self._known: Mapping[int, BrokerInfo] = {}
        self._brokers: tuple[LiveBroker, ...] = ()
        self._numbers = count(1)

    def next_number(self) -> int:
        """For what all brokers are told; no two have the same."""
        return next(self._numbers)

    def brokers(self) -> tuple[LiveBroker, ...]:
        known = self._image.brokers
        if known is not self._known:
            self._known = known
            self._brokers = tuple(live_broker(known[broker_id]) for broker_id in sorted(known))
        return self._brokers

    def partitions(self, name: str) -> tuple[PartitionState, ...]:
        topic = self._topics[name]
        made = self._made.get(name)
        if made is not None and made[0] is topic:
            return made[1]
        before, states = ((), ()) if made is None else (made[0].partitions, made[1])
        now = tuple(
            states[index]
            if index < len(before) and before[index] is partition
            else partition_state(index, partition)
            for index, partition in enumerate(topic.partitions)
        )
        self._made[name] = (topic, now)
        return now

    def metadata(self, name: str) -> TopicMetadata:
        topic = self._topics[name]
        return TopicMetadata(
            name=name,
            topic_id=topic.topic_id,
            config=tuple(ConfigValue(name=k, value=v) for k, v in topic.config.items()),
            partitions=self.partitions(name),
        )

    def state(self, name: str, indexes: Iterable[int]) -> TopicState:
        partitions = self.partitions(name)
        return TopicState(
            name=name,
            topic_id=self._topics[name].topic_id,
            partitions=tuple(partitions[index] for index in indexes),
        )

    def forget(self, name: str) -> None:
        self._made.pop(name, None)


def partition_state(index: int, partition: PartitionInfo) -> PartitionState:
    epochs = partition.broker_epochs
    return PartitionState(
        index=index,
        controller_epoch=partition.controller_epoch,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.state_version,
        isr=partition.isr,
        isr_epochs=tuple(epochs.get(member, -1) for member in partition.isr),
        elr=partition.elr,
        elr_epochs=tuple(epochs.get(member, -1) for member in partition.elr),
        replicas=partition.replicas,
        adding_replicas=partition.adding_replicas,
        removing_replicas=partition.removing_replicas,
    )


def partition_info(state: PartitionState) -> PartitionInfo:
    """An epoch of -1 says that none is recorded."""
    members = zip(state.isr + state.elr, state.isr_epochs + state.elr_epochs, strict=True)
    return PartitionInfo(
        replicas=state.replicas,
        isr=state.isr,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        state_version=state.partition_epoch,
        controller_epoch=state.controller_epoch,
        adding_replicas=state.adding_replicas,
        removing_replicas=state.removing_replicas,
        broker_epochs={member: epoch for member, epoch in members if epoch != -1},
        elr=state.elr,
    )


def live_broker(broker: BrokerInfo) -> LiveBroker:
    return LiveBroker(
        broker_id=broker.broker_id,
        epoch=broker.epoch,
        rack=broker.rack,
        endpoints=tuple(
            ControlEndpoint(
                listener=name, host=host, port=port, protocol=broker.protocols.get(name, name)
            )
            for name, (host, port) in broker.endpoints.items()
        ),
    )


def broker_info(broker: LiveBroker) -> BrokerInfo:
    return BrokerInfo(
        broker_id=broker.broker_id,
        endpoints={at.listener: (at.host, at.port) for at in broker.endpoints},
        protocols={at.listener: at.protocol for at in broker.endpoints},
        rack=broker.rack,
        epoch=broker.epoch,
    )
