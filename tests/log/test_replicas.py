"""Replicas that come and go in steps, checkpoints and leader epochs that are written in steps: a
crash at every disk operation, and somebody who does not go in steps between any two of them."""

import pytest

from support.logs import IDENTITY, NOW, PARTITION, Simulated, batch, check_everything, contents
from support.stepping import run_with
from tidelog.base.errors import KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.base.log_settings import LogSettings
from tidelog.log.checkpointing import checkpointing
from tidelog.log.checkpoints import (
    CLEANER_OFFSETS,
    LEADER_EPOCHS,
    LEADER_EPOCHS_UNSYNCED,
    RECOVERY_POINTS,
    parse_epochs,
    parse_offsets,
)
from tidelog.log.epoch_notes import noting_epochs
from tidelog.log.log_dir import LogDir
from tidelog.log.replicas import NewReplica, deleting, making
from tidelog.log.retention import delete_records
from tidelog.log.steps import run_now
from tidelog.log.truncation import truncate_suffix
from tidelog.world.sim.disk import Crashed, SimDisk

SETTINGS = LogSettings(segment_bytes=400, index_interval_bytes=100)
OLD_ID, NEW_ID = b"o" * 16, b"n" * 16
DEATHS = ["process", "all", "some", "none"]
NAME = TopicPartition("replaced", 1)


def opened(disk: SimDisk) -> LogDir:
    log_dir = LogDir("/data", disk, disk.clock)
    log_dir.open(IDENTITY, lambda _: SETTINGS)
    return log_dir


def with_replica(*, flushed: bool, seed: int = 0) -> LogDir:
    """A dir with a replica of 12 batches of an old topic, whose log starts at 10."""
    log_dir = opened(SimDisk(seed))
    log = log_dir.create_log(NAME, SETTINGS, OLD_ID)
    for _ in range(12):
        log.append_as_leader(batch(2), 0, NOW)
    if flushed:
        delete_records(log, 10, 24)
        log.flush(NOW)
        log_dir.high_watermarks[NAME] = 24
        log_dir.checkpoint()
    return log_dir


def delete(log_dir: LogDir) -> None:
    run_now(deleting(log_dir, log_dir.let_go([NAME])))


def make(log_dir: LogDir) -> None:
    run_now(making(log_dir, [NewReplica(partition=NAME, settings=SETTINGS, topic_id=NEW_ID)]))


def die(disk: SimDisk, death: str) -> None:
    if death == "process":
        disk.process_dies()
    else:
        disk.machine_dies(death)  # type: ignore[arg-type]


# -- replicas


def test_a_deleted_replica_is_gone_at_once_and_leaves_no_sync_behind_it() -> None:
    """T6: nobody waits for the disk, if the disk says whose the replica is."""
    log_dir = with_replica(flushed=True)
    logs = log_dir.let_go([NAME])
    assert NAME not in log_dir.logs
    assert not log_dir.is_noted(NAME)
    assert logs[0].is_gone
    run_now(deleting(log_dir, logs))
    assert [name for name in log_dir.disk.list("/data") if name.startswith("replaced")] != [
        NAME.folder
    ]
    disk = log_dir.disk
    assert isinstance(disk, SimDisk)
    disk.machine_dies("all")
    again = opened(disk)
    assert again.topic_id(NAME) == OLD_ID, "it is back, and known to be of a topic that is gone"
    assert (again.logs[NAME].log_start_offset, again.logs[NAME].log_end_offset) == (10, 24)


def test_a_replica_that_may_be_taken_for_anothers_after_a_power_loss_leaves_durably() -> None:
    log_dir = with_replica(flushed=False)
    delete(log_dir)
    disk = log_dir.disk
    assert isinstance(disk, SimDisk)
    disk.machine_dies("all")
    assert NAME not in opened(disk).logs


@pytest.mark.parametrize("flushed", [True, False])
@pytest.mark.parametrize("death", DEATHS)
def test_crash_while_a_replica_is_replaced_never_mixes_the_two(death: str, flushed: bool) -> None:
    """F18, T6: there is the old one with all that was durable, or none, or a new one."""
    number = 0
    while replace_and_crash(number, death, flushed=flushed):
        number += 1
    assert number > 12


def replace_and_crash(number: int, death: str, *, flushed: bool) -> bool:
    log_dir = with_replica(flushed=flushed, seed=number)
    disk = log_dir.disk
    assert isinstance(disk, SimDisk)
    disk.crash_at(number, ("before", "middle", "after")[number % 3])
    stage, crashed = "deleting", False
    try:
        delete(log_dir)
        stage = "making"
        make(log_dir)
        stage = "appending"
        for _ in range(2):
            log_dir.logs[NAME].append_as_leader(batch(2), 0, NOW)
        log_dir.logs[NAME].flush(NOW)
        stage = "flushed"
        run_now(checkpointing(log_dir))
        stage = "checkpointed"
    except Crashed:
        crashed = True
    disk.crash_at(None)
    die(disk, death)
    check_one_of_the_two(opened(disk), stage, flushed=flushed)
    return crashed


