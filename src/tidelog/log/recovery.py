"""Opening a log: what a start finds in a folder, and what a crash may have left there.

After a clean stop only the last few kilobytes of the last segment are walked, to find the
end. After a crash of the process alone the page cache has kept every write, so it is the same
walk with checksums. After a crash of the machine everything from the recovery point on is
checked batch by batch: the log is cut at the first that is torn, damaged or out of order, and
indexes, leader epochs, producers and aborted transactions are made again from what is left.
Long stretches are checked by a child process; the results are the same.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from tidelog.base.errors import TaskError
from tidelog.base.ids import NO_EPOCH, Epoch, TopicPartition
from tidelog.base.log_settings import LogSettings
from tidelog.base.ports import Workers
from tidelog.log import leftovers
from tidelog.log.checkpoints import LEADER_EPOCHS, LEADER_EPOCHS_UNSYNCED
from tidelog.log.epoch_check import check_epochs, epochs_of
from tidelog.log.epoch_notes import latest_noted
from tidelog.log.epochs import LeaderEpochs
from tidelog.log.files import (
    LOG,
    OFFSET_INDEX,
    REBUILT,
    TIME_INDEX,
    TXN_INDEX,
    base_offset_of,
    remove_if_there,
)
from tidelog.log.lengths import restore_lengths
from tidelog.log.log_files import Home
from tidelog.log.partition_log import PartitionLog
from tidelog.log.replay import forget_producers, reload_producers
from tidelog.log.scan import EVERYTHING, Place, StoredBatch, batches, good_batches
from tidelog.log.segment import Segment
from tidelog.log.segments import Segments
from tidelog.log.truncation import CUT_MARKER, cut_segment, cutting, finish_cut
from tidelog.log.unverified import Unverified

INLINE_BYTES_MAX: Final = 64 << 20

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the log dir's checkpoints and markers say about a log that is about to be opened."""

    log_start: int = 0
    recovery_point: int = 0
    compacted_upto: int = 0
    was_closed: bool = False
    same_boot: bool = False


@dataclass(slots=True, kw_only=True)
class Opened:
    """A log, and what its opening had to do, for the log line and for tests."""

    log: PartitionLog
    checked_bytes: int = 0
    cut_bytes: int = 0
    removed_segments: int = 0


def open_log(
    home: Home,
    partition: TopicPartition,
    folder: str,
    settings: LogSettings,
    found: Found,
    workers: Workers | None = None,
) -> Opened:
    """Opens the log in a folder, creating it if the folder is empty."""
    log = PartitionLog(home, folder, partition, settings)
    opened = Opened(log=log)
    leftovers.settle(home.disk, folder)
    log.log_start_offset = log.durable_log_start = found.log_start
    log.durable_recovery_point = found.recovery_point
    log.segments = Segments(_segments_in(log))
    log.epochs = _read_epochs(log, found)
    _note_what_is_lost(log)
    finish_cut(log)
    if log.segments.all:
        _Check(opened, found, workers).run()
    _settle_bounds(log, found)
    if log.segments.closed:
        log.behind_hole = log.segments.active.base_offset
    # Those that a process gave before it died may not be durable yet, whatever has been since; nor
    # those of a log that was empty at a stop.
    log.names_changed |= not (found.was_closed and log.log_end_offset)
    for index, segment in enumerate(log.segments.all):
        if segment.size:
            limit = log.segments.end_of(index, log.log_end_offset)
            segment.unverified = Unverified(segment.base_offset, segment.size, limit)
    return opened


