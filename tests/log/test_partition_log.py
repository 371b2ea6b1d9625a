"""Appending and reading, as leader and as follower (S1-S3, S7, S11, L1, A3)."""

import pytest

from support.logs import NOW, Simulated, batch, check_everything, contents
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.log_settings import LogSettings
from tidelog.log.partition_log import PartitionLog
from tidelog.log.retention import delete_records
from tidelog.log.truncation import restart_at, truncate_suffix
from tidelog.records.batch import (
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAX_TIMESTAMP,
    OFFSET_AND_LENGTH,
    read_header,
    seal,
)
from tidelog.records.control import EndTransaction, encode_end_transaction

SMALL = LogSettings(segment_bytes=1000, index_interval_bytes=150)


@pytest.fixture
def world() -> Simulated:
    return Simulated(SMALL)


@pytest.fixture
def log(world: Simulated) -> PartitionLog:
    return world.log


def refused(log: PartitionLog, data: bytearray, *, now_ms: int = NOW) -> ErrorCode:
    """Appends what must be refused, and checks that nothing has changed on disk or in memory."""
    disk = log.disk
    before = disk.view(), log.log_end_offset, log.epochs.entries, dict(log.producers.by_id)  # type: ignore[attr-defined]
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(data, 1, now_ms)
    after = disk.view(), log.log_end_offset, log.epochs.entries, dict(log.producers.by_id)  # type: ignore[attr-defined]
    assert before == after, "a refused batch changes nothing"
    return caught.value.code


def test_leader_assigns_offsets_and_stamps_its_epoch(log: PartitionLog) -> None:
    assert [log.append_as_leader(batch(n), 4, NOW) for n in (3, 1, 5)] == [0, 3, 4]
    assert log.log_end_offset == 9
    assert [item.header.base_offset for item in contents(log)] == [0, 3, 4]
    assert {item.header.partition_leader_epoch for item in contents(log)} == {4}
    check_everything(log)


def test_segments_roll_by_size_and_every_file_is_named_by_its_first_offset(
    world: Simulated, log: PartitionLog
) -> None:
    """S1, S2."""
    for _ in range(40):
        log.append_as_leader(batch(2), 0, NOW)
    bases = [segment.base_offset for segment in log.segments.all]
    assert len(bases) > 3
    assert all(segment.size <= SMALL.segment_bytes for segment in log.segments.all)
    names = world.disk.list(log.folder)
    for base in bases:
        assert {f"{base:020d}{kind}" for kind in (".log", ".index", ".timeindex")} <= set(names)
    check_everything(log)


def test_a_batch_whose_timestamp_has_rotted_is_not_passed_over(
    world: Simulated, log: PartitionLog
) -> None:
    """F12: a reader gets it, and finds that it is bad."""
    for _ in range(40):
        log.append_as_leader(batch(2), 0, NOW)
    for segment in log.segments.all:
        base = segment.base_offset
        before = log.read(base, 1, log.log_end_offset)
        world.disk.flip_bit(segment.path(".log"), MAX_TIMESTAMP, 7)
        assert log.read(base, 1, log.log_end_offset)[1:] == before[1:]


def test_segment_rolls_when_its_first_record_is_too_old() -> None:
    """S2: log.roll.ms counts from the first record's timestamp."""
    log = Simulated(LogSettings(segment_ms=1000)).log
    log.append_as_leader(batch(at=NOW), 0, NOW)
    log.append_as_leader(batch(at=NOW + 1000), 0, NOW)
    assert len(log.segments.all) == 1
    log.append_as_leader(batch(at=NOW + 1001), 0, NOW)
    assert [segment.base_offset for segment in log.segments.all] == [0, 2]


def test_segment_rolls_when_its_index_is_full() -> None:
    """S2."""
    world = Simulated(LogSettings(index_interval_bytes=1, index_bytes_max=48))
    for _ in range(40):
        world.log.append_as_leader(batch(), 0, NOW)
    assert len(world.log.segments.all) > 3
    for segment in world.log.segments.closed:
        assert segment.offset_index.count * 8 <= 48
        assert segment.time_index.count * 12 <= 48
    check_everything(world.log)


