"""Ageing: by time, by size, on request; never past the high watermark, never before the new log
start is durable (S5, X25, V17)."""

import errno
from dataclasses import replace

import pytest

from support.logs import NOW, PARTITION, Simulated, batch, check_everything, contents
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.log_settings import LogSettings
from tidelog.log.checkpoints import LOG_STARTS, read_offsets
from tidelog.log.files import LOG, OFFSET_INDEX, TIME_INDEX, file_name
from tidelog.log.logs import Logs
from tidelog.log.partition_log import PartitionLog
from tidelog.log.retention import delete_old_segments, delete_records
from tidelog.world.sim.disk import Crashed

HOUR = 3_600_000
FOREVER = 1 << 60


def aged(**changes: int) -> Simulated:
    """Segments of two batches of two records; the n-th batch is n hours younger than the first."""
    values = {"retention_ms": FOREVER, "retention_bytes": -1, "segment_ms": FOREVER}
    world = Simulated(LogSettings(**(values | {"segment_bytes": 200} | changes)))  # type: ignore[arg-type]
    for n in range(9):
        world.log.append_as_leader(batch(2, value=b"x" * 8, at=NOW + n * HOUR), 0, NOW)
    assert [segment.base_offset for segment in world.log.segments.all] == [0, 4, 8, 12, 16]
    return world


def retain(world: Simulated, high_watermark: int, *, at: int = NOW) -> int:
    world.log_dir.high_watermarks[PARTITION] = high_watermark
    world.clock.set_wall(at)
    return Logs([world.log_dir]).retain()


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments.all]


def names(world: Simulated, ending: str) -> list[str]:
    return [name for name in world.disk.list(world.log.folder) if name.endswith(ending)]


# -- by time


def test_segments_whose_youngest_record_is_too_old_are_removed() -> None:
    """S5: a segment is as old as its youngest record."""
    world = aged(retention_ms=HOUR)
    youngest = NOW + HOUR + 1
    assert retain(world, 18, at=youngest + HOUR) == 0, "exactly as old as allowed"
    assert retain(world, 18, at=youngest + HOUR + 1) == 1
    assert bases(world.log) == [4, 8, 12, 16]
    assert world.log.log_start_offset == 4
    check_everything(world.log)


def test_active_segment_is_rolled_before_it_ages_away() -> None:
    world = aged(retention_ms=HOUR)
    assert retain(world, 18, at=NOW + 100 * HOUR) == 5
    assert bases(world.log) == [18]
    assert (world.log.log_start_offset, world.log.log_end_offset) == (18, 18)
    assert world.log.append_as_leader(batch(), 0, NOW) == 18
    assert retain(world, 18, at=NOW + 100 * HOUR) == 0
    check_everything(world.log)


def test_empty_log_has_nothing_to_give() -> None:
    world = Simulated(LogSettings(retention_ms=0, retention_bytes=0))
    assert retain(world, 0, at=NOW + FOREVER) == 0
    assert bases(world.log) == [0]


@pytest.mark.parametrize("limit", ["retention_ms", "retention_bytes"])
def test_segments_behind_one_that_kafka_has_emptied_age_as_others_do(limit: str) -> None:
    """S5, S1: what Kafka's compaction finds nothing to keep in stays, as an empty file."""
    world = aged()
    folder = world.log.folder
    world.log_dir.close()
    for kind in (LOG, OFFSET_INDEX, TIME_INDEX):
        path = f"{folder}/{file_name(0, kind)}"
        world.disk.open(path, "write").truncate(0)
    world.settings = replace(world.settings, **{limit: 0})  # type: ignore[arg-type]
    world.open()
    assert retain(world, 9, at=NOW + 100 * HOUR) == 2
    assert bases(world.log) == [8, 12, 16]
    check_everything(world.log)


