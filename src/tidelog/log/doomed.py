"""What the folder of a deleted replica is called until its files are removed.

A folder with such a name is no replica any more, whatever is in it: a start removes it.
"""

import re
from typing import Final

from tidelog.base.ids import TopicPartition

FILE_NAME_MAX: Final = 255
_SUFFIX: Final = "-delete"
_FOLDER: Final = re.compile(rf"\S+-\d+\.\S+{_SUFFIX}")


def doomed_name(partition: TopicPartition, unique: str) -> str:
    """A long topic name is cut short: only that it is to be removed counts from here on."""
    rest = f"-{partition.partition}.{unique}{_SUFFIX}"
    return partition.topic[: FILE_NAME_MAX - len(rest)] + rest


def is_doomed(folder: str) -> bool:
    return _FOLDER.fullmatch(folder) is not None