def test_jitter_makes_partitions_roll_at_different_times() -> None:
    world = Simulated(LogSettings(segment_ms=10_000, segment_jitter_ms=5000))
    assert 5000 <= world.log.segments.active.roll_ms <= 10_000


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda b: b.__setitem__(16, 3), ErrorCode.corrupt_message),
        (lambda b: b.__setitem__(16, 0), ErrorCode.unsupported_for_message_format),
        (lambda b: b.__setitem__(16, 1), ErrorCode.unsupported_for_message_format),
        (lambda b: b.__setitem__(-1, b[-1] ^ 1), ErrorCode.corrupt_message),
        (lambda b: b.__setitem__(17, b[17] ^ 1), ErrorCode.corrupt_message),
        (lambda b: b.__delitem__(-1), ErrorCode.corrupt_message),
        (lambda b: b.append(0), ErrorCode.invalid_record),
        (lambda b: b.__delitem__(slice(30, None)), ErrorCode.corrupt_message),
        (lambda b: b.__setitem__(7, 1), ErrorCode.invalid_record),
    ],
)
def test_damaged_batch_is_refused_and_changes_nothing(
    log: PartitionLog, damage: object, code: ErrorCode
) -> None:
    data = batch(2)
    damage(data)  # type: ignore[operator]
    assert refused(log, data) == code


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"record_count": 3}, ErrorCode.invalid_record),
        ({"last_offset_delta": -1, "record_count": 0}, ErrorCode.invalid_record),
        ({"attributes": 0x20}, ErrorCode.invalid_record),
        ({"attributes": 0x40}, ErrorCode.invalid_record),
        ({"attributes": 0x05}, ErrorCode.unsupported_compression_type),
        ({"attributes": 0x08}, ErrorCode.invalid_timestamp),
        ({"base_timestamp": -5, "max_timestamp": -5}, ErrorCode.invalid_timestamp),
        ({"max_timestamp": 5}, ErrorCode.invalid_timestamp),
        ({"producer_id": 7, "producer_epoch": 0}, ErrorCode.invalid_record),
        ({"producer_id": 7, "base_sequence": 0}, ErrorCode.invalid_record),
    ],
)
def test_batch_with_a_wrong_header_is_refused_and_changes_nothing(
    log: PartitionLog, changes: dict[str, int], code: ErrorCode
) -> None:
    data = batch(2)
    assert refused(log, seal(read_header(data)._replace(**changes), data[HEADER.size :])) == code


def test_batch_larger_than_max_message_bytes_or_a_segment_is_refused() -> None:
    large = batch(value=b"x" * 500)
    assert refused(Simulated(LogSettings(max_message_bytes=400)).log, large) == (
        ErrorCode.message_too_large
    )
    world = Simulated(LogSettings(segment_bytes=400))
    world.log.append_as_leader(batch(), 0, NOW)
    assert refused(world.log, large) == ErrorCode.record_list_too_large


def test_timestamps_too_far_from_the_broker_clock_are_refused() -> None:
    settings = LogSettings(timestamp_before_max_ms=1000, timestamp_after_max_ms=2000)
    log = Simulated(settings).log
    assert refused(log, batch(), now_ms=NOW + 1001) == ErrorCode.invalid_timestamp
    assert refused(log, batch(), now_ms=NOW - 2001) == ErrorCode.invalid_timestamp
    assert log.append_as_leader(batch(), 0, NOW + 1000) == 0
    assert log.append_as_leader(batch(at=-1), 0, NOW) == 1, "no timestamp is not an old one"


def test_log_append_time_is_the_leaders_clock() -> None:
    log = Simulated(LogSettings(timestamp_type_log_append=True)).log
    log.append_as_leader(batch(2, at=5), 0, NOW)
    (held,) = contents(log)
    assert [record.timestamp for record in held.records] == [NOW, NOW]
    assert log.offset_for_timestamp(NOW) == (0, NOW)