def _segments_in(log: PartitionLog) -> list[Segment]:
    """The segments of the folder from the log start on; older ones and orphans are removed."""
    names = log.disk.list(log.folder)
    bases = [base for name in names if (base := base_offset_of(name, LOG)) is not None]
    old = {b for b, after in pairwise(bases) if after <= log.log_start_offset}
    kept = [base for base in bases if base not in old]
    for kind in (OFFSET_INDEX, TIME_INDEX, TXN_INDEX, LOG):
        for name in names:
            base = base_offset_of(name, kind)
            if base is not None and base not in kept:
                log.disk.remove(f"{log.folder}/{name}")
    segments = []
    for base in kept:
        segment = Segment(log.folder, base, log.settings, log.home.files)
        info = log.disk.stat(segment.path(LOG))
        assert info is not None
        segment.size = info.size
        segments.append(segment)
    return segments


def _read_epochs(log: PartitionLog, found: Found) -> LeaderEpochs:
    """From the file that was written last, if what was not synced can be believed; if none can
    be read, from the batches below the recovery point: the others are checked anyway."""
    unsynced = f"{log.folder}/{LEADER_EPOCHS_UNSYNCED}"
    names = [LEADER_EPOCHS]
    if log.disk.stat(unsynced) is not None:
        if found.same_boot and not found.was_closed:
            names.insert(0, LEADER_EPOCHS_UNSYNCED)
        else:
            log.disk.remove(unsynced)
    epochs = latest_noted(log.disk, log.folder, names)
    if epochs is None:
        durable = [s for s in log.segments.all if s.base_offset < found.recovery_point]
        epochs = LeaderEpochs(epochs_of(durable))
        epochs.changed = True
    return epochs


def _note_what_is_lost(log: PartitionLog) -> None:
    """Segments go when a log start behind them is durable, and then epochs begin there too. Where
    the first ones are missing although both begin before, that is not age: others may have them."""
    segments, epochs = log.segments.all, log.epochs.entries
    if not segments or not epochs:
        return
    start, first = max(log.log_start_offset, epochs[0][1]), segments[0].base_offset
    if start < first and log.disk.stat(f"{log.folder}/{CUT_MARKER}") is None:
        log.lost_from = start
        _log.error("lost segments log=%s from_offset=%d to_offset=%d", log.folder, start, first)


