"""Several log dirs: a disk that fails takes its own replicas offline, with one clear error, and
nothing else; after a restart the log is intact (S10, V19, X26, F9, F10)."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from support.logs import IDENTITY, NOW, batch, check_everything, contents
from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.base.log_settings import LogSettings
from tidelog.log.checkpoints import CLEAN_SHUTDOWN, RECOVERY_POINTS, read_offsets
from tidelog.log.log_dir import LogDir
from tidelog.log.logs import Logs
from tidelog.log.partition_log import PartitionLog
from tidelog.log.truncation import restart_at, truncate_suffix
from tidelog.records.batch import stamp
from tidelog.world.real.clock import RealClock
from tidelog.world.real.disk import RealDisk
from tidelog.world.sim.disk import SimDisk

SETTINGS = LogSettings(segment_bytes=400, index_interval_bytes=100)
PATHS = ["/disk0/data", "/disk1/data", "/disk2/data"]
PARTITIONS = [TopicPartition("orders", n) for n in range(6)]


class Broker:
    """Three dirs on one simulated disk, told apart by their paths."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.logs = self.open()
        for partition in PARTITIONS:
            log = self.logs.create(partition, SETTINGS)
            for _ in range(4):
                log.append_as_leader(batch(2), 0, NOW)

    def open(self) -> Logs:
        self.logs = Logs([LogDir(path, self.disk, self.disk.clock) for path in PATHS])
        self.logs.open(IDENTITY, lambda _: SETTINGS)
        return self.logs

    def restart(self) -> Logs:
        self.disk.heal()
        self.disk.process_dies()
        return self.open()

    def in_dir(self, number: int) -> list[PartitionLog]:
        return list(self.logs.dirs[number].logs.values())

    def check_only_first_is_offline(self, number: int) -> None:
        failure = self.logs.dirs[0].failure
        assert failure is not None
        assert failure.errno == number
        assert self.logs.online == self.logs.dirs[1:]
        for log in self.in_dir(0):
            with pytest.raises(KafkaError) as caught:
                log.append_as_leader(batch(), 0, NOW)
            assert caught.value.code == ErrorCode.kafka_storage_error
            assert os.strerror(number) in str(caught.value)
            with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
                self.logs.get(log.partition)
        for log in [*self.in_dir(1), *self.in_dir(2)]:
            end = log.log_end_offset
            assert self.logs.get(log.partition).append_as_leader(batch(), 0, NOW) == end
            check_everything(log)


def test_new_replica_goes_to_the_dir_that_holds_the_fewest() -> None:
    """S10."""
    broker = Broker()
    assert [len(log_dir.logs) for log_dir in broker.logs.dirs] == [2, 2, 2]
    broker.logs.delete(broker.in_dir(1)[0].partition)
    log = broker.logs.create(TopicPartition("new", 0), SETTINGS)
    assert log.folder == "/disk1/data/new-0"
    broker.logs.dirs[0].fail(OSError(errno.EIO, "broken"))
    homes = {broker.logs.create(TopicPartition("more", n), SETTINGS).folder[:6] for n in range(4)}
    assert homes == {"/disk1", "/disk2"}, "a dir that is offline gets none"


def test_unknown_partition_is_told_so() -> None:
    with pytest.raises(KafkaError) as caught:
        Broker().logs.get(TopicPartition("nowhere", 0))
    assert caught.value.code == ErrorCode.unknown_topic_or_partition


def test_replica_in_two_dirs_is_refused_with_both_names() -> None:
    broker = Broker()
    broker.disk.make_folder("/disk2/data/orders-0")
    for path, content in broker.disk.view().items():
        if path.startswith("/disk0/data/orders-0/"):
            twin = broker.disk.open(path.replace("/disk0", "/disk2"), "create")
            twin.pwrite(content, 0)
    broker.disk.process_dies()
    with pytest.raises(BadValue) as caught:
        broker.open()
    assert "orders-0" in str(caught.value)
    assert "/disk0/data" in str(caught.value)
    assert "/disk2/data" in str(caught.value)


@pytest.mark.parametrize("path", ["/disk1/data", "/disk2/data"])
def test_an_empty_twin_that_a_failed_dir_has_left_is_removed(path: str) -> None:
    """S10: whichever dir is looked at first."""
    broker = Broker()
    log = next(log for log in broker.in_dir(1 if path == "/disk2/data" else 2))
    end = log.log_end_offset
    broker.disk.make_folder(f"{path}/{log.partition.folder}")
    logs = broker.restart()
    assert logs.get(log.partition).log_end_offset == end
    assert [log.partition in log_dir.logs for log_dir in logs.dirs].count(True) == 1


FAILURES = [
    (errno.ENOSPC, "pwrite", "/disk0/*.log", 0.5),
    (errno.ENOSPC, "pwrite", "/disk0/*.log", 0.0),
    (errno.EIO, "pwrite", "/disk0/*.log", 0.9),
    (errno.EROFS, "pwrite", "/disk0/*.log", 0.0),
]


