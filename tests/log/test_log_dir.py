"""A log dir: its checkpoint files, whose it is, its lock, its marker, and how replicas come and go
(S8, F15, X24, X27)."""

import errno
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.logs import IDENTITY, NOW, PARTITION, Simulated, batch, check_everything
from tidelog.base.errors import BadValue, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.base.log_settings import LogSettings
from tidelog.log.checkpoints import (
    CHECKSUM,
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    parse_offsets,
)
from tidelog.log.log_dir import BOOT_ID, LogDir
from tidelog.log.partition_log import PartitionLog
from tidelog.log.retention import delete_records
from tidelog.log.truncation import restart_at, truncate_suffix
from tidelog.world.real.clock import RealClock
from tidelog.world.real.disk import RealDisk
from tidelog.world.sim.disk import Crashed, SimDisk

SETTINGS = LogSettings(segment_bytes=400, index_interval_bytes=100)
OTHER = TopicPartition("payments", 3)
TOPIC_ID = bytes(range(16))
FOUR = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANER_OFFSETS)


def open_dir(disk: SimDisk, identity: dict[str, str] | None = None) -> LogDir:
    log_dir = LogDir("/data", disk, disk.clock)
    log_dir.open(IDENTITY if identity is None else identity, lambda _: SETTINGS)
    return log_dir


def filled(count: int = 12) -> Simulated:
    world = Simulated(SETTINGS)
    for _ in range(count):
        world.log.append_as_leader(batch(2), 0, NOW)
    return world


def write(disk: SimDisk, path: str, data: bytes) -> None:
    file = disk.open(path, "create")
    file.truncate(0)
    file.pwrite(data, 0)


# -- the four checkpoints


def test_four_checkpoints_are_text_files_that_kafka_reads(tmp_path: Path) -> None:
    """S8."""
    log_dir = LogDir(str(tmp_path / "data"), RealDisk(), RealClock())
    log_dir.open(IDENTITY, lambda _: SETTINGS)
    for partition in (PARTITION, OTHER):
        log = log_dir.create_log(partition, SETTINGS)
        for _ in range(5):
            log.append_as_leader(batch(2), 0, NOW)
    log_dir.logs[PARTITION].flush(NOW)
    delete_records(log_dir.logs[OTHER], 3, 8)
    log_dir.high_watermarks |= {PARTITION: 6, OTHER: 8}
    log_dir.cleaner_offsets[OTHER] = 4
    log_dir.checkpoint()
    read = {name: (tmp_path / "data" / name).read_text() for name in FOUR}
    assert {name: text.partition(CHECKSUM)[0] for name, text in read.items()} == {
        RECOVERY_POINTS: "0\n3\norders 0 10\npayments 3 0\n",
        HIGH_WATERMARKS: "0\n3\norders 0 6\npayments 3 8\n",
        LOG_STARTS: "0\n2\npayments 3 3\n",
        CLEANER_OFFSETS: "0\n2\npayments 3 4\n",
    }
    assert all(re.fullmatch(r" 0 \d+\n", text.partition(CHECKSUM)[2]) for text in read.values())
    log_dir.close()


def test_checkpoints_are_read_back_at_the_next_start() -> None:
    world = filled()
    world.log_dir.high_watermarks[PARTITION] = 20
    world.log_dir.cleaner_offsets[PARTITION] = 8
    delete_records(world.log, 5, 20)
    log = world.stop_and_start()
    assert world.log_dir.high_watermarks == {PARTITION: 20}
    assert world.log_dir.cleaner_offsets == {PARTITION: 8}
    assert (log.log_start_offset, log.recovery_point) == (5, 24)


def test_checkpoints_keep_what_is_said_of_replicas_that_are_not_open() -> None:
    """X24: nothing is forgotten because a replica has not been heard of yet."""
    world = filled()
    world.log_dir.close()
    for name in FOUR:
        write(world.disk, f"/data/{name}", b"0\n2\norders 0 4\nsilent 7 42\n")
    log_dir = open_dir(world.disk)
    log_dir.checkpoint()
    for name in FOUR:
        data = world.disk.view()[f"/data/{name}"]
        assert parse_offsets(name, data)[TopicPartition("silent", 7)] == 42, name


