"""An append in three steps, so that the loop need not wait for the disk to take a large batch.

`begin_append` checks and stamps the batch and finds its place, `PendingAppend.run` does
nothing but write and may run in a thread, `end_append` lets the log know of it. Until then the
log has not changed; and between the two nothing else may be appended to it, or rolled.
"""

from dataclasses import dataclass

from tidelog.log.index import Lot
from tidelog.log.partition_log import PartitionLog
from tidelog.log.producers import FRESH
from tidelog.log.roll import Roll
from tidelog.log.segment import Segment
from tidelog.records.batch import BatchHeader, check_produced, stamp, stamp_log_append_time


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingAppend:
    segment: Segment
    roll: Roll | None
    """What makes the segment, if it is a new one."""
    lots: list[Lot]
    position: int
    header: BatchHeader
    leader_epoch: int
    batch: bytearray | memoryview

    def run(self) -> None:
        if self.roll is not None:
            self.roll.run()
        for lot in self.lots:
            lot.run()
        assert self.segment.file is not None
        self.segment.file.pwrite(self.batch, self.position)


def begin_append(
    log: PartitionLog, batch: bytearray | memoryview, leader_epoch: int, now_ms: int
) -> PendingAppend | int:
    """What is to be written, or the offset of a batch that was appended before."""
    log.check_online()
    settings = log.settings
    header = BatchHeader._make(check_produced(batch, settings.max_message_bytes))
    if settings.timestamp_type_log_append:
        header = header._replace(max_timestamp=now_ms)
    else:
        log.check_timestamps(header.attributes, header.base_timestamp, header.max_timestamp, now_ms)
    if header.producer_id >= 0:
        found = log.producers.check(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_offset_delta,
            header.attributes,
        )
        if found != FRESH:
            return found
    return _place(log, header._replace(base_offset=log.log_end_offset), batch, leader_epoch)


def _place(
    log: PartitionLog, header: BatchHeader, batch: bytearray | memoryview, leader_epoch: int
) -> PendingAppend:
    try:
        fits = log.has_room(header.size, header.last_offset, header.max_timestamp)
        roll = None if fits else log.begin_roll()
    except OSError as error:
        raise log.failed(error) from error
    segment = log.segments.active if roll is None else roll.segment
    if log.settings.timestamp_type_log_append:
        stamp_log_append_time(batch, header.max_timestamp)
    stamp(batch, header.base_offset, leader_epoch)
    return PendingAppend(
        segment=segment,
        roll=roll,
        lots=segment.begin_lots(),
        position=segment.size,
        header=header,
        leader_epoch=leader_epoch,
        batch=batch,
    )


def end_append(log: PartitionLog, pending: PendingAppend, end: Exception | None) -> int:
    """Takes a batch that was written into the log; returns its first offset."""
    if isinstance(end, OSError):
        raise log.failed(end) from end
    assert end is None, f"writing raised {end!r}"
    log.check_online()
    header, segment = pending.header, pending.segment
    assert header.base_offset == log.log_end_offset, "appended while a batch was being written"
    offset, last_offset = header.base_offset, header.last_offset
    try:
        if pending.roll is not None:
            log.end_roll(pending.roll)
        assert segment is log.segments.active, "rolled while a batch was being written"
        if pending.leader_epoch != log.epochs.latest:
            log.assign_epoch(pending.leader_epoch, offset)
        for lot in pending.lots:
            lot.end()
        segment.note(pending.position, header.size, offset, last_offset, header.max_timestamp)
        segment.is_written_beside = False
    except OSError as error:
        raise log.failed(error) from error
    log.log_end_offset = last_offset + 1
    if header.producer_id >= 0:
        log.producers.append(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            (offset, last_offset),
            header.max_timestamp,
            header.attributes,
        )
    return offset
