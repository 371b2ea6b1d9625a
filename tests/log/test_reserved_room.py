"""Room that is reserved for small writes while the page cache is at its limit, and given back."""

import os
from pathlib import Path

import pytest

from support.logs import NOW, PARTITION, Simulated, batch, check_everything
from tidelog.base.log_settings import LogSettings
from tidelog.log.log_dir import LogDir
from tidelog.log.partition_log import PartitionLog
from tidelog.log.pending_append import PendingAppend, begin_append, end_append
from tidelog.log.segment import ROOM_BYTES
from tidelog.world.real.clock import RealClock
from tidelog.world.real.disk import RealDisk
from tidelog.world.sim.disk import SimFile

SETTINGS = LogSettings()


def append_beside(log: PartitionLog) -> None:
    """As `SlowAppends` does at the limit."""
    data = batch()
    pending = begin_append(log, data, 0, NOW)
    assert isinstance(pending, PendingAppend)
    pending.segment.reserve(len(data))
    pending.run()
    end_append(log, pending, None)


def taken(path: Path) -> int:
    """The bytes of the disk that a file has."""
    os.sync()
    return path.stat().st_blocks * 512


@pytest.mark.parametrize("end", ["roll", "stop"])
def test_room_that_is_not_used_is_given_back_when_a_segment_ends(tmp_path: Path, end: str) -> None:
    log_dir = LogDir(str(tmp_path), RealDisk(), RealClock())
    log_dir.open({"broker.id": "0"}, lambda _: SETTINGS)
    log = log_dir.create_log(PARTITION, SETTINGS)
    path = tmp_path / str(PARTITION) / f"{0:020}.log"
    for _ in range(5):
        append_beside(log)
    size = log.segments.active.size
    assert taken(path) >= ROOM_BYTES
    assert path.stat().st_size == size, "the file is as large as before"
    if end == "roll":
        log.roll()
        assert taken(path) < ROOM_BYTES
    log_dir.close()
    assert taken(path) < ROOM_BYTES
    assert path.stat().st_size == size


def test_room_is_reserved_once_for_many_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    reserved: list[tuple[int, int]] = []
    monkeypatch.setattr(SimFile, "reserve", lambda _, size, at: reserved.append((at, size)))
    world = Simulated(SETTINGS)
    for _ in range(2 * ROOM_BYTES // len(batch())):
        append_beside(world.log)
    assert len(reserved) == 2
    ends = [at + size for at, size in reserved]
    assert reserved[1][0] <= ends[0], "there is room wherever something is written"
    check_everything(world.log)
    check_everything(world.stop_and_start())