def test_segment_with_a_timestamp_in_the_future_stays_and_keeps_what_follows() -> None:
    world = Simulated(LogSettings(retention_ms=HOUR, retention_bytes=-1, segment_ms=FOREVER))
    for at in (NOW, NOW + 1000 * HOUR, NOW):
        world.log.append_as_leader(batch(at=at), 0, NOW)
        world.log.roll()
    assert retain(world, 3, at=NOW + 10 * HOUR) == 1
    assert bases(world.log) == [1, 2, 3]


def test_records_without_timestamps_are_as_old_as_their_file() -> None:
    world = Simulated(LogSettings(retention_ms=HOUR, retention_bytes=-1))
    world.log.append_as_leader(batch(1, at=-1), 0, NOW)
    world.log.roll()
    written = world.clock.now_ms()
    assert retain(world, 1, at=written + HOUR) == 0
    assert retain(world, 1, at=written + HOUR + 1) == 1


def test_retention_of_minus_one_keeps_everything() -> None:
    world = aged(retention_ms=-1)
    assert retain(world, 18, at=NOW + FOREVER) == 0


def test_age_is_known_though_the_time_index_is_damaged() -> None:
    """F12: a damaged index is made anew, and nothing is taken for older than it is."""
    world = aged(retention_ms=HOUR)
    log = world.stop_and_start()
    for path in [segment.path(".timeindex") for segment in log.segments.closed]:
        world.disk.open(path, "write").pwrite(b"\x7f" * 13, 0)
    assert retain(world, 18, at=NOW + 2 * HOUR + 2) == 1
    assert bases(log) == [4, 8, 12, 16]
    assert log.offset_for_timestamp(NOW + 7 * HOUR) == (14, NOW + 7 * HOUR)
    check_everything(log)


def test_a_segment_whose_length_has_rotted_is_as_old_as_its_file() -> None:
    """F12: nobody can tell how young its records are."""
    world = Simulated(LogSettings(segment_bytes=100, retention_ms=HOUR))
    for _ in range(3):
        world.log.append_as_leader(batch(), 1, NOW)
    log, written_ms = world.stop_and_start(), world.clock.now_ms()
    world.disk.flip_bit(log.segments.first.path(".log"), 8, 6)
    with pytest.raises(KafkaError, match="CORRUPT_MESSAGE"):
        log.largest_timestamp()
    assert retain(world, 3, at=written_ms + HOUR - 1) == 0
    assert retain(world, 3, at=max(written_ms, NOW) + HOUR + 1000) == 3


# -- by size


def test_oldest_segments_are_removed_while_the_rest_is_large_enough() -> None:
    """S5: what stays is never smaller than retention.bytes."""
    world = aged()
    size = world.log.segments.first.size
    total = world.log.segments.size
    for keep, left in ((total, 5), (total - size + 1, 5), (total - size, 4), (2 * size, 3)):
        world = aged(retention_bytes=keep)
        retain(world, 18)
        assert len(bases(world.log)) == left
        assert world.log.segments.size >= keep
        check_everything(world.log)


def test_retention_bytes_of_zero_gives_up_everything_below_the_high_watermark() -> None:
    world = aged(retention_bytes=0)
    assert retain(world, 18) == 5
    assert world.log.log_start_offset == 18


@pytest.mark.parametrize(("retention_ms", "left"), [(HOUR, [12, 16]), (FOREVER, [8, 12, 16])])
def test_whichever_rule_asks_for_more_wins(retention_ms: int, left: list[int]) -> None:
    """S5."""
    size = aged().log.segments.first.size
    world = aged(retention_bytes=2 * size, retention_ms=retention_ms)
    retain(world, 18, at=NOW + 7 * HOUR)
    assert bases(world.log) == left


def test_log_that_is_only_compacted_does_not_age() -> None:
    world = Simulated(
        LogSettings(retention_ms=1, retention_bytes=0, cleanup_compact=True, cleanup_delete=False)
    )
    world.log.append_as_leader(batch(), 0, NOW)
    assert retain(world, 1, at=NOW + FOREVER) == 0