def cut_and_filled_again(world: Simulated, cut: Callable[[PartitionLog, int, int], None]) -> None:
    """As a follower of a leader that was elected uncleanly: other records take the offsets of those
    that were committed, and are not committed yet."""
    world.log.flush(NOW)
    world.log_dir.high_watermarks[PARTITION] = 20
    world.log_dir.checkpoint()
    cut(world.log, 6, NOW)
    for _ in range(9):
        world.log.append_as_leader(batch(2), 1, NOW)


@pytest.mark.parametrize("cut", [truncate_suffix, restart_at])
@pytest.mark.parametrize("restart", ["kill", "lose_power"])
def test_what_replaces_committed_records_is_not_taken_for_committed_after_a_crash(
    cut: Callable[[PartitionLog, int, int], None], restart: str
) -> None:
    """V7, V8: the last checkpoint may be of before the cut."""
    world = filled()
    cut_and_filled_again(world, cut)
    log = getattr(world, restart)()
    assert log.log_end_offset == (24 if restart == "kill" else 6)
    assert world.log_dir.high_watermarks[PARTITION] == 6


def test_saved_watermark_is_lowered_before_a_cut_at_whichever_disk_operation_it_dies() -> None:
    """V7: it is durable before anything is gone."""
    number = 0
    while True:
        world = filled()
        world.log.flush(NOW)
        world.log_dir.high_watermarks[PARTITION] = 20
        world.log_dir.checkpoint()
        world.disk.crash_at(number, "before")
        try:
            truncate_suffix(world.log, 6, NOW)
            break
        except Crashed:
            log = world.lose_power("none")
            is_cut = log.log_end_offset < 20
            assert world.log_dir.high_watermarks[PARTITION] <= (6 if is_cut else 20)
            number += 1
    assert number > 5


def test_saved_watermark_is_lowered_where_a_log_has_lost_its_end() -> None:
    """V7, V8: what comes in its place may be another leader's, and this process may die too."""
    world = filled(3)
    world.log.flush(NOW)
    for _ in range(9):
        world.log.append_as_leader(batch(2), 0, NOW)
    world.log_dir.high_watermarks[PARTITION] = 20
    world.log_dir.checkpoint()
    assert world.lose_power("all").log_end_offset == 6
    for _ in range(9):
        world.log.append_as_leader(batch(2), 1, NOW)
    assert world.kill().log_end_offset == 24
    assert world.log_dir.high_watermarks[PARTITION] == 6


@pytest.mark.parametrize("name", FOUR)
@pytest.mark.parametrize(
    "garbage", [b"", b"garbage", b"0\n1\n", b"0\n\xb2\n", b"0\n1\norders 0 -5\n", b"\xff" * 40]
)
@pytest.mark.parametrize("restart", ["stop", "kill"])
def test_corrupt_checkpoint_is_noted_and_done_without(
    name: str, garbage: bytes, restart: str
) -> None:
    """F12."""
    world = filled()
    if restart == "stop":
        world.log_dir.close()
    world.disk.process_dies()
    write(world.disk, f"/data/{name}", garbage)
    log_dir = open_dir(world.disk)
    assert log_dir.unreadable == [name]
    assert log_dir.logs[PARTITION].log_end_offset == 24
    check_everything(log_dir.logs[PARTITION])
    log_dir.checkpoint()
    parse_offsets(name, world.disk.view()[f"/data/{name}"])


# -- identity and lock


def test_new_dir_is_marked_as_this_brokers() -> None:
    """S8."""
    world = Simulated(SETTINGS)
    text = world.disk.view()["/data/meta.properties"].decode()
    assert text == "broker.id=1\ncluster.id=test\nversion=0\n"
    assert "/data/meta.properties" in world.disk.durable_view()


@pytest.mark.parametrize(
    ("identity", "complaint"),
    [
        ({"broker.id": "2", "cluster.id": "test"}, "broker.id is 1, this broker's is 2"),
        ({"broker.id": "1", "cluster.id": "prod"}, "cluster.id is test, this broker's is prod"),
    ],
)
def test_dir_of_another_broker_or_cluster_is_refused(
    identity: dict[str, str], complaint: str
) -> None:
    """F15."""
    world = filled()
    world.log_dir.close()
    before = world.disk.view()
    with pytest.raises(BadValue, match=complaint):
        open_dir(world.disk, identity)
    assert world.disk.view() == before, "nothing is touched, the marker of the clean stop neither"
    assert open_dir(world.disk).was_closed, "and whose it is can still open it"


