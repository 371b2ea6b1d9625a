"""The logs that a controller's request wants to be here: those that are missing are made, and what
is on the disks and wanted by nobody goes.

A log is known by its partition's name, and whose it is by the topic id in its folder.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial

from tidelog.base.control import LeaderAndIsrRequest, PartitionState, TopicState
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.base.log_settings import LogSettings
from tidelog.cluster.image import NO_LEADER
from tidelog.log.log_dir import LogDir
from tidelog.log.logs import Logs
from tidelog.log.partition_log import PartitionLog
from tidelog.log.replicas import NewReplica
from tidelog.log.topic_ids import is_lost
from tidelog.partition import Partition
from tidelog.partitions import Partitions
from tidelog.placing import Placing
from tidelog.slices import Sliced

_log = logging.getLogger("tidelog.hosting")


class Provision:
    def __init__(
        self,
        logs: Logs,
        partitions: Partitions,
        placing: Placing,
        remove: Callable[[TopicPartition], None],
    ) -> None:
        """`remove` takes a replica from those that are led or followed here."""
        self._logs = logs
        self._partitions = partitions
        self._placing = placing
        self._remove = remove
        self._known: set[tuple[bytes, int]] | None = None
        """What was there at the start and has stayed, or left its log in a dir that is offline; a
        partition that is named later is a new one."""

    def providing(
        self,
        request: LeaderAndIsrRequest,
        settings_of: Callable[[str], LogSettings],
        broker_id: int,
    ) -> Sliced:
        """Makes the logs that are not there. One of another topic of the same name goes first, and
        so does one that may be, where nobody needs it. One that is kept although nobody knows whose
        it was is this topic's from now on."""
        strangers: list[TopicPartition] = []
        nameless: dict[LogDir, dict[TopicPartition, bytes]] = {}
        news: list[NewReplica] = []
        settings: dict[bytes, LogSettings] = {}
        for topic, state in states_in(request):
            yield None
            name = TopicPartition(topic.name, state.index)
            if self._partitions.held(topic.topic_id, state.index) is not None:
                continue
            homes = [log_dir for log_dir in self._logs.online if name in log_dir.logs]
            must_be_known = not _may_be_needed(state, broker_id)
            if homes and not all(
                _is_stranger(home, name, topic.topic_id, must_be_known) for home in homes
            ):
                for home in homes:
                    if _lacks_id(home, name):
                        nameless.setdefault(home, {})[name] = topic.topic_id
                continue
            if homes:
                strangers.append(name)
            if self._may_be_made(topic, state):
                if topic.topic_id not in settings:
                    settings[topic.topic_id] = settings_of(topic.name)
                news.append(
                    NewReplica(
                        partition=name,
                        settings=settings[topic.topic_id],
                        topic_id=topic.topic_id,
                    )
                )
        for name in strangers:
            _log.warning("removing partition=%s why=it may be another topic's of that name", name)
            self._remove(name)
        yield partial(self._placing.note_ids, nameless)
        yield partial(self._placing.delete, strangers)
        yield partial(self._placing.make, news)

    def _may_be_made(self, topic: TopicState, state: PartitionState) -> bool:
        """Not if its log may be in a dir that is offline: an empty one in its place would pass for
        all there ever was."""
        is_new = self._known is not None and (topic.topic_id, state.index) not in self._known
        return is_new or len(self._logs.online) == len(self._logs.dirs)

    def removed(self, partition: Partition) -> None:
        """If its log was in a dir that is online, none that is offline has anything of it: when it
        comes back it is a new one. Otherwise that dir has it still."""
        if self._known is not None:
            is_away = partition.log.home.failure is None
            note = self._known.discard if is_away else self._known.add
            note((partition.topic_id, partition.index))

    def find(self, name: TopicPartition) -> PartitionLog:
        online = self._logs.online
        for log_dir in online:
            log = log_dir.logs.get(name)
            if log is not None:
                return log
        why = f"the log of {name} may be in a dir that is offline"
        if len(online) == len(self._logs.dirs):
            why = f"the log of {name} was not made"
        raise KafkaError(
            ErrorCode.kafka_storage_error, why if online else "all log dirs are offline"
        )

    def let_go_of_strays(self, request: LeaderAndIsrRequest) -> list[TopicPartition]:
        """What is on the disks and not in a full request is of a topic that was deleted, or of
        a replica that was moved away, while this broker was down. The caller deletes it."""
        if self._known is None:
            self._known = {(topic.topic_id, state.index) for topic, state in states_in(request)}
        wanted = {TopicPartition(topic.name, state.index) for topic, state in states_in(request)}
        unreadable = set(request.unreadable)
        strays = [
            name
            for log_dir in self._logs.online
            for name in log_dir.logs
            if name not in wanted and name.topic not in unreadable
        ]
        for name in strays:
            _log.warning("removing partition=%s why=it is not to be here any more", name)
            self._remove(name)
        return strays


def states_in(request: LeaderAndIsrRequest) -> Iterator[tuple[TopicState, PartitionState]]:
    return ((topic, state) for topic in request.topics for state in topic.partitions)


def _may_be_needed(state: PartitionState, broker_id: int) -> bool:
    """Whether what a replica has may be all there is: nobody else leads, who has everything, and
    this one is among those that had all that is committed."""
    return state.leader in (NO_LEADER, broker_id) and broker_id in (*state.isr, *state.elr)


def _is_stranger(
    log_dir: LogDir, name: TopicPartition, topic_id: bytes, must_be_known: bool
) -> bool:
    """A dir that fails over it is offline, and what is in it may be anybody's."""
    try:
        found = log_dir.topic_id(name)
        if found is None:
            return must_be_known and is_lost(log_dir, name)
        return found != topic_id
    except KafkaError as error:
        _log.error("not read partition=%s why=%s", name, error.message)
        return False


def _lacks_id(log_dir: LogDir, name: TopicPartition) -> bool:
    try:
        return log_dir.topic_id(name) is None
    except KafkaError:
        return False
