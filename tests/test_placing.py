"""Replicas that come while others of the same name are still leaving (X29)."""

from collections.abc import Callable

import pytest

from support.logs import IDENTITY, NOW, PARTITION, batch
from tidelog.base.ids import TopicPartition
from tidelog.base.log_settings import LogSettings
from tidelog.disk_work import DiskWork
from tidelog.log.log_dir import LogDir
from tidelog.log.logs import Logs
from tidelog.log.replicas import NewReplica
from tidelog.placing import Placing
from tidelog.slow_appends import SlowAppends
from tidelog.world.sim.disk import SimDisk
from tidelog.world.sim.loop import SimLoop
from tidelog.world.sim.pressure import SimPressure
from tidelog.world.sim.workers import SimWorkers

SETTINGS = LogSettings()
OLD_ID, NEW_ID = b"o" * 16, b"n" * 16


def new_placing(
    descriptors: Callable[[], tuple[int, int]] | None = None, *, seed: int = 0
) -> tuple[SimLoop, LogDir, Placing]:
    """With one dir, which is open."""
    disk = SimDisk(seed)
    loop = SimLoop(disk.clock, seed)
    work = DiskWork(loop)
    slow = SlowAppends(work, disk.clock, SimWorkers(disk), SimPressure(seed))
    log_dir = LogDir("/data", disk, disk.clock)
    log_dir.open(IDENTITY, lambda _: SETTINGS)
    return loop, log_dir, Placing(Logs([log_dir], descriptors), work, slow)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("seed", range(10))
def test_a_replica_is_made_although_its_predecessor_is_still_being_written_to(seed: int) -> None:
    """Without an order between the two the loop would go round for ever: hence the time limit."""
    loop, log_dir, placing = new_placing(seed=seed)
    old = log_dir.create_log(PARTITION, SETTINGS, OLD_ID)
    old.append_as_leader(batch(), 0, NOW)
    old.flush(NOW)
    log_dir.checkpoint()
    ends: list[str] = []
    new = NewReplica(partition=PARTITION, settings=SETTINGS, topic_id=NEW_ID)
    placing.delete([PARTITION], lambda: ends.append("deleted"))
    placing.make([new], lambda: ends.append("made"))
    loop.run()
    assert ends == ["deleted", "made"]
    assert log_dir.topic_id(PARTITION) == NEW_ID
    assert log_dir.logs[PARTITION].log_end_offset == 0


def test_who_asked_for_a_replica_is_called_back_also_after_a_bug(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The request of a controller waits for it, and all that come after that request."""
    loop, log_dir, placing = new_placing()
    ends: list[str] = []
    new = NewReplica(partition=PARTITION, settings=SETTINGS, topic_id=NEW_ID)

    def broken(*_arguments: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr("tidelog.log.replicas.PartitionLog", broken)
        placing.make([new], lambda: ends.append("not made"))
        with pytest.raises(ZeroDivisionError):
            loop.run()
    assert ends == ["not made"]
    assert PARTITION not in log_dir.logs
    other = NewReplica(partition=TopicPartition("other", 0), settings=SETTINGS, topic_id=OLD_ID)
    placing.make([other], lambda: ends.append("made"))
    loop.run()
    assert ends == ["not made", "made"]


@pytest.mark.parametrize(("opened", "made"), [(90, 3), (94, 2), (96, 0), (128, 0)])
def test_no_more_replicas_are_made_than_files_can_be_open(opened: int, made: int) -> None:
    """F17: of 128 some are kept for closed segments, checkpoints and clients."""
    loop, log_dir, placing = new_placing(lambda: (opened, 128))
    names = [TopicPartition("events", index) for index in range(3)]
    news = [NewReplica(partition=name, settings=SETTINGS, topic_id=NEW_ID) for name in names]
    ends: list[str] = []
    placing.make(news, lambda: ends.append("made"))
    loop.run()
    assert ends == ["made"]
    assert list(log_dir.logs) == names[:made]
