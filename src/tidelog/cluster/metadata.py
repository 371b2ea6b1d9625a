"""The cluster's metadata as this broker sees and changes it.

`prepare` learns what is needed to open the logs; `join` registers the broker and is done when a
controller has told it everything. From then on `image` is what it was told. One broker of the
cluster is the controller, which makes, grows and deletes topics and moves leaders and replicas;
others refuse. Changes are asked for with a callback, which gets one result for each item: its
value or a `KafkaError`, when the write is durable and acts here. They are made one request at a
time, in the order they were asked for, and a long one in groups.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from tidelog.base.control import ControlRequest
from tidelog.base.coordination import CoordinationError
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.settings import Settings, read_protocol_map
from tidelog.cluster.config_changes import ConfigChanges
from tidelog.cluster.config_following import ConfigFollowing
from tidelog.cluster.controller import Controller
from tidelog.cluster.fencing import NOT_REGISTERED
from tidelog.cluster.groups import Groups, Work
from tidelog.cluster.image import BrokerInfo, Image, TopicInfo
from tidelog.cluster.leadership import Office
from tidelog.cluster.membership import Events, Membership
from tidelog.cluster.notifications import Announcer
from tidelog.cluster.obeying import Obeying
from tidelog.cluster.producer_ids import ProducerIds
from tidelog.cluster.reading import Found
from tidelog.cluster.realm import PartitionName, Realm
from tidelog.cluster.registration import Preparation, Prepared, Registered
from tidelog.cluster.requests import (
    Change,
    ConfigChange,
    ElectionKind,
    NewPartitions,
    NewTopic,
    OngoingReassignment,
    Reassignment,
)
from tidelog.cluster.sessions import Sessions
from tidelog.cluster.shutdown import Shutdown
from tidelog.cluster.standing import Results, Standing
from tidelog.cluster.surroundings import Surroundings
from tidelog.cluster.topic_changes import Growth
from tidelog.cluster.writing import Queue

__all__ = ["Change", "ConfigChange", "Metadata", "NewPartitions", "NewTopic"]

Asked = TypeVar("Asked")
Item = TypeVar("Item")
Finished = Callable[[Exception | None], None]


class Metadata:
    """See the file's header."""

    def __init__(self, around: Surroundings, settings: Settings, broker_info: BrokerInfo) -> None:
        self._around = around
        self._standing = Standing(static=settings, settings=settings)
        self._topic_queue = Queue(around.loop)
        self._config_queue = Queue(around.loop)
        coordination = around.coordination
        self._sessions = Sessions(coordination)
        self._following = ConfigFollowing(coordination, self._standing, self._configs_changed)
        self._configs = ConfigChanges(
            coordination, around.clock, self._standing, self._following, self._is_member
        )
        self._announcer = Announcer(coordination, around.loop, around.clock)
        self._obeying = Obeying(self._standing, self._following, around.host)
        self._membership = Membership(
            around,
            settings.whole("zookeeper.session.timeout.ms"),
            Events(
                registering=self._obeying.registering,
                registered=self._registered,
                refused=self._refused,
                expired=self._obeying.expired,
                elected=self._elected,
                deposed=self._deposed,
            ),
        )
        self._producer_ids: ProducerIds | None = None
        self._joining: Finished | None = None
        self.controller: Controller | None = None
        """While this broker is in office."""
        self.broker = _completed(broker_info, settings)
        """With its number once it is prepared, with its epoch while it is registered."""
        self.cluster_id = ""

    @property
    def image(self) -> Image:
        """The cluster as this broker was told of it."""
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
        """-1 while it is not registered."""
        return self._obeying.fencing.broker_epoch

    @property
    def controller_epoch(self) -> int | None:
        """The epoch under which this broker is controller, if it is."""
        controller = self.controller
        is_active = controller is not None and controller.is_active
        return controller.realm.office.epoch if controller is not None and is_active else None

    @property
    def is_connected(self) -> bool:
        """Whether the coordinator can be reached now."""
        return self._membership.is_connected

    def on_change(self, listener: Callable[[Change], None]) -> None:
        """Listeners are added before `prepare`. They do their work before they return; a
        KafkaError or OSError of theirs is reported."""
        self._standing.listeners.append(listener)

    # -- coming and going

    def prepare(self, done: Finished, expected_cluster_id: str | None = None) -> None:
        """`done` gets None, or what is wrong. A broker whose log dirs belong to another cluster
        than `expected_cluster_id` is refused. Then the image has all topics, with their settings
        and without leaders."""
        preparation = Preparation(
            self._around.coordination,
            self._around.entropy,
            self.broker.broker_id,
            self._standing.static.whole("reserved.broker.max.id"),
        )
        prepare = partial(preparation.start, expected_cluster_id)
        self._sessions.insist(prepare, partial(self._prepared, done))

    def join(self, done: Finished) -> None:
        """Registers; `done` gets None when a controller has told this broker everything."""
        self._joining = done
        self._obeying.when_told(self._joined)
        self._membership.join(self.broker, self.cluster_id)

    def leave(self, done: Callable[[], None]) -> None:
        """Asks the controller to lead this broker's partitions elsewhere. `close` follows."""
        shutdown = Shutdown(
            self._around,
            self.settings,
            lambda: self.image.controller_id,
            lambda: self.is_connected,
        )
        shutdown.start(self.broker_id, self.broker_epoch, done)

    def close(self) -> None:
        """Nothing is done or told any more. The coordination is closed by who opened it."""
        self._membership.close()
        self._following.close()
        self._announcer.close()

    # -- what controllers ask

    def handle(self, request: ControlRequest, done: Callable[[Any], None]) -> None:
        """`done` gets the response, at once or later."""
        self._obeying.handle(request, self.controller, done)

    # -- changes

    def create_topics(
        self, topics: Sequence[NewTopic], validate_only: bool, done: Results[TopicInfo]
    ) -> None:
        """The topics as they were made. With `validate_only` they have no id."""
        self._govern(
            topics, lambda c: partial(c.topics.create, c.topics.plan(), validate_only), done
        )

    def delete_topics(self, topics: Sequence[str | bytes], done: Results[TopicInfo]) -> None:
        """By name, or by id as 16 bytes. The topics as they were."""
        self._govern(topics, lambda c: c.topics.delete, done)

    def create_partitions(
        self, topics: Sequence[Growth], validate_only: bool, done: Results[TopicInfo]
    ) -> None:
        """Topics, how many partitions each shall have, and where the new ones lie or None: a
        `NewPartitions`. The topics as they are then."""
        self._govern(topics, lambda c: partial(c.topics.grow, c.topics.plan(), validate_only), done)

    def alter_reassignments(self, wanted: Sequence[Reassignment], done: Results[None]) -> None:
        self._govern(wanted, lambda c: c.wishes.alter_reassignments, done)

    def list_reassignments(
        self, topics: Mapping[str, Sequence[int]] | None
    ) -> list[OngoingReassignment]:
        """What is under way, of all topics or of some partitions."""
        if self.controller is None or not self.controller.is_active:
            raise self._not_controller()
        return self.controller.wishes.list_reassignments(topics)

    def elect_leaders(
        self,
        kind: ElectionKind,
        partitions: Sequence[PartitionName] | None,
        done: Callable[[dict[PartitionName, KafkaError | None]], None],
    ) -> None:
        """Of all partitions if none are named; then only those that needed it are answered."""

        def answered(results: list[Any]) -> None:
            if partitions is not None:
                done(dict(zip(partitions, results, strict=True)))
            else:
                (result,) = results
                done({} if isinstance(result, KafkaError) else result)

        def work(controller: Controller) -> Work[Any, Any]:
            def run(asked: Sequence[Any], answer: Results[Any]) -> None:
                if partitions is None:
                    elect(kind, None, lambda elected: answer([elected]))
                else:
                    elect(kind, asked, lambda elected: answer([elected[name] for name in asked]))

            elect = controller.wishes.elect_leaders
            return run

        self._govern([None] if partitions is None else partitions, work, answered)

    def alter_configs(
        self, changes: Sequence[ConfigChange], validate_only: bool, done: Results[None]
    ) -> None:
        """Any broker may."""

        def work(group: Sequence[ConfigChange], answer: Results[None]) -> None:
            self._configs.alter(group, validate_only, answer)

        self._config_queue.add(partial(self._run, changes, work, done))

    def next_producer_id(self, done: Callable[[int | KafkaError], None]) -> None:
        """Not while it is not registered: the tree that it reaches may be another cluster's, where
        the same ids are given out again."""
        if self._producer_ids is None or not self._is_member():
            why = "the broker is not in the cluster yet, or not any more"
            error = KafkaError(ErrorCode.coordinator_load_in_progress, why)
            self._around.loop.call_soon(partial(done, error))
        else:
            self._producer_ids.next(done)

    def isr_changed(self, topic: str, index: int) -> None:
        """This broker has written the ISR of a partition that it leads."""
        self._announcer.isr_changed((topic, index))

    def log_dir_failed(self) -> None:
        self._announcer.log_dir_failed(self.broker_id)

    # -- inside

    def _is_member(self) -> bool:
        return self.broker_epoch != NOT_REGISTERED

    def _govern(
        self,
        items: Sequence[Asked],
        work: Callable[[Controller], Work[Asked, Item]],
        done: Results[Item],
    ) -> None:
        """Does it when its turn comes, if this broker is the controller then. One that has just
        taken office reads the tree first."""

        def job(ended: Callable[[], None]) -> None:
            controller = self.controller
            if controller is None:
                self._run(items, self._refuse, done, ended)
            elif not controller.is_active:
                controller.when_active(lambda: self._around.loop.call_soon(partial(job, ended)))
            else:
                in_office = partial(self._while_in_office, controller, work(controller))
                self._run(items, in_office, done, ended)

        self._topic_queue.add(job)

    def _while_in_office(
        self,
        controller: Controller,
        work: Work[Asked, Item],
        group: Sequence[Asked],
        answer: Results[Item],
    ) -> None:
        if controller is self.controller:
            work(group, answer)
        else:
            self._refuse(group, answer)

    def _refuse(self, group: Sequence[Any], answer: Results[Any]) -> None:
        answer([self._not_controller()] * len(group))

    def _run(
        self,
        items: Sequence[Asked],
        work: Work[Asked, Item],
        done: Results[Item],
        ended: Callable[[], None],
    ) -> None:
        def answered(results: list[Item | KafkaError]) -> None:
            try:
                done(results)
            finally:
                ended()

        Groups(items, work, answered).run(self._in_a_later_turn)

    def _in_a_later_turn(self, then: Callable[[], None]) -> None:
        # A timer, because what is to be called soon is called in the same turn.
        self._around.loop.call_at(self._around.clock.monotonic_ms(), then)

    def _not_controller(self) -> KafkaError:
        return KafkaError(
            ErrorCode.not_controller,
            f"the controller is the broker {self.image.controller_id}, not this one",
        )

    def _prepared(self, done: Finished, result: Prepared | Exception) -> None:
        if isinstance(result, Exception):
            done(result)
            return
        self.cluster_id = result.cluster_id
        self.broker = replace(self.broker, broker_id=result.broker_id)
        self._standing.broker_id = result.broker_id
        self._producer_ids = ProducerIds(
            self._around.coordination, self._around.loop, result.broker_id
        )
        self._sessions.insist(self._following.start, partial(self._read_settings, done))

    def _read_settings(self, done: Finished, found: Found | CoordinationError) -> None:
        if isinstance(found, CoordinationError):
            done(found)
            return
        standing, image = self._standing, self.image
        image.broker_configs = found.broker_configs
        image.default_broker_config = found.default_broker_config
        image.unreadable = found.unreadable
        for topic in found.topics.values():
            image.put_topic(topic)
        standing.refresh_settings()
        self._sessions.insist(self._configs.find_announced, done)

    def _registered(self, registered: Registered) -> None:
        self.broker = registered.broker
        self._following.go_on()
        self._obeying.registered(registered)

    def _refused(self, error: Exception) -> None:
        joining, self._joining = self._joining, None
        if joining is not None:
            joining(error)
        else:
            self._obeying.refused(error)

    def _joined(self) -> None:
        joining, self._joining = self._joining, None
        if joining is not None:
            joining(None)

    def _elected(self, office: Office) -> None:
        self._obeying.fencing.saw_controller(office.epoch)
        realm = Realm(
            office=office,
            broker_id=self.broker_id,
            settings=lambda: self.settings,
            end=self._membership.step_down,
        )
        # Until the list was read, what this broker was told of the others is the best there is.
        realm.image.brokers = self.image.brokers
        self.controller = Controller(realm, self._around)
        self.controller.start()

    def _deposed(self) -> None:
        controller, self.controller = self.controller, None
        if controller is not None:
            controller.close()

    def _configs_changed(self, change: Change) -> None:
        if self.controller is not None:
            self.controller.configs_changed(change, self.image.topics)


def _completed(broker: BrokerInfo, settings: Settings) -> BrokerInfo:
    """With the rack and the security protocols that the settings say."""
    protocols = read_protocol_map(settings.text("listener.security.protocol.map"))
    known = {name: protocols.get(name, name) for name in broker.endpoints}
    rack = broker.rack or settings["broker.rack"]
    return replace(
        broker, protocols={**known, **broker.protocols}, rack=None if rack is None else str(rack)
    )