def check_one_of_the_two(log_dir: LogDir, stage: str, *, flushed: bool) -> None:
    log = log_dir.logs.get(NAME)
    if log is None:
        assert stage in ("deleting", "making", "appending"), "what was flushed is there"
        make(log_dir)
        log = log_dir.logs[NAME]
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    elif stage in ("appending", "flushed", "checkpointed") or log_dir.topic_id(NAME) == NEW_ID:
        assert log_dir.topic_id(NAME) in (NEW_ID, None)
        assert log.log_start_offset == 0
        assert log.log_end_offset in ((4,) if stage in ("flushed", "checkpointed") else (0, 2, 4))
    elif log_dir.topic_id(NAME) == OLD_ID:
        assert log.log_end_offset <= 24
        assert not flushed or (log.log_start_offset, log.log_end_offset) == (10, 24)
    else:
        assert stage == "deleting" or not log.log_end_offset, "nobody knows whose records these are"
    check_everything(log)


def test_a_thousand_replicas_are_made_a_few_at_a_time() -> None:
    log_dir = opened(SimDisk())
    news = [NewReplica(partition=TopicPartition("t", n), settings=SETTINGS) for n in range(100)]
    waits = 0
    for wait in making(log_dir, news):
        before = len(log_dir.logs)
        wait()
        assert len(log_dir.logs) == before, "the loop takes them in, not the thread"
        waits += 1
    assert waits > 3
    assert len(log_dir.logs) == 100
    assert log_dir.logs[news[99].partition].append_as_leader(batch(), 0, NOW) == 0


def test_nothing_is_made_or_renamed_in_a_dir_that_was_closed() -> None:
    """A stop may come while a controller's request is acted on."""
    log_dir = with_replica(flushed=True)
    logs = log_dir.let_go([NAME])
    log_dir.close()
    with pytest.raises(KafkaError, match="closed"):
        run_now(deleting(log_dir, logs))
    with pytest.raises(KafkaError, match="closed"):
        make(log_dir)


def test_a_disk_that_fails_while_replicas_are_made_takes_the_dir_offline() -> None:
    """S10."""
    log_dir = opened(SimDisk())
    steps = making(log_dir, [NewReplica(partition=NAME, settings=SETTINGS)])
    next(steps)
    with pytest.raises(KafkaError, match="offline"):
        steps.throw(OSError(5, "Input/output error"))
    assert log_dir.failure is not None
    assert NAME not in log_dir.logs


# -- checkpoints, with somebody in between


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("at", range(4))
def test_checkpoint_in_steps_never_comes_after_one_of_a_truncation(at: int, death: str) -> None:
    """What lies above a cut is checked after a crash: the lower recovery point stays."""
    world = Simulated(SETTINGS)
    for _ in range(12):
        world.log.append_as_leader(batch(2), 0, NOW)
    world.log.flush(NOW)
    world.log_dir.cleaner_offsets[PARTITION] = 20
    run_now(checkpointing(world.log_dir))
    for _ in range(3):
        world.log.append_as_leader(batch(2), 0, NOW)
    world.log.flush(NOW)
    run_with(checkpointing(world.log_dir), at, lambda: truncate_suffix(world.log, 8, NOW))
    view = world.disk.view()
    for name in (RECOVERY_POINTS, CLEANER_OFFSETS):
        assert parse_offsets(name, view[f"/data/{name}"])[PARTITION] <= 8
    assert world.log.durable_recovery_point <= 8
    for _ in range(12):
        world.log.append_as_leader(batch(2, value=b"w"), 1, NOW)
    die(world.disk, death)
    world.open()
    held = check_everything(world.log)
    if death == "process":
        assert world.log.log_end_offset == 32
    assert all(item.records[0].value == b"w" for item in held if item.header.base_offset >= 8)


