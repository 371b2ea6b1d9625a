"""Batches for one log as kernels join them, appended as a broker does."""

from array import array
from collections.abc import Sequence
from functools import cache

from tidelog.log.joint_append import Run, append_run, can_be_appended, words_of
from tidelog.log.partition_log import PartitionLog
from tidelog.records.batch import HEADER_SIZE
from tidelog.records.join_layout import DELTA, NEXT_OFFSET
from tidelog.records.joiner import Joiner
from tidelog.records.native import address_of

joiner = cache(Joiner)
"""One for all tests of a process; kernels are compiled here if they have to be."""


def append_together(
    log: PartitionLog, batches: Sequence[memoryview], leader_epoch: int, now_ms: int
) -> list[int] | None:
    """The first offset of each; None if they are to be appended one by one."""
    words = words_of(log, leader_epoch, now_ms)
    if words is None or any(len(batch) < HEADER_SIZE for batch in batches):
        return None
    rows = array("q", [word for batch in batches for word in (0, address_of(batch), len(batch))])
    runs, columns = joiner().join([rows], [0] * len(batches), words)
    run = Run(runs, 0)
    if not can_be_appended(log, run, columns):
        return None
    append_run(log, run, columns, joiner().joined)
    ends = zip(columns[NEXT_OFFSET], columns[DELTA], strict=True)
    return [next_offset - delta - 1 for next_offset, delta in ends]
