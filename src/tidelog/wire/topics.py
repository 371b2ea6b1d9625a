"""Topics as Produce and Fetch name them: by name, or by the 16 raw bytes of their id."""

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

from tidelog.base.ports import Buffer
from tidelog.wire.values import malformed, read_string

Topic: TypeAlias = str | bytes
Item = TypeVar("Item", bound=tuple[Any, ...])


def read_topic(
    data: Buffer, at: int, version: int, flexible_from: int, ids_from: int
) -> tuple[Topic, int]:
    """A topic, and where it ends."""
    if version >= ids_from:
        if at + 16 > len(data):
            raise malformed(f"a topic id in {len(data) - at} bytes")
        return bytes(data[at : at + 16]), at + 16
    name, at = read_string(data, at, version >= flexible_from)
    if name is None:
        raise malformed("a topic name is null")
    return name, at


def grouped(partitions: Sequence[Item]) -> list[tuple[Topic, list[Item]]]:
    """Tuples that begin with a topic, with neighbours of the same topic put together."""
    groups: list[tuple[Topic, list[Item]]] = []
    for partition in partitions:
        if groups and groups[-1][0] == partition[0]:
            groups[-1][1].append(partition)
        else:
            groups.append((partition[0], [partition]))
    return groups
