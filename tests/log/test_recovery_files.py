"""A start with the files around the log lost or damaged: indexes, leader epochs, snapshots,
transaction indexes, checkpoints; and with any byte of any file changed (S9, L1, F12, X27)."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.logs import (
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
    aborted,
    filled,
    flushed,
    open_dir,
    path,
    stop,
    stops,
    transaction,
)
from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.base.log_settings import LogSettings
from tidelog.log.checkpoints import LEADER_EPOCHS, RECOVERY_POINTS, parse_epochs
from tidelog.log.partition_log import PartitionLog
from tidelog.log.retention import advance_log_start
from tidelog.log.truncation import restart_at
from tidelog.records.batch import walk
from tidelog.world.sim.disk import Crashed

EPOCHS_FILE = f"{FOLDER}/{LEADER_EPOCHS}"
EPOCH_POSITION = 15
"""Of the last byte of it in a batch."""


# -- indexes


DAMAGES = {
    "missing": None,
    "empty": b"",
    "one byte short": b"\0\0\0\x05\0\0\0",
    "garbage": b"\x93garbage!" * 9,
    "zeros": bytes(4096),
    "beyond the log": b"\0\0\0\x05\x7f\xff\xff\xff",
    "not growing": b"\0\0\0\x05\0\0\0\x05\0\0\0\x05\0\0\0\x05\0\0\0\x05\0\0\0\x05",
}


@stops
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kinds", [(".index",), (".timeindex",), (".index", ".timeindex")])
@pytest.mark.parametrize("index", [0, -1])
def test_lost_or_damaged_index_is_made_again(
    how: str, damage: str, kinds: tuple[str, ...], index: int
) -> None:
    """S9, F12: of a closed segment and of the active one."""
    world = flushed()
    before = contents(world.log)
    paths = [path(world.log, index, kind) for kind in kinds]
    disk = stop(world, how)
    data = DAMAGES[damage]
    for name in paths:
        disk.remove(name)
        if data is not None:
            disk.open(name, "create").pwrite(data, 0)
    log = open_dir(disk).logs[PARTITION]
    check_found(log, before)


def check_found(log: PartitionLog, before: list[Held]) -> None:
    """Every offset and every time is found, as a walk over the log finds it."""
    for item in before:
        piece = log.read(item.header.last_offset, 1, log.log_end_offset)
        assert piece.file.pread(piece.size, piece.position) == item.data
    records = [record for item in before for record in item.records]
    for record in records:
        first = next(r for r in records if r.timestamp >= record.timestamp)
        assert log.offset_for_timestamp(record.timestamp) == (first.offset, first.timestamp)
    assert log.offset_for_timestamp(max(record.timestamp for record in records) + 1) is None


@pytest.mark.parametrize("damage", ["missing", "garbage"])
@pytest.mark.parametrize("death", ["process", "none", "some", "all"])
def test_an_index_that_is_made_again_is_there_as_a_whole_or_not_at_all(
    damage: str, death: str
) -> None:
    """S3, X27: of a closed segment, whose indexes nobody compares with all of its log. A time index
    that ends too early would let retention delete what is too young."""
    number, died, data = 0, True, DAMAGES[damage]
    while died:
        world = Simulated(LogSettings(index_interval_bytes=0), number)
        for n in range(150):
            world.log.append_as_leader(batch(at=NOW + n), 0, NOW)
        world.log.roll()
        world.log.append_as_leader(batch(at=NOW + 150), 0, NOW)
        world.log.flush(NOW)
        world.log_dir.checkpoint()
        name = path(world.log, 0, ".timeindex" if data is None else ".index")
        disk = stop(world, "kill")
        disk.remove(name)
        if data is not None:
            disk.open(name, "create").pwrite(data, 0)
        disk.crash_at(number)
        try:
            world.open()
            world.log.read(0, 1, 150)
            died = False
        except Crashed:
            pass
        log = world.kill() if death == "process" else world.lose_power(death)
        assert log.offset_for_timestamp(NOW + 149) == (149, NOW + 149), number
        assert len(check_everything(log)) == 151
        number += 1


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_any_flipped_bit_in_an_index_is_noticed_when_it_matters(kind: str) -> None:
    """F12: answers are those of the log, never those of a damaged index."""
    world = flushed(6)
    before = contents(world.log)
    name = path(world.log, 1, kind)
    disk = stop(world, "stop")
    for position in range(len(disk.view()[name])):
        for bit in (0, 3, 7):
            twin = disk.fork()
            twin.flip_bit(name, position, bit)
            check_found(open_dir(twin).logs[PARTITION], before)


def test_any_flipped_bit_in_an_index_keeps_no_log_from_opening() -> None:
    """S9, A3, F12: producers are replayed from a snapshot that was taken within a segment."""
    world = Simulated(LogSettings(index_interval_bytes=150))
    for n in range(40):
        if n == 20:
            world.log.take_snapshot()
        data = batch(3, producer_id=8, producer_epoch=0, base_sequence=3 * n)
        world.log.append_as_leader(data, 1, NOW)
    world.log.segments.active.write_indexes()
    before, name = contents(world.log), path(world.log, -1, ".index")
    disk = stop(world, "kill")
    for position in range(len(disk.view()[name])):
        twin = disk.fork()
        twin.flip_bit(name, position, 1)
        log = open_dir(twin).logs[PARTITION]
        assert summary(log.producers) == summary(producers_of(before))
        check_found(log, before)


# -- epochs, snapshots, transactions


@stops
@pytest.mark.parametrize(
    "damage", [None, b"", b"garbage", b"0\n1\n-1 0\n", b"0\n2\n9 0\n4 20\n", b"0\n2\n1 0\n"]
)
def test_lost_or_damaged_epoch_checkpoint_is_made_again_from_the_batches(
    how: str, damage: bytes | None
) -> None:
    """S9, L1, F12, X27 (KAFKA-16541)."""
    world = flushed()
    before = contents(world.log)
    entries = world.log.epochs.entries
    assert [epoch for epoch, _ in entries] == [1, 2, 3]
    disk = stop(world, how)
    disk.remove(EPOCHS_FILE)
    if damage is not None:
        disk.open(EPOCHS_FILE, "create").pwrite(damage, 0)
    log = open_dir(disk).logs[PARTITION]
    assert log.epochs.entries == entries
    assert check_everything(log) == before


@stops
def test_any_changed_digit_in_an_epoch_checkpoint_is_noticed(how: str) -> None:
    """L1, F12: it is still a checkpoint, but not what the batches say."""
    world = flushed()
    entries = world.log.epochs.entries
    disk = stop(world, how)
    data = disk.view()[EPOCHS_FILE]
    wrong = 0
    for position in range(data.index(b"\n", 2) + 1, len(data)):
        for digit in b"0123456789" if data[position] != ord("\n") else b"":
            twin = disk.fork()
            twin.open(EPOCHS_FILE, "write").pwrite(bytes([digit]), position)
            wrong += twin.view()[EPOCHS_FILE] != data
            assert open_dir(twin).logs[PARTITION].epochs.entries == entries
    assert wrong > 20


@pytest.mark.parametrize("where", [0, 1, -1])
def test_an_epoch_that_has_rotted_in_a_batch_does_not_spoil_what_is_known(where: int) -> None:
    """F12: it lies outside the CRC; the next batch gives it away."""
    world = flushed()
    entries = world.log.epochs.entries
    name, start = path(world.log, 0, ".log"), entries[where][1]
    disk = stop(world, "stop")
    data = disk.view()[name]
    found = {header.base_offset: position for position, header in walk(data)}
    disk.flip_bit(name, found[max(base for base in found if base <= start)] + EPOCH_POSITION, 6)
    assert open_dir(disk).logs[PARTITION].epochs.entries == entries


def test_an_epoch_that_has_rotted_in_the_last_batch_is_not_believed() -> None:
    """F12: no batch behind it gives it away, but no checkpoint knows of such an epoch."""
    world = flushed()
    entries = world.log.epochs.entries
    name = world.log.segments.active.path(".log")
    disk = stop(world, "stop")
    *_, (last, _) = walk(disk.view()[name])
    disk.flip_bit(name, last + EPOCH_POSITION, 6)
    assert open_dir(disk).logs[PARTITION].epochs.entries == entries


def test_epochs_are_known_when_recovery_points_are_lost_with_them() -> None:
    """L1, F12: a clean stop leaves nothing to be checked, but epochs are needed all the same."""
    world = flushed()
    entries = world.log.epochs.entries
    disk = stop(world, "stop")
    disk.remove(EPOCHS_FILE)
    disk.remove(f"/data/{RECOVERY_POINTS}")
    assert open_dir(disk).logs[PARTITION].epochs.entries == entries


@stops
def test_epoch_checkpoint_that_was_made_again_is_written_down_at_the_next_flush(how: str) -> None:
    """L1: otherwise every start would have to read the whole log for it."""
    world = flushed()
    entries = world.log.epochs.entries
    disk = stop(world, how)
    disk.open(EPOCHS_FILE, "write").truncate(5)
    log_dir = open_dir(disk)
    log_dir.close()
    assert parse_epochs(EPOCHS_FILE, disk.view()[EPOCHS_FILE]) == entries


@stops
def test_epochs_of_a_log_that_was_begun_anew_do_not_come_back(how: str) -> None:
    """L1, X23."""
    world = flushed()
    restart_at(world.log, 500, NOW)
    assert world.log.epochs.entries == []
    log = open_dir(stop(world, how)).logs[PARTITION]
    assert (log.log_start_offset, log.log_end_offset) == (500, 500)
    assert log.epochs.entries == []


def test_epochs_that_were_not_durable_in_an_earlier_boot_are_not_believed_later() -> None:
    """L1, V18: epoch 2 was lost with the power; its note may have come through."""
    world = Simulated(SETTINGS)
    world.log.append_as_leader(batch(2), 1, NOW)
    world.log.flush(NOW)
    world.log_dir.persist_recovery_points()
    world.log.append_as_leader(batch(2), 2, NOW)
    noted = world.disk.view()
    world.disk.machine_dies("all")
    for name in [name for name in noted if name.endswith(".unsynced")]:
        world.disk.open(name, "create").pwrite(noted[name], 0)
    world.open()
    assert world.log.epochs.entries == [(1, 0)]
    for _ in range(9):
        world.log.append_as_leader(batch(2), 1, NOW)
    world.log.flush(NOW)
    world.log_dir.persist_recovery_points()
    world.kill()
    assert world.log.epochs.entries == [(1, 0)]
    check_everything(world.log)


@stops
@pytest.mark.parametrize("damage", ["missing", "flipped", "torn", "empty"])
def test_lost_or_damaged_snapshots_are_replaced_by_a_replay(how: str, damage: str) -> None:
    """S9, A3, F12."""
    world = flushed()
    before, transactions = contents(world.log), aborted(world.log)
    assert len(transactions) == 5
    disk = stop(world, how)
    names = [name for name in disk.view() if name.endswith(".snapshot")]
    assert names
    for name in names:
        if damage == "missing":
            disk.remove(name)
        elif damage == "flipped":
            disk.flip_bit(name, len(disk.view()[name]) - 1)
        else:
            disk.open(name, "write").truncate(0 if damage == "empty" else 9)
    log = open_dir(disk).logs[PARTITION]
    assert summary(log.producers) == summary(producers_of(before))
    assert aborted(log) == transactions
    assert check_everything(log) == before


@stops
@pytest.mark.parametrize("damage", ["torn", "version", "zeros behind"])
@pytest.mark.parametrize("index", [0, -1])
def test_damaged_transaction_index_does_not_keep_the_log_from_opening(
    how: str, damage: str, index: int
) -> None:
    """S9, F12: the active segment's is made again; a closed one's is never misread in silence."""
    world = flushed()
    before, transactions = contents(world.log), aborted(world.log)
    name = path(world.log, index, ".txnindex")
    disk = stop(world, how)
    if damage == "torn":
        disk.open(name, "write").pwrite(b"\0\0\0\0\0", len(disk.view()[name]))
    elif damage == "version":
        disk.flip_bit(name, 1)
    else:
        disk.open(name, "write").truncate(len(disk.view()[name]) + 34)
    log = open_dir(disk).logs[PARTITION]
    assert check_everything(log) == before
    if index == 0 and damage == "version":
        with pytest.raises(BadValue, match="txnindex"):
            aborted(log)
    else:
        assert aborted(log) == transactions


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_damaged_transaction_index_of_where_the_log_starts_is_made_again(how: str) -> None:
    """S9, F12: the log began with that segment, so there is no snapshot below it; and its start is
    in the middle now. All of the segment is replayed."""
    world = Simulated(SETTINGS)
    transaction(world.log, 0, committed=False)
    world.log.append_as_leader(batch(2), 0, NOW)
    transactions, producers = aborted(world.log), summary(world.log.producers)
    assert transactions
    world.log.flush(NOW)
    advance_log_start(world.log, 3)
    world.log_dir.checkpoint()
    name = path(world.log, 0, ".txnindex")
    disk = stop(world, how)
    disk.flip_bit(name, 1)
    log = open_dir(disk).logs[PARTITION]
    assert log.log_start_offset == 3
    assert summary(log.producers) == producers
    assert aborted(log) == transactions
    check_everything(log)


@pytest.mark.parametrize("first", ["stop", "kill"])
@pytest.mark.parametrize("death", ["kill", "all", "some", "none"])
def test_aborted_transactions_survive_a_crash_while_the_log_is_opened(
    first: str, death: str
) -> None:
    """S9, X27: their index is not lost while it is being looked at."""
    number = 0
    while True:
        world = flushed(8)
        world.log.take_snapshot()
        before, transactions = contents(world.log), aborted(world.log)
        assert world.log.segments.active.aborted(world.disk)
        disk = stop(world, first)
        disk.crash_at(number, "middle")
        try:
            open_dir(disk)
            break
        except Crashed:
            if death == "kill":
                disk.process_dies()
            else:
                disk.machine_dies(death)  # type: ignore[arg-type]
        log = open_dir(disk).logs[PARTITION]
        assert check_everything(log) == before
        assert aborted(log) == transactions, f"died at operation {number} of the opening"
        number += 1
    assert number > 3


# -- anything at all


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.sampled_from(["stop", "kill", "power"]), st.integers(0, 5))
def test_damaged_bytes_anywhere_never_keep_the_dir_from_opening(
    data: st.DataObject, how: str, flips: int
) -> None:
    """F12: whatever is flipped, cut off or added, in any file but meta.properties, the dir opens,
    what can be read is in order, and new records can be written."""
    disk = stop(_sample(how), how)
    names = sorted(name for name in disk.view() if not name.endswith(("meta.properties", ".lock")))
    for _ in range(flips + 1):
        name = data.draw(st.sampled_from(names))
        size = len(disk.view()[name])
        match data.draw(st.sampled_from(["flip", "cut", "add", "overwrite"])):
            case "flip" if size:
                disk.flip_bit(name, data.draw(st.integers(0, size - 1)), data.draw(_bits))
            case "cut":
                disk.open(name, "write").truncate(data.draw(st.integers(0, size)))
            case "add":
                disk.open(name, "write").pwrite(data.draw(_bytes), size)
            case _ if size:
                at = data.draw(st.integers(0, size - 1))
                disk.open(name, "write").pwrite(data.draw(_bytes), at)
    log = open_dir(disk).logs[PARTITION]
    walk_through(log)
    end = log.log_end_offset
    assert log.append_as_leader(batch(), 99, NOW) == end
    disk.process_dies()
    assert open_dir(disk).logs[PARTITION].log_end_offset == end + 1


_bits = st.integers(0, 7)
_bytes = st.binary(min_size=1, max_size=40)


def _sample(how: str) -> Simulated:
    world = filled(5)
    if how != "power":
        world.log.flush(NOW)
    world.log_dir.checkpoint()
    return world


def walk_through(log: PartitionLog) -> None:
    """A reader gets on, from the log start to the log end, or is told where it cannot."""
    offset, steps = log.log_start_offset, 0
    while offset < log.log_end_offset:
        try:
            piece = log.read(offset, 1, log.log_end_offset)
        except KafkaError as error:
            assert error.code == ErrorCode.corrupt_message  # noqa: PT017
            offset += 1
            continue
        if piece.size == 0:
            break
        data = piece.file.pread(piece.size, piece.position)
        assert len(data) == piece.size
        base = int.from_bytes(data[:8], "big", signed=True)
        delta = int.from_bytes(data[23:27], "big", signed=True)
        assert base + delta >= offset, "a read gives the batch that holds the offset, or a later"
        offset, steps = base + delta + 1, steps + 1
        assert steps < 1000
    try:
        log.offset_for_timestamp(NOW + 1)
    except KafkaError as error:
        # Nobody can tell which of two batches has the wrong offset; that it is so is said.
        assert error.code == ErrorCode.corrupt_message  # noqa: PT017
