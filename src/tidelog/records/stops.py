"""Why a compiled loop over batches stopped, and where: what kernels and plain code both know.

A loop goes through a buffer of whole batches and leaves in `stop`, an array of numbers by
the names below, where it is and why it went no further: the buffer is done, a batch is damaged,
or one is somebody else's business. The fields of a batch header are here by their positions,
which is how kernels read them (`batch` draws them).
"""

from typing import Final

from tidelog.records.batch import COMPRESSION_MASK, CONTROL, TRANSACTIONAL

ATTRIBUTES_AT: Final = 21
LAST_DELTA_AT: Final = 23
BASE_TIMESTAMP_AT: Final = 27
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_ID_AT: Final = 43
PRODUCER_EPOCH_AT: Final = 51
SEQUENCE_AT: Final = 53
COUNT_AT: Final = 57
LEADER_EPOCH_AT: Final = 12
OFFSET_SPAN: Final = (1 << 31) - 1
SPECIAL_BITS: Final = COMPRESSION_MASK | TRANSACTIONAL | CONTROL

# What is wrong with a batch.
INCOMPLETE: Final = 0
BAD_MAGIC: Final = -1
BAD_LENGTH: Final = -2
BAD_CRC: Final = -3
BAD_COUNT: Final = -4
BAD_COMPRESSION: Final = -5
BAD_OFFSET: Final = -6

PROBLEMS: Final = {
    INCOMPLETE: "the batch is cut off",
    BAD_MAGIC: "bad header: the magic is not 2",
    BAD_LENGTH: "bad header: the length is too small for a batch",
    BAD_CRC: "bad CRC",
    BAD_COUNT: "bad header: the count does not fit the last offset delta",
    BAD_COMPRESSION: "bad header: unknown compression",
    BAD_OFFSET: "bad header: the offsets do not follow those before, or are too far from the base",
}

# Why a kernel stopped, where it is not a problem.
DONE: Final = 1
SPECIAL: Final = 2
MAP_FULL: Final = 3
BAD_RECORDS: Final = 4
BEYOND: Final = 5
OUTPUT_FULL: Final = 6
MORE_VERDICTS: Final = 7
MAP_SMALL: Final = 8

# What `stop` holds: the first three go in and out, the others are added to.
REASON: Final = 0
AT: Final = 1
NEXT_OFFSET: Final = 2
RECORDS_READ: Final = 3
RECORDS_KEPT: Final = 4
STOP_FIELDS: Final = 5

# What `stop` of a scan holds behind its first three.
BATCHES: Final = 3
DAMAGED: Final = 4
TRUSTED_UPTO: Final = 5
VOUCHED: Final = 6
SCAN_STOP_FIELDS: Final = 7
