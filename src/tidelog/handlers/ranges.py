"""Ranges of log files before they are sent: whether they must be read first, and reading them.

A range that is not in the page cache would hold the loop while it is sent, so it is read beside
the loop; and what was there when the broker started is checked once, to find what has rotted.
"""

from typing import Final

from tidelog.log.partition_log import PartitionLog, Slice
from tidelog.log.unverified import Stretch

HOT_BYTES: Final = 64 << 20
"""What was written last is in the page cache."""
WARMED_BYTES: Final = 1 << 20


def must_be_read(log: PartitionLog, records: Slice) -> bool:
    """Whether a range may have to wait for the disk, or nobody has checked it yet."""
    file, position, size, unverified, _ = records
    if (
        unverified is not None
        and position < unverified.end
        and unverified.good_bytes(position, size) < size
    ):
        return True
    active = log.segments.active
    if active.file is file and position >= active.size - HOT_BYTES:
        return False
    return not file.resident(position, size)


def look_through(records: Slice) -> Stretch | None:
    """Reads a range, so that it is in the page cache; checks it if that was not done before."""
    file, position, size, unverified, _ = records
    seen = None
    if unverified is not None and unverified.good_bytes(position, size) < size:
        seen = unverified.check(file, position, size)
    if not file.resident(position, size):
        for at in range(position, position + size, WARMED_BYTES):
            file.pread(min(WARMED_BYTES, position + size - at), at)
    return seen
