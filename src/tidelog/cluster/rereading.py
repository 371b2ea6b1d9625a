"""Reading partitions again: because a leader announced that it changed them, or because what
became of a write is not known.

What was read replaces what is known only if it is newer. The image may have moved on meanwhile,
so a topic that is another by now is left alone.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from tidelog.base.coordination import Coordination, CoordinationError, Trouble
from tidelog.base.errors import BadValue
from tidelog.cluster.dispatch import Dispatch
from tidelog.cluster.image import PartitionInfo, TopicInfo
from tidelog.cluster.reading import TopicRead, read_topic_part
from tidelog.cluster.realm import PartitionName, Realm
from tidelog.cluster.writing import Ask, gather, insist

_log = logging.getLogger(__name__)

Done = Callable[[list[PartitionName]], None]


class Rereading:
    def __init__(
        self,
        coordination: Coordination,
        realm: Realm,
        dispatch: Dispatch,
        mark: Callable[[Iterable[PartitionName]], None],
    ) -> None:
        self._coordination = coordination
        self._realm = realm
        self._dispatch = dispatch
        self._mark = mark

    def read(self, names: Iterable[PartitionName], done: Done) -> None:
        """`done` gets the partitions that could be read; those that are different are told of."""
        by_topic: dict[str, list[int]] = {}
        for name, index in sorted(set(names)):
            if self._realm.partition((name, index)) is not None:
                by_topic.setdefault(name, []).append(index)
        asks: list[Ask[list[PartitionName]]] = [
            partial(self._read_topic, self._realm.image.topics[name], indexes)
            for name, indexes in by_topic.items()
        ]
        gather(asks, lambda found: done([name for names in found for name in names]))

    def _read_topic(self, topic: TopicInfo, indexes: list[int], done: Done) -> None:
        def read(found: TopicRead) -> None:
            if self._realm.is_over:
                done([])
            elif isinstance(found, TopicInfo):
                self._take_over(topic, found, indexes)
                done([(topic.name, index) for index in indexes])
            else:
                _report(topic.name, found)
                done([])

        ask = partial(read_topic_part, self._coordination, topic.name, indexes)
        insist(ask, read)

    def _take_over(self, asked: TopicInfo, found: TopicInfo, indexes: list[int]) -> None:
        topic = self._realm.image.topics.get(asked.name)
        if topic is None or topic.topic_id != asked.topic_id or found.topic_id != asked.topic_id:
            return
        if found.version > topic.version:
            # Its answer was lost, and all of it must be taken over: the next write is of all.
            topic, indexes = self._grown(topic, found), list(range(len(found.partitions)))
        known = topic.partitions
        found_now = {
            index: merged(known[index], found.partitions[index], found.version >= topic.version)
            for index in indexes
        }
        changed = {index: now for index, now in found_now.items() if now != known[index]}
        if changed or found.version > topic.version:
            version = max(topic.version, found.version)
            self._realm.put_partitions(topic.name, changed, version)
            self._dispatch.topic_changed(topic.name, [(i, known[i]) for i in changed])
            self._mark((topic.name, index) for index in changed)

    def _grown(self, topic: TopicInfo, found: TopicInfo) -> TopicInfo:
        added = found.partitions[len(topic.partitions) :]
        if added:
            topic = replace(topic, partitions=topic.partitions + added)
            self._realm.image.put_topic(topic)
            first = len(topic.partitions) - len(added)
            self._mark((topic.name, first + number) for number in range(len(added)))
        return topic


def merged(known: PartitionInfo, read: PartitionInfo, takes_replicas: bool) -> PartitionInfo:
    """Who holds a partition stands in its topic's node, the rest in its state."""
    newest = read if read.state_version > known.state_version else known
    holders = read if takes_replicas else known
    if newest is holders:
        return newest
    return replace(
        newest,
        replicas=holders.replicas,
        adding_replicas=holders.adding_replicas,
        removing_replicas=holders.removing_replicas,
    )


def _report(name: str, found: BadValue | CoordinationError | None) -> None:
    if found is None:
        _log.error("the topic %s is gone from the coordinator; nobody here deleted it", name)
    elif isinstance(found, BadValue):
        _log.error("the topic %s cannot be read any more: %s", name, found)
    elif found.trouble is not Trouble.session_expired:
        _log.warning("the topic %s could not be read again: %s", name, found)