@pytest.mark.parametrize("when", ["before", "middle", "after"])
@pytest.mark.parametrize("death", DEATHS)
def test_crash_in_a_checkpoint_that_settles_leaves_old_or_new_offsets(
    when: str, death: str
) -> None:
    number = 0
    while True:
        log_dir = with_replica(flushed=True, seed=number)
        disk = log_dir.disk
        assert isinstance(disk, SimDisk)
        delete(log_dir)
        disk.crash_at(number, when)  # type: ignore[arg-type]
        try:
            run_now(checkpointing(log_dir))
            break
        except Crashed:
            die(disk, death)
        log = opened(disk).logs.get(NAME)
        assert log is None or (log.log_start_offset, log.log_end_offset) == (10, 24)
        number += 1
    assert number > 6
    assert not log_dir.unsettled
    disk.crash_at(None)
    disk.machine_dies("all")
    assert NAME not in opened(disk).logs


def test_a_temporary_file_that_vanishes_by_itself_takes_the_dir_offline() -> None:
    world = Simulated(SETTINGS)
    world.log.append_as_leader(batch(2), 0, NOW)
    world.log.flush(NOW)
    steps = checkpointing(world.log_dir)
    next(steps)()
    put_in_place = next(steps)
    for name in [name for name in world.disk.list("/data") if name.endswith(".tmp")]:
        world.disk.remove(f"/data/{name}")
    with pytest.raises(FileNotFoundError) as caught:
        put_in_place()
    with pytest.raises(KafkaError, match="offline"):
        steps.throw(caught.value)


# -- leader epochs, with somebody in between


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("at", range(4))
def test_flush_in_steps_brings_no_epoch_back_that_was_cut(at: int, death: str) -> None:
    world = Simulated(SETTINGS)
    for epoch in range(4):
        world.log.append_as_leader(batch(2), epoch, NOW)
    run_with(world.log.flushing(NOW), at, lambda: truncate_suffix(world.log, 3, NOW))
    assert world.log_dir.failure is None
    path = f"{world.log.folder}/{LEADER_EPOCHS}"
    assert world.log.log_end_offset == 2
    assert parse_epochs(path, world.disk.view()[path]) == [(0, 0)]
    die(world.disk, death)
    world.open()
    check_everything(world.log)
    entries = world.log.epochs.entries
    assert all(start < max(1, world.log.log_end_offset) for _, start in entries)
    for item in contents(world.log):
        base = item.header.base_offset
        assert world.log.epochs.at(base) == item.header.partition_leader_epoch


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("at", range(4))
def test_epochs_noted_in_steps_are_right_after_any_crash(at: int, death: str) -> None:
    """L2: also if they were noted too late, or the log was cut meanwhile and refilled."""
    world = Simulated(SETTINGS)
    noted: list[None] = []
    world.log_dir.note_epochs = lambda: noted.append(None)
    for epoch in (0, 0, 1, 2, 2, 2):
        world.log.append_as_leader(batch(2), epoch, NOW)

    def cut_and_refill() -> None:
        truncate_suffix(world.log, 5, NOW)
        for epoch in (2, 2, 2, 3):
            world.log.append_as_leader(batch(3), epoch, NOW)

    run_with(noting_epochs(world.log_dir), at, cut_and_refill)
    assert noted
    die(world.disk, death)
    world.open()
    for item in check_everything(world.log):
        base = item.header.base_offset
        assert world.log.epochs.at(base) == item.header.partition_leader_epoch
    if death == "process":
        assert world.log.log_end_offset == 16


def test_epochs_are_noted_where_a_start_after_a_crash_of_the_process_finds_them() -> None:
    world = Simulated(SETTINGS)
    world.log_dir.note_epochs = lambda: None
    world.log.append_as_leader(batch(2), 3, NOW)
    path = f"{world.log.folder}/{LEADER_EPOCHS_UNSYNCED}"
    assert path not in world.disk.view(), "the append does not wait for it"
    run_now(noting_epochs(world.log_dir))
    assert parse_epochs(path, world.disk.view()[path]) == [(3, 0)]
    assert list(noting_epochs(world.log_dir)) == [], "once"


def test_epochs_of_a_log_that_was_deleted_meanwhile_are_not_noted() -> None:
    log_dir = with_replica(flushed=True)
    log_dir.note_epochs = lambda: None
    log = log_dir.logs[NAME]
    log.append_as_leader(batch(), 5, NOW)
    steps = noting_epochs(log_dir)
    log_dir.let_go([NAME])
    assert list(steps) == []
    assert log_dir.failure is None


def test_flush_of_a_log_that_is_deleted_meanwhile_fails_nothing() -> None:
    log_dir = with_replica(flushed=True)
    log = log_dir.logs[NAME]
    log.append_as_leader(batch(), 1, NOW)
    steps = log.flushing(NOW)
    sync_files = next(steps)
    logs = log_dir.let_go([NAME])
    sync_files()
    assert list(steps) == []
    run_now(deleting(log_dir, logs))
    run_now(log.flushing(NOW))
    assert log_dir.failure is None
