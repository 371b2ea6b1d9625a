"""A follower's append in three steps, so that the loop need not wait for the disk.

As `pending_append` does for one produced batch, for many batches of a leader: as many as the
segment takes that the first goes to. What is left over is fetched again.
"""

from dataclasses import dataclass

from tidelog.log.followed_batches import check_followed, note_run, run_for
from tidelog.log.index import Lot
from tidelog.log.partition_log import PartitionLog
from tidelog.log.roll import Roll
from tidelog.log.segment import Segment
from tidelog.records.batch import LENGTH_OVERHEAD, RawHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingFollow:
    segment: Segment
    roll: Roll | None
    lots: list[Lot]
    headers: list[RawHeader]
    data: memoryview

    def run(self) -> None:
        if self.roll is not None:
            self.roll.run()
        for lot in self.lots:
            lot.run()
        assert self.segment.file is not None
        self.segment.file.pwrite(self.data, self.segment.size)


def begin_follow(
    log: PartitionLog, data: memoryview, leader_epoch: int, watermark: int = 0
) -> PendingFollow | None:
    """What is to be written; None if there is no whole batch. Nobody may change the data."""
    headers = check_followed(log, data, leader_epoch, watermark)
    if not headers:
        return None
    base, length, _, _, _, _, delta, _, timestamp, _, _, _, _ = headers[0]
    try:
        fits = log.takes(LENGTH_OVERHEAD + length, base + delta, timestamp)
        roll = None if fits else log.begin_roll(log.next_base(base, base + delta))
    except OSError as error:
        raise log.failed(error) from error
    segment = log.segments.active if roll is None else roll.segment
    count, size = run_for(segment, headers)
    return PendingFollow(
        segment=segment,
        roll=roll,
        lots=segment.begin_lots(),
        headers=headers[:count],
        data=data[:size],
    )


def end_follow(log: PartitionLog, pending: PendingFollow, end: Exception | None) -> None:
    """Takes batches that were written into the log."""
    if isinstance(end, OSError):
        raise log.failed(end) from end
    assert end is None, f"writing raised {end!r}"
    log.check_online()
    assert pending.headers[0][0] >= log.log_end_offset, "appended meanwhile"
    try:
        if pending.roll is not None:
            log.end_roll(pending.roll)
        for lot in pending.lots:
            lot.end()
        note_run(log, pending.segment, pending.headers, pending.data)
        pending.segment.is_written_beside = False
    except OSError as error:
        raise log.failed(error) from error