# -- the high watermark


@pytest.mark.parametrize("high_watermark", range(19))
@pytest.mark.parametrize("rule", [{"retention_bytes": 0}, {"retention_ms": 0}])
def test_nothing_at_or_above_the_high_watermark_is_given_up(
    rule: dict[str, int], high_watermark: int
) -> None:
    """X25, V17."""
    world = aged(**rule)
    retain(world, high_watermark, at=NOW + 100 * HOUR)
    assert world.log.log_start_offset <= high_watermark
    assert world.log.log_start_offset == (
        18 if high_watermark == 18 else high_watermark // 4 * 4
    ), "whole segments, and all that may go"
    check_everything(world.log)


def test_log_start_only_grows() -> None:
    """V17: also when the high watermark is found lower after a restart."""
    world = aged(retention_bytes=0)
    retain(world, 12)
    assert world.log.log_start_offset == 12
    retain(world, 0)
    delete_records(world.log, 3, 18)
    assert world.log.log_start_offset == 12


# -- on request


def test_delete_records_hides_them_at_once_and_drops_whole_segments_later() -> None:
    """S5."""
    world = aged()
    assert delete_records(world.log, 9, 18) == 9
    with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
        world.log.read(8, 100, 18)
    assert contents(world.log)[0].header.base_offset == 8, "a batch is never split"
    assert bases(world.log) == [0, 4, 8, 12, 16]
    assert retain(world, 18) == 2
    assert bases(world.log) == [8, 12, 16]
    check_everything(world.log)


def test_delete_records_of_minus_one_means_the_high_watermark() -> None:
    world = aged()
    assert delete_records(world.log, -1, 15) == 15
    assert world.log.epochs.entries == [(0, 0)], "the start is not durable yet"
    world.log_dir.persist_log_starts()
    assert world.log.epochs.entries == [(0, 15)]


@pytest.mark.parametrize("before", [-2, 16, 1 << 62])
def test_delete_records_past_the_high_watermark_is_refused(before: int) -> None:
    world = aged()
    with pytest.raises(KafkaError) as caught:
        delete_records(world.log, before, 15)
    assert caught.value.code == ErrorCode.offset_out_of_range
    assert world.log.log_start_offset == 0


def test_delete_records_in_a_dir_that_is_offline_is_refused() -> None:
    """S10: what cannot be made durable is not promised."""
    world = aged()
    world.log_dir.fail(OSError(errno.EIO, "broken"))
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        delete_records(world.log, 3, 18)
    assert world.log.log_start_offset == 0


@pytest.mark.parametrize("restart", ["kill", "stop_and_start", "lose_power"])
def test_log_start_survives_a_restart_once_it_is_checkpointed(restart: str) -> None:
    world = aged()
    world.log.flush(NOW)
    world.log_dir.persist_recovery_points()
    delete_records(world.log, 9, 18)
    world.log_dir.persist_log_starts()
    log = getattr(world, restart)()
    assert (log.log_start_offset, log.log_end_offset) == (9, 18)
    assert bases(log) == [8, 12, 16], "segments below it go at the start, at the latest"
    check_everything(log)


def test_log_start_at_the_log_end_survives_a_restart() -> None:
    for restart in ("kill", "stop_and_start"):
        world = aged()
        delete_records(world.log, -1, 18)
        world.log_dir.persist_log_starts()
        log = getattr(world, restart)()
        assert (log.log_start_offset, log.log_end_offset) == (18, 18)
        assert log.append_as_leader(batch(), 1, NOW) == 18
        check_everything(log)


# -- files


