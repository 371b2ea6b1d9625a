"""Carrying out what was planned for topics: making, growing and deleting them.

It is the controller's work. The topics of one request are written side by side. When a write
fails the topic is read again, so that the image shows what is really there, whatever became of
the write. An answer comes when those that lead what was made have been told.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from tidelog.base.coordination import Coordination, CoordinationError, Create, Trouble, Written
from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.base.ports import Entropy
from tidelog.cluster import paths
from tidelog.cluster.deletion import remove_nodes
from tidelog.cluster.dispatch import Dispatch
from tidelog.cluster.image import TopicInfo
from tidelog.cluster.reading import TopicRead, read_topic
from tidelog.cluster.realm import Realm
from tidelog.cluster.reconciling import Reconciler
from tidelog.cluster.requests import NewTopic
from tidelog.cluster.rereading import merged
from tidelog.cluster.standing import Results, plan_each
from tidelog.cluster.topic_nodes import creation, growth, random_topic_id
from tidelog.cluster.topics import Situation, TopicPlan, unknown_topic
from tidelog.cluster.writing import Ask, gather, insist, pack, refusal, write_parts
from tidelog.cluster.znodes import id_text

_log = logging.getLogger(__name__)

Finished = Callable[[CoordinationError | None], None]
Growth = tuple[str, int, Sequence[Sequence[int]] | None]


class TopicChanges:
    def __init__(
        self,
        realm: Realm,
        dispatch: Dispatch,
        reconciler: Reconciler,
        coordination: Coordination,
        entropy: Entropy,
    ) -> None:
        self._realm = realm
        self._image = realm.image
        self._dispatch = dispatch
        self._reconciler = reconciler
        self._coordination = coordination
        self._entropy = entropy

    def plan(self) -> TopicPlan:
        """For the topics of one request, however many times `create` or `grow` is called."""
        situation = Situation(
            image=self._image,
            settings=self._realm.settings(),
            entropy=self._entropy,
            controller_epoch=self._realm.office.epoch,
        )
        return TopicPlan(situation)

    def create(
        self,
        plan: TopicPlan,
        validate_only: bool,
        topics: Sequence[NewTopic],
        done: Results[TopicInfo],
    ) -> None:
        planned = plan_each(topics, lambda new: new.name, plan.create)
        if validate_only:
            done(planned)
        else:
            with_ids = [self._with_id(topic) for topic in planned]
            self._write_all(with_ids, self._write_new, done)

    def grow(
        self,
        plan: TopicPlan,
        validate_only: bool,
        topics: Sequence[Growth],
        done: Results[TopicInfo],
    ) -> None:
        planned = plan_each(topics, lambda growing: growing[0], lambda new: plan.grow(*new))
        if validate_only:
            done(planned)
        else:
            self._write_all(planned, self._write_grown, done)

    def delete(self, topics: Sequence[str | bytes], done: Results[TopicInfo]) -> None:
        planned = plan_each(topics, self._name_of, self._deletable)
        marks: list[Ask[CoordinationError | None]] = [
            partial(self._mark, topic.name) for topic in planned if isinstance(topic, TopicInfo)
        ]

        def marked(errors: list[CoordinationError | None]) -> None:
            self._realm.end_by(errors)
            accepted = _merged(planned, errors)
            deleted = [topic for topic in accepted if isinstance(topic, TopicInfo)]
            self.finish_deletions(deleted, partial(removed, accepted))

        def removed(
            accepted: list[TopicInfo | KafkaError], errors: list[CoordinationError | None]
        ) -> None:
            results = _merged(accepted, errors)
            self._dispatch.when_told([self._realm.broker_id], lambda: done(results))

        gather(marks, marked)

    def finish_deletions(
        self, topics: Sequence[TopicInfo], done: Callable[[list[CoordinationError | None]], None]
    ) -> None:
        """Deletes topics that are marked: first from the image, and brokers are told to delete
        their data, then their nodes. A broker that is away learns of it when it returns."""
        for topic in topics:
            self._realm.forget_topic(topic)
            self._image.unreadable.pop(topic.name, None)
            self._image.deleting[topic.name] = topic
        self._dispatch.topics_deleted(topics)
        asks: list[Ask[CoordinationError | None]] = [
            partial(
                insist, partial(remove_nodes, self._coordination, self._realm.fence, topic.name)
            )
            for topic in topics
        ]

        def removed(errors: list[CoordinationError | None]) -> None:
            self._realm.end_by(errors)
            for topic, error in zip(topics, errors, strict=True):
                if error is None:
                    self._image.deleting.pop(topic.name, None)
                else:
                    _log.error("the deletion of %s is not finished: %s", topic.name, error)
            done(errors)

        gather(asks, removed)

    def _with_id(self, topic: TopicInfo | KafkaError) -> TopicInfo | KafkaError:
        if isinstance(topic, KafkaError):
            return topic
        return replace(topic, topic_id=random_topic_id(self._entropy))

    # -- writing

    def _write_all(
        self,
        planned: list[TopicInfo | KafkaError],
        write: Callable[[TopicInfo, Finished], None],
        done: Results[TopicInfo],
    ) -> None:
        topics = [topic for topic in planned if isinstance(topic, TopicInfo)]
        brokers = self._image.brokers

        def wrote(errors: list[CoordinationError | None]) -> None:
            outcomes = list(zip(topics, errors, strict=True))
            self._realm.end_by(errors)
            made = [topic for topic, error in outcomes if error is None]
            for topic in made:
                self._take_over(topic)
            if brokers is not self._image.brokers or self._realm.shutting_down:
                # Who was to lead may be gone, or have restarted, or be about to stop.
                self._look_at(made)
            asks: list[Ask[None]] = [
                partial(self._refresh, topic.name) for topic, error in outcomes if error is not None
            ]
            gather(asks, lambda _: self._answer_when_told(made, _merged(planned, errors), done))

        gather([partial(write, topic) for topic in topics], wrote)

    def _answer_when_told(
        self,
        topics: list[TopicInfo],
        results: list[TopicInfo | KafkaError],
        done: Results[TopicInfo],
    ) -> None:
        leaders = {p.leader for topic in topics for p in topic.partitions}
        self._dispatch.when_told({self._realm.broker_id, *leaders}, lambda: done(results))

    def _take_over(self, topic: TopicInfo) -> None:
        """What is known of partitions that were there may be newer than the plan."""
        before = self._image.topics.get(topic.name)
        known = () if before is None else before.partitions
        if before is not None:
            topic = replace(
                before,
                partitions=known + topic.partitions[len(known) :],
                version=max(before.version, topic.version),
            )
        self._image.put_topic(topic)
        added = [(index, None) for index in range(len(known), len(topic.partitions))]
        self._dispatch.topic_changed(topic.name, added)

    def _refresh(self, name: str, done: Callable[[None], None]) -> None:
        """Reads a topic again. If that fails too, what was known of it stays."""

        def read(found: TopicRead) -> None:
            if self._realm.is_over:
                done(None)
                return
            match found:
                case TopicInfo():
                    self._take_over_read(found)
                case BadValue():
                    _log.error("the topic %s cannot be read any more: %s", name, found)
                case CoordinationError():
                    _log.warning("the topic %s could not be read again: %s", name, found)
            done(None)

        insist(partial(read_topic, self._coordination, name), read)

    def _take_over_read(self, found: TopicInfo) -> None:
        """It may be made in part; what is missing is then made as at a start."""
        before = self._image.topics.get(found.name)
        if before is not None and before.topic_id == found.topic_id:
            if found.version < before.version:
                return
            known = before.partitions
            newest = tuple(
                merged(known[index], read, takes_replicas=True) if index < len(known) else read
                for index, read in enumerate(found.partitions)
            )
            found = replace(found, partitions=newest)
        self._image.put_topic(found)
        indexes = range(len(found.partitions))
        self._dispatch.topic_changed(found.name, [(index, None) for index in indexes])
        self._look_at([found])

    def _look_at(self, topics: Iterable[TopicInfo]) -> None:
        for topic in topics:
            self._reconciler.mark((topic.name, index) for index in range(len(topic.partitions)))

    def _write_new(self, topic: TopicInfo, done: Finished) -> None:
        config = paths.topic_config(topic.name)
        parts = pack(creation(topic), self._realm.fence)

        def wrote(error: CoordinationError | None) -> None:
            if error is None or (error.trouble, error.path) != (Trouble.node_exists, config):
                done(error)
                return
            again = pack(creation(topic, config_is_there=True), self._realm.fence)
            write_parts(self._coordination, again, done)

        write_parts(self._coordination, parts, wrote)

    def _write_grown(self, topic: TopicInfo, done: Finished) -> None:
        groups = growth(self._image.topics[topic.name], topic)
        write_parts(self._coordination, pack(groups, self._realm.fence), done)

    # -- deleting

    def _name_of(self, topic: str | bytes) -> str | bytes:
        """An id that is not known stays what it is."""
        return topic if isinstance(topic, str) else self._image.topic_names.get(topic, topic)

    def _deletable(self, topic: str | bytes) -> TopicInfo:
        if not self._realm.settings().flag("delete.topic.enable"):
            raise KafkaError(
                ErrorCode.topic_deletion_disabled,
                "topics cannot be deleted while delete.topic.enable=false",
            )
        name = self._name_of(topic)
        if isinstance(name, bytes):
            raise KafkaError(ErrorCode.unknown_topic_id, f"no topic has the id {id_text(name)}")
        found = self._image.topics.get(name) or self._image.deleting.get(name)
        if found is None:
            raise unknown_topic(self._image, name)
        return found

    def _mark(self, name: str, done: Finished) -> None:
        mark = Create(path=paths.delete_topic(name))

        def marked(result: list[Written] | CoordinationError) -> None:
            if isinstance(result, CoordinationError) and result.trouble is not Trouble.node_exists:
                done(result)
            else:
                done(None)

        insist(partial(self._coordination.write, [self._realm.fence, mark]), marked)


def _merged(
    planned: list[TopicInfo | KafkaError], errors: list[CoordinationError | None]
) -> list[TopicInfo | KafkaError]:
    """`errors` has one for each item that was not refused already."""
    outcomes = iter(errors)
    merged: list[TopicInfo | KafkaError] = []
    for item in planned:
        error = None if isinstance(item, KafkaError) else next(outcomes)
        merged.append(item if error is None else _refusal(item, error))
    return merged


def _refusal(item: TopicInfo | KafkaError, error: CoordinationError) -> KafkaError:
    assert isinstance(item, TopicInfo)
    if (error.trouble, error.path) == (Trouble.node_exists, paths.topic(item.name)):
        return KafkaError(
            ErrorCode.topic_already_exists, f"the topic {item.name} was made by another meanwhile"
        )
    return refusal(error)
