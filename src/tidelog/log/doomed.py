"""What the folder of a deleted replica is called until its files are removed, and their removal.

A folder with such a name is no replica any more, whatever is in it: a start removes it.
"""

import re
from collections.abc import Iterable
from typing import Final

from tidelog.base.ids import TopicPartition
from tidelog.base.ports import Disk
from tidelog.log.files import remove_if_there

FILE_NAME_MAX: Final = 255
_SUFFIX: Final = "-delete"
_FOLDER: Final = re.compile(rf"\S+-\d+\.\S+{_SUFFIX}")


def doomed_name(partition: TopicPartition, unique: str) -> str:
    """A long topic name is cut short: only that it is to be removed counts from here on."""
    rest = f"-{partition.partition}.{unique}{_SUFFIX}"
    return partition.topic[: FILE_NAME_MAX - len(rest)] + rest


def is_doomed(folder: str) -> bool:
    return _FOLDER.fullmatch(folder) is not None


def remove_all(disk: Disk, files: Iterable[str], folders: Iterable[str]) -> None:
    """Files, if they are still there, and folders with what is in them."""
    for path in files:
        remove_if_there(disk, path)
    for folder in folders:
        for name in disk.list(folder):
            disk.remove(f"{folder}/{name}")
        disk.remove(folder)
