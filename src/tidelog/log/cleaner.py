"""Compaction as the broker sees it: which log is worth it, and putting the result in place.

The work itself is done by a child process (`cleaning`), which reads closed segments and
writes `.cleaned` ones beside them. Only what is durable, decided and below the high watermark
is handed to it. When it is done the old segments are checked to be still there, and the
cleaned ones take their place, group by group from the front: at no moment, and after no crash,
is a value gone whose tombstone is not, or back whose tombstone is gone.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tidelog.base.errors import ChildDied, ErrorCode, KafkaError, NotStarted, TaskError
from tidelog.base.ids import TopicPartition
from tidelog.base.limits import DECOMPRESSED_BYTES_MAX
from tidelog.base.ports import Entropy, Job, Workers
from tidelog.log.files import CLEANED, SWAP
from tidelog.log.log_dir import LogDir
from tidelog.log.logs import Logs
from tidelog.log.partition_log import PartitionLog
from tidelog.log.retention import youngest_ms
from tidelog.log.segment import Segment
from tidelog.records.batch import HEADER_SIZE, read_header

LOAD_FACTOR: Final = 0.9
HASH_KEY_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A log with something to compact: all closed segments below `upper`, which end there."""

    log: PartitionLog
    first_dirty: int
    upper: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / max(1, self.clean_bytes + self.dirty_bytes)

    @property
    def is_worth_it(self) -> bool:
        return self.is_overdue or self.dirty_ratio > self.log.settings.min_cleanable_ratio

    @property
    def segments(self) -> list[Segment]:
        return [s for s in self.log.segments.closed if s.base_offset < self.upper]


def candidate(
    log: PartitionLog, cleaned_upto: int, high_watermark: int, now_ms: int
) -> Candidate | None:
    """What could be compacted in a log; None if nothing."""
    if not log.settings.cleanup_compact:
        return None
    first_dirty = cleaned_upto if cleaned_upto <= log.log_end_offset else 0
    first_dirty = max(first_dirty, log.log_start_offset)
    upper = _upper_bound(log, high_watermark, now_ms)
    if upper <= first_dirty:
        return None
    segments = [segment for segment in log.segments.closed if segment.base_offset < upper]
    dirty = segments[max(0, log.segments.at(first_dirty)) :]
    dirty_bytes = sum(segment.size for segment in dirty)
    return Candidate(
        log=log,
        first_dirty=first_dirty,
        upper=upper,
        clean_bytes=sum(segment.size for segment in segments) - dirty_bytes,
        dirty_bytes=dirty_bytes,
        is_overdue=_is_overdue(log, dirty, now_ms),
    )


def _upper_bound(log: PartitionLog, high_watermark: int, now_ms: int) -> int:
    """The end of the last segment that may be compacted: closed, durable, seen by all in-sync
    replicas, without an undecided transaction, and older than `min.compaction.lag.ms`."""
    unstable = log.producers.first_unstable_offset
    bound = min(high_watermark, log.recovery_point)
    if unstable is not None:
        bound = min(bound, unstable)
    lag_ms = log.settings.min_compaction_lag_ms
    upper = log.segments.first.base_offset
    for index, segment in enumerate(log.segments.closed):
        end = log.segments.end_of(index, log.log_end_offset)
        if end > bound or (lag_ms > 0 and now_ms - youngest_ms(log, segment) < lag_ms):
            break
        upper = end
    return upper


def _is_overdue(log: PartitionLog, dirty: list[Segment], now_ms: int) -> bool:
    """Whether the oldest dirty record has waited for longer than `max.compaction.lag.ms`."""
    for segment in dirty:
        start = segment.open_file().pread(HEADER_SIZE, 0)
        if len(start) == HEADER_SIZE and read_header(start).max_timestamp >= 0:
            waited_ms = now_ms - read_header(start).max_timestamp
            return waited_ms > log.settings.max_compaction_lag_ms
    return False


