"""Cutting the end off a log, or beginning it anew elsewhere, safe against a crash in between.

Before anything is cut, a recovery point below the cut is durable, so that what is appended
afterwards will be checked after a crash; and so is a high watermark, so that it is not taken for
committed because the offsets once were. Segments go from the last to the first, each durably, so
that a crash leaves a longer log but never one with a hole. While a cut is under way a marker file
says so: a process that dies then leaves a cut that is seen but may not be durable, and the next
start makes it so before anything is appended (`finish_cut`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

from tidelog.log.checkpoints import LEADER_EPOCHS, LEADER_EPOCHS_UNSYNCED, format_epochs
from tidelog.log.epoch_notes import forget_pending
from tidelog.log.files import LOG, SWAP, remove_if_there, write_whole
from tidelog.log.partition_log import PartitionLog
from tidelog.log.producers import Producers
from tidelog.log.replay import forget_producers, reload_producers
from tidelog.log.scan import batches
from tidelog.log.segment import Segment
from tidelog.log.segment_reader import DamagedIndex
from tidelog.log.segments import Segments

CUT_MARKER = "cut-in-progress"


@contextmanager
def cutting(log: PartitionLog) -> Iterator[None]:
    """Around every change that takes batches off the end of a log. Not a `finally`: if it
    fails, the marker has to stay."""
    marker = f"{log.folder}/{CUT_MARKER}"
    log.disk.open(marker, "create")
    yield
    log.disk.remove(marker)


def finish_cut(log: PartitionLog) -> None:
    """Makes durable what a cut did before its process died."""
    marker = f"{log.folder}/{CUT_MARKER}"
    if log.disk.stat(marker) is not None:
        for segment in log.segments.all:
            segment.sync()
        log.disk.sync_folder(log.folder)
        log.disk.remove(marker)


def cut_segment(log: PartitionLog, segment: Segment, position: int) -> None:
    """Durably shortens a log file."""
    file = segment.open_file()
    file.truncate(position)
    file.sync()
    segment.resume(log.disk, position)


def truncate_suffix(log: PartitionLog, to: int, now_ms: int) -> None:
    """Drops every batch that reaches offset `to`. The log then ends at `to`, or at the start of
    a batch that held it in its middle."""
    log.check_online()
    try:
        _truncate_suffix(log, to, now_ms)
    except DamagedIndex as damage:
        log.mended(damage, lambda: _truncate_suffix(log, to, now_ms))
    except OSError as error:
        raise log.failed(error) from error


def _truncate_suffix(log: PartitionLog, to: int, now_ms: int) -> None:
    if to < log.segments.first.base_offset:
        with cutting(log):
            _restart_at(log, to, now_ms)
    elif to < log.log_end_offset:
        with cutting(log):
            _truncate(log, *_where(log, to), now_ms)
    log.epochs.truncate_suffix(to)
    _write_epochs(log)


def restart_at(log: PartitionLog, offset: int, now_ms: int) -> None:
    """Drops everything; the log starts and ends at `offset`."""
    log.check_online()
    try:
        with cutting(log):
            _restart_at(log, offset, now_ms)
    except OSError as error:
        raise log.failed(error) from error


def cut_damaged(log: PartitionLog, segment: Segment, now_ms: int) -> None:
    """Drops a segment in which a batch is damaged, and everything behind it. Whole files, because
    what the batch says of itself cannot be believed, and ranges of them may be under way to
    readers."""
    log.check_online()
    index = log.segments.all.index(segment)
    if index == 0:
        start = log.log_start_offset if log.lost_from is None else log.lost_from
        restart_at(log, start, now_ms)
        return
    try:
        with cutting(log):
            _truncate(log, segment.base_offset, log.segments.all[index - 1].size, now_ms)
        _write_epochs(log)
    except OSError as error:
        raise log.failed(error) from error


def _truncate(log: PartitionLog, end: int, position: int, now_ms: int) -> None:
    """So that the log ends at an offset, and its last segment at a position."""
    _announce(log, log_start=min(log.log_start_offset, end), end=end)
    _remove_from(log, end, now_ms)
    cut_segment(log, log.segments.active, position)
    log.log_end_offset = end
    log.epochs.truncate_suffix(end)
    reload_producers(log, end)


def _where(log: PartitionLog, to: int) -> tuple[int, int]:
    """Where the log will end, and at which position of the segment that is last then."""
    index = log.segments.at(to)
    segment = log.segments.all[index]
    position, size = segment.locate(to)
    end = min(to, _base_of(log, index, position, to)) if size else to
    if position == 0 and index > 0 and end == segment.base_offset:
        return end, log.segments.all[index - 1].size
    return end, position


def _base_of(log: PartitionLog, index: int, position: int, to: int) -> int:
    """The first offset of the batch at a position. It must reach `to`, or lie behind a gap, which
    compaction has left, and agree with what comes before it and behind it. Otherwise that has
    rotted, which is outside its CRC: some of what it holds, or all up to the cut, would be missing
    in a log that says that it is whole, or be in it twice. Where it is known by heart that it is
    there, nobody has looked yet whether it is still a batch."""
    segment = log.segments.all[index]
    found = islice(batches(segment.open_file(), position, segment.size), 2)
    two = [header for _, header, _ in found]
    limit = log.segments.end_of(index, log.log_end_offset)
    after = two[1].base_offset if len(two) > 1 else limit
    if two and to < two[0].next_offset <= after:
        base = two[0].base_offset
        if base >= segment.base_offset and segment.locate(base)[0] == position:
            return base
    raise DamagedIndex(segment, f"the batch at {position} does not fit between the others")


def _remove_from(log: PartitionLog, to: int, now_ms: int) -> None:
    due_ms = now_ms + log.settings.file_delete_delay_ms
    while len(log.segments.all) > 1 and log.segments.active.base_offset >= to:
        last = log.segments.active
        log.segments.remove([last])
        log.doom([last], due_ms)
        log.disk.sync_folder(log.folder)


def _restart_at(log: PartitionLog, offset: int, now_ms: int) -> None:
    log.lost_from = None
    _announce(log, log_start=offset, end=offset)
    due_ms = now_ms + log.settings.file_delete_delay_ms
    for segment in reversed(log.segments.all):
        log.doom([segment], due_ms)
        log.disk.sync_folder(log.folder)
    forget_producers(log)
    log.segments = Segments([log.new_segment(offset)])
    log.disk.sync_folder(log.folder)
    log.log_end_offset = log.recovery_point = offset
    log.epochs.truncate_suffix(0)
    _write_epochs(log)
    log.producers = Producers()
    reload_producers(log, -1)


def _announce(log: PartitionLog, *, log_start: int, end: int) -> None:
    """Makes durable where the log will start and from where it is to be checked. What was known
    until now counts too: a checkpoint under way may be about to write it."""
    start_is_lower = log_start < log.log_start_offset
    point_before = max(log.recovery_point, log.durable_recovery_point)
    log.truncated(end)
    _drop_swaps(log)
    log.log_start_offset = log_start
    log.recovery_point = min(log.recovery_point, end)
    if start_is_lower or log_start != log.durable_log_start:
        log.home.persist_log_starts()
    if log.recovery_point < point_before:
        log.home.persist_recovery_points()
    log.home.lower_offsets(log.partition, end)


def _drop_swaps(log: PartitionLog) -> None:
    """A cleaned segment that waits to take its place was made from what is cut now. A start would
    put it there, so it goes first; compaction sees the cut and does without it."""
    taken = {segment.path(LOG) for segment in log.segments.all}
    swaps = [f"{log.folder}/{n}" for n in log.disk.list(log.folder) if n.endswith(LOG + SWAP)]
    waiting = [path for path in swaps if path not in taken]
    for path in waiting:
        log.disk.remove(path)
    if waiting:
        log.disk.sync_folder(log.folder)


def _write_epochs(log: PartitionLog) -> None:
    if log.epochs.changed:
        data = format_epochs(log.epochs.entries)
        forget_pending(log)
        write_whole(log.disk, f"{log.folder}/{LEADER_EPOCHS}", data)
        remove_if_there(log.disk, f"{log.folder}/{LEADER_EPOCHS_UNSYNCED}")
        log.epochs.changed = False
