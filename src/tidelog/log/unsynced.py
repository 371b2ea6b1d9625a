"""What a process that died, or a sync that failed, has left in memory and not on the disk."""

from typing import Final

from tidelog.log.partition_log import PartitionLog

REWRITE_BYTES: Final = 1 << 20


def settle_unsynced(log: PartitionLog, *, is_doubtful: bool) -> None:
    """For a log that was just opened. Where the note of the boot is gone a sync may have failed."""
    if is_doubtful:
        _write_again(log)
    _flush_what_is_owed(log)


def _write_again(log: PartitionLog) -> None:
    """After a sync has failed, the system takes the pages it could not write for clean ones:
    they are still read, but no later sync would write them. So, where the note of the boot
    is gone, everything above the recovery point is made dirty once more."""
    for index, segment in enumerate(log.segments.all):
        if log.segments.end_of(index, log.log_end_offset) >= log.recovery_point:
            file = segment.open_file()
            for position in range(0, segment.size, REWRITE_BYTES):
                size = min(REWRITE_BYTES, segment.size - position)
                file.pwrite(file.pread(size, position), position)


def _flush_what_is_owed(log: PartitionLog) -> None:
    """A process that died in the middle of a flush has left what nobody may be told of before it is
    durable. Whoever leads or follows with this log tells of all that is in it."""
    if log.log_end_offset - log.recovery_point >= log.settings.flush_messages:
        log.flush(log.last_flush_ms)