def test_dir_of_another_broker_in_kafkas_newer_words_is_refused() -> None:
    """F15: KRaft says node.id."""
    disk = SimDisk()
    disk.make_folder("/data")
    write(disk, "/data/meta.properties", b"version=1\nnode.id=7\ncluster.id=test\n")
    with pytest.raises(BadValue, match=r"broker\.id is 7, this broker's is 1"):
        open_dir(disk)
    assert open_dir(disk, {"broker.id": "7", "cluster.id": "test"}).failure is None


@pytest.mark.parametrize("data", [b"", b"\xff\xff", b"version=9\n", b"version 0\n"])
def test_unreadable_meta_properties_are_refused_by_name(data: bytes) -> None:
    disk = SimDisk()
    disk.make_folder("/data")
    write(disk, "/data/meta.properties", data)
    with pytest.raises(BadValue, match=r"/data/meta\.properties"):
        open_dir(disk)


def test_dir_in_use_is_refused_to_a_second_instance() -> None:
    """S8, F15."""
    world = filled()
    with pytest.raises(BadValue, match="in use by another process"):
        open_dir(world.disk)
    assert world.log.append_as_leader(batch(), 0, NOW) == 24
    world.log_dir.close()
    open_dir(world.disk)


HOLDER = """
import sys
from tidelog.log.log_dir import LogDir
from tidelog.world.real.clock import RealClock
from tidelog.world.real.disk import RealDisk
LogDir(sys.argv[1], RealDisk(), RealClock()).open({"broker.id": "1"}, lambda _: None)
print("open", flush=True)
sys.stdin.read()
"""


def test_dir_in_use_is_refused_to_a_second_process_until_the_first_has_died(tmp_path: Path) -> None:
    """F15: also when it dies without a word."""
    path = str(tmp_path / "data")
    command = [sys.executable, "-c", HOLDER, path]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        log_dir = LogDir(path, RealDisk(), RealClock())
        with pytest.raises(BadValue, match="in use by another process"):
            log_dir.open({"broker.id": "1"}, lambda _: SETTINGS)
        holder.kill()
        holder.wait()
    log_dir.open({"broker.id": "1"}, lambda _: SETTINGS)
    assert not log_dir.was_closed
    assert log_dir.same_boot
    log_dir.close()


# -- the marker of a clean stop


def test_marker_is_there_after_a_clean_stop_only_and_gone_once_the_dir_is_open() -> None:
    """S8."""
    world = filled()
    assert f"/data/{CLEAN_SHUTDOWN}" not in world.disk.view()
    world.log_dir.close()
    assert f"/data/{CLEAN_SHUTDOWN}" in world.disk.durable_view()
    log_dir = open_dir(world.disk)
    assert log_dir.was_closed
    assert f"/data/{CLEAN_SHUTDOWN}" not in world.disk.durable_view()
    world.disk.process_dies()
    assert not open_dir(world.disk).was_closed


def test_marker_is_durably_gone_before_anything_is_loaded() -> None:
    """X27: a crash during loading must not count as a clean stop (KAFKA-10471)."""
    number, seen = 0, 0
    while True:
        world = filled()
        world.log_dir.close()
        world.disk.crash_at(number, "before")
        try:
            open_dir(world.disk)
            break
        except Crashed:
            changed = {
                path for path in world.disk.fork().view() if path.startswith("/data/orders-0/")
            }
            world.disk.machine_dies("all")
            log_dir = open_dir(world.disk)
            if number > 1:
                assert not log_dir.was_closed
                seen += 1
            assert changed
            assert log_dir.logs[PARTITION].log_end_offset == 24
            check_everything(log_dir.logs[PARTITION])
            number += 1
    assert seen > 2


def test_failed_stop_leaves_no_marker_and_lets_go_of_the_dir() -> None:
    for operation in ("sync", "pwrite", "rename"):
        world = filled()
        world.disk.fail(errno.EIO, operations=[operation], path="*.snapshot*")
        with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
            world.log_dir.close()
        world.disk.heal()
        log_dir = open_dir(world.disk)
        assert not log_dir.was_closed
        check_everything(log_dir.logs[PARTITION])


def test_boot_is_noted_when_everything_is_open_and_forgotten_at_the_first_error() -> None:
    """After a failed write the page cache is not to be believed."""
    world = filled()
    assert world.disk.view()[f"/data/{BOOT_ID}"] == world.clock.boot_id().encode()
    world.log_dir.fail(OSError(errno.EIO, "broken"))
    assert f"/data/{BOOT_ID}" not in world.disk.view()
    world.kill()
    assert not world.log_dir.same_boot