@pytest.mark.parametrize(("number", "operation", "path", "part"), FAILURES)
def test_failed_append_takes_its_dir_offline_and_leaves_the_log_intact(
    number: int, operation: str, path: str, part: float
) -> None:
    """V19, X26, F9, F10: the error comes once, the next write would succeed, and is refused."""
    broker = Broker()
    log = broker.in_dir(0)[0]
    before = [held.data for held in contents(log)]
    broker.disk.fail(number, operations=[operation], path=path, part=part)
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(batch(3), 0, NOW)
    assert caught.value.code == ErrorCode.kafka_storage_error
    assert "/disk0/data is offline" in str(caught.value)
    assert log.log_end_offset == 8
    broker.check_only_first_is_offline(number)
    broker.restart()
    log = broker.logs.get(log.partition)
    assert [held.data for held in check_everything(log)] == before
    assert log.append_as_leader(batch(), 0, NOW) == 8


def test_full_disk_in_the_middle_of_a_roll_or_an_index_is_survived() -> None:
    """F9: the space ends at every single byte of what a few appends write."""
    ended = set()
    for room in range(0, 1200, 37):
        broker = Broker()
        log = broker.in_dir(0)[0]
        broker.disk.limit(sum(len(data) for data in broker.disk.view().values()) + room)
        acknowledged, complaint = 8, ""
        try:
            for _ in range(12):
                log.append_as_leader(batch(2), 0, NOW)
                acknowledged = log.log_end_offset
        except KafkaError as error:
            complaint = str(error)
        assert ("KAFKA_STORAGE_ERROR" in complaint) == ("No space left" in complaint)
        assert complaint or acknowledged == 32
        broker.disk.limit(None)
        broker.restart()
        log = broker.logs.get(log.partition)
        assert log.log_end_offset == acknowledged
        check_everything(log)
        ended.add(acknowledged)
    assert len(ended) > 5


@pytest.mark.parametrize("flush_messages", [5, 1000])
def test_flush_as_settings_ask_for_it_is_noted_in_the_recovery_points(flush_messages: int) -> None:
    """S7, S8."""
    broker = Broker()
    for log in broker.in_dir(1):
        log.settings = LogSettings(segment_bytes=1 << 20, flush_messages=flush_messages)
    broker.logs.flush()
    path = f"/disk1/data/{RECOVERY_POINTS}"
    wanted = 8 if flush_messages == 5 else 0
    assert set(read_offsets(broker.disk, path).values()) == {wanted}
    broker.logs.flush(all_of_it=True)
    broker.disk.machine_dies("all")
    assert set(read_offsets(broker.disk, path).values()) == {8}
    for log in broker.open().dirs[1].logs.values():
        assert log.log_end_offset == log.recovery_point == 8


@pytest.mark.parametrize("operation", ["sync", "sync_folder"])
def test_failed_sync_takes_its_dir_offline_and_the_others_are_flushed(operation: str) -> None:
    """V19, X26."""
    broker = Broker()
    broker.disk.fail(errno.EIO, operations=[operation], path="/disk0/*", times=1)
    broker.logs.flush(all_of_it=True)
    broker.check_only_first_is_offline(errno.EIO)
    assert broker.in_dir(0)[0].recovery_point == 0
    for log in [*broker.in_dir(1), *broker.in_dir(2)]:
        assert log.recovery_point == 8, "others go on"
    broker.restart()
    for partition in PARTITIONS:
        check_everything(broker.logs.get(partition))


def test_sync_is_not_tried_again_after_it_failed() -> None:
    """X26: the second sync would succeed and prove nothing."""
    broker = Broker()
    log = broker.in_dir(0)[0]
    broker.disk.fail(errno.EIO, operations=["sync"], path="/disk0/*", times=1)
    for _ in range(2):
        with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
            log.flush(NOW)
        assert log.recovery_point == 0
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        broker.logs.dirs[0].persist_recovery_points()


def test_failed_read_takes_its_dir_offline() -> None:
    """F10."""
    broker = Broker()
    log = broker.in_dir(0)[0]
    log.roll()
    broker.disk.fail(errno.EIO, operations=["pread", "open"], path="/disk0/*", times=None)
    with pytest.raises(KafkaError, match=r"KAFKA_STORAGE_ERROR.*Input/output error"):
        log.read(0, 100, 8)
    broker.check_only_first_is_offline(errno.EIO)
    broker.restart()
    check_everything(broker.logs.get(log.partition))


def following(log: PartitionLog) -> bytearray:
    """The next batch, as a leader sends it."""
    data = batch(2)
    stamp(data, log.log_end_offset, 0)
    return data