def test_removed_segments_wait_as_deleted_files_for_their_delay() -> None:
    """S5: whoever is reading them can finish."""
    world = aged(retention_bytes=0, file_delete_delay_ms=60_000)
    piece = world.log.read(0, 100, 18)
    data = piece.file.pread(piece.size, piece.position)
    retain(world, 8, at=NOW)
    gone = {f"{base:020d}{kind}.deleted" for base in (0, 4) for kind in (LOG, ".index")}
    assert gone <= set(names(world, ".deleted"))
    assert not [name for name in names(world, LOG) if name.startswith("0" * 19 + "4")]
    retain(world, 8, at=NOW + 59_999)
    assert gone <= set(names(world, ".deleted"))
    retain(world, 8, at=NOW + 60_000)
    assert names(world, ".deleted") == []
    assert piece.file.pread(piece.size, piece.position) == data


def test_snapshots_below_the_log_go_with_its_segments() -> None:
    world = aged(retention_bytes=0)
    before = names(world, ".snapshot")
    retain(world, 12)
    kept = [f"{base:020d}.snapshot" for base in (12, 16)]
    assert names(world, ".snapshot") == kept != before


def test_segments_below_a_log_start_that_is_not_durable_stay() -> None:
    """X25: after a power loss the log would begin below them again."""
    world = aged()
    delete_records(world.log, 12, 18)
    assert delete_old_segments(world.log, NOW) == 0
    assert bases(world.log) == [0, 4, 8, 12, 16]
    world.log_dir.persist_log_starts()
    assert delete_old_segments(world.log, NOW) == 3


def test_log_start_is_durable_before_a_file_goes() -> None:
    """X25: otherwise a log that starts in the middle would come back after a power loss."""
    world = aged(retention_bytes=0)
    world.log.flush(NOW)
    world.log_dir.persist_recovery_points()
    trace = world.disk.trace()
    retain(world, 12)
    first_rename = trace.index(("rename", f"{world.log.folder}/{0:020d}.timeindex"))
    synced = [at for at, (what, path) in enumerate(trace) if path.endswith(LOG_STARTS + ".tmp")]
    folder = trace.index(("sync_folder", "/data"))
    assert synced[0] < folder < first_rename


@pytest.mark.parametrize("loss", ["all", "some", "none"])
def test_power_loss_at_any_disk_operation_of_retention_leaves_a_whole_log(loss: str) -> None:
    """V17, V18: what is at or above the log start is there, and the log start never falls."""
    number = 0
    while True:
        world = aged(retention_bytes=0, file_delete_delay_ms=0)
        world.log.flush(NOW)
        world.log_dir.persist_recovery_points()
        kept = [held.data for held in contents(world.log) if held.header.base_offset >= 12]
        world.disk.crash_at(number, "middle")
        try:
            retain(world, 12)
        except Crashed:
            durable = read_offsets(world.disk.fork(), f"/data/{LOG_STARTS}").get(PARTITION, 0)
            log = world.lose_power(loss)
            held = check_everything(log)
            assert [item.data for item in held][-len(kept) :] == kept
            assert log.log_start_offset in (0, 12)
            assert log.log_start_offset == 12 or loss != "none" or durable == 0
            number += 1
        else:
            break
    assert number > 10
    assert world.log.log_start_offset == 12


def test_disk_error_while_ageing_takes_the_dir_offline_with_one_clear_error() -> None:
    """S10, V19: and nothing has gone that the checkpoint does not know of."""
    for operation, path in (("sync", "*" + LOG_STARTS + "*"), ("rename", "*.log"), ("pread", "*")):
        world = aged(retention_bytes=0)
        world.stop_and_start()
        world.disk.fail(errno.EIO, operations=[operation], path=path, times=None)
        world.settings = LogSettings(segment_bytes=200, retention_ms=0)
        retain(world, 12, at=NOW + 100 * HOUR)
        if world.log_dir.failure is None:
            assert operation == "pread", "only reads may have been unnecessary"
        else:
            assert world.log_dir.failure.errno == errno.EIO
            with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
                world.log.append_as_leader(batch(), 0, NOW)
        world.disk.heal()
        log = world.kill()
        held = check_everything(log)
        assert held[-1].header.last_offset == 17