def test_whoever_must_remove_the_note_of_the_boot_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A file system that has become read-only keeps it, and is mounted again in the same boot."""
    world = filled()
    world.disk.fail(errno.EROFS, path="/data/*", times=None)
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        world.log.append_as_leader(batch(2), 0, NOW)
    assert f"remove file=/data/{BOOT_ID} by hand before the next start" in caplog.text
    world.disk.heal()
    world.disk.remove(f"/data/{BOOT_ID}")
    world.kill()
    assert not world.log_dir.same_boot


def test_what_a_failed_sync_lost_is_written_again_after_a_restart() -> None:
    """X26: the system takes the pages for clean; a later sync that succeeds proves nothing."""
    world = filled()
    world.log.flush(NOW)
    world.log_dir.persist_recovery_points()
    for _ in range(3):
        world.log.append_as_leader(batch(2), 0, NOW)
    world.disk.fail(errno.EIO, operations=["sync"], path="*.log")
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        world.log.flush(NOW)
    world.disk.heal()
    log = world.kill()
    assert log.log_end_offset == 30
    log.flush(NOW)
    world.log_dir.persist_recovery_points()
    log = world.lose_power("all")
    assert log.log_end_offset == 30, "a flush that succeeded made it durable"
    check_everything(log)


# -- replicas come and go


def test_topic_id_is_kept_in_partition_metadata() -> None:
    """S1."""
    world = Simulated(SETTINGS)
    world.log_dir.create_log(OTHER, SETTINGS, TOPIC_ID)
    assert world.log_dir.topic_id(OTHER) == TOPIC_ID
    assert world.log_dir.topic_id(PARTITION) is None
    world.log_dir.logs[OTHER].flush(NOW)
    world.lose_power()
    assert world.log_dir.topic_id(OTHER) == TOPIC_ID
    write(world.disk, "/data/payments-3/partition.metadata", b"rubbish")
    assert world.log_dir.topic_id(OTHER) is None, "a power loss before the first flush tears it"


def test_deleted_replica_is_gone_at_once_and_its_files_after_the_delay() -> None:
    world = filled()
    world.log_dir.high_watermarks[PARTITION] = 10
    world.log_dir.checkpoint()
    world.log_dir.delete_log(PARTITION)
    folders = [name for name in world.disk.list("/data") if name.startswith("orders-0")]
    assert len(folders) == 1
    assert folders[0].endswith("-delete")
    for name in FOUR:
        assert PARTITION not in parse_offsets(name, world.disk.view()[f"/data/{name}"])
    world.clock.advance(SETTINGS.file_delete_delay_ms - 1)
    world.log_dir.remove_doomed()
    assert folders[0] in world.disk.list("/data")
    world.clock.advance(1)
    world.log_dir.remove_doomed()
    assert not [name for name in world.disk.list("/data") if name.startswith("orders")]


def test_replica_can_be_made_again_while_its_predecessor_waits_to_be_removed() -> None:
    world = filled()
    for end in (24, 1, 1):
        assert world.log.log_end_offset == end
        world.log_dir.delete_log(PARTITION)
        log = world.log_dir.create_log(PARTITION, SETTINGS)
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
        assert log.append_as_leader(batch(), 0, NOW) == 0
    world.clock.advance(SETTINGS.file_delete_delay_ms)
    world.log_dir.remove_doomed()
    assert [n for n in world.disk.list("/data") if n.startswith("orders")] == ["orders-0"]
    check_everything(world.kill())


def test_topic_with_the_longest_name_can_be_deleted(tmp_path: Path) -> None:
    """The name with its ending must still fit into a folder's name."""
    long = TopicPartition("t" * 249, 12345)
    log_dir = LogDir(str(tmp_path), RealDisk(), RealClock())
    log_dir.open(IDENTITY, lambda _: SETTINGS)
    log_dir.create_log(long, SETTINGS).append_as_leader(batch(), 0, NOW)
    log_dir.delete_log(long)
    assert log_dir.failure is None
    log_dir.close()
    again = LogDir(str(tmp_path), RealDisk(), RealClock())
    again.open(IDENTITY, lambda _: SETTINGS)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("ttt")]
    again.close()


