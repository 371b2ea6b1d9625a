"""The cluster's metadata as this broker sees and changes it, through the coordinator.

`start` registers the broker, becomes controller and reads everything into `image`. Changes are
asked for with a callback, which gets one result for each item: its value or a `KafkaError`. An
answer comes when the write is durable, the image shows it and the listeners were told. Changes
are made one request at a time, in the order they were asked for.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from tidelog.base.coordination import Coordination, CoordinationError
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ports import Clock, Entropy, Loop
from tidelog.base.settings import Settings, read_protocol_map
from tidelog.cluster.config_changes import ConfigChanges
from tidelog.cluster.image import NO_TOPIC_ID, BrokerInfo, Image, TopicInfo
from tidelog.cluster.leadership import Controller
from tidelog.cluster.producer_ids import ProducerIds
from tidelog.cluster.reading import Found
from tidelog.cluster.registration import Registration
from tidelog.cluster.requests import Change, ConfigChange, NewPartitions, NewTopic
from tidelog.cluster.standing import Results, Standing
from tidelog.cluster.starting import Start, Started
from tidelog.cluster.topic_changes import Growth, TopicChanges
from tidelog.cluster.writing import Queue, insist

__all__ = ["Change", "ConfigChange", "Metadata", "NewPartitions", "NewTopic"]

Item = TypeVar("Item")
Finished = Callable[[Exception | None], None]


class Metadata:
    """See the file's header. Ready when `start` has answered None."""

    def __init__(
        self,
        coordination: Coordination,
        settings: Settings,
        clock: Clock,
        entropy: Entropy,
        loop: Loop,
        broker_info: BrokerInfo,
    ) -> None:
        self._standing = Standing(
            coordination=coordination,
            clock=clock,
            entropy=entropy,
            static=settings,
            settings=settings,
        )
        self._loop = loop
        self._queue = Queue(loop)
        self._topics = TopicChanges(self._standing)
        self._configs = ConfigChanges(self._standing)
        self._producer_ids: ProducerIds | None = None
        self.broker = _completed(broker_info, settings)
        """With its number and epoch once `start` has answered."""
        self.cluster_id = ""

    @property
    def image(self) -> Image:
        return self._standing.image

    @property
    def settings(self) -> Settings:
        """The broker's settings with what was changed while it runs."""
        return self._standing.settings

    @property
    def broker_id(self) -> int:
        return self.broker.broker_id

    @property
    def broker_epoch(self) -> int:
        return self.broker.epoch

    @property
    def controller_epoch(self) -> int | None:
        """The epoch under which this broker is controller, if it is."""
        controller = self._standing.controller
        return None if controller is None else controller.epoch

    def on_change(self, listener: Callable[[Change], None]) -> None:
        """Listeners are added before `start`, which tells of deletions it finishes. They do
        their work before they return; a KafkaError or OSError of theirs is reported."""
        self._standing.listeners.append(listener)

    def start(self, done: Finished, expected_cluster_id: str | None = None) -> None:
        """`done` gets None, or what is wrong. A broker whose log dirs belong to another cluster
        than `expected_cluster_id` is refused."""

        def job(ended: Callable[[], None]) -> None:
            def answer(error: Exception | None) -> None:
                try:
                    done(error)
                finally:
                    ended()

            insist(partial(self._enter, expected_cluster_id), partial(self._entered, answer))

        self._queue.add(job)

    def create_topics(
        self, topics: Sequence[NewTopic], validate_only: bool, done: Results[TopicInfo]
    ) -> None:
        """The topics as they were made. With `validate_only` they have no id."""
        self._run(len(topics), partial(self._topics.create, topics, validate_only), done)

    def delete_topics(self, topics: Sequence[str | bytes], done: Results[TopicInfo]) -> None:
        """By name, or by id as 16 bytes. The topics as they were."""
        self._run(len(topics), partial(self._topics.delete, topics), done)

    def create_partitions(
        self, topics: Sequence[Growth], validate_only: bool, done: Results[TopicInfo]
    ) -> None:
        """Topics, how many partitions each shall have, and where the new ones lie or None: a
        `NewPartitions`. The topics as they are then."""
        self._run(len(topics), partial(self._topics.grow, topics, validate_only), done)

    def alter_configs(
        self, changes: Sequence[ConfigChange], validate_only: bool, done: Results[None]
    ) -> None:
        self._run(len(changes), partial(self._configs.alter, changes, validate_only), done)

    def next_producer_id(self, done: Callable[[int | KafkaError], None]) -> None:
        if self._producer_ids is None:
            error = KafkaError(ErrorCode.coordinator_load_in_progress, "the broker is starting")
            self._loop.call_soon(partial(done, error))
        else:
            self._producer_ids.next(done)

    def _run(self, count: int, work: Callable[[Results[Item]], None], done: Results[Item]) -> None:
        """Does it when its turn comes, if this broker is the controller then."""

        def job(ended: Callable[[], None]) -> None:
            def answer(results: list[Item | KafkaError]) -> None:
                try:
                    done(results)
                finally:
                    ended()

            refused = self._standing.not_controller()
            if refused is None:
                work(answer)
            else:
                answer([refused] * count)

        self._queue.add(job)

    def _enter(
        self, expected_cluster_id: str | None, done: Callable[[Started | Exception], None]
    ) -> None:
        standing = self._standing
        registration = Registration(
            standing.coordination,
            standing.clock,
            standing.entropy,
            self.broker,
            standing.static.whole("reserved.broker.max.id"),
        )
        start = Start(standing.coordination, standing.clock, standing.entropy)
        start.run(registration, expected_cluster_id, done)

    def _entered(self, done: Finished, result: Started | Exception) -> None:
        if isinstance(result, Exception):
            done(result)
            return
        self._take_over(result)
        if self._standing.controller is None:
            done(None)
            return

        def removed(errors: list[CoordinationError | None]) -> None:
            failed = next((error for error in errors if error is not None), None)
            if failed is None:
                insist(self._configs.find_announced, done)
            else:
                done(failed)

        self._topics.finish_deletions(list(self.image.deleting.values()), removed)

    def _take_over(self, started: Started) -> None:
        self.broker, self.cluster_id = started.broker, started.cluster_id
        standing, found, image = self._standing, started.found, self.image
        standing.broker_id = self.broker_id
        self._producer_ids = ProducerIds(standing.coordination, self._loop, self.broker_id)
        if isinstance(started.controller, Controller):
            standing.controller = started.controller
            image.controller_id = self.broker_id
        else:
            standing.controller = None
            image.controller_id = started.controller.broker_id
        image.brokers = found.brokers
        image.broker_configs = found.broker_configs
        image.default_broker_config = found.default_broker_config
        image.unreadable = found.unreadable
        image.deleting = {name: _marked(found, name) for name in found.marked_for_deletion}
        for topic in found.topics.values():
            if topic.name not in image.deleting:
                image.put_topic(topic)
        standing.refresh_settings()


def _completed(broker: BrokerInfo, settings: Settings) -> BrokerInfo:
    """With the rack and the security protocols that the settings say."""
    protocols = read_protocol_map(settings.text("listener.security.protocol.map"))
    known = {name: protocols.get(name, name) for name in broker.endpoints}
    rack = broker.rack or settings["broker.rack"]
    return replace(
        broker, protocols={**known, **broker.protocols}, rack=None if rack is None else str(rack)
    )


def _marked(found: Found, name: str) -> TopicInfo:
    """A topic that is to be deleted; if its nodes are gone or cannot be read, its name."""
    known = found.topics.get(name)
    return TopicInfo(name=name, topic_id=NO_TOPIC_ID, partitions=()) if known is None else known
