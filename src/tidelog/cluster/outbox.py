"""What one incarnation of a broker is still to be told by one controller.

The controller only notes what changed; what is sent is what holds then. One request is under way
at a time, in this order: metadata, replicas of deleted topics to stop, what to lead and follow,
other replicas to stop, questions. What was not acknowledged is noted again. The first two
requests are full, and come again as they were until they are acknowledged: so a full one that
arrives late can never undo what was told after it.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from tidelog.base.control import (
    AskedPartition,
    AskedTopic,
    ControlRequest,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    ReplicaStatesRequest,
    ReplicaStatesResponse,
    StopPartition,
    StopReplicaRequest,
    StopTopic,
    TopicState,
    UpdateMetadataRequest,
)
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ports import Timer
from tidelog.cluster.desk import Desk
from tidelog.cluster.image import NO_STATE, BrokerInfo, TopicInfo
from tidelog.cluster.realm import PartitionName

_log = logging.getLogger(__name__)

BACKOFF_MS_MIN: Final = 50
BACKOFF_MS_MAX: Final = 1000

Stop = tuple[str, StopPartition]
Confirm = Callable[[Any], None]


class Outbox:
    def __init__(self, broker: BrokerInfo, desk: Desk) -> None:
        self.broker = broker
        self._desk = desk
        self._first: ControlRequest | None = None
        """A full request whose outcome is not known."""
        self._has_metadata = False
        self._has_states = False
        self._is_busy = False
        self._is_closed = False
        self._backoff_ms = BACKOFF_MS_MIN
        self._timer: Timer | None = None
        self._waiting: list[Callable[[], None]] = []
        self._brokers_changed = False
        self._topics: dict[str, None] = {}
        self._deleted: dict[bytes, None] = {}
        self._states: dict[PartitionName, None] = {}
        self._removals: dict[tuple[bytes, int], Stop] = {}
        self._stops: dict[tuple[bytes, int], Stop] = {}
        self._questions: dict[PartitionName, int] = {}

    # -- what the controller notes

    def brokers_changed(self) -> None:
        self._brokers_changed = True

    def topic_changed(self, name: str) -> None:
        self._topics[name] = None

    def partition_changed(self, name: PartitionName) -> None:
        self._states[name] = None

    def topic_deleted(self, topic: TopicInfo) -> None:
        self._deleted[topic.topic_id] = None
        for index, partition in enumerate(topic.partitions):
            if self.broker.broker_id in partition.replicas:
                stop = StopPartition(index=index, leader_epoch=-1, delete=True)
                self._removals[topic.topic_id, index] = (topic.name, stop)

    def replica_dropped(self, topic: TopicInfo, index: int, leader_epoch: int) -> None:
        stop = StopPartition(index=index, leader_epoch=leader_epoch, delete=True)
        self._stops[topic.topic_id, index] = (topic.name, stop)

    def ask(self, name: PartitionName, leader_epoch: int) -> None:
        self._questions[name] = leader_epoch

    def when_told(self, done: Callable[[], None]) -> None:
        """Once nothing is left to be told."""
        self._waiting.append(done)
        self.pump()

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._release()

    # -- sending

    def pump(self) -> None:
        """Sends the next request, if there is one and none is under way."""
        if self._is_busy or self._is_closed or self._timer is not None:
            return
        if self._first is not None:
            self._send(self._first, self._confirm_first, _nothing)
        elif not self._has_metadata:
            self._send_first(self._full_metadata())
        elif self._brokers_changed or self._topics or self._deleted:
            self._send_metadata()
        elif self._removals:
            self._send_stops(self._removals)
        elif not self._has_states:
            self._send_first(self._full_states())
        else:
            self._send_rest()

    def _send_rest(self) -> None:
        topics = self._take_states() if self._states else ()
        if topics:
            self._send_states(topics)
        elif self._stops:
            self._send_stops(self._stops)
        elif self._questions:
            self._send_questions()
        else:
            self._release()

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done()

    def _send(self, request: ControlRequest, confirm: Confirm, restore: Callable[[], None]) -> None:
        self._is_busy = True
        answered = partial(self._answered, confirm, restore)
        self._desk.peers.send(self.broker.broker_id, request, answered)

    def _answered(self, confirm: Confirm, restore: Callable[[], None], response: Any) -> None:
        self._is_busy = False
        if self._is_closed:
            return
        if isinstance(response, KafkaError) or response.error_code != ErrorCode.none:
            restore()
            self._back_off(response)
            return
        self._backoff_ms = BACKOFF_MS_MIN
        confirm(response)
        self.pump()

    def _back_off(self, response: Any) -> None:
        if isinstance(response, KafkaError):
            _log.info("broker=%d was not told: %s", self.broker.broker_id, response)
        elif response.error_code == ErrorCode.stale_controller_epoch:
            self._desk.doubted()
        at_ms = self._desk.clock.monotonic_ms() + self._backoff_ms
        self._backoff_ms = min(2 * self._backoff_ms, BACKOFF_MS_MAX)
        self._timer = self._desk.loop.call_at(at_ms, self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        self.pump()

    # -- first contact

    def _send_first(self, request: ControlRequest) -> None:
        self._first = request
        self._send(request, self._confirm_first, _nothing)

    def _confirm_first(self, response: Any) -> None:
        request, self._first = self._first, None
        if isinstance(request, LeaderAndIsrRequest):
            self._has_states = True
            self._confirm_states(request.topics, response)
        else:
            self._has_metadata = True

    def _full_metadata(self) -> UpdateMetadataRequest:
        self._brokers_changed = False
        self._topics.clear()
        self._deleted.clear()
        return self._metadata(self._desk.realm.image.topics, is_full=True)

    def _full_states(self) -> LeaderAndIsrRequest:
        self._states.clear()
        broker_id, topics = self.broker.broker_id, self._desk.realm.image.topics
        held = ((name, _held(topic, broker_id)) for name, topic in topics.items())
        return self._leader_and_isr(
            tuple(self._desk.told.state(name, indexes) for name, indexes in held if indexes),
            is_full=True,
        )

    # -- metadata

    def _send_metadata(self) -> None:
        topics, deleted = self._topics, self._deleted
        self._brokers_changed, self._topics, self._deleted = False, {}, {}
        known = self._desk.realm.image.topics
        request = self._metadata(
            [name for name in sorted(topics) if name in known], deleted=tuple(deleted)
        )

        def restore() -> None:
            self._brokers_changed = True
            self._topics.update(topics)
            self._deleted.update(deleted)

        self._send(request, _ignore, restore)

    def _metadata(
        self, names: Iterable[str], *, is_full: bool = False, deleted: tuple[bytes, ...] = ()
    ) -> UpdateMetadataRequest:
        realm, told = self._desk.realm, self._desk.told
        return UpdateMetadataRequest(
            controller_id=realm.broker_id,
            controller_epoch=realm.office.epoch,
            broker_epoch=self.broker.epoch,
            is_full=is_full,
            brokers=told.brokers(),
            topics=tuple(told.metadata(name) for name in names),
            deleted_topic_ids=deleted,
            unreadable=tuple(sorted(realm.image.unreadable)),
            number=told.next_number(),
        )

    # -- what to lead and to follow

    def _take_states(self) -> tuple[TopicState, ...]:
        """A broker that wants to stop is to follow nobody any more: it would come back into the
        ISRs that it was just taken out of."""
        realm, broker_id = self._desk.realm, self.broker.broker_id
        names, self._states = sorted(self._states), {}
        by_topic: dict[str, list[int]] = {}
        for name in names:
            partition = realm.partition(name)
            if partition is None or partition.state_version == NO_STATE:
                continue
            if broker_id not in partition.replicas:
                continue
            topic_id = realm.image.topics[name[0]].topic_id
            if broker_id in realm.shutting_down and partition.leader != broker_id:
                stop = StopPartition(
                    index=name[1], leader_epoch=partition.leader_epoch, delete=False
                )
                self._stops[topic_id, name[1]] = (name[0], stop)
            else:
                self._stops.pop((topic_id, name[1]), None)
                by_topic.setdefault(name[0], []).append(name[1])
        return tuple(self._desk.told.state(name, indexes) for name, indexes in by_topic.items())

    def _send_states(self, topics: tuple[TopicState, ...]) -> None:
        def restore() -> None:
            self._states.update(dict.fromkeys(_names(topics)))

        request = self._leader_and_isr(topics, is_full=False)
        self._send(request, partial(self._confirm_states, topics), restore)

    def _leader_and_isr(
        self, topics: tuple[TopicState, ...], *, is_full: bool
    ) -> LeaderAndIsrRequest:
        realm = self._desk.realm
        return LeaderAndIsrRequest(
            controller_id=realm.broker_id,
            controller_epoch=realm.office.epoch,
            broker_epoch=self.broker.epoch,
            is_full=is_full,
            topics=topics,
            unreadable=tuple(sorted(realm.image.unreadable)) if is_full else (),
        )

    def _confirm_states(
        self, topics: tuple[TopicState, ...], response: LeaderAndIsrResponse
    ) -> None:
        by_id = {topic.topic_id: topic.name for topic in topics}
        wrong = {
            (by_id[failed.topic_id], error.index): error.error_code
            for failed in response.topics
            for error in failed.partitions
            if failed.topic_id in by_id
        }
        offline = self._desk.realm.offline
        well = [name for name in _names(topics) if name in offline] if offline else []
        for name in (*wrong, *(name for name in well if name not in wrong)):
            code = wrong.get(name, int(ErrorCode.none))
            self._desk.replica_answered(self.broker, name, code)

    # -- replicas to stop

    def _send_stops(self, stops: dict[tuple[bytes, int], Stop]) -> None:
        taken = dict(stops)
        stops.clear()
        by_topic: dict[bytes, tuple[str, list[StopPartition]]] = {}
        for (topic_id, _), (name, stop) in sorted(taken.items(), key=lambda item: item[0]):
            by_topic.setdefault(topic_id, (name, []))[1].append(stop)
        realm = self._desk.realm
        request = StopReplicaRequest(
            controller_id=realm.broker_id,
            controller_epoch=realm.office.epoch,
            broker_epoch=self.broker.epoch,
            topics=tuple(
                StopTopic(name=name, topic_id=topic_id, partitions=tuple(found))
                for topic_id, (name, found) in by_topic.items()
            ),
        )

        def restore() -> None:
            for key, stop in taken.items():
                stops.setdefault(key, stop)

        self._send(request, _ignore, restore)

    # -- questions

    def _send_questions(self) -> None:
        """Under the leader epoch of each partition, which the broker knows by now."""
        asked, self._questions = self._questions, {}
        realm = self._desk.realm
        by_topic: dict[str, list[AskedPartition]] = {}
        for (name, index), leader_epoch in sorted(asked.items()):
            if name in realm.image.topics:
                question = AskedPartition(index=index, leader_epoch=leader_epoch)
                by_topic.setdefault(name, []).append(question)
        request = ReplicaStatesRequest(
            controller_id=realm.broker_id,
            controller_epoch=realm.office.epoch,
            broker_epoch=self.broker.epoch,
            topics=tuple(
                AskedTopic(topic_id=realm.image.topics[name].topic_id, partitions=tuple(partitions))
                for name, partitions in by_topic.items()
            ),
        )

        def heard(response: ReplicaStatesResponse) -> None:
            self._desk.replicas_reported(self.broker, asked, response)

        def unheard() -> None:
            self._desk.replicas_reported(self.broker, asked, None)

        self._send(request, heard, unheard)


def _held(topic: TopicInfo, broker_id: int) -> list[int]:
    return [
        index
        for index, partition in enumerate(topic.partitions)
        if broker_id in partition.replicas and partition.state_version != NO_STATE
    ]


def _names(topics: Iterable[TopicState]) -> list[PartitionName]:
    return [(topic.name, state.index) for topic in topics for state in topic.partitions]


def _nothing() -> None:
    """A full request comes again as it was."""


def _ignore(_response: object) -> None:
    """It was done; what a stop could not remove is found again at the next start."""
