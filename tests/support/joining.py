"""Batches for one log as kernels join them, appended as a broker does."""

from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from tidelog.log.joint_append import Run, append_run, can_be_appended, words_of
from tidelog.log.partition_log import PartitionLog
from tidelog.records.batch import HEADER_SIZE
from tidelog.records.join_layout import ANSWER, DELTA
from tidelog.records.joiner import Joiner, _place, the_joiner
from tidelog.records.native import address_of, code


@cache
def joiner() -> Joiner:
    """The one of this process; kernels are compiled if they have to be."""
    code.find()
    _place.is_known = False
    found = the_joiner()
    assert found is not None
    return found


@contextmanager
def serving(how: str) -> Iterator[None]:
    """With kernels ("joined"), or as a broker does it where there are none."""
    _place.joiner = joiner() if how == "joined" else None
    try:
        yield
    finally:
        _place.joiner = joiner()


def forget_joined() -> None:
    joiner().answers[: ANSWER.size] = bytes(ANSWER.size)


def was_joined() -> bool:
    """Whether kernels have made an answer since then."""
    return any(joiner().answers[: ANSWER.size])


def append_together(
    log: PartitionLog, batches: Sequence[memoryview], leader_epoch: int, now_ms: int
) -> list[int] | None:
    """The first offset of each; None if they are to be appended one by one."""
    words = words_of(log, leader_epoch, now_ms)
    if words is None or any(len(batch) < HEADER_SIZE for batch in batches):
        return None
    rows = array("q", [word for batch in batches for word in (0, address_of(batch), len(batch))])
    joined = joiner().join([rows], [0] * len(batches), words)
    if joined is None:
        return None
    run = Run(joined.runs, 0)
    if not can_be_appended(log, run, joined):
        return None
    append_run(log, run, joined)
    ends = zip(joined.next_offsets, joined.column(DELTA), strict=True)
    return [next_offset - delta - 1 for next_offset, delta in ends]