def swap_in(log: PartitionLog, group: Mapping[str, Any], now_ms: int) -> Iterator[None]:
    """Puts a cleaned segment in the place of those it was made from. Wherever it yields, the
    names in the folder must be made durable before it goes on. Meanwhile the log may be cut: what
    was taken off its end must not come back."""
    truncations = log.truncations
    base, replaced = group["base"], set(group["replaces"])
    old = [segment for segment in log.segments.closed if segment.base_offset in replaced]
    new = Segment(log.folder, base, log.settings, log.home.files, CLEANED)
    new.size = group["size"]
    new.move(log.disk, SWAP)
    yield
    due_ms = now_ms + log.settings.file_delete_delay_ms
    if log.truncations != truncations:
        log.doom([new], due_ms)
        return
    log.segments.replace(old, [new])
    log.doom(old, due_ms)
    yield
    # Nobody can make the aborted transactions again, so the log gets its name after them.
    if new in log.segments.all and new.move_aborted(log.disk, ""):
        yield
    if new in log.segments.all:
        new.move(log.disk, "")
        # Beside the `.cleaned` files of the next compaction it would be taken for undecided.
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """A compaction under way."""

    candidate: Candidate
    log_dir: LogDir
    sizes: Mapping[int, int]
    truncations: int
    job: Job

    @property
    def was_cut(self) -> bool:
        """Whether something was taken off the end of the log since it began."""
        cuts = self.log_dir.truncations.get(self.candidate.log.partition, 0)
        return cuts != self.truncations

    @property
    def is_of_use(self) -> bool:
        """Whether the log is still what the child was given: retention, a truncation or the
        end of the topic may have been quicker."""
        log = self.candidate.log
        now = {segment.base_offset: segment.size for segment in log.segments.closed}
        return (
            self.log_dir.logs.get(log.partition) is log
            and self.log_dir.failure is None
            and not self.was_cut
            and all(now.get(base) == size for base, size in self.sizes.items())
        )


