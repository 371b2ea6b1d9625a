"""Carrying out what was planned for topics: making, growing and deleting them.

The topics of one request are written side by side. When a write fails the topic is read again,
so that the image shows what is really there, whatever became of the write.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from tidelog.base.coordination import CoordinationError, Create, Trouble, Written
from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.cluster import paths
from tidelog.cluster.deletion import remove_nodes
from tidelog.cluster.image import TopicInfo
from tidelog.cluster.reading import TopicRead, read_topic
from tidelog.cluster.requests import Change, NewTopic
from tidelog.cluster.standing import Results, Standing, plan_each
from tidelog.cluster.topic_nodes import creation, growth, random_topic_id
from tidelog.cluster.topics import TopicPlan, unknown_topic
from tidelog.cluster.writing import Ask, gather, insist, pack, refusal, write_parts
from tidelog.cluster.znodes import id_text

_log = logging.getLogger(__name__)

Finished = Callable[[CoordinationError | None], None]
Growth = tuple[str, int, Sequence[Sequence[int]] | None]


class TopicChanges:
    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._image = standing.image

    def create(
        self, topics: Sequence[NewTopic], validate_only: bool, done: Results[TopicInfo]
    ) -> None:
        plan = self._plan()
        planned = plan_each(topics, lambda new: new.name, plan.create)
        if validate_only:
            done(planned)
        else:
            with_ids = [self._with_id(topic) for topic in planned]
            self._write_all(with_ids, self._write_new, done)

    def grow(self, topics: Sequence[Growth], validate_only: bool, done: Results[TopicInfo]) -> None:
        plan = self._plan()
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
            accepted = _merged(planned, errors)
            deleted = [topic for topic in accepted if isinstance(topic, TopicInfo)]
            self.finish_deletions(deleted, partial(removed, accepted))

        def removed(
            accepted: list[TopicInfo | KafkaError], errors: list[CoordinationError | None]
        ) -> None:
            done(_merged(accepted, errors))

        gather(marks, marked)

    def finish_deletions(
        self, topics: Sequence[TopicInfo], done: Callable[[list[CoordinationError | None]], None]
    ) -> None:
        """Deletes topics that are marked: first from the image, then their data, which is the
        listeners' work, then their nodes."""
        standing = self._standing
        for topic in topics:
            self._image.remove_topic(topic.name)
            self._image.unreadable.pop(topic.name, None)
            self._image.deleting[topic.name] = topic
        standing.tell(Change(deleted=tuple(topics)))
        asks: list[Ask[CoordinationError | None]] = [
            partial(
                insist, partial(remove_nodes, standing.coordination, standing.fence, topic.name)
            )
            for topic in topics
        ]

        def removed(errors: list[CoordinationError | None]) -> None:
            for topic, error in zip(topics, errors, strict=True):
                if error is None:
                    del self._image.deleting[topic.name]
                else:
                    _log.error("the deletion of %s is not finished: %s", topic.name, error)
            done(errors)

        gather(asks, removed)

    def refresh(self, name: str, done: Callable[[None], None]) -> None:
        """Reads a topic again. If that fails too, what was known of it stays."""

        def read(found: TopicRead) -> None:
            before = self._image.topics.get(name)
            match found:
                case TopicInfo():
                    self._image.put_topic(found)
                    self._standing.tell(_difference(before, found))
                case BadValue():
                    _log.error("the topic %s cannot be read any more: %s", name, found)
                case CoordinationError():
                    _log.warning("the topic %s could not be read again: %s", name, found)
            done(None)

        insist(partial(read_topic, self._standing.coordination, name), read)

    def _plan(self) -> TopicPlan:
        return TopicPlan(self._standing.situation())

    def _with_id(self, topic: TopicInfo | KafkaError) -> TopicInfo | KafkaError:
        if isinstance(topic, KafkaError):
            return topic
        return replace(topic, topic_id=random_topic_id(self._standing.entropy))

    def _write_all(
        self,
        planned: list[TopicInfo | KafkaError],
        write: Callable[[TopicInfo, Finished], None],
        done: Results[TopicInfo],
    ) -> None:
        topics = [topic for topic in planned if isinstance(topic, TopicInfo)]

        def wrote(errors: list[CoordinationError | None]) -> None:
            outcomes = list(zip(topics, errors, strict=True))
            self._take_over([topic for topic, error in outcomes if error is None])
            asks: list[Ask[None]] = [
                partial(self.refresh, topic.name) for topic, error in outcomes if error is not None
            ]
            gather(asks, lambda _: done(_merged(planned, errors)))

        gather([partial(write, topic) for topic in topics], wrote)

    def _take_over(self, topics: Sequence[TopicInfo]) -> None:
        changes = [_difference(self._image.topics.get(topic.name), topic) for topic in topics]
        for topic in topics:
            self._image.put_topic(topic)
        created = tuple(topic for change in changes for topic in change.created)
        grown = tuple(pair for change in changes for pair in change.grown)
        self._standing.tell(Change(created=created, grown=grown))

    def _write_new(self, topic: TopicInfo, done: Finished) -> None:
        config = paths.topic_config(topic.name)
        parts = pack(creation(topic), self._standing.fence)

        def wrote(error: CoordinationError | None) -> None:
            if error is None or (error.trouble, error.path) != (Trouble.node_exists, config):
                done(error)
                return
            again = pack(creation(topic, config_is_there=True), self._standing.fence)
            write_parts(self._standing.coordination, again, done)

        write_parts(self._standing.coordination, parts, wrote)

    def _write_grown(self, topic: TopicInfo, done: Finished) -> None:
        groups = growth(self._image.topics[topic.name], topic)
        parts = pack(groups, self._standing.fence)
        write_parts(self._standing.coordination, parts, done)

    def _name_of(self, topic: str | bytes) -> str | bytes:
        """An id that is not known stays what it is."""
        return topic if isinstance(topic, str) else self._image.topic_names.get(topic, topic)

    def _deletable(self, topic: str | bytes) -> TopicInfo:
        if not self._standing.settings.flag("delete.topic.enable"):
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

        write = self._standing.coordination.write
        insist(partial(write, [self._standing.fence, mark]), marked)


def _difference(before: TopicInfo | None, now: TopicInfo) -> Change:
    if before is None:
        return Change(created=(now,))
    if len(now.partitions) > len(before.partitions):
        return Change(grown=((now, len(before.partitions)),))
    return Change()


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
