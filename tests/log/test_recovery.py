"""What a start finds after every kind of stop: torn tails, zeros, bad checksums, lost segments,
wrong recovery points, leftovers of operations that were cut short (S9, V18, X27, F12)."""

from collections.abc import Callable

import pytest

from support.counting import CountingDisk
from support.logs import (
    IDENTITY,
    NOW,
    PARTITION,
    Held,
    Simulated,
    batch,
    check_everything,
    contents,
    producers_of,
    summary,
)
from support.stopped import (
    FOLDER,
    SETTINGS,
    filled,
    flushed,
    open_dir,
    opened,
    path,
    stop,
    stops,
)
from tidelog.base.log_settings import LogSettings
from tidelog.log.checkpoints import LEADER_EPOCHS, RECOVERY_POINTS
from tidelog.log.files import file_name
from tidelog.log.log_dir import LogDir
from tidelog.log.partition_log import PartitionLog
from tidelog.log.recovery import Found
from tidelog.log.steps import Wait, run_now
from tidelog.log.truncation import truncate_suffix

# -- the log itself


@pytest.mark.parametrize("how", ["kill", "power"])
@pytest.mark.parametrize("left", [1, 11, 12, 16, 60, 61, 70])
def test_torn_tail_is_cut_and_the_log_goes_on(how: str, left: int) -> None:
    """S9."""
    world = filled()
    before = contents(world.log)
    active, size = path(world.log, -1, ".log"), world.log.segments.active.size
    disk = stop(world, how)
    disk.open(active, "write").pwrite(before[-1].data[:left], size)
    log = open_dir(disk).logs[PARTITION]
    assert check_everything(log) == before
    stat = disk.stat(active)
    assert stat is not None
    assert stat.size == size, "what was cut is gone from the file"
    assert log.append_as_leader(batch(), 9, NOW) == before[-1].header.next_offset
    check_everything(log)


@stops
@pytest.mark.parametrize("zeros", [1, 61, 4096, 100_000])
def test_zeros_behind_the_last_batch_are_cut(how: str, zeros: int) -> None:
    """S9: a preallocated file, or a length that reached the disk before the bytes."""
    world = filled()
    before = contents(world.log)
    active, size = path(world.log, -1, ".log"), world.log.segments.active.size
    disk = stop(world, how)
    disk.open(active, "write").truncate(size + zeros)
    log = open_dir(disk).logs[PARTITION]
    assert check_everything(log) == before
    assert log.segments.active.size == size


