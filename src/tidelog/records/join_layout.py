"""How rows, logs and batches are laid out for the kernels that join batches: what `join_kernels`
and `joiner` both know. All are tables of 64-bit words.

A topic is what partitions of a request stand behind, a row one of them with its batch, a log what
batches are to be appended to, a run what became of those for one log. Batches are in the order of
their runs, a column for each field.
"""

from struct import Struct
from typing import Final

BYTES_MAX: Final = 256 * 1024
"""Of requests that are joined."""

# a topic in a request
TOPIC_ADDRESS: Final = 0
HEAD_BYTES: Final = 1
"""How long it is with the number of its partitions behind it."""
PARTITIONS: Final = 2
TOPIC_WORDS: Final = 3

# a row
INDEX: Final = 0
ADDRESS: Final = 1
SIZE: Final = 2
ROW_WORDS: Final = 3

# a log
END: Final = 0
POSITION: Final = 1
LEADER_EPOCH: Final = 2
LOG_START: Final = 3
BATCH_BYTES_MAX: Final = 4
EARLIEST: Final = 5
LATEST: Final = 6
LOG_WORDS: Final = 7

# a run
FIRST: Final = 0
"""The first of its batches."""
COUNT: Final = 1
WRITTEN_FROM: Final = 2
WRITTEN_UPTO: Final = 3
NEXT_END: Final = 4
"""The log end offset, once they are appended."""
YOUNGEST: Final = 5
"""The largest timestamp, and the last offset of the first batch that has it."""
YOUNGEST_OFFSET: Final = 6
HAS_PRODUCERS: Final = 7
RUN_WORDS: Final = 8

# a batch
NEXT_OFFSET: Final = 0
BATCH_POSITION: Final = 1
TIMESTAMP: Final = 2
DELTA: Final = 3
PRODUCER_ID: Final = 4
PRODUCER_EPOCH: Final = 5
SEQUENCE: Final = 6
BATCH_COLUMNS: Final = 7

ANSWER: Final = Struct(">ihqqqBBB")
"""A partition in a flexible answer to Produce, without an error: index, error code, first offset,
append time, log start, no record errors, no message, no tags."""