class Cleaner:
    """Picks the log that gains most, has it compacted, and remembers how far it got."""

    def __init__(self, logs: Logs, workers: Workers, entropy: Entropy, map_bytes: int) -> None:
        self._logs = logs
        self._workers = workers
        self._entropy = entropy
        self.map_bytes = map_bytes
        self.now_ms: Callable[[], int] | None = None
        """What time it is for delete horizons, if not what the wall clock says."""
        self.uncleanable: dict[TopicPartition, str] = {}
        self._given_up: dict[TopicPartition, tuple[object, ...]] = {}
        """What that was said of: see `_state`."""

    def pick(self) -> Candidate | None:
        """The log with the largest part to compact; one that has waited too long comes first."""
        worth_it = [
            found
            for log_dir in self._logs.online
            for found in self._candidates(log_dir)
            if found.is_worth_it
        ]
        return max(worth_it, key=lambda found: (found.is_overdue, found.dirty_ratio), default=None)

    def _candidates(self, log_dir: LogDir) -> Iterator[Candidate]:
        now_ms = log_dir.clock.now_ms()
        for partition, log in log_dir.logs.items():
            cleaned_upto = log_dir.cleaner_offsets.get(partition, 0)
            high_watermark = log_dir.high_watermarks.get(partition, 0)
            try:
                found = candidate(log, cleaned_upto, high_watermark, now_ms)
            except OSError as error:
                log.failed(error)
            except KafkaError as error:
                if error.code != ErrorCode.kafka_storage_error:
                    raise
            else:
                if found is not None and not self._is_given_up(log):
                    yield found
            if log_dir.failure is not None:
                return

    def _is_given_up(self, log: PartitionLog) -> bool:
        partition = log.partition
        states = self._state(log), self._state(log, has_died=True)
        if self._given_up.get(partition) in states:
            return True
        self._given_up.pop(partition, None)
        self.uncleanable.pop(partition, None)
        return False

    def _state(self, log: PartitionLog, *, has_died: bool = False) -> tuple[object, ...]:
        """A log of the same name, one that was cut, and other settings are another matter. Where a
        child has died, for want of memory, say, another one is tried with the next segment."""
        tried_upto = log.segments.active.base_offset if has_died else -1
        return log, log.truncations, log.settings, self.map_bytes, tried_upto

    def begin(self, found: Candidate) -> Cleaning:
        log = found.log
        segments = found.segments
        log_dir = self._logs.dir_of(log.partition)
        argument = {
            "folder": log.folder,
            "segments": [{"base": s.base_offset, "size": s.size} for s in segments],
            "first_dirty": found.first_dirty,
            "upper": found.upper,
            "map_bytes": self.map_bytes,
            "load_factor": LOAD_FACTOR,
            "seed": self._entropy.random_bytes(HASH_KEY_BYTES).hex(),
            "max_segment_bytes": log.settings.segment_bytes,
            "max_index_bytes": log.settings.index_bytes_max,
            "index_interval_bytes": log.settings.index_interval_bytes,
            "delete_retention_ms": log.settings.delete_retention_ms,
            "now_ms": (self.now_ms or log_dir.clock.now_ms)(),
            "active_producers": log.producers.last_offsets(),
            "raised_epochs": log.producers.raised_epochs(),
            # Whatever max.message.bytes is by now: it is in the log.
            "max_batch_bytes": DECOMPRESSED_BYTES_MAX,
        }
        return Cleaning(
            candidate=found,
            log_dir=log_dir,
            truncations=log_dir.truncations.get(log.partition, 0),
            sizes={segment.base_offset: segment.size for segment in segments},
            job=self._workers.start("clean", argument),
        )

    def end(self, cleaning: Cleaning) -> dict[str, Any] | None:
        """Waits for the child and puts what it wrote in place; returns its figures. None if the
        log cannot be compacted, or has changed so that the result is of no use."""
        log, log_dir = cleaning.candidate.log, cleaning.log_dir
        try:
            result = self.result(cleaning)
            if result is None:
                return None
            for _ in self.put_in_place(cleaning, result):
                log.disk.sync_folder(log.folder)
            log_dir.persist_cleaner_offsets()
        except OSError as error:
            raise log_dir.fail(error) from error
        return dict(result["stats"])

    def put_in_place(self, cleaning: Cleaning, result: Mapping[str, Any]) -> Iterator[None]:
        """Wherever it yields, the names in the log's folder must be made durable before it goes
        on; at its end, the offset up to which the log was compacted."""
        log, log_dir = cleaning.candidate.log, cleaning.log_dir
        now_ms = log_dir.clock.now_ms()
        for group in result["groups"]:
            yield from swap_in(log, group, now_ms)
            if cleaning.was_cut:
                _discard(cleaning)
                return
        log_dir.cleaner_offsets[log.partition] = result["end"]

    def result(self, cleaning: Cleaning) -> dict[str, Any] | None:
        """What the child answers. Where that is of no use, what it wrote is removed; a file
        that it did not find because retention was quicker is no fault of the disk."""
        log = cleaning.candidate.log
        try:
            result = cleaning.job.result()
        except TaskError as error:
            result = None
            if cleaning.is_of_use and not isinstance(error, NotStarted):
                self.uncleanable[log.partition] = str(error)
                has_died = isinstance(error, ChildDied)
                self._given_up[log.partition] = self._state(log, has_died=has_died)
        except FileNotFoundError:
            if cleaning.is_of_use:
                raise
            result = None
        if result is None or not cleaning.is_of_use:
            _discard(cleaning)
            return None
        return result

    def run_once(self) -> dict[str, Any] | None:
        """Compacts one log now, if one is worth it."""
        found = self.pick()
        return self.end(self.begin(found)) if found is not None else None


def _discard(cleaning: Cleaning) -> None:
    """Unless nothing can be done in the dir. The folder may have gone meanwhile, or belong to
    another topic of that name by now: the child has written there what it had left to write. There
    is no other child."""
    log = cleaning.candidate.log
    if cleaning.log_dir.failure is None:
        with suppress(FileNotFoundError):
            for name in log.disk.list(log.folder):
                if name.endswith(CLEANED):
                    log.disk.remove(f"{log.folder}/{name}")