def test_bad_checksum_above_the_recovery_point_ends_the_log_there() -> None:
    """S9: and the segments behind it go."""
    world = filled()
    before = contents(world.log)
    victim = before[len(before) // 2]
    segment = world.log.segments.all[world.log.segments.at(victim.header.base_offset)]
    position, size = segment.locate(victim.header.base_offset)
    disk = stop(world, "power")
    disk.flip_bit(segment.path(".log"), position + size - 1)
    log = open_dir(disk).logs[PARTITION]
    assert log.log_end_offset == victim.header.base_offset
    assert check_everything(log) == before[: len(before) // 2]
    assert summary(log.producers) == summary(producers_of(contents(log)))
    assert log.append_as_leader(batch(), 9, NOW) == victim.header.base_offset


def test_bad_checksum_below_the_recovery_point_drops_nothing_else() -> None:
    """S9: nothing below the recovery point is lost; the bad batch itself is for a replica or a
    person to judge."""
    world = flushed()
    before = contents(world.log)
    segment = world.log.segments.all[1]
    disk = stop(world, "power")
    disk.flip_bit(segment.path(".log"), 70)
    log = open_dir(disk).logs[PARTITION]
    assert log.log_end_offset == before[-1].header.next_offset
    piece = log.read(before[-1].header.base_offset, 1000, log.log_end_offset)
    assert piece.file.pread(piece.size, piece.position) == before[-1].data


@stops
@pytest.mark.parametrize("position", [2, 7, 16, 17, 22, 24, 26, 30, 40])
def test_damaged_header_below_the_recovery_point_drops_nothing_else(
    how: str, position: int
) -> None:
    """S9, F12: offset, magic, checksum, attributes, offset delta, timestamps; of the first batch
    of the active segment. What lies behind it was made durable and stays."""
    world = flushed()
    before = contents(world.log)
    active = world.log.segments.active
    disk = stop(world, how)
    disk.flip_bit(active.path(".log"), position, 3)
    log = open_dir(disk).logs[PARTITION]
    assert log.log_end_offset == before[-1].header.next_offset
    piece = log.read(before[-1].header.last_offset, 1, log.log_end_offset)
    assert piece.file.pread(piece.size, piece.position) == before[-1].data
    assert log.append_as_leader(batch(), 9, NOW) == before[-1].header.next_offset
    disk.process_dies()
    assert open_dir(disk).logs[PARTITION].log_end_offset == before[-1].header.next_offset + 1


def test_what_is_below_the_recovery_point_is_not_read_after_a_power_loss() -> None:
    """S9: only segments that reach the recovery point are checked."""
    world = flushed(40)
    sizes = [segment.size for segment in world.log.segments.all]
    disk = CountingDisk(stop(world, "power"))
    log_dir = LogDir("/data", disk, world.clock)
    log_dir.open(IDENTITY, lambda _: SETTINGS)
    assert disk.bytes_read(".log") < 8 * max(sizes) < sum(sizes)
    check_everything(log_dir.logs[PARTITION])


@pytest.mark.parametrize("beyond", [1, 1000, (1 << 63) - 1])
@pytest.mark.parametrize("torn", [False, True])
def test_recovery_point_beyond_the_log_end_is_put_right(beyond: int, torn: bool) -> None:
    """X27 (KAFKA-10101)."""
    world = flushed()
    before = contents(world.log)
    last = path(world.log, -1, ".log")
    size = world.log.segments.active.size
    point = min(world.log.log_end_offset + beyond, (1 << 63) - 1)
    disk = stop(world, "power")
    if torn:
        disk.open(last, "write").truncate(size - 3)
        before.pop()
    log = opened(disk, Found(recovery_point=point)).log
    assert check_everything(log) == before
    assert log.recovery_point == log.log_end_offset == before[-1].header.next_offset
    assert log.append_as_leader(batch(), 9, NOW) == log.log_end_offset - 1


def test_lost_recovery_points_mean_that_everything_is_checked() -> None:
    world = flushed()
    before = contents(world.log)
    size = world.log.segments.size
    disk = stop(world, "power")
    disk.remove(f"/data/{RECOVERY_POINTS}")
    log_dir = open_dir(disk)
    assert check_everything(log_dir.logs[PARTITION]) == before
    result = opened(disk.fork(), Found())
    assert (result.checked_bytes, result.cut_bytes, result.removed_segments) == (size, 0, 0)


def test_segment_lost_from_the_middle_ends_the_log_before_it() -> None:
    """V18: a log has no holes, whatever came back after the power loss."""
    world = filled()
    before = contents(world.log)
    bases = [segment.base_offset for segment in world.log.segments.all]
    disk = stop(world, "power")
    disk.remove(f"{FOLDER}/{file_name(bases[2], '.log')}")
    log = open_dir(disk).logs[PARTITION]
    assert log.log_end_offset == bases[2]
    assert check_everything(log) == [h for h in before if h.header.base_offset < bases[2]]


@stops
def test_empty_active_segment_without_indexes_is_opened(how: str) -> None:
    """X27 (KAFKA-13603)."""
    world = flushed()
    before = contents(world.log)
    world.log.roll()
    assert world.log.segments.active.size == 0
    active = world.log.segments.active
    disk = stop(world, how)
    for kind in (".index", ".timeindex"):
        disk.remove(active.path(kind))
    log = open_dir(disk).logs[PARTITION]
    assert check_everything(log) == before
    assert log.append_as_leader(batch(), 9, NOW) == before[-1].header.next_offset


@stops
def test_folder_without_any_file_is_an_empty_log(how: str) -> None:
    world = Simulated(SETTINGS)
    disk = stop(world, how)
    for name in disk.list(FOLDER):
        disk.remove(f"{FOLDER}/{name}")
    log = open_dir(disk).logs[PARTITION]
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    assert log.append_as_leader(batch(), 1, NOW) == 0


def test_unclean_stop_in_the_same_boot_checks_only_the_tail() -> None:
    """S9: the page cache has stayed."""
    world = Simulated(LogSettings(index_interval_bytes=4096))
    for _ in range(400):
        world.log.append_as_leader(batch(value=b"x" * 1000), 1, NOW)
    world.log.flush(NOW)
    world.log.append_as_leader(batch(value=b"x" * 1000), 1, NOW)
    end = world.log.log_end_offset
    disk = stop(world, "kill")
    result = opened(disk, Found(recovery_point=end - 1, same_boot=True))
    assert result.log.log_end_offset == end
    assert result.checked_bytes < 3 * 4096


def test_clean_stop_means_that_almost_nothing_is_read() -> None:
    """S9: a few kilobytes at the end of the last segment, however large the log is."""
    world = Simulated(LogSettings(segment_bytes=1 << 20))
    for n in range(3000):
        world.log.append_as_leader(batch(value=b"x" * 1000, at=NOW + n), 1, NOW)
    held = len(contents(world.log))
    total = world.log.segments.size
    disk = CountingDisk(stop(world, "stop"))
    log_dir = LogDir("/data", disk, world.clock)
    log_dir.open(IDENTITY, lambda _: LogSettings(segment_bytes=1 << 20))
    assert total > 3 << 20
    assert disk.bytes_read(".log") < 32 << 10
    assert disk.bytes_read() < 64 << 10
    assert len(contents(log_dir.logs[PARTITION])) == held


# -- leftovers


@stops
def test_leftovers_of_operations_that_never_finished_are_removed(how: str) -> None:
    """X27."""
    world = flushed()
    before = contents(world.log)
    base = world.log.segments.all[1].base_offset
    disk = stop(world, how)
    left = [
        file_name(base, ".log.cleaned"),
        file_name(base, ".index.cleaned"),
        file_name(base, ".txnindex.cleaned"),
        file_name(0, ".log.deleted"),
        file_name(7, ".index.deleted"),
        file_name(0, ".index.rebuilt"),
        file_name(base, ".timeindex.swap"),
        file_name(30, ".snapshot.tmp"),
        LEADER_EPOCHS + ".tmp",
        file_name(999_999, ".index"),
        file_name(999_999, ".timeindex"),
        file_name(999_999, ".txnindex"),
    ]
    for name in left:
        disk.open(f"{FOLDER}/{name}", "create").pwrite(b"left behind", 0)
    log = open_dir(disk).logs[PARTITION]
    assert check_everything(log) == before
    assert not set(left) & set(disk.list(FOLDER))


@stops
@pytest.mark.parametrize("old_is_there", [True, False])
def test_complete_swap_takes_the_place_of_what_it_was_made_from(
    how: str, old_is_there: bool
) -> None:
    """X27 (KAFKA-12520)."""
    world = flushed()
    before = contents(world.log)
    segments = world.log.segments.all[:2]
    joined = b"".join(segment.open_file().pread(segment.size, 0) for segment in segments)
    disk = stop(world, how)
    disk.open(f"{FOLDER}/{file_name(0, '.log.swap')}", "create").pwrite(joined, 0)
    if not old_is_there:
        for name in disk.list(FOLDER):
            if name.startswith(file_name(0, "")) and not name.endswith(".swap"):
                disk.remove(f"{FOLDER}/{name}")
    log = open_dir(disk).logs[PARTITION]
    assert check_everything(log) == before
    assert len(log.segments.first.open_file().pread(1 << 20, 0)) == len(joined)


def test_swapped_segment_keeps_its_transaction_index_when_only_that_had_been_moved() -> None:
    """S6, X27: the index is moved before the log; a crash in between must not lose it."""
    world = flushed()
    first = world.log.segments.first
    data = first.open_file().pread(first.size, 0)
    entries = first.aborted(world.disk)
    assert entries
    disk = stop(world, "kill")
    disk.rename(first.path(".log"), first.path(".log") + ".swap")
    for kind in (".index", ".timeindex"):
        disk.rename(first.path(kind), first.path(kind) + ".swap")
    log = open_dir(disk).logs[PARTITION]
    assert log.segments.first.open_file().pread(1 << 20, 0) == data
    assert log.segments.first.aborted(disk) == entries
    check_everything(log)


# -- a flush in steps, with something in between


def begun_flush(log: PartitionLog) -> tuple[Wait, Callable[[], None]]:
    """A flush at its first wait: what it waits in, and the rest of it."""
    steps = log.flushing(NOW)
    return next(steps), lambda: run_now(steps)


def test_flush_that_began_before_a_truncation_vouches_for_nothing_after_it() -> None:
    """V18: a flush runs in a thread; the loop may truncate meanwhile."""
    world = filled()
    wait, finish = begun_flush(world.log)
    truncate_suffix(world.log, 20, NOW)
    for _ in range(4):
        world.log.append_as_leader(batch(5), 9, NOW)
    wait()
    finish()
    assert world.log.recovery_point <= 20
    world.log_dir.persist_recovery_points()
    log = world.lose_power("all")
    assert log.log_end_offset >= 20
    check_everything(log)


def test_flush_that_ends_after_a_truncation_does_not_bring_old_epochs_back() -> None:
    """L1: epoch 2 was truncated away while a flush had it in its hands."""
    world = Simulated(SETTINGS)
    world.log.append_as_leader(batch(2), 1, NOW)
    world.log.append_as_leader(batch(2), 2, NOW)
    wait, finish = begun_flush(world.log)
    truncate_suffix(world.log, 2, NOW)
    wait()
    finish()
    source = Simulated(SETTINGS).log
    for _ in range(4):
        source.append_as_leader(batch(2), 1, NOW)
    follow(world.log, contents(source)[1:])
    assert world.log.epochs.entries == [(1, 0)]
    for restart in ("stop_and_start", "kill"):
        log = getattr(world, restart)()
        assert log.epochs.entries == [(1, 0)]
        check_everything(log)


def follow(log: PartitionLog, held: list[Held]) -> None:
    log.append_as_follower(b"".join(item.data for item in held), 9)


def test_flush_that_ends_after_an_append_vouches_only_for_what_was_there_before() -> None:
    world = filled()
    wait, finish = begun_flush(world.log)
    before = world.log.log_end_offset
    world.log.append_as_leader(batch(5), 9, NOW)
    wait()
    finish()
    assert world.log.recovery_point == before
    world.log_dir.persist_recovery_points()
    assert world.lose_power("all").log_end_offset >= before
    check_everything(world.log)
