"""Mistakes that others have made with logs on disks (X24-X28), and in sessions (X22): each is a
script that keeps its invariant with the rule, and breaks it without."""

import errno
from collections.abc import Callable

import pytest

from support import storage_mutants as storage
from support.logs import NOW, PARTITION, Simulated, batch, check_everything, contents
from support.scripted_world import Mutant, check_breaks
from tidelog.base.errors import KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.base.log_settings import LogSettings
from tidelog.log import retention
from tidelog.log.checkpoints import RECOVERY_POINTS, format_offsets
from tidelog.log.files import file_name
from tidelog.log.partition_log import PartitionLog
from tidelog.log.truncation import truncate_suffix
from tidelog.records.control import EndTransaction, encode_end_transaction
from tidelog.trials.violation import Violation

SETTINGS = LogSettings(segment_bytes=400, index_interval_bytes=100)
SILENT = TopicPartition("silent", 7)
PRODUCER = 9


def require(invariant: str, holds: bool, what: str) -> None:
    if not holds:
        raise Violation(invariant, what)


def filled(count: int = 12, settings: LogSettings = SETTINGS) -> Simulated:
    world = Simulated(settings)
    for _ in range(count):
        world.log.append_as_leader(batch(2), 0, NOW)
    return world


def look(world: Simulated) -> None:
    """V18: whatever is there is whole."""
    try:
        check_everything(world.log)
    except (AssertionError, KafkaError) as error:
        raise Violation("V18", str(error)) from error


# -- X24, X25, X26


def x24_watermark_of_a_replica_that_is_not_heard_of() -> None:
    """All die; one comes back, and the controller names some of its partitions first."""
    world = filled()
    world.log_dir.create_log(SILENT, SETTINGS).append_as_leader(batch(2), 0, NOW)
    world.log_dir.high_watermarks |= {PARTITION: 8, SILENT: 2}
    world.log_dir.checkpoint()
    world.kill()
    world.log_dir.high_watermarks[PARTITION] = 20
    world.log_dir.checkpoint()
    world.kill()
    found = world.log_dir.high_watermarks
    require("V7", found.get(SILENT) == 2, f"the watermark of {SILENT} fell: {found}")


def x25_retention_beyond_the_watermark() -> None:
    for settings in (
        LogSettings(segment_bytes=400, retention_bytes=0),
        LogSettings(segment_bytes=400, retention_ms=0),
    ):
        world = filled(settings=settings)
        retention.retain(world.log, 15, NOW + 1_000_000)
        start = world.log.log_start_offset
        require("V17", 0 < start <= 15, f"the log starts at {start}, HW 15")


def x26_write_fails_and_the_next_would_not() -> None:
    """A part of a batch is written before the error."""
    world = filled()
    world.disk.fail(errno.EIO, operations=["pwrite"], path="*.log", part=0.5, times=1)
    taken = []
    for _ in range(2):
        try:
            taken.append(world.log.append_as_leader(batch(2), 0, NOW))
        except KafkaError:
            assert world.log.log_end_offset == 24
    require("V19", not taken, f"{taken} was appended to a dir that had failed")
    world.kill()
    look(world)


def x26_sync_fails_and_the_next_would_not() -> None:
    """It would prove nothing: the system takes the pages for clean."""
    world = filled()
    world.disk.fail(errno.EIO, operations=["sync"], path="*.log", times=1)
    claimed = 0
    for _ in range(2):
        try:
            world.log.flush(NOW)
            world.log_dir.persist_recovery_points()
            claimed = world.log.recovery_point
        except KafkaError:
            assert world.log.recovery_point == 0
    end = world.lose_power("all").log_end_offset
    require("V18", end >= claimed, f"the log ends at {end}, {claimed} were flushed")


# -- X27


def x27_crash_after_a_clean_stop() -> None:
    """What was written since then was torn by the power loss."""
    world = filled()
    world.stop_and_start()
    for _ in range(3):
        world.log.append_as_leader(batch(2), 0, NOW)
    last = world.log.segments.active
    path, size = last.path(".log"), last.size
    world.disk.machine_dies("none")
    world.disk.open(path, "write").pwrite(bytes(20), size - 20)
    world.open()
    require("V18", not world.log_dir.was_closed, "a crash is taken for a clean stop")
    look(world)


def x27_recovery_point_beyond_the_end() -> None:
    world = filled()
    world.log.flush(NOW)
    world.log_dir.persist_recovery_points()
    world.disk.machine_dies("none")
    file = world.disk.open(f"/data/{RECOVERY_POINTS}", "create")
    file.truncate(0)
    file.pwrite(format_offsets({PARTITION: 1_000}), 0)
    world.open()
    look(world)


def x27_new_segment_without_its_name() -> None:
    world = filled()
    world.log.flush(NOW)
    world.log_dir.persist_recovery_points()
    end = world.lose_power("all").log_end_offset
    require("V18", end == 24, f"24 were flushed, the log ends at {end}")


def x27_swap_that_was_under_way() -> None:
    """The segments that it was made from are gone."""
    world = filled()
    world.log.flush(NOW)
    before = contents(world.log)
    first = world.log.segments.first
    data = first.open_file().pread(first.size, 0)
    folder = world.log.folder
    world.disk.process_dies()
    world.disk.open(f"{folder}/{file_name(0, '.log.swap')}", "create").pwrite(data, 0)
    for kind in (".log", ".index", ".timeindex"):
        world.disk.remove(first.path(kind))
    world.open()
    require("V18", contents(world.log) == before, "what was cleaned is gone")


# -- X28


def produced(sequence: int, **fields: object) -> bytearray:
    return batch(2, producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence, **fields)


