"""Which aborted transactions a reader of committed records must know of in what it is sent.

The index of a segment has those that ended in it; a transaction may have begun long before, so
the segments behind what is sent are looked through too, up to where all that was open has ended.
"""

from bisect import bisect_left
from typing import Final

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.log.partition_log import PartitionLog, Slice
from tidelog.log.segment import Segment
from tidelog.log.segment_reader import DamagedIndex
from tidelog.log.txn_index import AbortedTransaction

FEW: Final = 32
"""So many are told without a closer look at where exactly the range ends."""

Aborted = tuple[int, int]
"""Producer id, and where its transaction begins."""


def aborted_in(log: PartitionLog, found: Slice, offset: int, upto: int) -> list[Aborted]:
    """Those with records from an offset on, in a range that was read from there and lies below
    `upto`; some that begin a little behind the range may be among them."""
    try:
        return _aborted_in(log, found, offset, upto)
    except DamagedIndex as damage:
        return log.mended(damage, lambda: _aborted_in(log, found, offset, upto))
    except BadValue as error:
        raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error
    except OSError as error:
        raise log.failed(error) from error


def _aborted_in(log: PartitionLog, found: Slice, offset: int, upto: int) -> list[Aborted]:
    segments = log.segments
    first = max(0, segments.at(offset))
    with_some = [
        segment for segment in segments.all[first:] if not segment.aborted_index(log.disk).is_empty
    ]
    if not with_some:
        return []
    segment, bound = segments.all[first], upto
    is_there = segment.open_file() is found.file
    if is_there:
        bound = min(upto, segments.end_of(first, upto))
    transactions = _overlapping(log, with_some, offset, bound)
    if is_there and len(transactions) > FEW:
        bound = _first_behind(segment, found, offset, bound)
    return [
        (transaction.producer_id, transaction.first_offset)
        for transaction in transactions
        if transaction.first_offset < bound
    ]


def _overlapping(
    log: PartitionLog, segments: list[Segment], offset: int, bound: int
) -> list[AbortedTransaction]:
    """Whatever ends behind one that had nothing open below `bound` begins behind that too."""
    overlapping: list[AbortedTransaction] = []
    for segment in segments:
        for transaction in segment.aborted_index(log.disk).ended_since(offset):
            if transaction.first_offset < bound:
                overlapping.append(transaction)
            if transaction.last_stable_offset >= bound:
                return overlapping
    return overlapping


def _first_behind(segment: Segment, found: Slice, offset: int, bound: int) -> int:
    """The first offset whose batch lies behind a range."""
    end = found.position + found.size
    return offset + bisect_left(
        range(offset, bound), True, key=lambda wanted: segment.locate(wanted)[0] >= end
    )