@pytest.mark.parametrize("compression", [0, 1, 2, 3, 4])
def test_batches_are_stored_as_they_were_sent(log: PartitionLog, compression: int) -> None:
    """S11: whatever the codec, only offset and epoch are stamped."""
    sent = batch(5, value=b"v" * 40, compression=compression)
    copy = bytes(sent)
    log.append_as_leader(sent, 3, NOW)
    (held,) = contents(log)
    assert held.data[21:] == copy[21:]
    assert len(held.records) == 5


# -- reading


def test_read_gives_the_batch_that_holds_the_offset(log: PartitionLog) -> None:
    for _ in range(30):
        log.append_as_leader(batch(3), 0, NOW)
    for offset in range(90):
        piece = log.read(offset, 1, 90)
        header = read_header(piece.file.pread(piece.size, piece.position))
        assert header.base_offset <= offset <= header.last_offset
        assert header.size == piece.size, "at least one batch, even if it is larger than asked"


def test_read_stops_below_the_offset_it_is_given(log: PartitionLog) -> None:
    """A consumer never reads past the high watermark."""
    for _ in range(30):
        log.append_as_leader(batch(3), 0, NOW)
    for upto in range(0, 91, 3):
        for offset in range(0, 90, 3):
            piece = log.read(offset, 1 << 20, upto)
            data = piece.file.pread(piece.size, piece.position)
            if offset >= upto:
                assert not data
            else:
                assert read_header(data).base_offset == offset
                ends = [h.header.next_offset for h in contents(log) if h.data in data]
                assert max(ends) <= upto


def test_read_respects_its_size_limit_when_several_batches_fit(log: PartitionLog) -> None:
    for _ in range(5):
        log.append_as_leader(batch(), 0, NOW)
    size = contents(log)[0].header.size
    assert log.read(0, 2 * size, 5).size == 2 * size
    assert log.read(0, size - 1, 5).size == size


@pytest.mark.parametrize("offset", [-1, 4])
def test_read_outside_the_log_is_refused(log: PartitionLog, offset: int) -> None:
    log.append_as_leader(batch(3), 0, NOW)
    with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
        log.read(offset, 100, 3)
    assert log.read(3, 100, 3).size == 0


def test_slice_stays_readable_after_its_segment_was_deleted(world: Simulated) -> None:
    log = world.log
    log.append_as_leader(batch(3), 0, NOW)
    piece = log.read(0, 1000, 3)
    data = piece.file.pread(piece.size, piece.position)
    restart_at(log, 100, NOW)
    world.clock.advance(SMALL.file_delete_delay_ms)
    world.log_dir.remove_doomed()
    assert not [name for name in world.disk.list(log.folder) if name.endswith(".deleted")]
    assert piece.file.pread(piece.size, piece.position) == data


def test_time_lookup_agrees_with_a_walk_when_timestamps_jump_about(log: PartitionLog) -> None:
    """S3."""
    for at in (50, 10, 90, 90, 20, 5, 200, 100, 199, 201, 3, 300, 300, 1, 250):
        log.append_as_leader(batch(3, at=NOW + at), 0, NOW)
        check_everything(log)


def test_time_lookup_finds_the_record_inside_a_compressed_batch(log: PartitionLog) -> None:
    log.append_as_leader(batch(10, at=NOW, compression=4), 0, NOW)
    assert log.offset_for_timestamp(NOW + 7) == (7, NOW + 7)
    assert log.offset_for_timestamp(NOW + 10) is None


def test_time_lookup_answers_with_the_batch_when_its_records_cannot_be_read(
    log: PartitionLog,
) -> None:
    good = batch(3, compression=4)
    log.append_as_leader(seal(read_header(good), b"not zstd at all"), 0, NOW)
    assert log.offset_for_timestamp(NOW + 1) == (0, NOW + 2)


# -- following


def test_follower_log_is_byte_for_byte_the_leaders(log: PartitionLog) -> None:
    """R6, L1: epochs are taken from the batches."""
    for epoch in (1, 1, 2, 5):
        log.append_as_leader(batch(3), epoch, NOW)
    follower = Simulated(SMALL).log
    data = b"".join(held.data for held in contents(log))
    assert follower.append_as_follower(data[:-10], 5) == 9, "a cut off batch waits"
    assert follower.append_as_follower(contents(log)[-1].data, 5) == 12
    assert [h.data for h in contents(follower)] == [h.data for h in contents(log)]
    assert follower.epochs.entries == log.epochs.entries == [(1, 0), (2, 6), (5, 9)]
    check_everything(follower)