def append(log: PartitionLog, sequence: int, **fields: object) -> int:
    return log.append_as_leader(produced(sequence, **fields), 0, NOW)


def marker() -> bytearray:
    end = EndTransaction(
        producer_id=PRODUCER, producer_epoch=0, committed=False, coordinator_epoch=0
    )
    return encode_end_transaction(end, timestamp=NOW + 500)


def x28_append_fails() -> None:
    world = Simulated(SETTINGS)
    append(world.log, 0, transactional=True)
    world.disk.fail(errno.ENOSPC, operations=["pwrite"], path="*.log", part=0.5)
    with pytest.raises(KafkaError):
        append(world.log, 2, transactional=True)
    last = world.log.producers.by_id[PRODUCER].last_sequence
    require("V13", last == 1, f"sequence {last} is known, and was not appended")


def x28_follower_that_begins_in_the_middle() -> None:
    """What came before was deleted at the leader."""
    leader = Simulated(SETTINGS).log
    for sequence in (0, 2, 4):
        append(leader, sequence)
    truncate_suffix(follower := Simulated(SETTINGS).log, 0, NOW)
    piece = leader.read(0, 1_000, 6)
    data = piece.file.pread(piece.size, piece.position)
    try:
        follower.append_as_follower(moved(data), 0)
    except KafkaError as error:
        raise Violation("H3", f"a follower never gets on: {error}") from error
    require("V13", append(follower, 4) == 2, "a batch is there twice")


def moved(data: bytes) -> bytes:
    """The last two of three batches, as the first of a log."""
    size = len(data) // 3
    return b"".join(
        int.to_bytes(2 * at, 8) + data[(at + 1) * size + 8 : (at + 2) * size] for at in (0, 1)
    )


def x28_retry_after_a_failover() -> None:
    leader, follower = Simulated(SETTINGS).log, Simulated(SETTINGS).log
    for sequence in (0, 2, 4):
        append(leader, sequence)
    piece = leader.read(0, 1_000, 6)
    follower.append_as_follower(piece.file.pread(piece.size, piece.position), 0)
    again = append(follower, 4)
    require("V13", again == 4, f"a batch at 4 is at {again} too")


def x28_marker_keeps_a_producer_known() -> None:
    log = Simulated(SETTINGS).log
    append(log, 0, transactional=True)
    log.producers.expire(NOW + 100, 200)
    log.append_own(marker(), 0)
    log.producers.expire(NOW + 600, 200)
    require("V13", PRODUCER in log.producers.by_id, "its next retry is taken for new")


def x28_marker_after_the_records_are_deleted() -> None:
    log = Simulated(SETTINGS).log
    append(log, 0, transactional=True)
    retention.delete_records(log, 2, 2)
    log.append_own(marker(), 0)
    log.producers.committed_up_to(3)
    open_at = log.producers.first_unstable_offset
    require("H8", open_at is None, f"a transaction is open at {open_at} for ever")


def x28_truncation() -> None:
    log = Simulated(SETTINGS).log
    for sequence in (0, 2, 4):
        append(log, sequence)
    truncate_suffix(log, 2, NOW)
    offset = append(log, 2)
    require("V2", offset < log.log_end_offset, f"it is acknowledged at {offset}, and not there")


@pytest.mark.parametrize(
    ("script", "mutant", "invariant"),
    [
        pytest.param(
            x24_watermark_of_a_replica_that_is_not_heard_of,
            storage.save_watermarks_that_moved,
            "V7",
            id="X24",
        ),
        pytest.param(
            x25_retention_beyond_the_watermark,
            storage.give_up_what_is_not_committed,
            "V17",
            id="X25",
        ),
        pytest.param(
            x26_write_fails_and_the_next_would_not,
            storage.forgive_disk_errors,
            "V19",
            id="X26-write",
        ),
        pytest.param(
            x26_sync_fails_and_the_next_would_not, storage.forgive_disk_errors, "V18", id="X26-sync"
        ),
        pytest.param(
            x27_crash_after_a_clean_stop,
            storage.keep_the_marker_of_a_clean_stop,
            "V18",
            id="X27-marker",
        ),
        pytest.param(
            x27_recovery_point_beyond_the_end,
            storage.believe_the_recovery_point,
            "V18",
            id="X27-recovery-point",
        ),
        pytest.param(
            x27_new_segment_without_its_name,
            storage.leave_names_to_the_system,
            "V18",
            id="X27-names",
        ),
        pytest.param(
            x27_swap_that_was_under_way, storage.remove_all_leftovers, "V18", id="X27-swap"
        ),
        pytest.param(
            x28_append_fails, storage.note_producers_before_the_write, "V13", id="X28-failed"
        ),
        pytest.param(
            x28_follower_that_begins_in_the_middle,
            storage.check_sequences_of_followers,
            "H3",
            id="X28-unknown",
        ),
        pytest.param(
            x28_retry_after_a_failover,
            storage.note_no_producers_as_follower,
            "V13",
            id="X28-failover",
        ),
        pytest.param(
            x28_marker_keeps_a_producer_known, storage.age_from_the_last_record, "V13", id="X28-age"
        ),
        pytest.param(
            x28_marker_after_the_records_are_deleted,
            storage.forget_producers_of_deleted_records,
            "H8",
            id="X28-deleted",
        ),
        pytest.param(
            x28_truncation, storage.keep_producers_of_what_is_cut, "V2", id="X28-truncation"
        ),
    ],
)
def test_script_breaks_without_its_rule_only(
    script: Callable[[], None], mutant: Mutant, invariant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_breaks(script, mutant, invariant, monkeypatch)
