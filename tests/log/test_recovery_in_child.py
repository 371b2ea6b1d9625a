"""A long stretch is checked by a child process: the log it leaves is the same (S9, V18)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support.logs import (
    IDENTITY,
    NOW,
    PARTITION,
    Simulated,
    batch,
    check_everything,
    summary,
)
from support.trial import Operation, Trial
from tidelog.base.errors import TaskError
from tidelog.base.log_settings import LogSettings
from tidelog.log import recovery
from tidelog.log.log_dir import LogDir
from tidelog.log.partition_log import PartitionLog
from tidelog.world.real.clock import RealClock
from tidelog.world.real.disk import RealDisk
from tidelog.world.real.workers import RealWorkers
from tidelog.world.sim.disk import SimDisk
from tidelog.world.sim.workers import SimWorkers

SETTINGS = LogSettings(segment_bytes=700, index_interval_bytes=100)
NAMES = ["append", "append_idempotent", "append_transactional", "end_transaction", "follow"]
steps = st.lists(
    st.builds(
        Operation,
        st.sampled_from(NAMES * 3 + ["roll", "flush", "checkpoint", "new_epoch", "truncate"]),
        st.integers(0, 60),
    ),
    min_size=5,
    max_size=40,
)

ROTTEN_OFFSET = [
    *[Operation("append", 0)] * 6,
    *[Operation("follow", 0)] * 3,
    *(Operation("follow", 10), Operation("append", 32), Operation("checkpoint", 0)),
]
"""With the bit that is flipped for it a batch that was durable has an offset far beyond."""


def opened(disk: SimDisk, *, in_child: bool) -> PartitionLog:
    log_dir = LogDir("/data", disk, disk.clock, SimWorkers(disk) if in_child else None)
    log_dir.open(IDENTITY, lambda _: SETTINGS)
    return log_dir.logs.get(PARTITION) or log_dir.create_log(PARTITION, SETTINGS)


@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(steps, st.integers(0, 999), st.booleans())
@example(ROTTEN_OFFSET, 541, True)
def test_child_and_plain_check_leave_the_same_log(
    monkeypatch: pytest.MonkeyPatch, steps: list[Operation], seed: int, flip: bool
) -> None:
    monkeypatch.setattr(recovery, "INLINE_BYTES_MAX", 0)
    trial = Trial(SETTINGS, seed)
    for step in steps:
        trial.run(step)
    disk = trial.world.disk
    disk.machine_dies("some")
    if flip:
        path = trial.log.segments.active.path(".log")
        if disk.stat(path) is not None and disk.view()[path]:
            disk.flip_bit(path, seed % len(disk.view()[path]), seed % 8)
    twin = disk.fork()
    plain, child = opened(disk, in_child=False), opened(twin, in_child=True)
    if not flip:
        check_everything(plain)
        check_everything(child)
    assert child.log_end_offset == plain.log_end_offset
    assert child.epochs.entries == plain.epochs.entries
    assert summary(child.producers) == summary(plain.producers)
    for ours, theirs in zip(plain.segments.all, child.segments.all, strict=True):
        assert ours.size == theirs.size
        assert ours.open_file().pread(ours.size, 0) == theirs.open_file().pread(theirs.size, 0)
        assert ours.aborted(disk) == theirs.aborted(twin)
        assert ours.offset_index.entries() == theirs.offset_index.entries()
        assert ours.time_index.entries() == theirs.time_index.entries()


def test_real_child_recovers_a_real_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a torn tail, on a real disk, through a real process."""
    monkeypatch.setattr(recovery, "INLINE_BYTES_MAX", 1000)
    log_settings = LogSettings(segment_bytes=20_000, index_interval_bytes=500)
    workers = RealWorkers()
    first = LogDir(str(tmp_path), RealDisk(), RealClock())
    first.open(IDENTITY, lambda _: log_settings)
    log = first.create_log(PARTITION, log_settings)
    for sequence in range(0, 600, 3):
        log.append_as_leader(
            batch(3, producer_id=5, producer_epoch=1, base_sequence=sequence), sequence // 200, NOW
        )
    wanted = summary(log.producers)
    end, epochs = log.log_end_offset, log.epochs.entries
    path = Path(log.segments.active.path(".log"))
    (tmp_path / ".lock").unlink()
    (tmp_path / ".boot_id").write_text("another boot")
    with path.open("ab") as file:
        file.write(bytes(batch(3))[:-1])
    second = LogDir(str(tmp_path), RealDisk(), RealClock(), workers)
    try:
        second.open(IDENTITY, lambda _: log_settings)
    finally:
        workers.close()
    recovered = second.logs[PARTITION]
    check_everything(recovered)
    assert (recovered.log_end_offset, recovered.epochs.entries) == (end, epochs)
    assert summary(recovered.producers) == wanted


def test_what_a_child_has_made_is_there_after_another_loss_of_power(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S3, V18: nobody makes the indexes again of what lies below the recovery point. Of a time
    index the system had written a part before the first one."""
    monkeypatch.setattr(recovery, "INLINE_BYTES_MAX", 0)
    world = Simulated(LogSettings(index_interval_bytes=0))
    world.log.append_as_leader(batch(at=NOW), 0, NOW)
    world.log.roll()
    world.log.append_as_leader(batch(at=NOW + 1), 0, NOW)
    world.log.flush(NOW)
    world.log_dir.checkpoint()
    segment = world.log.segments.active
    for n in range(2, 100):
        world.log.append_as_leader(batch(at=NOW + n), 0, NOW)
    segment.time_index.sync()
    world.log.roll()
    world.log.append_as_leader(batch(at=NOW + 100), 0, NOW)
    for written in (segment, world.log.segments.active):
        written.sync()
    world.disk.sync_folder(world.log.folder)
    world.disk.machine_dies("all")
    log_dir = LogDir("/data", world.disk, world.clock, SimWorkers(world.disk))
    log_dir.open(IDENTITY, lambda _: world.settings)
    log_dir.logs[PARTITION].flush(NOW)
    log_dir.checkpoint()
    log = world.lose_power("all")
    assert log.offset_for_timestamp(NOW + 99) == (99, NOW + 99)
    assert len(check_everything(log)) == 101


class DeadJob:
    """Of a child that was killed."""

    def result(self) -> Any:
        raise TaskError("scan: the worker process was killed by signal 9")


class DeadWorkers:
    def start(self, _task: str, _argument: Mapping[str, Any]) -> DeadJob:
        return DeadJob()

    def close(self) -> None:
        pass


def test_a_child_that_dies_keeps_no_dir_from_being_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """S9."""
    monkeypatch.setattr(recovery, "INLINE_BYTES_MAX", 0)
    disk = SimDisk(1)
    log_dir = LogDir("/data", disk, disk.clock)
    log_dir.open(IDENTITY, lambda _: SETTINGS)
    log = log_dir.create_log(PARTITION, SETTINGS)
    for _ in range(20):
        log.append_as_leader(batch(2), 1, NOW)
    log.flush(NOW)
    disk.machine_dies("none")
    again = LogDir("/data", disk, disk.clock, DeadWorkers())
    again.open(IDENTITY, lambda _: SETTINGS)
    assert again.logs[PARTITION].log_end_offset == 40
    check_everything(again.logs[PARTITION])