def test_follower_refuses_a_gap_an_overlap_and_a_future_epoch(log: PartitionLog) -> None:
    """D12: whatever the network or a peer does, the order of the log stays."""
    leader = Simulated(SMALL).log
    for _ in range(3):
        leader.append_as_leader(batch(2), 7, NOW)
    first, second, third = (held.data for held in contents(leader))
    log.append_as_follower(first, 7)
    for wrong in (third, first, second + first, second[:-1] + b"!" + third):
        before = log.disk.view()  # type: ignore[attr-defined]
        with pytest.raises(KafkaError, match="CORRUPT_MESSAGE"):
            log.append_as_follower(wrong, 7)
        assert log.disk.view() == before  # type: ignore[attr-defined]
    with pytest.raises(KafkaError, match="epoch 7"):
        log.append_as_follower(second, 6)
    assert log.append_as_follower(second + third, 7) == 6


@pytest.mark.parametrize("length", [-13, -1, 0, 20, HEADER_SIZE - LENGTH_OVERHEAD - 1])
@pytest.mark.parametrize("is_short", [True, False])
def test_follower_refuses_what_says_that_it_is_whole_and_is_no_batch(
    log: PartitionLog, length: int, is_short: bool
) -> None:
    """D12: such a tail is not the beginning of a batch that would come with the next fetch."""
    leader = Simulated(SMALL).log
    for _ in range(2):
        leader.append_as_leader(batch(2), 7, NOW)
    first, second = (bytearray(held.data) for held in contents(leader))
    OFFSET_AND_LENGTH.pack_into(second, 0, 2, length)
    tail = second[: HEADER_SIZE - 1] if is_short else second
    with pytest.raises(KafkaError, match="CORRUPT_MESSAGE"):
        log.append_as_follower(first + tail, 7)
    assert log.log_end_offset == 0, "all are checked before one is written"


def test_follower_keeps_of_a_fetch_what_is_whole_however_it_was_cut_off() -> None:
    """R6: at every byte of the second batch."""
    leader = Simulated(SMALL).log
    for _ in range(2):
        leader.append_as_leader(batch(2), 7, NOW)
    first, second = (held.data for held in contents(leader))
    for size in range(len(second)):
        follower = Simulated(SMALL).log
        assert follower.append_as_follower(first + second[:size], 7) == 2


def test_follower_takes_the_gaps_that_compaction_left() -> None:
    leader = Simulated(SMALL).log
    for _ in range(3):
        leader.append_as_leader(batch(2), 7, NOW)
    first, _, third = (held.data for held in contents(leader))
    follower = Simulated(LogSettings(cleanup_compact=True)).log
    assert follower.append_as_follower(first + third, 7) == 6
    check_everything(follower)


def test_follower_rolls_between_batches_of_one_fetch(log: PartitionLog) -> None:
    leader = Simulated(LogSettings()).log
    for _ in range(40):
        leader.append_as_leader(batch(2), 1, NOW)
    log.append_as_follower(b"".join(held.data for held in contents(leader)), 1)
    assert len(log.segments.all) > 3
    check_everything(log)


# -- idempotence


def idempotent(sequence: int, count: int = 2, *, epoch: int = 0, producer_id: int = 9) -> bytearray:
    return batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def test_repeated_batch_is_answered_with_its_first_offset(log: PartitionLog) -> None:
    """A3: the last five batches of a producer are remembered."""
    offsets = [log.append_as_leader(idempotent(2 * n), 0, NOW) for n in range(7)]
    for n in (2, 3, 4, 5, 6):
        assert log.append_as_leader(idempotent(2 * n), 0, NOW) == offsets[n]
    assert log.log_end_offset == 14
    assert refused(log, idempotent(2)) == ErrorCode.out_of_order_sequence_number
    assert refused(log, idempotent(12, 1)) == ErrorCode.out_of_order_sequence_number


