"""What a closed segment remembers of its batches: a lookup that was made once reads nothing the
next time, and whatever changes the log, the answer is the log's (S3, F12)."""

from unittest.mock import patch

import pytest

from support.counting import CountingDisk
from support.logs import IDENTITY, NOW, PARTITION, Simulated, batch, contents
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.log_settings import LogSettings
from tidelog.log import files, segment
from tidelog.log.cleaner import Cleaner
from tidelog.log.log_dir import LogDir
from tidelog.log.logs import Logs
from tidelog.log.partition_log import PartitionLog
from tidelog.log.retention import delete_old_segments, delete_records
from tidelog.log.truncation import truncate_suffix
from tidelog.world.sim.entropy import SimEntropy
from tidelog.world.sim.workers import SimWorkers

LARGE = LogSettings(segment_bytes=160_000, cleanup_compact=True, min_cleanable_ratio=0.0)
KEYS = 7


def fill(log: PartitionLog, count: int, size: int = 3000) -> None:
    """Batches of three records, larger than what a search reads of a log at once."""
    for number in range(count):
        log.append_as_leader(
            batch(3, key=b"%d" % (number % KEYS), value=bytes(size + number)), 0, NOW
        )


def filled(count: int = 60) -> Simulated:
    world = Simulated(LARGE)
    fill(world.log, count)
    return world


def check_answers(log: PartitionLog) -> None:
    """Every offset is found in the batch that a walk over the files finds it in, also the second
    time, when that is remembered."""
    held = contents(log)
    for item in held + held:
        for offset in range(item.header.base_offset, item.header.next_offset):
            piece = log.read(offset, 1, log.log_end_offset)
            assert piece.file.pread(piece.size, piece.position) == item.data


def test_lookup_that_was_made_before_reads_nothing() -> None:
    world = filled()
    assert len(world.log.segments.all) > 3
    end = world.log.segments.active.base_offset
    world.log_dir.close()
    disk = CountingDisk(world.disk)
    log_dir = LogDir("/data", disk, world.clock)
    log_dir.open(IDENTITY, lambda _: LARGE)
    log = log_dir.logs[PARTITION]
    segment = log.segments.all[1]
    offsets = range(segment.base_offset + 6, log.segments.all[2].base_offset)
    first = [log.read(offset, 1, end) for offset in offsets]
    disk.reads.clear()
    assert [log.read(offset, 1, end) for offset in offsets] == first
    assert disk.reads == []


def test_lookup_of_what_was_appended_to_the_active_segment_reads_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not only of its latest batches, where each is larger than what is between two entries."""
    monkeypatch.setattr(segment, "TAIL_BATCHES", 4)
    world = Simulated(LogSettings())
    disk = CountingDisk(world.disk)
    log_dir = LogDir("/counted", disk, world.clock)
    log_dir.open(IDENTITY, lambda _: LogSettings())
    log = log_dir.create_log(PARTITION, LogSettings())
    fill(log, 60)
    disk.reads.clear()
    # The first batch has no entry, so what is behind it is not known.
    found = [log.read(offset, 1, log.log_end_offset) for offset in range(6, log.log_end_offset)]
    assert disk.reads == []
    assert [piece.position for piece in found[::3]] == sorted({piece.position for piece in found})
    check_answers(log)


def test_batches_where_others_were_cut_off_are_not_taken_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Small ones come where a large one was, and then one that begins where that had ended."""
    monkeypatch.setattr(segment, "TAIL_BATCHES", 4)
    world = Simulated(LogSettings())
    fill(world.log, 12, size=2000)
    ends = [item.header.next_offset for item in contents(world.log)]
    cut = world.log.read(ends[8], 1, world.log.log_end_offset)
    truncate_suffix(world.log, ends[8], NOW)
    small = batch(1, value=bytes(cut.size // 2))
    spare = len(small) - cut.size // 2
    world.log.append_as_leader(batch(1, value=bytes(cut.size // 2 - spare)), 0, NOW)
    left = cut.size - world.log.segments.active.size + cut.position
    last = batch(1, value=bytes(left - spare))
    world.log.append_as_leader(last, 0, NOW)
    assert world.log.segments.active.size == cut.position + cut.size
    fill(world.log, 20, size=2000)
    check_answers(world.log)
    check_answers(world.stop_and_start())


def test_truncation_into_a_closed_segment_forgets_what_was_there() -> None:
    world = filled()
    check_answers(world.log)
    middle = world.log.segments.all[1].base_offset + 12
    truncate_suffix(world.log, middle, NOW)
    check_answers(world.log)
    fill(world.log, 40, size=5000)
    check_answers(world.log)


def test_compacted_segment_answers_for_itself() -> None:
    world = filled()
    check_answers(world.log)
    world.log.flush(NOW)
    world.log_dir.high_watermarks[PARTITION] = world.log.log_end_offset
    before = world.log.segments.all[0].size
    cleaner = Cleaner(Logs([world.log_dir]), SimWorkers(world.disk), SimEntropy(), 1 << 20)
    assert cleaner.run_once() is not None
    assert world.log.segments.all[0].size < before
    check_answers(world.log)


def test_what_retention_removed_is_not_answered_from_memory() -> None:
    world = filled()
    check_answers(world.log)
    start = world.log.segments.all[2].base_offset
    delete_records(world.log, start, world.log.log_end_offset)
    with pytest.raises(KafkaError) as caught:
        world.log.read(start - 1, 1, world.log.log_end_offset)
    assert caught.value.code == ErrorCode.offset_out_of_range
    world.log.durable_log_start = start
    assert delete_old_segments(world.log, NOW) == 2
    check_answers(world.log)


def test_rolled_segment_is_read_as_it_was_when_active() -> None:
    world = filled(5)
    check_answers(world.log)
    world.log.roll()
    check_answers(world.log)
    fill(world.log, 30)
    check_answers(world.log)


def test_blocks_that_were_let_go_are_read_again() -> None:
    with patch.object(files, "BLOCKS_MAX", 2):
        world = filled()
        check_answers(world.log)


@pytest.mark.parametrize("bit", [0, 3, 7])
def test_flipped_bit_in_the_index_of_large_batches_is_noticed(bit: int) -> None:
    """F12: nothing is remembered that the log does not say."""
    world = filled(30)
    name = f"{world.log.folder}/{world.log.segments.all[1].base_offset:020d}.index"
    world.log_dir.close()
    size = len(world.disk.view()[name])
    assert size >= 8 * 8
    for position in range(0, size, 3):
        twin = Simulated(LARGE)
        twin.disk = world.disk.fork()
        twin.disk.flip_bit(name, position, bit)
        twin.open()
        check_answers(twin.log)
