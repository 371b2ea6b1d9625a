"""One log dir: the replicas in it, its checkpoint files, and what happens when its disk fails.

    meta.properties                    whose dir this is
    .lock                              held while a process uses it
    .kafka_cleanshutdown               only after a clean stop; removed before anything is opened
    .boot_id                           of the boot in which it was last opened
    recovery-point-offset-checkpoint   up to where each log is durable
    replication-offset-checkpoint      the high watermarks
    log-start-offset-checkpoint        where each log starts, if not at its first segment; and again
    log-start-offset-copy-checkpoint   in case the first has rotted
    cleaner-offset-checkpoint          up to where each log has been compacted

The first I/O error takes the dir offline until the next start: its replicas refuse appends and
reads with one error, those of other dirs go on (S10). Checkpoints keep the entries of
replicas that are not open, so that nothing is forgotten while a start is under way.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.base.log_settings import LogSettings
from tidelog.base.ports import Clock, Disk, Lock, Workers
from tidelog.log import recovery
from tidelog.log.checkpointing import (
    checkpointing,
    lower_offsets,
    lower_to_ends,
    noted_start,
    read_checkpoints,
)
from tidelog.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    LOG_STARTS_COPY,
    META_PROPERTIES,
    RECOVERY_POINTS,
    format_meta_properties,
    parse_meta_properties,
    write_offsets,
)
from tidelog.log.doomed import is_doomed, remove_all
from tidelog.log.files import (
    CHECKPOINTING,
    OPEN_FILES_MAX,
    TEMPORARY,
    OpenFiles,
    read_whole,
    remove_if_there,
    write_whole,
)
from tidelog.log.log_files import LogFiles
from tidelog.log.partition_log import PartitionLog
from tidelog.log.replicas import NewReplica, deleting, making
from tidelog.log.steps import Steps, run_now
from tidelog.log.topic_ids import mark_if_lost, read_id
from tidelog.log.unsynced import settle_unsynced

LOCK: Final = ".lock"
BOOT_ID: Final = ".boot_id"
CLEAN_SHUTDOWN_CONTENT: Final = b'{"version":0,"brokerEpoch":-1}'
OTHER_NAMES: Final = {"node.id": "broker.id"}

SettingsOf = Callable[[TopicPartition], LogSettings]

_log = logging.getLogger(__name__)


class LogDir:
    def __init__(
        self,
        path: str,
        disk: Disk,
        clock: Clock,
        workers: Workers | None = None,
        open_files_max: int = OPEN_FILES_MAX,
    ) -> None:
        self.path = path
        self.disk = disk
        self.clock = clock
        self.workers = workers
        self.files = OpenFiles(disk, open_files_max)
        self.failure: OSError | None = None
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        self.truncations: dict[TopicPartition, int] = {}
        self.checkpoints_written = 0
        self.written: dict[str, bytes] = {}
        """What checkpoint files hold, as far as that is known."""
        self.unsettled: dict[TopicPartition, bool] = {}
        """Replicas that were deleted, and may be back after a power loss or still be in
        checkpoints; and whether their folders have other names by now."""
        self.names_changed = False
        self.new_epochs: dict[LogFiles, None] = {}
        self.note_epochs: Callable[[], None] | None = None
        self.was_closed = False
        self.same_boot = False
        self.boot_is_noted = False
        self.unreadable: list[str] = []
        self.checked_bytes = 0
        self.cut_bytes = 0
        self.recovery_points: dict[TopicPartition, int] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self._lock: Lock | None = None
        self._is_open = False
        self._doomed: list[tuple[int, str]] = []
        self._doomed_count = 0

    # -- start and stop

    def take(self) -> None:
        """Makes the folder if it is not there, and keeps other processes out of it."""
        try:
            self._make_folder()
            self._lock = take_lock(self.disk, self.path)
        except OSError as error:
            raise self.fail(error) from error

    def read_identity(self) -> dict[str, str]:
        """What meta.properties says of whose the dir is; nothing in a new one."""
        path = f"{self.path}/{META_PROPERTIES}"
        try:
            if self.disk.stat(path) is None:
                return {}
            found = parse_meta_properties(path, read_whole(self.disk, path))
        except OSError as error:
            raise self.fail(error) from error
        return {OTHER_NAMES.get(name, name): value for name, value in found.items()}

    def open(self, identity: Mapping[str, str], settings_of: SettingsOf) -> None:
        """Opens every log. `identity` is what meta.properties must say; a new dir is given it."""
        if self.failure is not None:
            raise self.fail(self.failure)
        if self._lock is None:
            self.take()
        try:
            self._check_identity(identity)
            read_checkpoints(self)
            self._forget_clean_shutdown()
            for name in filter(self._is_folder, self.disk.list(self.path)):
                partition = TopicPartition.from_folder(name)
                if is_doomed(name):
                    remove_all(self.disk, [], [f"{self.path}/{name}"])
                elif partition is not None:
                    self._open_log(partition, settings_of(partition))
            lower_to_ends(self)
            self._write(BOOT_ID, self.clock.boot_id().encode())
            self._is_open = True
        except OSError as error:
            raise self.fail(error) from error
        except BadValue:
            self._release_lock()
            raise

    def close(self) -> None:
        """A clean stop: everything durable, then the marker that says so. After a failure, or
        before all of it was opened, there is no marker, but the dir is let go of all the same."""
        try:
            if self._is_open:
                self._close_logs()
        except OSError as error:
            raise self.fail(error) from error
        finally:
            self._is_open = False
            self.logs.clear()
            self._release_lock()

    def _close_logs(self) -> None:
        now_ms = self.clock.now_ms()
        for log in self.logs.values():
            log.close(now_ms)
        if self.failure is None:
            self.checkpoint()
            self._write(CLEAN_SHUTDOWN, CLEAN_SHUTDOWN_CONTENT)

    def fail(self, error: OSError) -> KafkaError:
        """Takes the dir offline; returns what whoever asked is to be told. The note of the boot
        goes, if it still can: after a failed write the page cache is not to be believed."""
        if self.failure is None:
            self.failure = error
            try:
                remove_if_there(self.disk, f"{self.path}/{BOOT_ID}")
            except OSError as second:
                what = "by hand before the next start, if the dir is mounted anew for that"
                _log.critical("remove file=%s/%s %s why=%s", self.path, BOOT_ID, what, second)
        return KafkaError(
            ErrorCode.kafka_storage_error, f"log dir {self.path} is offline: {self.failure}"
        )

    # -- replicas

    def check_open(self) -> None:
        if self.failure is not None:
            raise self.fail(self.failure)
        if not self._is_open:
            raise KafkaError(ErrorCode.kafka_storage_error, f"log dir {self.path} is closed")

    def create_log(
        self, partition: TopicPartition, settings: LogSettings, topic_id: bytes | None = None
    ) -> PartitionLog:
        new = NewReplica(partition=partition, settings=settings, topic_id=topic_id)
        run_now(making(self, [new]))
        return self.logs[partition]

    def topic_id(self, partition: TopicPartition) -> bytes | None:
        try:
            return read_id(self.disk, f"{self.path}/{partition.folder}")
        except OSError as error:
            raise self.fail(error) from error

    def delete_log(self, partition: TopicPartition) -> None:
        self.delete_logs([partition])

    def delete_logs(self, partitions: Collection[TopicPartition]) -> None:
        """Takes replicas out of the dir, durably."""
        run_now(deleting(self, self.let_go(partitions)))
        run_now(checkpointing(self))

    def let_go(self, partitions: Collection[TopicPartition]) -> list[PartitionLog]:
        """The replicas are not here any more from now on; what is on the disk is left to do."""
        logs = [self.logs.pop(partition) for partition in partitions]
        for log in logs:
            log.is_gone = True
            for segment in log.segments.all:
                segment.forget()
            self.forget_offsets(log.partition)
            self.unsettled[log.partition] = False
        return logs

    def is_noted(self, partition: TopicPartition) -> bool:
        """Whether a checkpoint has something to say of a replica."""
        return any(partition in offsets for offsets in self.all_offsets().values())

    def forget_offsets(self, partition: TopicPartition) -> None:
        for offsets in self.all_offsets().values():
            offsets.pop(partition, None)

    def unique(self, now_ms: int) -> str:
        self._doomed_count += 1
        return f"{now_ms:x}-{self._doomed_count}"

    def doom(self, folder: str, due_ms: int) -> None:
        """A folder that is to be removed when its time comes."""
        self._doomed.append((due_ms, folder))

    def remove_doomed(self) -> None:
        """Removes the files and folders whose delay is over."""
        run_now(self.removing_doomed())

    def removing_doomed(self) -> Steps:
        """The same in steps: removing a large file can take as long as reading it."""
        now_ms = self.clock.now_ms()
        files = [path for log in self.logs.values() for path in log.take_doomed(now_ms)]
        folders = [path for due_ms, path in self._doomed if due_ms <= now_ms]
        self._doomed = [entry for entry in self._doomed if entry[0] > now_ms]

        try:
            if files or folders:
                yield lambda: remove_all(self.disk, files, folders)
        except OSError as error:
            raise self.fail(error) from error

    def _open_log(self, partition: TopicPartition, settings: LogSettings) -> None:
        found = recovery.Found(
            log_start=self.log_starts.get(partition, 0),
            recovery_point=self.recovery_points.get(partition, 0),
            compacted_upto=self.cleaner_offsets.get(partition, 0),
            was_closed=self.was_closed,
            same_boot=self.same_boot,
        )
        folder = f"{self.path}/{partition.folder}"
        opened = recovery.open_log(self, partition, folder, settings, found, self.workers)
        self.logs[partition] = opened.log
        settle_unsynced(opened.log, is_doubtful=not (self.was_closed or self.boot_is_noted))
        opened.log.was_flushed = found.recovery_point > 0
        is_crash = self.boot_is_noted and not (self.same_boot or self.was_closed)
        if is_crash and not opened.log.was_flushed:
            mark_if_lost(self.disk, folder)
        self.checked_bytes += opened.checked_bytes
        self.cut_bytes += opened.cut_bytes

    # -- checkpoints

    def checkpoint(self) -> None:
        """Writes all of them. Recovery points are taken as they are: flushing comes before."""
        self.persist_recovery_points()
        self.persist_log_starts()
        self.persist_high_watermarks()
        self.persist_cleaner_offsets()

    def persist_recovery_points(self) -> None:
        for partition, log in self.logs.items():
            self.recovery_points[partition] = log.recovery_point
        self._write_offsets(RECOVERY_POINTS, self.recovery_points)
        for log in self.logs.values():
            log.durable_recovery_point = log.recovery_point

    def persist_log_starts(self) -> None:
        for partition, log in self.logs.items():
            self.log_starts[partition] = noted_start(log)
        starts = {p: start for p, start in self.log_starts.items() if start > 0}
        for name in (LOG_STARTS, LOG_STARTS_COPY):
            self._write_offsets(name, starts)
        for log in self.logs.values():
            log.log_start_is_durable(log.log_start_offset)

    def persist_high_watermarks(self) -> None:
        self._write_offsets(HIGH_WATERMARKS, self.high_watermarks)

    def persist_cleaner_offsets(self) -> None:
        self._write_offsets(CLEANER_OFFSETS, self.cleaner_offsets)

    def _write_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Not in a dir that is offline: what it should say is no longer known there."""
        if self.failure is not None:
            raise self.fail(self.failure)
        try:
            self.checkpoints_written += 1
            self.written.pop(name, None)
            with suppress(FileNotFoundError):
                self.disk.remove(f"{self.path}/{name}{CHECKPOINTING}{TEMPORARY}")
            write_offsets(self.disk, f"{self.path}/{name}", offsets)
        except OSError as error:
            raise self.fail(error) from error

    def lower_offsets(self, partition: TopicPartition, to: int) -> None:
        """Called by every truncation; what a compaction under way has read may be gone."""
        self.truncations[partition] = self.truncations.get(partition, 0) + 1
        lower_offsets(self, partition, to)

    def all_offsets(self) -> dict[str, dict[TopicPartition, int]]:
        return {
            RECOVERY_POINTS: self.recovery_points,
            LOG_STARTS: self.log_starts,
            HIGH_WATERMARKS: self.high_watermarks,
            CLEANER_OFFSETS: self.cleaner_offsets,
        }

    # -- small files

    def _make_folder(self) -> None:
        """Durably, with its parents: a log that is durable in a folder that is not is lost."""
        if self.disk.stat(self.path) is None:
            self.disk.make_folder(self.path)
            parent = self.path
            while "/" in parent:
                parent = parent.rpartition("/")[0]
                self.disk.sync_folder(parent or "/")

    def _check_identity(self, identity: Mapping[str, str]) -> None:
        found = self.read_identity()
        if not found:
            self._write(META_PROPERTIES, format_meta_properties({"version": "0", **identity}))
        for name, value in identity.items():
            theirs = found.get(name, value)
            if theirs != value:
                raise BadValue(
                    f"{self.path}/{META_PROPERTIES}: {name} is {theirs}, this broker's is {value}: "
                    f"give it its own log.dirs, or set {name}={theirs}"
                )

    def _forget_clean_shutdown(self) -> None:
        """From here on a crash is a crash: the marker goes before the first log is opened. The
        boot is noted after the last one: until then an earlier crash is not yet dealt with."""
        marker = f"{self.path}/{CLEAN_SHUTDOWN}"
        boot = f"{self.path}/{BOOT_ID}"
        self.was_closed = self.disk.stat(marker) is not None
        self.boot_is_noted = self.disk.stat(boot) is not None
        if self.boot_is_noted:
            self.same_boot = read_whole(self.disk, boot) == self.clock.boot_id().encode()
        if self.was_closed:
            self.disk.remove(marker)
            self.disk.sync_folder(self.path)

    def _write(self, name: str, data: bytes) -> None:
        write_whole(self.disk, f"{self.path}/{name}", data)

    def _is_folder(self, name: str) -> bool:
        info = self.disk.stat(f"{self.path}/{name}")
        return info is not None and info.is_folder

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.release()


def take_lock(disk: Disk, folder: str) -> Lock:
    """So that a folder has one process that writes to it."""
    try:
        return disk.lock(f"{folder}/{LOCK}")
    except BlockingIOError as error:
        raise BadValue(
            f"{folder} is in use by another process: stop it, or set log.dirs"
        ) from error
