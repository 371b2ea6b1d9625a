"""What a log has on disk: its segments, leader epochs and producers, and how they are rolled,
made durable, and let go. `PartitionLog` adds the traffic.

A failed disk operation takes the whole log dir offline, because what it left behind is only
known after the next start. Nothing here waits on purpose: flushes are handed out as jobs,
files leave through `.deleted` and a delay.

What makes it crash-safe, whichever of the writes that were not synced a power loss drops:
 - a file is removed from the front only when a log start above it is durable;
 - a truncation first makes a recovery point below it durable, then removes segments from the
   last to the first, each durably, and syncs the cut before anything is appended again;
 - the recovery point moves only when everything below it is durable, names, epochs and the
   indexes of closed segments included.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.base.log_settings import LogSettings
from tidelog.base.ports import Disk
from tidelog.log import snapshots
from tidelog.log.checkpoints import (
    LEADER_EPOCHS_UNSYNCED,
    PARTITION_METADATA,
    format_epochs,
)
from tidelog.log.epochs import LeaderEpochs
from tidelog.log.files import (
    DELETED,
    LOG,
    SEGMENT_KINDS,
    SNAPSHOT,
    OpenFiles,
    file_name,
    remove_if_there,
    write_whole,
)
from tidelog.log.flush import Flush, paths_to_sync
from tidelog.log.producers import Producers
from tidelog.log.roll import Roll, Snapshot
from tidelog.log.segment import Segment
from tidelog.log.segment_reader import DamagedIndex
from tidelog.log.segments import Segments
from tidelog.log.steps import Steps, run_now
from tidelog.log.unverified import Stretch, Unverified

Found = TypeVar("Found")


class Home(Protocol):
    """The log dir of a log, as far as the log needs it."""

    path: str
    disk: Disk
    files: OpenFiles
    failure: OSError | None
    names_changed: bool
    """Whether there are folders of logs whose names are not durable yet."""
    new_epochs: dict["LogFiles", None]
    """Logs in which leader epochs began that are to be noted, once `note_epochs` was called."""
    note_epochs: Callable[[], None] | None
    """None where they are noted at once."""

    def fail(self, error: OSError) -> KafkaError:
        """Takes the log dir offline; returns what the caller is to be told."""

    def persist_recovery_points(self) -> None: ...

    def persist_log_starts(self) -> None: ...

    def lower_offsets(self, partition: TopicPartition, to: int) -> None: ...


class LogFiles:
    def __init__(
        self, home: Home, folder: str, partition: TopicPartition, settings: LogSettings
    ) -> None:
        """An empty shell; `recovery.open_log` fills it from the folder."""
        self.home = home
        self.disk = home.disk
        self.folder = folder
        self.partition = partition
        self.settings = settings
        self.segments = Segments([])
        self.epochs = LeaderEpochs()
        self.producers = Producers()
        self.log_start_offset = 0
        self.durable_log_start = 0
        self.lost_from: int | None = None  # Where it began, if its first segments are missing.
        self.log_end_offset = 0
        self.recovery_point = 0
        self.durable_recovery_point = 0
        self.behind_hole = 0
        """No segment above it begins elsewhere than where what comes before it ends."""
        self.last_flush_ms = 0
        self.snapshot_offset = 0
        self.closed_at = -1
        """Where the log ended when it was last closed, if it was not cut since."""
        self.is_gone = False
        """Whether it was deleted: its folder has another name then, or is another log's."""
        self.was_flushed = False
        """Whether its folder, and whose it is, are known to be durable."""
        self.names_changed = False
        self.truncations = 0
        self._snapshot_position = 0
        self._doomed: list[tuple[int, list[str]]] = []

    def configure(self, settings: LogSettings) -> None:
        """Lets other settings count from the next batch on."""
        self.settings = settings
        self.segments.active.configure(settings)

    # -- roll, flush, close

    def roll(self) -> None:
        """Closes the active segment and begins a new one; nothing to do if it is empty."""
        if self.segments.active.base_offset < self.log_end_offset:
            try:
                self._roll()
            except OSError as error:
                raise self.failed(error) from error

    def _roll(self, base: int = 0) -> Segment:
        roll = self.begin_roll(base)
        roll.run()
        return self.end_roll(roll)

    def begin_roll(self, base: int = 0) -> Roll:
        """What is to be made for the next segment. Until `end_roll` nothing may be appended."""
        ending, base = self.segments.active, max(base, self.log_end_offset)
        lots = ending.begin_close()
        segment = Segment(self.folder, base, self.settings, self.home.files)
        return Roll(ending=ending, lots=lots, snapshot=self.begin_snapshot(), segment=segment)

    def end_roll(self, roll: Roll) -> Segment:
        for lot in roll.lots:
            lot.end()
        if roll.ending.next_offset < roll.segment.base_offset:
            self.behind_hole = roll.segment.base_offset
        self.segments.active.close_for_writing()
        self.end_snapshot(roll.snapshot)
        self._snapshot_position = 0
        self.names_changed = True
        if roll.segment.settings is not self.settings:
            roll.segment.configure(self.settings)
        self.segments.add(roll.segment)
        return roll.segment

    def new_segment(self, base_offset: int) -> Segment:
        segment = Segment(self.folder, base_offset, self.settings, self.home.files)
        segment.create(self.disk)
        self.names_changed = True
        self._snapshot_position = 0
        return segment

    def begin_with(self, segment: Segment) -> None:
        """Makes it a new, empty log: its first segment has just been made."""
        self.segments = Segments([segment])
        self.names_changed = True
        self.epochs.changed = True

    def assign_epoch(self, epoch: int, start: int) -> None:
        """Notes that a leader epoch begins, where a start after a crash of the process alone
        finds it; for a crash of the machine the next flush does it. One that was not noted yet
        costs that start a longer look."""
        self.epochs.assign(epoch, start)
        if self.home.note_epochs is None:
            path = f"{self.folder}/{LEADER_EPOCHS_UNSYNCED}"
            write_whole(self.disk, path, format_epochs(self.epochs.entries), durable=False)
        else:
            self.home.new_epochs[self] = None
            self.home.note_epochs()

    def take_snapshot(self, *, durable: bool = False) -> None:
        """Writes the producer state down, so that it need not be replayed from further back."""
        snapshot = self.begin_snapshot()
        snapshot.run(durable=durable)
        self.end_snapshot(snapshot)

    def begin_snapshot(self) -> Snapshot:
        before, offset = self.snapshot_offset, self.log_end_offset
        is_superfluous = self.segments.active.base_offset < before < offset
        return Snapshot(
            disk=self.disk,
            offset=offset,
            position=self.segments.active.size,
            path=f"{self.folder}/{file_name(offset, SNAPSHOT)}",
            data=snapshots.encode(self.producers),
            superfluous=f"{self.folder}/{file_name(before, SNAPSHOT)}" if is_superfluous else None,
        )

    def end_snapshot(self, snapshot: Snapshot) -> None:
        self.snapshot_offset = snapshot.offset
        self._snapshot_position = snapshot.position

    def snapshotting(self) -> Steps:
        """The same in steps. What a roll or a truncation has made of it meanwhile counts more."""
        before, truncations = self.snapshot_offset, self.truncations
        snapshot = self.begin_snapshot()
        try:
            yield snapshot.write_beside
            if self.truncations == truncations:
                yield snapshot.put_in_place
            else:
                remove_if_there(self.disk, snapshot.beside)
        except OSError as error:
            is_cut = isinstance(error, FileNotFoundError) and self.truncations != truncations
            if not (self.is_gone or is_cut):
                raise self.failed(error) from error
        if (self.snapshot_offset, self.truncations) == (before, truncations):
            self.end_snapshot(snapshot)

    @property
    def bytes_since_snapshot(self) -> int:
        """How much of the active segment would have to be replayed, at most, to know the
        producers after a crash."""
        return self.segments.active.size - self._snapshot_position

    def flush_is_due(self, now_ms: int) -> bool:
        """Closed segments are flushed at the next opportunity, the active one as settings say. If
        the clock was set back, nobody knows how long ago that was: it is due."""
        unflushed = self.log_end_offset - self.recovery_point
        return unflushed > 0 and (
            self.recovery_point < self.segments.active.base_offset
            or unflushed >= self.settings.flush_messages
            or not 0 <= now_ms - self.last_flush_ms < self.settings.flush_ms
        )

    def begin_flush(self) -> Flush:
        """What must be synced so that all that is in the log now is durable."""
        paths: list[str] = []
        for index, segment in enumerate(self.segments.all):
            if self.segments.end_of(index, self.log_end_offset) >= self.recovery_point:
                paths += paths_to_sync(segment)
        if self.names_changed:
            paths.append(f"{self.folder}/{PARTITION_METADATA}")
        epochs = format_epochs(self.epochs.entries) if self.epochs.changed else None
        flush = Flush(
            disk=self.disk,
            folder=self.folder,
            upto=self.log_end_offset,
            truncations=self.truncations,
            active=self.segments.active.open_file(),
            paths=paths,
            names_changed=self.names_changed,
            epochs=epochs,
        )
        self.epochs.changed = self.names_changed = False
        return flush

    def end_flush(self, flush: Flush, now_ms: int) -> None:
        """What began before a truncation says nothing about the log after it, and what was
        written may have to be written again. What lies behind a hole is believed for the sake of
        the recovery point alone."""
        if flush.truncations == self.truncations and self.home.failure is None:
            self.recovery_point = max(self.recovery_point, flush.upto)
            self.last_flush_ms = now_ms
            self.was_flushed = True
            if self.durable_recovery_point < self.behind_hole:
                self.home.persist_recovery_points()
        else:
            self.epochs.changed = self.names_changed = True

    def flush(self, now_ms: int) -> None:
        """Makes durable what is in the log, at once."""
        run_now(self.flushing(now_ms))

    def flushing(self, now_ms: int) -> Steps:
        """The same in steps. A log that is deleted meanwhile is left alone."""
        self.check_online()
        try:
            flush = self.begin_flush()
        except OSError as error:
            if not self.is_gone:
                raise self.failed(error) from error
            return
        try:
            yield flush.sync_files
            if self.is_gone:
                return
            if flush.truncations == self.truncations and flush.has_new_names:
                yield flush.put_in_place
            if self.home.names_changed:
                self.home.names_changed = False
                yield lambda: self.disk.sync_folder(self.home.path)
            self.end_flush(flush, now_ms)
        except FileNotFoundError as error:
            if flush.truncations == self.truncations and not self.is_gone:
                raise self.failed(error) from error
            self.end_flush(flush, now_ms)
        except OSError as error:
            if not self.is_gone:
                raise self.failed(error) from error

    def close(self, now_ms: int) -> None:
        """Makes everything durable, so that the next start need not look at it; that is so
        already of a log that is empty, or as the last stop has left it."""
        is_untouched = self.log_end_offset == self.closed_at and not (
            self.truncations or self.names_changed or self.epochs.changed
        )
        if self.home.failure is not None or not self.log_end_offset or is_untouched:
            return
        try:
            self.segments.active.write_indexes()
            self.take_snapshot(durable=True)
            self.flush(now_ms)
            self.segments.active.sync_all()
        except OSError as error:
            raise self.failed(error) from error

    # -- leaving files

    def doom(self, segments: list[Segment], due_ms: int) -> None:
        """Renames segments out of the log; they are removed when their time comes."""
        for segment in segments:
            segment.move(self.disk, DELETED)
            self._doomed.append((due_ms, [segment.path(kind) for kind in SEGMENT_KINDS]))

    def take_doomed(self, now_ms: int) -> list[str]:
        """The files whose time has come. Whoever takes them removes them."""
        if not self._doomed:
            return []
        due = [paths for due_ms, paths in self._doomed if due_ms <= now_ms]
        self._doomed = [entry for entry in self._doomed if entry[0] > now_ms]
        return [path for paths in due for path in paths]

    def log_start_is_durable(self, start: int) -> None:
        """Epochs of what lies below it are of no use any more. Not before: the file that they are
        written to may outlive a process that has not saved the start."""
        self.durable_log_start = start
        if self.lost_from is None:
            self.epochs.advance_log_start(start)

    def truncated(self, end: int) -> None:
        self.truncations += 1
        self.behind_hole = min(self.behind_hole, end)
        self._snapshot_position = 0

    def check_online(self) -> None:
        if self.home.failure is not None:
            raise KafkaError(
                ErrorCode.kafka_storage_error,
                f"{self.partition}: its log dir is offline: {self.home.failure}",
            )

    def failed(self, error: OSError) -> KafkaError:
        """One clear error for whatever the disk said; the dir is offline from here on, and the
        next start finds out what the failed operation left behind."""
        return self.home.fail(error)

    def mended(self, damage: DamagedIndex, lookup: Callable[[], Found]) -> Found:
        """Makes a damaged index anew and looks again. One that is damaged still has a log that
        is: whoever asks is told."""
        seen: set[int] = set()
        while damage.base_offset not in seen:
            seen.add(damage.base_offset)
            try:
                segment = self.segments.all[self.segments.at(damage.base_offset)]
                self._check_readable(segment)
                segment.rebuild_indexes(self.disk)
                return lookup()
            except DamagedIndex as again:
                damage = again
            except OSError as error:
                raise self.failed(error) from error
        raise KafkaError(ErrorCode.corrupt_message, f"{self.partition}: {damage}") from damage

    def _check_readable(self, segment: Segment) -> None:
        """An index that is made from a log in which a length is wrong would lack all behind it, and
        where an offset is wrong it would lead to another batch."""
        known = segment.unverified
        if known is None or not known.is_damaged:
            end = segment.readable_bytes(self.limit_of(segment))
            if end == segment.size:
                return
            unverified, found = self.doubt(segment, end)
            unverified.note(found)
        raise KafkaError(
            ErrorCode.corrupt_message, f"{self.partition}: {segment.path(LOG)} is damaged"
        )

    def doubt(self, segment: Segment, position: int) -> tuple[Unverified, Stretch]:
        """What is to be noted of a batch that is not as it was written. If it has rotted since it
        was written or looked at, all of the segment is doubtful again."""
        known, base_offset = segment.unverified, segment.base_offset
        if known is None or known.end <= position:
            known = Unverified(base_offset, segment.size, self.limit_of(segment))
            segment.unverified = known
        return known, Stretch(position, position, base_offset, bad=position)

    def limit_of(self, segment: Segment) -> int:
        """The offset behind its last one."""
        index = self.segments.at(segment.base_offset)
        return self.segments.end_of(index, self.log_end_offset)