def test_sequence_gap_and_old_epoch_are_refused(log: PartitionLog) -> None:
    log.append_as_leader(idempotent(0, epoch=3), 0, NOW)
    assert refused(log, idempotent(4, epoch=3)) == ErrorCode.out_of_order_sequence_number
    assert refused(log, idempotent(2, epoch=2)) == ErrorCode.invalid_producer_epoch
    assert refused(log, idempotent(2, epoch=4)) == ErrorCode.out_of_order_sequence_number
    assert log.append_as_leader(idempotent(0, epoch=4), 0, NOW) == 2


def test_sequence_wraps_after_the_largest_number(log: PartitionLog) -> None:
    last = (1 << 31) - 1
    log.append_as_leader(idempotent(last - 1, 3), 0, NOW)
    assert log.append_as_leader(idempotent(1), 0, NOW) == 3
    assert log.append_as_leader(idempotent(last - 1, 3), 0, NOW) == 0


def test_failed_append_leaves_the_producer_as_it_was(world: Simulated) -> None:
    """X28: state follows what happened."""
    log = world.log
    log.append_as_leader(idempotent(0), 0, NOW)
    world.disk.fail(28, operations=["pwrite"], path="*.log", part=0.5)
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        log.append_as_leader(idempotent(2), 0, NOW)
    assert log.producers.by_id[9].last_sequence == 1


@pytest.mark.parametrize("restart", ["stop_and_start", "kill", "lose_power"])
def test_idempotence_survives_a_restart(world: Simulated, restart: str) -> None:
    """A3, S9."""
    log = world.log
    for n in range(8):
        log.append_as_leader(idempotent(2 * n), 0, NOW)
    log.flush(NOW)
    log = getattr(world, restart)()
    assert log.append_as_leader(idempotent(14), 0, NOW) == 14
    assert refused(log, idempotent(20)) == ErrorCode.out_of_order_sequence_number
    assert log.append_as_leader(idempotent(16), 0, NOW) == 16


