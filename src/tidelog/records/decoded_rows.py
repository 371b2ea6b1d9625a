"""What the loops that read record batches are handed, and what they leave: names for columns of the
table of batches, for counters, and for the memory of Arrow columns. Needs no numba.
"""

from typing import Any, Final, NamedTuple

# The columns of the table of batches.
POSITION: Final = 0
BODY_START: Final = 1
BODY_END: Final = 2
CODEC: Final = 3
COUNT: Final = 4
TABLE_WIDTH: Final = 5

# What `fill` counts.
ROWS: Final = 0
HEADERS: Final = 1
HEADER_KEY_BYTES: Final = 2
HEADER_VALUE_BYTES: Final = 3
HEADER_NULLS: Final = 4
TOTALS: Final = 5

# What is used of a column of bytes.
USED_BYTES: Final = 0
USED_NULLS: Final = 1

GOOD: Final = -1


class Cells(NamedTuple):
    """A column of bytes as Arrow keeps it. Not wanted: `ends` is empty."""

    ends: Any
    valid: Any
    content: Any
    used: Any


class Rows(NamedTuple):
    """The offsets wanted, and where `fill` writes."""

    first: int
    last: int
    offset: Any
    timestamp: Any
    timestamp_type: Any
    key: Cells
    value: Cells
    header_ends: Any
    header_valid: Any
    header_position: Any
    totals: Any