@pytest.mark.parametrize("death", ["process", "all", "some", "none"])
def test_crash_in_the_middle_of_a_deletion_leaves_the_whole_log_or_none(death: str) -> None:
    """F18: and a replica that is made again begins at 0, whatever checkpoints still say."""
    number, gone = 0, 0
    while True:
        world = filled()
        delete_records(world.log, 10, 24)
        world.log.flush(NOW)
        world.log_dir.checkpoint()
        world.disk.crash_at(number, "middle")
        try:
            world.log_dir.delete_log(PARTITION)
            world.clock.advance(SETTINGS.file_delete_delay_ms)
            world.log_dir.remove_doomed()
            break
        except Crashed:
            pass
        if death == "process":
            world.disk.process_dies()
        else:
            world.disk.machine_dies(death)  # type: ignore[arg-type]
        log_dir = open_dir(world.disk)
        assert not [name for name in world.disk.list("/data") if name.endswith("-delete")]
        log = log_dir.logs.get(PARTITION)
        if log is not None:
            assert (log.log_start_offset, log.log_end_offset) == (10, 24)
            check_everything(log)
        else:
            gone += 1
            _check_begins_anew(world.disk, log_dir)
        number += 1
    assert gone > 3


def _check_begins_anew(disk: SimDisk, log_dir: LogDir) -> None:
    log = log_dir.create_log(PARTITION, SETTINGS)
    for _ in range(2):
        log.append_as_leader(batch(2), 0, NOW)
    log.flush(NOW)
    log_dir.persist_recovery_points()
    disk.machine_dies("all")
    log = open_dir(disk).logs[PARTITION]
    assert (log.log_start_offset, log.log_end_offset) == (0, 4), "its records are durable"
    check_everything(log)


@pytest.mark.parametrize("death", ["all", "some", "none"])
def test_crash_while_a_replica_is_made_leaves_a_dir_that_opens(death: str) -> None:
    number = 0
    while True:
        world = filled(2)
        world.disk.crash_at(number, "middle")
        try:
            world.log_dir.create_log(OTHER, SETTINGS, TOPIC_ID)
            break
        except Crashed:
            world.disk.machine_dies(death)  # type: ignore[arg-type]
        log_dir = open_dir(world.disk)
        log = log_dir.logs.get(OTHER) or log_dir.create_log(OTHER, SETTINGS, TOPIC_ID)
        assert log.append_as_leader(batch(), 0, NOW) == 0
        assert log_dir.topic_id(OTHER) in (TOPIC_ID, None)
        number += 1
    assert number > 5
    world.disk.crash_at(None)
    world.log_dir.logs[OTHER].flush(NOW)
    world.disk.machine_dies("all")
    assert OTHER in open_dir(world.disk).logs, "a replica that was flushed is there"


@pytest.mark.parametrize("left", [b"", bytes(40)])
def test_metadata_that_a_power_loss_has_emptied_counts_as_none(left: bytes) -> None:
    world = Simulated(SETTINGS)
    world.log_dir.create_log(OTHER, SETTINGS, TOPIC_ID)
    write(world.disk, "/data/payments-3/partition.metadata", left)
    assert world.log_dir.topic_id(OTHER) is None


def test_strangers_in_the_dir_are_left_alone() -> None:
    world = filled()
    world.log_dir.close()
    disk = world.disk
    strangers = ["/data/notes.txt", "/data/orders-1", "/data/keep-delete", "/data/x-0.1-delete"]
    for path in strangers:
        write(disk, path, b"mine")
    folders = ["lost+found", "backup-delete/deep", "orders", "orders-x", "orders-00", "-0"]
    for folder in folders:
        disk.make_folder(f"/data/{folder}")
        write(disk, f"/data/{folder}/file", b"mine")
    log_dir = open_dir(disk)
    assert log_dir.failure is None
    assert list(log_dir.logs) == [PARTITION]
    left = {path for path, data in disk.view().items() if data == b"mine"}
    assert left == {*strangers, *(f"/data/{folder}/file" for folder in folders)}


def test_strange_files_in_a_replicas_folder_do_no_harm() -> None:
    world = filled()
    world.log_dir.close()
    for name in ("notes.txt", "123.log", "0" * 20 + ".logx", "x" * 20 + ".log", ".hidden"):
        write(world.disk, f"/data/orders-0/{name}", b"mine")
    log = open_dir(world.disk).logs[PARTITION]
    assert log.log_end_offset == 24
    check_everything(log)
    assert world.disk.view()["/data/orders-0/notes.txt"] == b"mine"