@pytest.mark.parametrize(
    "work",
    [
        lambda log: log.roll(),
        lambda log: truncate_suffix(log, 2, NOW),
        lambda log: restart_at(log, 50, NOW),
        lambda log: log.append_as_follower(following(log), 0),
        lambda log: log.flush(NOW),
    ],
    ids=["roll", "truncate", "restart", "follow", "flush"],
)
def test_every_failed_change_is_one_clear_error_and_the_log_is_whole_afterwards(
    work: Callable[[PartitionLog], object],
) -> None:
    """V19: whichever of its disk operations fails."""
    failures = 0
    for skip in range(12):
        broker = Broker()
        log = broker.in_dir(0)[0]
        held = [item.data for item in contents(log)]
        broker.disk.fail(errno.EIO, path="/disk0/*", skip=skip)
        try:
            work(log)
            code = None
        except KafkaError as error:
            code = error.code
        if code is not None:
            assert code == ErrorCode.kafka_storage_error
            broker.check_only_first_is_offline(errno.EIO)
            failures += 1
        broker.restart()
        log = broker.logs.get(log.partition)
        found = [item.data for item in check_everything(log)]
        assert found[: len(held)] == held[: len(found)]
    assert failures > 0


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        ("list", "/disk0/data"),
        ("lock", "/disk0/*"),
        ("pread", "/disk0/*.log"),
        ("open", "/disk0/*"),
        ("stat", "/disk0/data"),
        ("pwrite", "/disk0/*"),
        ("sync", "/disk0/*"),
        ("make_folder", "/disk0/*"),
    ],
)
def test_dir_that_cannot_be_opened_is_offline_and_the_others_serve(
    operation: str, path: str
) -> None:
    """S10, F10."""
    broker = Broker()
    broker.logs.close()
    if operation == "make_folder":
        for name in [name for name in broker.disk.view() if name.startswith("/disk0/")]:
            broker.disk.remove(name)
        for partition in PARTITIONS[::3]:
            broker.disk.remove(f"/disk0/data/{partition}")
        broker.disk.remove("/disk0/data")
    broker.disk.fail(errno.EIO, operations=[operation], path=path, times=None)
    logs = broker.open()
    assert logs.online == logs.dirs[1:]
    for partition in PARTITIONS:
        if partition.partition % 3:
            check_everything(logs.get(partition))
        else:
            with pytest.raises(KafkaError):
                logs.get(partition)
    if operation != "make_folder":
        broker.logs.close()
        broker.restart()
        for partition in PARTITIONS:
            check_everything(broker.logs.get(partition))


def test_broker_without_a_dir_that_works_says_why() -> None:
    broker = Broker()
    broker.logs.close()
    broker.disk.fail(errno.EIO, operations=["list"], path="/disk?/data", times=None)
    with pytest.raises(BadValue, match=r"no log dir can be used.*Input/output error"):
        broker.open()
    with pytest.raises(KafkaError, match="all log dirs are offline"):
        broker.logs.create(TopicPartition("new", 0), SETTINGS)


def test_failing_stop_of_one_dir_does_not_keep_the_others_from_stopping_cleanly() -> None:
    """S10."""
    broker = Broker()
    broker.disk.fail(errno.EIO, operations=["sync"], path="/disk0/*", times=1)
    broker.logs.close()
    markers = [path for path in broker.disk.view() if path.endswith(CLEAN_SHUTDOWN)]
    assert markers == [f"{path}/{CLEAN_SHUTDOWN}" for path in PATHS[1:]]
    logs = broker.restart()
    assert [log_dir.was_closed for log_dir in logs.dirs] == [False, True, True]
    for partition in PARTITIONS:
        assert logs.get(partition).log_end_offset == 8


@pytest.mark.parametrize("operation", ["pwrite", "rename", "sync", "sync_folder", "create"])
def test_housekeeping_goes_on_in_the_other_dirs(operation: str) -> None:
    """V19: retention, flush."""
    broker = Broker()
    for log_dir in broker.logs.dirs:
        log_dir.high_watermarks |= dict.fromkeys(log_dir.logs, 8)
        for log in log_dir.logs.values():
            log.settings = LogSettings(segment_bytes=400, retention_bytes=0)
    broker.disk.fail(errno.EIO, operations=[operation], path="/disk0/*", times=None)
    broker.logs.flush(all_of_it=True)
    broker.logs.retain()
    assert broker.logs.online == broker.logs.dirs[1:]
    assert {log.log_start_offset for log in [*broker.in_dir(1), *broker.in_dir(2)]} == {8}
    broker.restart()
    for log in broker.in_dir(0):
        check_everything(log)
        assert log.log_end_offset == 8


def test_dir_that_is_a_file_is_offline_on_a_real_disk(tmp_path: Path) -> None:
    """S10, F10: and the same dir twice is refused."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    bad.write_text("not a folder")
    logs = Logs([LogDir(str(path), RealDisk(), RealClock()) for path in (good, bad)])
    logs.open(IDENTITY, lambda _: SETTINGS)
    assert logs.online == logs.dirs[:1]
    assert logs.create(PARTITIONS[0], SETTINGS).append_as_leader(batch(), 0, NOW) == 0
    twice = Logs([LogDir(str(good), RealDisk(), RealClock())])
    with pytest.raises(BadValue, match="in use"):
        twice.open(IDENTITY, lambda _: SETTINGS)
    logs.close()
