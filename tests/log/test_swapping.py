"""Cleaned segments that take the place of others, and what a death or a cut in the middle of that
leaves (X27): ADR 2 and 3."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from support.logs import NOW, PARTITION, Simulated, batch, check_everything, contents
from tidelog.base.log_settings import LogSettings
from tidelog.log.cleaner import Cleaner
from tidelog.log.logs import Logs
from tidelog.log.partition_log import PartitionLog
from tidelog.log.truncation import truncate_suffix
from tidelog.records.control import EndTransaction, encode_end_transaction
from tidelog.records.key_table import SLOT_BYTES
from tidelog.world.sim.entropy import SimEntropy
from tidelog.world.sim.faults import Crashed
from tidelog.world.sim.workers import SimWorkers

SETTINGS = LogSettings(
    segment_bytes=2_000,
    index_interval_bytes=100,
    cleanup_compact=True,
    cleanup_delete=False,
    min_cleanable_ratio=0.0,
)
FEW_KEYS = 4


def commit(sim: Simulated) -> None:
    """Everything is durable, and on all replicas."""
    sim.log.flush(NOW)
    sim.log_dir.high_watermarks[PARTITION] = sim.log.log_end_offset
    sim.log.producers.committed_up_to(sim.log.log_end_offset)
    sim.log_dir.checkpoint()


def cleaner(sim: Simulated, keys: int) -> Cleaner:
    return Cleaner(Logs([sim.log_dir]), SimWorkers(sim.disk), SimEntropy(), keys * SLOT_BYTES)


def lose_power(sim: Simulated, seed: int) -> None:
    sim.disk = sim.disk.fork(seed)
    sim.clock = sim.disk.clock
    sim.disk.machine_dies("some")


# -- aborted transactions


def with_aborted_data() -> Simulated:
    """More keys than the map has room for: aborted records behind them are left as they are."""
    sim = Simulated(SETTINGS)
    for number in range(FEW_KEYS):
        sim.log.append_as_leader(batch(1, key=b"k%d" % number), 0, NOW)
    producer = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    for number in range(2):
        data = batch(1, key=b"t%d" % number, base_sequence=number, **producer)
        sim.log.append_as_leader(data, 0, NOW)
    end = EndTransaction(producer_id=7, producer_epoch=0, committed=False, coordinator_epoch=0)
    sim.log.append_own(encode_end_transaction(end, timestamp=NOW), 0)
    sim.log.roll()
    sim.log.append_as_leader(batch(1), 0, NOW)
    commit(sim)
    return sim


def check_aborted(log: PartitionLog) -> None:
    """Whoever reads only what was committed is told of all that was not."""
    told = [t for segment in log.segments.all for t in segment.aborted(log.disk)]
    headers = [held.header for held in contents(log)]
    data = [h for h in headers if h.is_transactional and not h.is_control]
    assert len(data) == 2
    for header in data:
        assert any(t.first_offset <= header.base_offset <= t.last_offset for t in told)


def died_in_a_swap(seeds: int) -> Iterator[Simulated]:
    """At each operation of a compaction, and of each several losses."""
    sim = with_aborted_data()
    before = sim.disk.operations
    assert cleaner(sim, FEW_KEYS).run_once() is not None
    check_aborted(sim.log)
    for number in range(sim.disk.operations - before):
        for seed in range(seeds):
            sim = with_aborted_data()
            sim.disk.crash_at(number)
            with pytest.raises(Crashed):
                cleaner(sim, FEW_KEYS).run_once()
            lose_power(sim, seed)
            yield sim


def test_aborted_transactions_are_known_after_a_power_loss_in_a_swap() -> None:
    """Nobody makes their index again, so its name must be durable before that of the log."""
    for sim in died_in_a_swap(seeds=8):
        sim.open()
        check_aborted(sim.log)


@pytest.mark.parametrize("undecided", ["", ".txnindex"])
def test_aborted_transactions_are_known_after_a_second_power_loss_in_the_opening(
    undecided: str,
) -> None:
    """Whether the first one left a swap that was decided, or the name of a part of it only."""
    for number in range(100):
        for seed in range(16):
            sim = with_aborted_data()
            found = cleaner(sim, FEW_KEYS).pick()
            assert found is not None
            assert cleaner(sim, FEW_KEYS).begin(found).job.result()
            for name in sim.disk.list(sim.log.folder):
                stem = f"{sim.log.folder}/{name.removesuffix('.cleaned')}"
                if name.endswith(".cleaned") and stem[-9:] != undecided:
                    sim.disk.rename(f"{stem}.cleaned", f"{stem}.swap")
            sim.disk.sync_folder(sim.log.folder)
            sim.disk.machine_dies("all")
            sim.disk.crash_at(number)
            try:
                sim.open()
            except Crashed:
                lose_power(sim, seed)
                sim.open()
                check_aborted(sim.log)
            else:
                assert number > 5
                return


# -- one after the other


def test_what_was_swapped_in_is_there_after_a_power_loss_in_the_next_compaction() -> None:
    """Which has written its own files for the same segments by then."""
    for seed in range(40):
        sim = with_aborted_data()
        found = cleaner(sim, FEW_KEYS // 2)
        assert found.run_once() is not None
        held = contents(sim.log)
        candidate = found.pick()
        assert candidate is not None
        assert found.begin(candidate).job.result()
        lose_power(sim, seed)
        sim.open()
        assert contents(sim.log) == held


# -- cuts


def with_several_segments() -> Simulated:
    sim = Simulated(replace(SETTINGS, segment_bytes=500))
    append(sim, 40, b"old")
    commit(sim)
    return sim


def append(sim: Simulated, count: int, value: bytes, epoch: int = 0) -> None:
    for number in range(count):
        sim.log.append_as_leader(batch(1, key=b"k%d" % (number % 5), value=value), epoch, NOW)


@pytest.mark.parametrize("death", ["kill", "power loss"])
@pytest.mark.parametrize("to", [0, 3, 17])
def test_what_is_cut_off_while_segments_are_swapped_does_not_come_back_after_a_death(
    to: int, death: str
) -> None:
    """As after an unclean election: whatever the swap had come to, and what it does afterwards."""
    steps = 0
    for cut_at in range(100):
        for goes_on in (False, True):
            sim = with_several_segments()
            found = cleaner(sim, 1_000)
            candidate = found.pick()
            assert candidate is not None
            cleaning = found.begin(candidate)
            result = found.result(cleaning)
            assert result is not None
            swap = found.put_in_place(cleaning, result)
            for _ in range(cut_at + 1):
                if next(swap, "end") == "end":
                    assert steps > 2
                    return
                sim.disk.sync_folder(sim.log.folder)
            steps += 1
            truncate_suffix(sim.log, to, NOW)
            append(sim, 9, b"new", epoch=1)
            commit(sim)
            if goes_on:
                next(swap, None)
            end, held = sim.log.log_end_offset, contents(sim.log)
            if death == "kill":
                sim.kill()
            else:
                sim.lose_power("all")
            assert sim.log.log_end_offset == end
            assert check_everything(sim.log) == held
