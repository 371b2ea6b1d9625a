"""What a broker does for its logs from time to time: flush, checkpoint, age, compact, forget.

Each kind of work has its own interval, from the settings that are in force when it comes round.
It goes from step to step: the loop does what is quick, a thread of the log dir waits for the
disk. A dir whose disk fails is passed over from then on (S10); nothing is done twice at a time.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from tidelog.base.errors import KafkaError
from tidelog.base.ports import Clock
from tidelog.base.settings import Settings
from tidelog.disk_work import DiskWork
from tidelog.log.checkpointing import checkpointing
from tidelog.log.cleaner import Cleaner, Cleaning
from tidelog.log.epoch_notes import noting_epochs
from tidelog.log.log_dir import LogDir
from tidelog.log.logs import Logs
from tidelog.log.partition_log import PartitionLog
from tidelog.log.retention import delete_old_segments, retain
from tidelog.log.retention_clock import RetentionClock
from tidelog.log.steps import Steps
from tidelog.partition import Partition
from tidelog.partitions import Partitions

FLUSH_CHECK_MS: Final = 1_000
SNAPSHOT_EVERY_BYTES: Final = 64 << 20

Persisted = Callable[[KafkaError | None], None]

_log = logging.getLogger("tidelog.housekeeping")


class Housekeeping:
    def __init__(
        self,
        logs: Logs,
        partitions: Partitions,
        cleaner: Cleaner,
        settings: Callable[[], Settings],
        work: DiskWork,
        clock: Clock,
    ) -> None:
        self._logs = logs
        self._partitions = partitions
        self._cleaner = cleaner
        self._settings = settings
        self._work = work
        self._loop = work.loop
        self._clock = clock
        self._retention_clock = RetentionClock(clock)
        cleaner.now_ms = self._retention_clock.now_ms
        self._is_cleaning = False
        self._is_stopped = False

    def start(self) -> None:
        for log_dir in self._logs.dirs:
            log_dir.note_epochs = partial(self._note_epochs, log_dir)
        self._every(lambda: FLUSH_CHECK_MS, self._flush)
        self._every(
            lambda: self._settings().whole("replica.high.watermark.checkpoint.interval.ms"),
            self._checkpoint,
        )
        self._every(
            lambda: self._settings().whole("log.retention.check.interval.ms"),
            self._retain,
        )
        self._every(
            lambda: self._settings().whole("producer.id.expiration.check.interval.ms"),
            self._expire_producers,
        )
        self._every(lambda: self._settings().whole("log.cleaner.backoff.ms"), self._clean)

    def stop(self) -> None:
        self._is_stopped = True

    # -- when

    def _every(self, interval_ms: Callable[[], int], work: Callable[[], None]) -> None:
        def run() -> None:
            if not self._is_stopped:
                try:
                    work()
                finally:
                    self._every(interval_ms, work)

        self._loop.call_at(self._clock.monotonic_ms() + max(1, interval_ms()), run)

    # -- what

    def _flush(self) -> None:
        for log_dir in self._logs.online:
            self._work.run_once("flush", log_dir, self._flushing(log_dir))

    def _flushing(self, log_dir: LogDir) -> Steps:
        now_ms = self._clock.now_ms()
        for log in [log for log in log_dir.logs.values() if log.flush_is_due(now_ms)]:
            yield from log.flushing(now_ms)
        if any(log.log_start_offset > log.durable_log_start for log in log_dir.logs.values()):
            yield from checkpointing(log_dir)
        yield from log_dir.removing_doomed()

    def _note_epochs(self, log_dir: LogDir) -> None:
        self._work.run_once("leader epochs", log_dir, noting_epochs(log_dir))

    def _checkpoint(self) -> None:
        for log_dir in self._logs.online:
            self._work.run_once("checkpoint", log_dir, self._checkpointing(log_dir))
            self._work.run_once("snapshots", log_dir, self._snapshotting(log_dir))

    def _snapshotting(self, log_dir: LogDir) -> Steps:
        """Bounds what must be replayed after a crash to a stretch that is read in no time."""
        for log in list(log_dir.logs.values()):
            if log.bytes_since_snapshot > SNAPSHOT_EVERY_BYTES and not log.is_gone:
                yield from log.snapshotting()

    def persist_log_starts(self, log: PartitionLog, done: Persisted) -> None:
        """Calls `done` when the start of a log is durable, or with why that cannot be."""
        log_dir = log.home
        assert isinstance(log_dir, LogDir)
        self._work.run("log start", log_dir, self._persisting(log, log_dir, done))

    def _persisting(self, log: PartitionLog, log_dir: LogDir, done: Persisted) -> Steps:
        try:
            while log.log_start_offset > log.durable_log_start and not log.is_gone:
                log.check_online()
                yield from self._checkpointing(log_dir)
        except KafkaError as error:
            done(error)
        else:
            done(None)

    def _checkpointing(self, log_dir: LogDir) -> Steps:
        for partition in self._led_in(log_dir):
            log_dir.high_watermarks[partition.name] = partition.high_watermark
        yield from checkpointing(log_dir)

    def _retain(self) -> None:
        for log_dir in self._logs.online:
            self._work.run_once("retention", log_dir, self._retaining(log_dir))

    def _retaining(self, log_dir: LogDir) -> Steps:
        now_ms = self._retention_clock.now_ms()
        for partition in self._led_in(log_dir):
            may_roll = not partition.is_busy
            retain(partition.log, partition.high_watermark, now_ms, may_roll=may_roll)
        yield from checkpointing(log_dir)
        for partition in self._led_in(log_dir):
            delete_old_segments(partition.log, self._clock.now_ms())
        yield from log_dir.removing_doomed()

    def _led_in(self, log_dir: LogDir) -> list[Partition]:
        return [partition for partition in self._partitions if partition.log.home is log_dir]

    def _expire_producers(self) -> None:
        now_ms = self._retention_clock.now_ms()
        for partition in self._partitions:
            log = partition.log
            log.producers.expire(now_ms, log.settings.producer_id_expiration_ms)

    # -- compaction

    def _clean(self) -> None:
        """One log at a time; the work is done in a child process."""
        if self._is_cleaning or not self._settings().flag("log.cleaner.enable"):
            return
        self._cleaner.map_bytes = self._settings().whole("log.cleaner.dedupe.buffer.size")
        found = self._cleaner.pick()
        if found is not None:
            cleaning = self._cleaner.begin(found)
            self._is_cleaning = True
            self._loop.offload("clean", cleaning.job.result, partial(self._cleaned, cleaning))

    def _cleaned(self, cleaning: Cleaning, _end: object) -> None:
        """What the child came to is asked for again, where what went wrong is told apart."""
        self._work.run(
            f"compaction of {cleaning.candidate.log.partition}",
            cleaning.log_dir,
            self._putting_in_place(cleaning),
        )

    def _putting_in_place(self, cleaning: Cleaning) -> Steps:
        """Only then is there another one: it would write files with the same names."""
        try:
            yield from self._swapping(cleaning)
        finally:
            self._is_cleaning = False

    def _swapping(self, cleaning: Cleaning) -> Steps:
        log, log_dir = cleaning.candidate.log, cleaning.log_dir
        try:
            result = self._cleaner.result(cleaning)
            if result is None:
                _log.warning("not compacted partition=%s", log.partition)
                return
            for _ in self._cleaner.put_in_place(cleaning, result):
                yield lambda: log.disk.sync_folder(log.folder)
                if log.is_gone:
                    return
        except OSError as error:
            if log.is_gone:
                return
            raise log_dir.fail(error) from error
        _log.info("compacted partition=%s %s", log.partition, result["stats"])
        yield from checkpointing(log_dir)
