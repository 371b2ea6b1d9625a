"""Making and deleting the replicas of a log dir in steps: making files and changing names can
wait for the file system's journal for seconds, and many partitions come and go at once.

A deleted replica is gone for the broker at once; its folder gets another name, and no one waits
for that to be durable, because a start removes what belongs to no topic. But until the new name is
durable, and checkpoints without the replica are, a replica of the same name must not be made: a
power loss would show it where its predecessor ended. Such names are `unsettled`; the next
checkpoint settles them. A replica whose topic id may not be on the disk yet could be taken for
another topic's after a power loss: it leaves durably.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.base.ids import TopicPartition
from tidelog.base.log_settings import LogSettings
from tidelog.log.checkpointing import checkpointing
from tidelog.log.checkpoints import PARTITION_METADATA, format_partition_metadata
from tidelog.log.doomed import doomed_name
from tidelog.log.files import write_whole
from tidelog.log.partition_log import PartitionLog
from tidelog.log.segment import Segment
from tidelog.log.steps import Steps

if TYPE_CHECKING:
    from tidelog.log.log_dir import LogDir

MADE_AT_ONCE: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class NewReplica:
    partition: TopicPartition
    settings: LogSettings
    topic_id: bytes | None = None


def making(log_dir: "LogDir", news: Sequence[NewReplica]) -> Steps:
    """Makes the folders of new replicas and opens their logs; durably with their first flush."""
    log_dir.check_open()
    yield from _settling(log_dir, [new.partition for new in news])
    for start in range(0, len(news), MADE_AT_ONCE):
        some = news[start : start + MADE_AT_ONCE]
        segments: list[Segment] = []
        try:
            yield partial(_make_files, log_dir, some, segments)
        except OSError as error:
            raise log_dir.fail(error) from error
        log_dir.check_open()
        log_dir.names_changed = True
        for new, segment in zip(some, segments, strict=True):
            log = PartitionLog(log_dir, segment.folder, new.partition, new.settings)
            log.begin_with(segment)
            log_dir.logs[new.partition] = log


def _settling(log_dir: "LogDir", partitions: Collection[TopicPartition]) -> Steps:
    """What a checkpoint still says of a replica that was here before, and is gone, must not be
    believed of a new one."""
    for partition in partitions:
        assert partition not in log_dir.logs, f"{partition} is here already"
        if log_dir.is_noted(partition):
            log_dir.forget_offsets(partition)
            log_dir.unsettled[partition] = True
    while any(partition in log_dir.unsettled for partition in partitions):
        yield from checkpointing(log_dir)
        log_dir.check_open()


def _make_files(log_dir: "LogDir", news: Sequence[NewReplica], segments: list[Segment]) -> None:
    disk = log_dir.disk
    for new in news:
        folder = f"{log_dir.path}/{new.partition.folder}"
        disk.make_folder(folder)
        if new.topic_id is not None:
            metadata = format_partition_metadata(new.topic_id)
            write_whole(disk, f"{folder}/{PARTITION_METADATA}", metadata, durable=False)
        segment = Segment(folder, 0, new.settings, log_dir.files)
        segment.create(disk)
        segments.append(segment)


def deleting(log_dir: "LogDir", logs: Sequence[PartitionLog]) -> Steps:
    """Gives the folders of replicas that were let go of the names of what is to be removed: a crash
    finds either a whole log or one that goes. The files go after their delay; in a dir that is
    offline they stay, and are found to belong to no topic when it is back."""
    log_dir.check_open()
    now_ms = log_dir.clock.now_ms()
    names = {
        log.partition: f"{log_dir.path}/{doomed_name(log.partition, log_dir.unique(now_ms))}"
        for log in logs
    }

    def rename() -> None:
        for log in logs:
            log_dir.disk.rename(log.folder, names[log.partition])
        if not all(log.was_flushed for log in logs):
            log_dir.disk.sync_folder(log_dir.path)

    try:
        yield rename
    except OSError as error:
        raise log_dir.fail(error) from error
    for log in logs:
        log_dir.doom(names[log.partition], now_ms + log.settings.file_delete_delay_ms)
        log_dir.unsettled[log.partition] = True
