"""Which partition each row of a batch goes to, as Kafka's own producer chooses, and the rows of
each one together.

Several topics are written at once, so a place is numbered by a *slot*: the partitions of the
first topic, then those of the second, and so on. A partition that the row names counts first,
then the hash of its key. Rows with neither go to one partition, until they fill a batch, and then
to the next.
"""

from typing import Any, Final

import numpy as np
from numba import types

from tidelog.records.encode_kernel import BYTES_COLUMN, length_of
from tidelog.records.kernels import INT64S, INT64S_OUT, helper, kernel
from tidelog.records.partition_kernels import key_hash
from tidelog.records.source_rows import ALL_GOOD, NOT_NAMED, Topics

_ROW_OVERHEAD_BYTES: Final = 16


TOPICS: Final = types.NamedTuple((INT64S, INT64S, INT64S_OUT, INT64S_OUT), Topics)


@helper
def _open_partition(topics: Any, topic: int, value_bytes: int, batch_bytes: int) -> Any:
    size = max(value_bytes, 0) + _ROW_OVERHEAD_BYTES
    partition = topics.open_partition[topic]
    topics.open_bytes[topic] += size
    if topics.open_bytes[topic] > batch_bytes:
        partition = (partition + 1) % topics.partition_count[topic]
        topics.open_partition[topic] = partition
        topics.open_bytes[topic] = size
    return partition


@helper
def _hashed(keys: Any, row: int, length: int, partition_count: int) -> Any:
    positive = key_hash(keys.content, keys.ends[row], length) & np.uint32(0x7FFFFFFF)
    return np.int64(positive) % partition_count


@kernel(types.int64(INT64S, INT64S, BYTES_COLUMN, BYTES_COLUMN, TOPICS, types.int64, INT64S_OUT))
def choose_slots(
    row_topics: Any,
    named: Any,
    keys: Any,
    values: Any,
    topics: Any,
    batch_bytes: int,
    slots: Any,
) -> int:
    """Fills `slots`. Gives the first row that names a partition which does not exist, or
    ALL_GOOD. Without `row_topics` all rows are for the first topic, without `named` none names
    its partition."""
    topic = 0
    for row in range(len(slots)):
        if len(row_topics):
            topic = row_topics[row]
        count = topics.partition_count[topic]
        if len(named) and named[row] != NOT_NAMED:
            partition = named[row]
            if partition < 0 or partition >= count:
                return row
        else:
            length = length_of(keys, row)
            if length < 0:
                partition = _open_partition(topics, topic, length_of(values, row), batch_bytes)
            else:
                partition = _hashed(keys, row, length, count)
        slots[row] = topics.first_slot[topic] + partition
    return ALL_GOOD


@kernel(types.void(INT64S_OUT, INT64S_OUT, INT64S_OUT))
def order_rows(slots: Any, ends: Any, rows: Any) -> None:
    """The rows of each slot in their order, one slot after the other; those of a slot end in
    `rows` where `ends` says."""
    for slot in range(len(ends)):
        ends[slot] = 0
    for row in range(len(slots)):
        ends[slots[row]] += 1
    start = 0
    for slot in range(len(ends)):
        count = ends[slot]
        ends[slot] = start
        start += count
    for row in range(len(slots)):
        rows[ends[slots[row]]] = row
        ends[slots[row]] += 1
