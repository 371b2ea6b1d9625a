"""All logs of a broker, over its log dirs, and the housekeeping they share.

A new replica goes to the live dir that holds the fewest. A dir whose disk fails takes only
its own replicas with it; when the last one fails there is nothing left to serve. So the
housekeeping goes from dir to dir, and what goes wrong in one of them is in its `failure`.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TypeVar

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.base.log_settings import LogSettings
from tidelog.log.files import replicas_left
from tidelog.log.log_dir import LogDir, SettingsOf
from tidelog.log.partition_log import PartitionLog
from tidelog.log.retention import delete_old_segments, retain

_log = logging.getLogger(__name__)

Done = TypeVar("Done")

Belongs = Callable[[str, bytes | None], bool]
"""Whether a log can be that of the topic of that name, going by the topic id in its folder."""


class Logs:
    def __init__(
        self, dirs: list[LogDir], descriptors: Callable[[], tuple[int, int]] | None = None
    ) -> None:
        """`descriptors` tells how many files are open, and how many may be."""
        self.dirs = dirs
        self._descriptors = descriptors

    def has_room_for(self, count: int) -> int:
        """For how many of so many new replicas there is room: without a file for it each would take
        its dir offline, now and at every start."""
        if self._descriptors is None:
            return count
        return min(count, replicas_left(*self._descriptors()))

    @property
    def online(self) -> list[LogDir]:
        return [log_dir for log_dir in self.dirs if log_dir.failure is None]

    def take(self) -> dict[str, str]:
        """Keeps other processes out of the dirs; returns what they say of whose they are. One
        that cannot be used is offline."""
        _in_each(self.dirs, LogDir.take)
        identity: dict[str, str] = {}
        for found in _in_each(self.online, LogDir.read_identity):
            identity |= found
        self._refuse_none()
        return identity

    def open(
        self,
        identity: Mapping[str, str],
        settings_of: SettingsOf,
        belongs: Belongs | None = None,
    ) -> None:
        """Opens every dir. One that cannot be read is offline; a wrong one is refused. Of a log
        that is in two of them the one that `belongs` says is another topic's is removed."""
        _in_each(self.online, lambda log_dir: log_dir.open(identity, settings_of))
        self._refuse_none()
        self._settle_twins(belongs)

    def _refuse_none(self) -> None:
        if not self.online:
            failures = "; ".join(str(log_dir.failure) for log_dir in self.dirs)
            raise BadValue(f"no log dir can be used: {failures}")

    def get(self, partition: TopicPartition) -> PartitionLog:
        for log_dir in self.dirs:
            log = log_dir.logs.get(partition)
            if log is not None:
                log.check_online()
                return log
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"{partition} is not on this broker")

    def create(
        self, partition: TopicPartition, settings: LogSettings, topic_id: bytes | None = None
    ) -> PartitionLog:
        assert all(partition not in log_dir.logs for log_dir in self.dirs), f"{partition} is here"
        while self.online:
            emptiest = min(self.online, key=lambda log_dir: len(log_dir.logs))
            for log in _in_each(
                [emptiest], lambda log_dir: log_dir.create_log(partition, settings, topic_id)
            ):
                return log
        raise KafkaError(ErrorCode.kafka_storage_error, "all log dirs are offline")

    def delete(self, *partitions: TopicPartition) -> None:
        """Takes logs out of their dirs, and off the disks unless those have failed."""
        for log_dir in self.dirs:
            here = [partition for partition in partitions if partition in log_dir.logs]
            if here:
                _in_each([log_dir], partial(_delete, partitions=here))

    def dir_of(self, partition: TopicPartition) -> LogDir:
        log = self.get(partition)
        return next(log_dir for log_dir in self.dirs if log_dir.logs.get(partition) is log)

    def retain(self) -> int:
        """Moves log starts as retention wants it, durably, and lets go of what lies below;
        returns how many segments went."""
        return sum(_in_each(self.online, _retain))

    def flush(self, *, all_of_it: bool = False) -> None:
        """Flushes the logs whose settings ask for it, or all, and notes the recovery points."""

        def flush(log_dir: LogDir) -> None:
            now_ms = log_dir.clock.now_ms()
            for log in log_dir.logs.values():
                if all_of_it or log.flush_is_due(now_ms):
                    log.flush(now_ms)
            log_dir.persist_recovery_points()

        _in_each(self.online, flush)

    def close(self) -> None:
        _in_each(self.dirs, LogDir.close)

    def _settle_twins(self, belongs: Belongs | None) -> None:
        """A dir that fails while a log is made leaves an empty one behind, and another dir takes
        its place: the empty one goes. A dir that is offline while a topic is deleted keeps its
        logs: they go where the topic was made again in another dir. If that one is gone as well,
        either does: nobody will want the other. Any other two with something in them are for a
        human to look at."""
        homes: dict[TopicPartition, LogDir] = {}
        for log_dir in self.online:
            for partition in list(log_dir.logs):
                twin = homes.setdefault(partition, log_dir)
                if twin is log_dir:
                    continue
                find = partial(_needless, partition, twin, belongs=belongs)
                for needless in _in_each([log_dir], find):
                    homes[partition] = log_dir if needless is twin else twin
                    where = (partition, needless.path, homes[partition].path)
                    _log.warning("removing partition=%s in=%s why=it is in %s", *where)
                    _in_each([needless], partial(_delete, partitions=[partition]))


def _needless(
    partition: TopicPartition, one: LogDir, other: LogDir, belongs: Belongs | None
) -> LogDir:
    """Which of two dirs a log is not needed in."""
    if belongs is not None:
        strangers = [d for d in (one, other) if not belongs(partition.topic, d.topic_id(partition))]
        if strangers:
            return strangers[0]
    if not other.logs[partition].log_end_offset:
        return other
    if not one.logs[partition].log_end_offset:
        return one
    raise BadValue(
        f"{partition} is in {one.path} and in {other.path}: remove one of the two folders"
    )


def _in_each(dirs: list[LogDir], work: Callable[[LogDir], Done]) -> list[Done]:
    """Does the same in every dir. One whose disk fails has noted it and is passed over."""
    done = []
    for log_dir in dirs:
        try:
            done.append(work(log_dir))
        except KafkaError as error:
            if error.code != ErrorCode.kafka_storage_error:
                raise
    return done


def _delete(log_dir: LogDir, partitions: Collection[TopicPartition]) -> None:
    log_dir.delete_logs(partitions)


def _retain(log_dir: LogDir) -> int:
    now_ms = log_dir.clock.now_ms()
    for partition, log in log_dir.logs.items():
        retain(log, log_dir.high_watermarks.get(partition, 0), now_ms)
    if any(log.log_start_offset > log.durable_log_start for log in log_dir.logs.values()):
        log_dir.persist_log_starts()
    removed = sum(delete_old_segments(log, now_ms) for log in log_dir.logs.values())
    log_dir.remove_doomed()
    return removed
