"""Reading beside the loop what a fetch would have to wait for: where lookups need a block of an
index, and ranges before they are sent.

A range that nobody has looked at since the broker started is checked while it is read, to find
what has rotted on the disk. A disk that fails takes its dir offline, and whoever asked is told.
"""

from collections.abc import Callable, Sequence
from typing import Final

from tidelog.base.errors import ErrorCode
from tidelog.handlers.api import Node
from tidelog.handlers.found import Found, failed
from tidelog.handlers.ranges import look_through
from tidelog.log.files import Cold
from tidelog.log.partition_log import Slice
from tidelog.log.unverified import Stretch
from tidelog.partition import Partition

LANES: Final = 4
_DAMAGED: Final = int(ErrorCode.kafka_storage_error)

Warm = Callable[[dict[int, Found]], None]
"""Told what to send instead of what was cold, by the `id` of that."""


def thaw(node: Node, cold: Sequence[tuple[Cold, Partition]], then: Callable[[], None]) -> None:
    """Reads what lookups in closed segments wait for."""

    def read() -> tuple[OSError, Partition] | None:
        for one, partition in cold:
            try:
                one.file.pread(one.size, one.position)
            except OSError as error:
                return error, partition
        return None

    def done(end: tuple[OSError, Partition] | Exception | None) -> None:
        if isinstance(end, tuple):
            error, partition = end
            partition.log.failed(error)
        then()

    node.loop.offload(_lane(cold[0][1].index), read, done)


def warm(node: Node, cold: Sequence[Found], then: Warm) -> None:
    """Reads ranges, and checks those that nobody has."""
    slices = [here.records for here in cold if isinstance(here.records, Slice)]

    def read() -> list[Stretch | OSError | None]:
        return [_read(records) for records in slices]

    def done(end: list[Stretch | OSError | None] | Exception) -> None:
        assert isinstance(end, list), f"reading raised {end!r}"
        seen = {
            id(here): failed(here, stretch)
            if isinstance(stretch, OSError)
            else _sound(node, here, records, stretch)
            for here, records, stretch in zip(cold, slices, end, strict=True)
        }
        then(seen)

    node.loop.offload(_lane(cold[0].position.index), read, done)


def _read(records: Slice) -> Stretch | OSError | None:
    """One disk may fail and the others not."""
    try:
        return look_through(records)
    except OSError as error:
        return error


def _lane(index: int) -> str:
    return f"warm {index % LANES}"


def _sound(node: Node, found: Found, records: Slice, seen: Stretch | None) -> Found:
    """What can be sent of a range that was looked through: what lies before a damaged batch, or,
    where that is the first, an error."""
    unverified, partition = records.unverified, found.partition
    if unverified is None or partition is None:
        return found
    node.healing.took_note(partition, unverified, seen)
    size = unverified.good_bytes(records.position, records.size)
    if not size:
        return found.refuse(_DAMAGED)
    found.records, found.size = records._replace(size=size), size
    return found