class _Check:
    """Finds the end of a log, checking as much as the last stop asks for."""

    def __init__(self, opened: Opened, found: Found, workers: Workers | None) -> None:
        self.opened = opened
        self.log = opened.log
        self.found = found
        self.workers = workers
        self.picked: dict[int, list[list[int]]] = {}
        self._good_end = 0

    def run(self) -> None:
        if self.found.was_closed or self.found.same_boot:
            snapshot_upto = self._check_tail()
        else:
            snapshot_upto = self._check_from(self.found.recovery_point)
        check_epochs(self.log)
        reload_producers(self.log, snapshot_upto, self.picked)

    def _check_tail(self) -> int:
        """Walks from the last index entry to the end; returns the log end offset. Where that
        does not explain what is there, everything from the recovery point is checked."""
        log, segment = self.log, self.log.segments.active
        for closed in log.segments.closed:
            self._ensure_indexes(closed)
        size = segment.size
        segment.resume(log.disk, size)
        start = max(0, segment.offset_index.last[1])
        trusted = EVERYTHING if self.found.was_closed else self.found.recovery_point
        place = Place(segment_base=segment.base_offset, trusted_upto=trusted)
        end, next_offset, epoch = start, segment.base_offset, NO_EPOCH
        for position, header, _ in good_batches(segment.open_file(), start, size, place):
            end = position + header.size
            next_offset, epoch = header.next_offset, Epoch(header.partition_leader_epoch)
        if end < size and self._restores_lengths(segment, start, size, next_offset):
            segment.size = size
            return self._check_tail()
        epochs_are_known = epoch == log.epochs.latest
        if end == 0:
            epochs_are_known = segment.base_offset <= self.found.recovery_point
        if (end == start and start > 0) or not (epochs_are_known or self.found.was_closed):
            segment.size = size
            return self._check_from(self.found.recovery_point)
        self.opened.checked_bytes = end - start
        if end < size:
            self._cut(segment, end)
        log.log_end_offset = next_offset
        return next_offset

    def _restores_lengths(self, segment: Segment, position: int, size: int, found_end: int) -> bool:
        """Whether a look at checksums lets one go on where what was durable seems to end."""
        base, durable_end = segment.base_offset, self.found.recovery_point
        if found_end > durable_end:
            return False
        place = Place(segment_base=base, expected_offset=base, trusted_upto=durable_end)
        count = restore_lengths(segment.open_file(), position, size, place)
        if count:
            name = segment.path(LOG)
            _log.warning("rotten lengths of batches restored log=%s batches=%d", name, count)
        return count > 0

    def _check_from(self, offset: int) -> int:
        """Checks every segment that reaches `offset`; returns the first one's base. One that
        ends there is among them: its indexes may have been written after its last flush."""
        log = self.log
        segments = log.segments.all
        first = max(0, log.segments.at(offset - 1))
        for closed in segments[:first]:
            self._ensure_indexes(closed)
        log.log_end_offset = segments[first].base_offset
        log.epochs.truncate_suffix(log.log_end_offset)
        for index in range(first, len(segments)):
            if self._follows_a_hole(segments[index]):
                self._end_at(index)
                break
            # It may be empty, behind offsets that compaction has left out.
            log.log_end_offset = max(log.log_end_offset, segments[index].base_offset)
            if not self._check_segment(segments[index]):
                self._end_at(index + 1)
                break
        log.segments.active.resume(log.disk, log.segments.active.size)
        return segments[first].base_offset

    def _follows_a_hole(self, segment: Segment) -> bool:
        """Whether what came before was lost with the power. Below the recovery point nothing
        was: there, and in what was compacted, holes are what compaction left. With the process
        alone nothing is lost: then compaction has left them in the leader's log."""
        base = segment.base_offset
        explained = max(self.found.recovery_point, self.found.compacted_upto)
        return not self.found.same_boot and base > explained and base != self.log.log_end_offset

    def _check_segment(self, segment: Segment) -> bool:
        """Checks a segment and makes its indexes anew; False if it had to be cut."""
        log = self.log
        size = segment.size
        self.opened.checked_bytes += size
        remove_if_there(log.disk, segment.path(TXN_INDEX))
        segment.forget_aborted()
        if size > INLINE_BYTES_MAX and self.workers is not None:
            end = self._scan_in_child(segment, self.workers)
        else:
            end = self._scan(segment)
        if end < size:
            self._cut(segment, end)
        segment.size = end
        return end == size

    def _scan(self, segment: Segment) -> int:
        """Checks a segment in plain Python; returns how much of it is good."""
        log, size = self.log, segment.size
        before = log.log_end_offset
        end = self._scan_once(segment)
        if end < size and self._restores_lengths(segment, 0, size, log.log_end_offset):
            log.log_end_offset = before
            log.epochs.truncate_suffix(segment.base_offset)
            end = self._scan_once(segment)
        return end

    def _scan_once(self, segment: Segment) -> int:
        place = self._place(segment)
        size = segment.size
        stored = self._seen(good_batches(segment.open_file(), 0, size, place))
        self._good_end = 0
        segment.rebuild_indexes(self.log.disk, stored)
        segment.size = size
        return self._good_end

    def _place(self, segment: Segment) -> Place:
        return Place(
            segment_base=segment.base_offset,
            expected_offset=max(self.log.log_end_offset, segment.base_offset),
            trusted_upto=self.found.recovery_point,
        )

    def _seen(self, stored: Iterable[StoredBatch]) -> Iterator[StoredBatch]:
        """Takes note of where the log ends and which epochs it has, batch by batch."""
        log = self.log
        for batch in stored:
            header = batch.header
            epoch = header.partition_leader_epoch
            if epoch >= 0 and epoch != log.epochs.latest:
                log.epochs.assign(epoch, header.base_offset)
            log.log_end_offset = header.next_offset
            self._good_end = batch.position + header.size
            yield batch

    def _scan_in_child(self, segment: Segment, workers: Workers) -> int:
        log = self.log
        place = self._place(segment)
        job = workers.start(
            "scan",
            {
                "folder": log.folder,
                "base": segment.base_offset,
                "from_position": 0,
                "size": segment.size,
                "expected_offset": place.expected_offset,
                "trusted_upto": place.trusted_upto,
                "index_interval_bytes": log.settings.index_interval_bytes,
                "max_index_bytes": log.settings.index_bytes_max,
            },
        )
        try:
            result = job.result()
        except TaskError as error:
            # It has died, for want of memory, say. Without it this takes longer, and that is all.
            _log.warning("checked without a child log=%s why=%s", segment.path(LOG), error)
            return self._scan(segment)
        if result["damaged"] or _stopped_below(result, segment, place):
            return self._scan(segment)
        for kind in (OFFSET_INDEX, TIME_INDEX):
            log.disk.rename(segment.path(kind) + REBUILT, segment.path(kind))
        log.disk.sync_folder(log.folder)
        segment.forget()
        self.picked[segment.base_offset] = result["producer_batches"]
        for epoch, start in result["epochs"]:
            if epoch != log.epochs.latest:
                log.epochs.assign(epoch, start)
        if result["valid_bytes"]:
            log.log_end_offset = result["next_offset"]
        end = result["valid_bytes"]
        assert isinstance(end, int)
        return end

    def _ensure_indexes(self, segment: Segment) -> None:
        kinds = (OFFSET_INDEX, TIME_INDEX)
        if any(self.log.disk.stat(segment.path(kind)) is None for kind in kinds):
            segment.rebuild_indexes(self.log.disk)

    def _cut(self, segment: Segment, end: int) -> None:
        self.opened.cut_bytes += segment.open_file().size() - end
        with cutting(self.log):
            cut_segment(self.log, segment, end)

    def _end_at(self, index: int) -> None:
        """Removes what lies behind a cut, from the last to the first, without a delay."""
        segments = self.log.segments.all[index:]
        with cutting(self.log):
            for segment in reversed(segments):
                self.opened.removed_segments += 1
                _remove_files(self.log, segment)
        self.log.segments.remove(segments)


