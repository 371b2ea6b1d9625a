"""Ageing: where a log should start, by time, by size, or because somebody asked.

Each rule only says to which offset the log start may advance; `advance_log_start` moves it,
and whole segments below a log start that is durable leave the disk. Nothing at or above the
high watermark is ever given up (V17), and the active segment is rolled before it can be.
"""

from collections.abc import Iterator
from itertools import pairwise

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import NO_TIMESTAMP
from tidelog.log import snapshots
from tidelog.log.files import LOG, SNAPSHOT, file_name
from tidelog.log.partition_log import PartitionLog
from tidelog.log.segment import Segment
from tidelog.log.segment_reader import DamagedIndex

UP_TO_HIGH_WATERMARK = -1


def retain(log: PartitionLog, high_watermark: int, now_ms: int, *, may_roll: bool = True) -> None:
    """Moves the log start as retention wants it; `delete_old_segments` does the rest. A log that
    may not be rolled now, as something is being written to it, keeps its active segment."""
    if log.settings.cleanup_delete:
        start = max(
            _start_by_time(log, high_watermark, now_ms), _start_by_size(log, high_watermark)
        )
        if not may_roll:
            start = min(start, log.segments.active.base_offset)
        if start > log.log_start_offset:
            if start > log.segments.active.base_offset:
                log.roll()
            advance_log_start(log, start)


def delete_records(log: PartitionLog, before: int, high_watermark: int) -> int:
    """Moves the log start on request, to the high watermark if asked for -1; returns it."""
    log.check_online()
    to = high_watermark if before == UP_TO_HIGH_WATERMARK else before
    if to < 0 or to > high_watermark:
        raise KafkaError(
            ErrorCode.offset_out_of_range,
            f"{log.partition}: cannot delete records before {before}: the high watermark is "
            f"{high_watermark}",
        )
    advance_log_start(log, to)
    return log.log_start_offset


def advance_log_start(log: PartitionLog, to: int) -> None:
    """Hides what lies below `to` at once. It never moves back while this process lives; if it dies
    before the start is durable, what was hidden is there again, and so its epochs stay known."""
    assert to <= log.log_end_offset, "a log cannot start behind its end"
    if to > log.log_start_offset:
        log.log_start_offset = to
        log.lost_from = None


def delete_old_segments(log: PartitionLog, now_ms: int) -> int:
    """Takes the segments that lie wholly below the durable log start out of the log; returns
    how many. They are renamed now and removed after `file.delete.delay.ms`."""
    segments = log.segments.all
    old = [
        segment
        for segment, after in pairwise(segments)
        if after.base_offset <= log.durable_log_start
    ]
    if old:
        try:
            log.segments.remove(old)
            log.doom(old, now_ms + log.settings.file_delete_delay_ms)
            _remove_snapshots(log, log.segments.first)
        except OSError as error:
            raise log.failed(error) from error
    return len(old)


def _remove_snapshots(log: PartitionLog, first: Segment) -> None:
    for offset in snapshots.offsets_of(log.disk.list(log.folder)):
        if offset < first.base_offset and offset != log.snapshot_offset:
            log.disk.remove(f"{log.folder}/{file_name(offset, SNAPSHOT)}")


def _start_by_time(log: PartitionLog, high_watermark: int, now_ms: int) -> int:
    start = log.log_start_offset
    retention_ms = log.settings.retention_ms
    if retention_ms < 0:
        return start
    for segment, end in _ageing(log, high_watermark):
        if now_ms - youngest_ms(log, segment) <= retention_ms:
            break
        start = max(start, end)
    return start


def _start_by_size(log: PartitionLog, high_watermark: int) -> int:
    start = log.log_start_offset
    retention_bytes = log.settings.retention_bytes
    if retention_bytes < 0:
        return start
    excess = log.segments.size - retention_bytes
    for segment, end in _ageing(log, high_watermark):
        if excess < segment.size:
            break
        excess -= segment.size
        start = max(start, end)
    return start


def _ageing(log: PartitionLog, high_watermark: int) -> Iterator[tuple[Segment, int]]:
    """Segments that may be given up, and where they end. Kafka's compaction leaves empty ones among
    the others: those keep nothing behind them, and go with it."""
    for index, segment in enumerate(log.segments.all):
        end = log.segments.end_of(index, log.log_end_offset)
        if end > high_watermark:
            return
        if segment.size:
            yield segment, end


def youngest_ms(log: PartitionLog, segment: Segment) -> int:
    """The largest timestamp of a segment; the time it was last written if it has none, or if so
    much of it has rotted that nobody can tell: that keeps no other log from ageing."""
    try:
        timestamp = _largest_timestamp(log, segment)
        info = log.disk.stat(segment.path(LOG)) if timestamp < 0 else None
    except OSError as error:
        raise log.failed(error) from error
    return timestamp if info is None else info.modified_ms


def _largest_timestamp(log: PartitionLog, segment: Segment) -> int:
    try:
        return segment.largest_timestamp()
    except DamagedIndex as found:
        damage = found
    try:
        return log.mended(damage, segment.largest_timestamp)
    except KafkaError as error:
        if error.code != ErrorCode.corrupt_message:
            raise
        return NO_TIMESTAMP
