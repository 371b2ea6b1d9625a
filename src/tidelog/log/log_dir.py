"""One log dir: the replicas in it, its checkpoint files, and what happens when its disk fails.

    meta.properties                    whose dir this is
    .lock                              held while a process uses it
    .kafka_cleanshutdown               only after a clean stop; removed before anything is opened
    .boot_id                           of the boot in which it was last opened
    recovery-point-offset-checkpoint   up to where each log is durable
    replication-offset-checkpoint      the high watermarks
    log-start-offset-checkpoint        where each log starts, if not at its first segment
    cleaner-offset-checkpoint          up to where each log has been compacted

The first I/O error takes the dir offline until the next start: its replicas refuse appends and
reads with one error, those of other dirs go on (S10). Checkpoints keep the entries of
replicas that are not open, so that nothing is forgotten while a start is under way.
"""

from collections.abc import Callable, Mapping

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.base.log_settings import LogSettings
from tidelog.base.ports import Clock, Disk, Lock, Workers
from tidelog.log import recovery
from tidelog.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    format_meta_properties,
    format_partition_metadata,
    parse_meta_properties,
    parse_partition_metadata,
    read_offsets,
    write_offsets,
)
from tidelog.log.files import OpenFiles, read_whole, remove_if_there, write_whole
from tidelog.log.partition_log import PartitionLog

LOCK = ".lock"
BOOT_ID = ".boot_id"
DELETE_SUFFIX = "-delete"
OPEN_FILES_MAX = 512
CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1}'

SettingsOf = Callable[[TopicPartition], LogSettings]


