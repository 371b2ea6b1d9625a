"""What the loops that write records are handed, and what they leave: the columns of rows, where
rows may go, and what was written of them. Needs no numba.
"""

from typing import Any, Final, NamedTuple

# What `write_records` leaves.
WRITTEN_BYTES: Final = 0
TIME_MAX: Final = 1
WRITTEN: Final = 2

NOT_NAMED: Final = -(1 << 63)
"""In the column of partitions: the row leaves it open."""
ALL_GOOD: Final = -1


class Bytes(NamedTuple):
    """A column of bytes. `first_bit` is where its validity starts, -1 if there are no nulls."""

    ends: Any
    valid: Any
    first_bit: int
    content: Any


class Source(NamedTuple):
    """The columns to write. Without headers `header_ends` is empty."""

    timestamp: Any
    key: Bytes
    value: Bytes
    header_ends: Any
    header_key: Bytes
    header_value: Bytes


class Topics(NamedTuple):
    """For each topic: its first slot, its partitions, which of them gets the rows that may go
    anywhere, and how many bytes of such rows that one has."""

    first_slot: Any
    partition_count: Any
    open_partition: Any
    open_bytes: Any
