"""The aborted transactions that a reader of committed records is told of (A4, V14)."""

from random import Random

import pytest

from support.logs import NOW, Simulated, batch
from tidelog.base.log_settings import LogSettings
from tidelog.log.aborted import aborted_in
from tidelog.log.partition_log import PartitionLog
from tidelog.log.retention import delete_records
from tidelog.log.truncation import truncate_suffix
from tidelog.records.batch import read_header, walk
from tidelog.records.control import (
    EndTransaction,
    encode_end_transaction,
    read_end_transaction,
)


def end(log: PartitionLog, producer_id: int, *, commit: bool) -> None:
    marker = EndTransaction(
        producer_id=producer_id, producer_epoch=0, committed=commit, coordinator_epoch=0
    )
    log.append_own(encode_end_transaction(marker, timestamp=NOW), 0)


def fill(log: PartitionLog, random: Random, steps: int) -> None:
    """Transactions of some producers, one in the other, most of them aborted."""
    sequences = dict.fromkeys(range(40), 0)
    is_open: set[int] = set()
    for _ in range(steps):
        producer_id = random.randrange(40)
        if producer_id in is_open and random.random() < 0.6:
            end(log, producer_id, commit=random.random() < 0.3)
            is_open.discard(producer_id)
        else:
            data = batch(
                2,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequences[producer_id],
                transactional=True,
            )
            log.append_as_leader(data, 0, NOW)
            sequences[producer_id] += 2
            is_open.add(producer_id)
    for producer_id in sorted(is_open):
        end(log, producer_id, commit=False)


def shown(log: PartitionLog, offset: int, max_bytes: int) -> list[tuple[int, int]]:
    """What a reader keeps of a range, by offset and producer, as clients do it."""
    found = log.read(offset, max_bytes, log.log_end_offset)
    aborted = sorted(
        (first, pid) for pid, first in aborted_in(log, found, offset, log.log_end_offset)
    )
    data = found.file.pread(found.size, found.position)
    kept: list[tuple[int, int]] = []
    dropped: set[int] = set()
    for _, header in walk(data):
        while aborted and aborted[0][0] <= header.last_offset:
            dropped.add(aborted.pop(0)[1])
        if header.is_control:
            dropped.discard(header.producer_id)
        elif header.producer_id not in dropped:
            kept.append((header.base_offset, header.producer_id))
    return kept


@pytest.mark.parametrize("seed", range(4))
def test_from_wherever_one_reads_exactly_the_committed_batches_are_shown(seed: int) -> None:
    random = Random(seed)
    log = Simulated(LogSettings(segment_bytes=3_000, index_interval_bytes=300)).log
    fill(log, random, 300)
    assert len(log.segments.all) > 5
    everything = shown_from_the_start(log)
    for offset in range(0, log.log_end_offset, 13):
        for max_bytes in (1, 500, 100_000):
            found = log.read(offset, max_bytes, log.log_end_offset)
            data = found.file.pread(found.size, found.position)
            inside = {header.base_offset for _, header in walk(data)}
            expected = [kept for kept in everything if kept[0] in inside]
            assert shown(log, offset, max_bytes) == expected, (offset, max_bytes)


def shown_from_the_start(log: PartitionLog) -> list[tuple[int, int]]:
    """Found out without the index: by the marker that comes behind."""
    kept: list[tuple[int, int]] = []
    waiting: dict[int, list[tuple[int, int]]] = {}
    for segment in log.segments.all:
        data = segment.open_file().pread(segment.size, 0)
        for position, header in walk(data):
            if not header.is_control:
                place = (header.base_offset, header.producer_id)
                waiting.setdefault(header.producer_id, []).append(place)
                continue
            ended = waiting.pop(header.producer_id, [])
            if _commits(data[position:]):
                kept += ended
    return sorted(kept)


def _commits(marker: bytes) -> bool:
    found = read_end_transaction(marker[: read_header(marker).size])
    assert found is not None
    return found.committed


def test_what_is_cut_off_is_not_told_any_more() -> None:
    """X28: the index goes back with the log."""
    log = Simulated(LogSettings(segment_bytes=3_000)).log
    fill(log, Random(1), 100)
    shown(log, 0, 100_000)
    truncate_suffix(log, log.log_end_offset // 2, NOW)
    upto = log.log_end_offset
    for segment in log.segments.all:
        assert all(entry.last_offset < upto for entry in segment.aborted(log.disk))


@pytest.mark.parametrize("stop", ["kill", "lose_power", "stop_and_start"])
def test_a_transaction_that_a_log_starts_in_the_middle_of_is_open_after_a_start(stop: str) -> None:
    """V14: records were deleted up to the middle of its batch. What is left of it is not to be read
    before its marker, nor after it."""
    world = Simulated(LogSettings())
    data = batch(4, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    world.log.append_as_leader(data, 0, NOW)
    world.log.flush(NOW)
    delete_records(world.log, 2, 4)
    world.log_dir.checkpoint()
    log = getattr(world, stop)()
    assert log.log_start_offset == 2
    assert log.producers.first_unstable_offset == 0
    end(log, 7, commit=False)
    assert aborted_in(log, log.read(2, 1000, 5), 2, 5) == [(7, 0)]