class LogDir:
    def __init__(self, path: str, disk: Disk, clock: Clock, workers: Workers | None = None) -> None:
        self.path = path
        self.disk = disk
        self.clock = clock
        self.workers = workers
        self.files = OpenFiles(disk, OPEN_FILES_MAX)
        self.failure: OSError | None = None
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        self.was_closed = False
        self.same_boot = False
        self.unreadable: list[str] = []
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self._lock: Lock | None = None
        self._doomed: list[tuple[int, str]] = []

    # -- start and stop

    def open(self, identity: Mapping[str, str], settings_of: SettingsOf) -> None:
        """Takes the dir and opens every log in it. `identity` is what meta.properties must say
        (broker.id, cluster.id); it is written if the dir is new."""
        try:
            self._make_folder()
            self._take_lock()
            self._check_identity(identity)
            self._read_checkpoints()
            self._forget_clean_shutdown()
            for name in self.disk.list(self.path):
                partition = TopicPartition.from_folder(name)
                if name.endswith(DELETE_SUFFIX):
                    self._remove_folder(f"{self.path}/{name}")
                elif partition is not None and self._is_folder(name):
                    self._open_log(partition, settings_of(partition))
            self._write(BOOT_ID, self.clock.boot_id().encode())
        except OSError as error:
            raise self.fail(error) from error

    def close(self) -> None:
        """A clean stop: everything durable, then the marker that says so."""
        now_ms = self.clock.now_ms()
        for log in self.logs.values():
            log.close(now_ms)
        if self.failure is None:
            try:
                self.checkpoint()
                self._write(CLEAN_SHUTDOWN, CLEAN_SHUTDOWN_CONTENT)
            except OSError as error:
                raise self.fail(error) from error
        self.logs.clear()
        if self._lock is not None:
            self._lock.release()

    def fail(self, error: OSError) -> KafkaError:
        """Takes the dir offline; returns what whoever asked is to be told. The note of the boot
        goes, if it still can: after a failed write the page cache is not to be believed."""
        if self.failure is None:
            self.failure = error
            try:
                remove_if_there(self.disk, f"{self.path}/{BOOT_ID}")
            except OSError as second:
                error.add_note(f"and {BOOT_ID} could not be removed: {second}")
        return KafkaError(
            ErrorCode.kafka_storage_error, f"log dir {self.path} is offline: {self.failure}"
        )

    # -- replicas

    def create_log(
        self, partition: TopicPartition, settings: LogSettings, topic_id: bytes | None = None
    ) -> PartitionLog:
        """Makes the folder of a new replica and opens its log."""
        assert partition not in self.logs, f"{partition} is here already"
        if self.failure is not None:
            raise self.fail(self.failure)
        folder = f"{self.path}/{partition.folder}"
        try:
            self.disk.make_folder(folder)
            if topic_id is not None:
                metadata = format_partition_metadata(topic_id)
                write_whole(self.disk, f"{folder}/{PARTITION_METADATA}", metadata)
            self.disk.sync_folder(self.path)
            log = self._open_log(partition, settings)
            self.disk.sync_folder(folder)
        except OSError as error:
            raise self.fail(error) from error
        return log

    def topic_id(self, partition: TopicPartition) -> bytes | None:
        path = f"{self.path}/{partition.folder}/{PARTITION_METADATA}"
        if self.disk.stat(path) is None:
            return None
        return parse_partition_metadata(path, read_whole(self.disk, path))

    def delete_log(self, partition: TopicPartition) -> None:
        """Takes a replica out of the dir. Its folder is renamed, durably: a crash finds either
        the whole log or one that is to be removed. The files go after their delay."""
        log = self.logs.pop(partition)
        now_ms = self.clock.now_ms()
        doomed = f"{log.folder}.{now_ms:x}-{len(self._doomed)}{DELETE_SUFFIX}"
        try:
            for segment in log.segments.all:
                segment.forget()
            self.disk.rename(log.folder, doomed)
            self.disk.sync_folder(self.path)
            self._doomed.append((now_ms + log.settings.file_delete_delay_ms, doomed))
            for offsets in self._all_offsets().values():
                offsets.pop(partition, None)
            self.checkpoint()
        except OSError as error:
            raise self.fail(error) from error

    def remove_doomed(self) -> None:
        """Removes the files and folders whose delay is over."""
        now_ms = self.clock.now_ms()
        for log in self.logs.values():
            log.remove_doomed(now_ms)
        due = [path for due_ms, path in self._doomed if due_ms <= now_ms]
        self._doomed = [entry for entry in self._doomed if entry[0] > now_ms]
        try:
            for path in due:
                self._remove_folder(path)
        except OSError as error:
            raise self.fail(error) from error

    def _open_log(self, partition: TopicPartition, settings: LogSettings) -> PartitionLog:
        found = recovery.Found(
            log_start=self._log_starts.get(partition, 0),
            recovery_point=self._recovery_points.get(partition, 0),
            compacted_upto=self.cleaner_offsets.get(partition, 0),
            was_closed=self.was_closed,
            same_boot=self.same_boot,
        )
        folder = f"{self.path}/{partition.folder}"
        opened = recovery.open_log(self, partition, folder, settings, found, self.workers)
        self.logs[partition] = opened.log
        return opened.log

    # -- checkpoints

    def checkpoint(self) -> None:
        """Writes all four. Recovery points are taken as they are: flushing comes before."""
        self.persist_recovery_points()
        self.persist_log_starts()
        self.persist_high_watermarks()
        self.persist_cleaner_offsets()

    def persist_recovery_points(self) -> None:
        for partition, log in self.logs.items():
            self._recovery_points[partition] = log.recovery_point
        write_offsets(self.disk, f"{self.path}/{RECOVERY_POINTS}", self._recovery_points)
        for log in self.logs.values():
            log.durable_recovery_point = log.recovery_point

    def persist_log_starts(self) -> None:
        for partition, log in self.logs.items():
            self._log_starts[partition] = log.log_start_offset
        starts = {p: start for p, start in self._log_starts.items() if start > 0}
        write_offsets(self.disk, f"{self.path}/{LOG_STARTS}", starts)
        for log in self.logs.values():
            log.durable_log_start = log.log_start_offset

    def persist_high_watermarks(self) -> None:
        write_offsets(self.disk, f"{self.path}/{HIGH_WATERMARKS}", self.high_watermarks)

    def persist_cleaner_offsets(self) -> None:
        write_offsets(self.disk, f"{self.path}/{CLEANER_OFFSETS}", self.cleaner_offsets)

    def lower_cleaner_offset(self, partition: TopicPartition, to: int) -> None:
        if self.cleaner_offsets.get(partition, 0) > to:
            self.cleaner_offsets[partition] = to
            self.persist_cleaner_offsets()

    def _all_offsets(self) -> dict[str, dict[TopicPartition, int]]:
        return {
            RECOVERY_POINTS: self._recovery_points,
            LOG_STARTS: self._log_starts,
            HIGH_WATERMARKS: self.high_watermarks,
            CLEANER_OFFSETS: self.cleaner_offsets,
        }

    def _read_checkpoints(self) -> None:
        for name, offsets in self._all_offsets().items():
            try:
                offsets.update(read_offsets(self.disk, f"{self.path}/{name}"))
            except BadValue:
                # Each can be done without: more is checked, or compacted again, or asked for.
                self.unreadable.append(name)

    # -- small files

    def _make_folder(self) -> None:
        """Durably, with its parents: a log that is durable in a folder that is not is lost."""
        if self.disk.stat(self.path) is None:
            self.disk.make_folder(self.path)
            parent = self.path
            while "/" in parent:
                parent = parent.rpartition("/")[0]
                self.disk.sync_folder(parent or "/")

    def _take_lock(self) -> None:
        try:
            self._lock = self.disk.lock(f"{self.path}/{LOCK}")
        except BlockingIOError as error:
            raise BadValue(
                f"log dir {self.path} is in use by another process: stop it, or set log.dirs"
            ) from error

    def _check_identity(self, identity: Mapping[str, str]) -> None:
        path = f"{self.path}/{META_PROPERTIES}"
        if self.disk.stat(path) is None:
            self._write(META_PROPERTIES, format_meta_properties({"version": "0", **identity}))
            return
        found = parse_meta_properties(path, read_whole(self.disk, path))
        for name, value in identity.items():
            if found.get(name, value) != value:
                raise BadValue(
                    f"{path}: {name} is {found[name]}, this broker's is {value}: "
                    f"give it its own log.dirs, or set {name}={found[name]}"
                )

    def _forget_clean_shutdown(self) -> None:
        """From here on a crash is a crash: the marker goes before the first log is opened. The
        boot is noted after the last one: until then an earlier crash is not yet dealt with."""
        marker = f"{self.path}/{CLEAN_SHUTDOWN}"
        boot = f"{self.path}/{BOOT_ID}"
        self.was_closed = self.disk.stat(marker) is not None
        if self.disk.stat(boot) is not None:
            self.same_boot = read_whole(self.disk, boot) == self.clock.boot_id().encode()
        if self.was_closed:
            self.disk.remove(marker)
            self.disk.sync_folder(self.path)

    def _write(self, name: str, data: bytes) -> None:
        write_whole(self.disk, f"{self.path}/{name}", data)

    def _is_folder(self, name: str) -> bool:
        info = self.disk.stat(f"{self.path}/{name}")
        return info is not None and info.is_folder

    def _remove_folder(self, path: str) -> None:
        for name in self.disk.list(path):
            self.disk.remove(f"{path}/{name}")
        self.disk.remove(path)