def _stopped_below(result: Mapping[str, Any], segment: Segment, place: Place) -> bool:
    """Whether the child met damage in what was durable: that is looked at with more patience. An
    offset that has rotted may be beyond it; then the batch behind is not."""
    end: int = result["valid_bytes"]
    if end == segment.size:
        return False
    if result["next_offset"] < place.trusted_upto:
        return True
    after = next(batches(segment.open_file(), end, segment.size), None)
    return after is not None and after.header.next_offset <= place.trusted_upto


def _settle_bounds(log: PartitionLog, found: Found) -> None:
    """Puts log start, log end and recovery point in order, whatever the checkpoints said."""
    if log.segments.all:
        log.log_start_offset = max(log.log_start_offset, log.segments.first.base_offset)
    if not log.segments.all or log.log_end_offset < log.log_start_offset:
        _begin_at(log, log.log_start_offset)
    log.recovery_point = min(max(found.recovery_point, log.log_start_offset), log.log_end_offset)
    if found.was_closed:
        log.recovery_point = log.closed_at = log.log_end_offset
    log.epochs.truncate_suffix(log.log_end_offset)
    if log.lost_from is None:
        log.epochs.advance_log_start(log.log_start_offset)


def _remove_files(log: PartitionLog, segment: Segment) -> None:
    for kind in (OFFSET_INDEX, TIME_INDEX, TXN_INDEX, LOG):
        remove_if_there(log.disk, segment.path(kind))
    segment.forget()
    log.disk.sync_folder(log.folder)


def _begin_at(log: PartitionLog, offset: int) -> None:
    with cutting(log):
        for segment in reversed(log.segments.all):
            _remove_files(log, segment)
        forget_producers(log)
    log.segments = Segments([log.new_segment(offset)])
    log.log_end_offset = offset
    reload_producers(log, -1)
