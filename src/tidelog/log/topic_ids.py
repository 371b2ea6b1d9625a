"""Whose a replica is: the id of its topic, in its folder, and what is known where that is lost.

The id becomes durable with a replica's first flush. Until then the machine's death may take it, or
a part of it, and leave records: those may be of a topic that has been deleted since, and made
again. That is to be seen at the first start afterwards only, and whoever knows what has become of
the topic may be heard of after a later one. So that start leaves a mark.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tidelog.base.errors import BadValue
from tidelog.base.ids import TopicPartition
from tidelog.base.ports import Disk
from tidelog.log.checkpoints import (
    PARTITION_METADATA,
    format_partition_metadata,
    parse_partition_metadata,
)
from tidelog.log.files import read_whole, remove_if_there, write_whole
from tidelog.log.steps import Steps

if TYPE_CHECKING:
    from tidelog.log.log_dir import LogDir

LOST: Final = "topic-id-lost"


def read_id(disk: Disk, folder: str) -> bytes | None:
    """None if there is none, or not as a whole."""
    path = f"{folder}/{PARTITION_METADATA}"
    data = read_whole(disk, path) if disk.stat(path) is not None else b""
    try:
        return parse_partition_metadata(path, data)
    except BadValue:
        return None


def mark_if_lost(disk: Disk, folder: str) -> None:
    """Of a replica that was not flushed when its machine died."""
    if read_id(disk, folder) is None:
        write_whole(disk, f"{folder}/{LOST}", b"")


def is_lost(log_dir: "LogDir", partition: TopicPartition) -> bool:
    """Whether a replica without an id had one. One that another program has left here may never
    have had any."""
    try:
        return log_dir.disk.stat(f"{log_dir.path}/{partition.folder}/{LOST}") is not None
    except OSError as error:
        raise log_dir.fail(error) from error


def noting_ids(log_dir: "LogDir", ids: Mapping[TopicPartition, bytes]) -> Steps:
    """Writes down, durably, whose replicas are that were found without an id and are kept."""
    log_dir.check_open()
    folders = {
        f"{log_dir.path}/{partition.folder}": topic_id
        for partition, topic_id in ids.items()
        if partition in log_dir.logs
    }

    def write() -> None:
        disk = log_dir.disk
        for folder, topic_id in folders.items():
            write_whole(disk, f"{folder}/{PARTITION_METADATA}", format_partition_metadata(topic_id))
            remove_if_there(disk, f"{folder}/{LOST}")

    try:
        yield write
    except OSError as error:
        raise log_dir.fail(error) from error
