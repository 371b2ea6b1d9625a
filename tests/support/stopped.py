"""A log of every kind of batch, and the three ways in which its broker may stop: for the tests of
what the next start finds."""

import pytest

from support.logs import IDENTITY, NOW, PARTITION, Simulated, batch
from tidelog.base.log_settings import LogSettings
from tidelog.log.log_dir import LogDir
from tidelog.log.partition_log import PartitionLog
from tidelog.log.recovery import Found, Opened, open_log
from tidelog.log.txn_index import AbortedTransaction
from tidelog.records.control import EndTransaction, encode_end_transaction
from tidelog.world.sim.disk import SimDisk

SETTINGS = LogSettings(segment_bytes=700, index_interval_bytes=150)
FOLDER = "/data/orders-0"


def transaction(log: PartitionLog, sequence: int, *, committed: bool) -> None:
    data = batch(
        2, producer_id=9, producer_epoch=0, base_sequence=sequence, transactional=True, at=NOW
    )
    log.append_as_leader(data, log.epochs.latest, NOW)
    end = EndTransaction(producer_id=9, producer_epoch=0, committed=committed, coordinator_epoch=0)
    log.append_own(encode_end_transaction(end, timestamp=NOW), log.epochs.latest)


def filled(rounds: int = 10) -> Simulated:
    """Several segments; three epochs; plain, idempotent and transactional batches."""
    world = Simulated(SETTINGS)
    for n in range(rounds):
        log = world.log
        log.append_as_leader(batch(2, key=b"k%d" % n, at=NOW + 5 * n), n // 4 + 1, NOW)
        data = batch(3, producer_id=8, producer_epoch=0, base_sequence=3 * n, at=NOW - n)
        log.append_as_leader(data, n // 4 + 1, NOW)
        transaction(log, 2 * n, committed=n % 2 == 0)
    assert len(world.log.segments.all) >= 3
    return world


def aborted(log: PartitionLog) -> list[AbortedTransaction]:
    return [entry for segment in log.segments.all for entry in segment.aborted(log.disk)]


def flushed(rounds: int = 10) -> Simulated:
    world = filled(rounds)
    world.log.flush(NOW)
    world.log_dir.persist_recovery_points()
    return world


def path(log: PartitionLog, index: int, kind: str) -> str:
    return log.segments.all[index].path(kind)


def open_dir(disk: SimDisk) -> LogDir:
    log_dir = LogDir("/data", disk, disk.clock)
    log_dir.open(IDENTITY, lambda _: SETTINGS)
    return log_dir


def opened(disk: SimDisk, found: Found) -> Opened:
    """Opens the log as if the dir's checkpoints had said so."""
    log_dir = LogDir("/data", disk, disk.clock)
    return open_log(log_dir, PARTITION, FOLDER, SETTINGS, found)


def stop(world: Simulated, how: str) -> SimDisk:
    if how == "stop":
        world.log_dir.close()
    if how == "power":
        world.disk.machine_dies("none")
    else:
        world.disk.process_dies()
    return world.disk


stops = pytest.mark.parametrize("how", ["stop", "kill", "power"])