def test_idempotence_follows_a_truncation_back(log: PartitionLog) -> None:
    for n in range(20):
        log.append_as_leader(idempotent(2 * n), n // 5, NOW)
    truncate_suffix(log, 12, NOW)
    assert log.append_as_leader(idempotent(12), 9, NOW) == 12
    assert log.epochs.entries == [(0, 0), (1, 10), (9, 12)]
    check_everything(log)


def test_silent_producer_is_forgotten_after_its_time(log: PartitionLog) -> None:
    log.append_as_leader(idempotent(0), 0, NOW)
    log.producers.expire(NOW, 1000)
    log.producers.expire(NOW + 999, 1000)
    assert 9 in log.producers.by_id
    log.producers.expire(NOW + 1001, 1000)
    assert 9 not in log.producers.by_id
    assert log.append_as_leader(idempotent(40), 0, NOW) == 2, "as a producer never seen"


# -- transactions, as far as the log is concerned


def transactional(sequence: int, producer_id: int = 9, count: int = 2) -> bytearray:
    return batch(
        count,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )


def marker(*, committed: bool, producer_id: int = 9, coordinator_epoch: int = 0) -> bytearray:
    end = EndTransaction(
        producer_id=producer_id,
        producer_epoch=0,
        committed=committed,
        coordinator_epoch=coordinator_epoch,
    )
    return encode_end_transaction(end, timestamp=NOW)


def test_aborted_transactions_are_in_the_index_with_the_offset_that_was_stable(
    world: Simulated,
) -> None:
    """A4, S1: `.txnindex`."""
    log = world.log
    log.append_as_leader(transactional(0, 9), 0, NOW)
    log.append_as_leader(transactional(0, 8), 0, NOW)
    assert log.producers.first_unstable_offset == 0
    log.append_own(marker(committed=False, producer_id=8), 0)
    log.append_own(marker(committed=True, producer_id=9), 0)
    (aborted,) = log.segments.active.aborted(world.disk)
    assert tuple(aborted) == (8, 2, 4, 0)
    log.producers.committed_up_to(log.log_end_offset)
    assert log.producers.first_unstable_offset is None


@pytest.mark.parametrize("restart", ["stop_and_start", "kill", "lose_power"])
def test_open_and_aborted_transactions_survive_a_restart(world: Simulated, restart: str) -> None:
    log = world.log
    for n in range(10):
        log.append_as_leader(transactional(2 * n, 9), 0, NOW)
        log.append_own(marker(committed=n % 2 == 0), 0)
    log.append_as_leader(transactional(0, 8), 0, NOW)
    log.flush(NOW)
    before = [segment.aborted(world.disk) for segment in log.segments.all]
    assert sum(len(entries) for entries in before) == 5
    log = getattr(world, restart)()
    assert [segment.aborted(world.disk) for segment in log.segments.all] == before
    log.producers.committed_up_to(log.log_end_offset)
    assert log.producers.first_unstable_offset == 30
    log.append_own(marker(committed=False, producer_id=8), 0)
    assert log.segments.active.aborted(world.disk)[-1].first_offset == 30


def test_marker_of_an_older_coordinator_is_refused(log: PartitionLog) -> None:
    log.append_as_leader(transactional(0), 0, NOW)
    log.append_own(marker(committed=True, coordinator_epoch=5), 0)
    with pytest.raises(KafkaError, match="TRANSACTION_COORDINATOR_FENCED"):
        log.append_own(marker(committed=True, coordinator_epoch=4), 0)


def test_plain_batch_inside_a_transaction_is_refused(log: PartitionLog) -> None:
    log.append_as_leader(transactional(0), 0, NOW)
    assert refused(log, idempotent(2)) == ErrorCode.invalid_txn_state


def test_marker_after_its_data_was_deleted_ends_the_transaction(log: PartitionLog) -> None:
    """X28: DeleteRecords may be quicker than the coordinator."""
    log.append_as_leader(transactional(0), 0, NOW)
    delete_records(log, 2, 2)
    log.append_own(marker(committed=False), 0)
    log.producers.committed_up_to(3)
    assert log.producers.first_unstable_offset is None


# -- flushing


def test_append_is_one_write_behind_the_last_and_no_sync() -> None:
    """S7: into the page cache, in order; when it reaches the disk is the system's business."""
    log = Simulated(LogSettings()).log
    log.append_as_leader(batch(), 0, NOW)
    trace = log.disk.trace()  # type: ignore[attr-defined]
    for _ in range(10):
        log.append_as_leader(batch(), 0, NOW)
    assert trace == [("pwrite", log.segments.active.path(".log"))] * 10


def test_flush_is_due_after_so_many_records_or_so_much_time() -> None:
    """S7: log.flush.interval.messages and log.flush.interval.ms."""
    log = Simulated(LogSettings(flush_messages=3)).log
    log.append_as_leader(batch(2), 0, NOW)
    assert not log.flush_is_due(NOW)
    log.append_as_leader(batch(1), 0, NOW)
    assert log.flush_is_due(NOW)
    log.flush(NOW)
    assert (log.recovery_point, log.flush_is_due(NOW)) == (3, False)
    log = Simulated(LogSettings(flush_ms=1000)).log
    log.flush(NOW)
    log.append_as_leader(batch(), 0, NOW)
    assert not log.flush_is_due(NOW + 999)
    assert log.flush_is_due(NOW + 1000)


def test_flush_is_due_when_the_clock_was_set_back() -> None:
    """F13: otherwise nothing would be flushed until it is as late as it was."""
    log = Simulated(LogSettings(flush_ms=1000)).log
    log.flush(NOW)
    log.append_as_leader(batch(), 0, NOW - 7_200_000)
    assert log.flush_is_due(NOW - 7_200_000)
    log.flush(NOW - 7_200_000)
    log.append_as_leader(batch(), 0, NOW - 7_200_000)
    assert not log.flush_is_due(NOW - 7_200_000 + 999)


def test_closed_segment_is_flushed_at_the_next_opportunity(log: PartitionLog) -> None:
    log.append_as_leader(batch(), 0, NOW)
    assert not log.flush_is_due(NOW)
    log.roll()
    assert log.flush_is_due(NOW)
