"""The producer state: the window of five batches, open transactions, and its snapshots (A3, A4,
X28)."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.logs import NOW, Simulated, batch, summary
from tidelog.base.errors import BadValue, KafkaError
from tidelog.base.log_settings import LogSettings
from tidelog.log import snapshots
from tidelog.log.files import SNAPSHOT, file_name
from tidelog.log.producers import FRESH, WINDOW, Producers
from tidelog.log.steps import run_now
from tidelog.log.truncation import restart_at, truncate_suffix
from tidelog.records.batch import SEQUENCE_LIMIT, TRANSACTIONAL
from tidelog.world.sim.disk import Crashed, SimDisk


def append(
    producers: Producers, sequence: int, offset: int, *, count: int = 1, epoch: int = 0
) -> None:
    offsets = (offset, offset + count - 1)
    producers.append(7, epoch, sequence, offsets, NOW, 0)


def check(producers: Producers, sequence: int, *, count: int = 1, epoch: int = 0) -> int:
    return producers.check(7, epoch, sequence, count - 1, 0)


def test_exactly_the_last_five_batches_are_recognised() -> None:
    """A3."""
    producers = Producers()
    for n in range(9):
        append(producers, 2 * n, 100 + 2 * n, count=2)
        for old in range(n + 1):
            if old > n - WINDOW:
                assert check(producers, 2 * old, count=2) == 100 + 2 * old
            else:
                with pytest.raises(KafkaError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
                    check(producers, 2 * old, count=2)


def test_batch_that_is_only_partly_a_repetition_is_refused() -> None:
    producers = Producers()
    append(producers, 0, 0, count=3)
    append(producers, 3, 3, count=3)
    for sequence, count in ((0, 2), (0, 6), (1, 2), (3, 2), (2, 1), (5, 1), (5, 3)):
        with pytest.raises(KafkaError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
            check(producers, sequence, count=count)
    assert check(producers, 6, count=9) == FRESH


@given(st.integers(0, 40), st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_window_agrees_with_a_list_also_where_sequences_wrap(back: int, counts: list[int]) -> None:
    producers = Producers()
    batches: list[tuple[int, int, int]] = []
    sequence, offset = (SEQUENCE_LIMIT - back) % SEQUENCE_LIMIT, 0
    for count in counts:
        if batches:
            assert check(producers, sequence, count=count) == FRESH
        append(producers, sequence, offset, count=count)
        batches.append((sequence, offset, count))
        sequence, offset = (sequence + count) % SEQUENCE_LIMIT, offset + count
    for first, at, count in batches[-WINDOW:]:
        assert check(producers, first, count=count) == at
    assert check(producers, sequence) == FRESH


def test_new_epoch_begins_at_zero_and_forgets_the_window() -> None:
    producers = Producers()
    append(producers, 0, 0)
    with pytest.raises(KafkaError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        check(producers, 1, epoch=1)
    assert check(producers, 0, epoch=1) == FRESH
    append(producers, 0, 1, epoch=1)
    assert check(producers, 0, epoch=1) == 1, "the new epoch's batch, not the old one's"
    with pytest.raises(KafkaError, match="INVALID_PRODUCER_EPOCH"):
        check(producers, 1, epoch=0)


def test_producer_never_seen_may_begin_anywhere() -> None:
    """X28: its earlier records may have aged away."""
    assert check(Producers(), 4711) == FRESH


def test_check_changes_nothing() -> None:
    """X28: state follows what happened, not what was asked."""
    producers = Producers()
    append(producers, 0, 0)
    before = summary(producers)
    assert check(producers, 1) == FRESH
    assert check(producers, 0, epoch=5) == FRESH
    with pytest.raises(KafkaError):
        check(producers, 7)
    assert summary(producers) == before
    assert producers.check(99, 0, 0, 0, 0) == FRESH
    assert summary(producers) == before


def test_first_unstable_offset_waits_until_the_marker_is_below_the_high_watermark() -> None:
    """A4."""
    producers = Producers()
    producers.append(1, 0, 0, (10, 11), NOW, TRANSACTIONAL)
    producers.append(2, 0, 0, (12, 13), NOW, TRANSACTIONAL)
    assert producers.first_unstable_offset == 10
    assert producers.end_transaction(1, 0, (14, 0, False), NOW) is None
    assert producers.first_unstable_offset == 10, "its marker is not committed yet"
    producers.committed_up_to(14)
    assert producers.first_unstable_offset == 10
    producers.committed_up_to(15)
    assert producers.first_unstable_offset == 12
    aborted = producers.end_transaction(2, 0, (15, 0, True), NOW)
    assert aborted is not None
    assert tuple(aborted) == (2, 12, 15, 16)
    producers.committed_up_to(16)
    assert producers.first_unstable_offset is None


def test_marker_without_a_transaction_ends_nothing_but_keeps_the_producer_alive() -> None:
    """X28: a marker counts as a sign of life."""
    producers = Producers()
    producers.append(1, 0, 0, (0, 0), NOW, TRANSACTIONAL)
    assert producers.end_transaction(1, 0, (1, 0, True), NOW + 500) is not None
    assert producers.end_transaction(1, 0, (2, 0, True), NOW + 900) is None
    producers.expire(NOW + 500, 200)
    producers.expire(NOW + 1000, 200)
    assert 1 in producers.by_id
    producers.expire(NOW + 1100, 200)
    assert 1 not in producers.by_id


def test_producer_with_an_open_transaction_is_never_forgotten() -> None:
    producers = Producers()
    producers.append(1, 0, 0, (0, 0), NOW, TRANSACTIONAL)
    producers.expire(NOW + (1 << 40), 1)
    assert producers.first_unstable_offset == 0


# -- snapshots

int64 = st.integers(-1, (1 << 63) - 1)
producer_states = st.dictionaries(
    st.integers(0, (1 << 63) - 1),
    st.tuples(
        st.integers(0, (1 << 15) - 1),
        st.integers(-1, SEQUENCE_LIMIT - 1),
        st.integers(0, 1 << 62),
        st.integers(0, 1 << 20),
        int64,
        st.integers(0, (1 << 31) - 1),
        st.booleans(),
    ),
    max_size=6,
)


def build(states: dict[int, tuple[int, int, int, int, int, int, bool]]) -> Producers:
    producers = Producers()
    for producer_id, (epoch, sequence, first, delta, at, coordinator, is_open) in states.items():
        flags = TRANSACTIONAL if is_open else 0
        producers.append(producer_id, epoch, sequence, (first, first + delta), at, flags)
        producers.by_id[producer_id].coordinator_epoch = coordinator
    return producers


@given(producer_states)
def test_snapshot_is_read_back_as_it_was_taken(
    states: dict[int, tuple[int, int, int, int, int, int, bool]],
) -> None:
    producers = build(states)
    found = snapshots.decode("s", snapshots.encode(producers))
    assert summary(found) == summary(producers)
    assert found.first_unstable_offset == producers.first_unstable_offset
    for producer_id, producer in producers.by_id.items():
        if producer.last_sequence >= 0:
            first = (producer.last_sequence - producer.last_offset_delta) % SEQUENCE_LIMIT
            again = found.check(producer_id, producer.epoch, first, producer.last_offset_delta, 0)
            assert again == producer.last_offset - producer.last_offset_delta


@given(producer_states, st.data())
def test_damaged_snapshot_is_refused_and_nothing_worse(
    states: dict[int, tuple[int, int, int, int, int, int, bool]], data: st.DataObject
) -> None:
    """F12."""
    good = bytearray(snapshots.encode(build(states)))
    if data.draw(st.booleans()):
        bad = good[: data.draw(st.integers(0, len(good) - 1))]
    else:
        bad = good
        bad[data.draw(st.integers(0, len(good) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(BadValue, match="s: "):
        snapshots.decode("s", bytes(bad))


@given(st.binary(max_size=120))
def test_garbage_is_no_snapshot(data: bytes) -> None:
    with pytest.raises(BadValue):
        snapshots.decode("s", data)


def test_newest_good_snapshot_is_used_and_damaged_ones_are_removed() -> None:
    disk = SimDisk()
    for offset in (10, 20, 30, 40):
        producers = Producers()
        append(producers, 0, offset - 1)
        snapshots.write(disk, "", offset, producers, durable=True)
    disk.flip_bit("/" + file_name(30, SNAPSHOT), 12)
    disk.open("/" + file_name(20, SNAPSHOT), "write").truncate(30)
    found = snapshots.read_latest(disk, "", 39)
    assert found is not None
    assert found[0] == 10
    assert found[1].by_id[7].last_offset == 9
    assert snapshots.offsets_of(disk.list("/")) == [10, 40]
    assert snapshots.read_latest(disk, "", 9) is None


def test_snapshots_that_are_removed_meanwhile_are_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A truncation lists them; a snapshot that is being written beside it removes the last one."""
    world = Simulated(LogSettings())
    for n in range(4):
        data = batch(producer_id=7, producer_epoch=0, base_sequence=n)
        world.log.append_as_leader(data, 0, NOW)
    there = world.disk.list
    gone = [file_name(offset, SNAPSHOT) for offset in (1, 4)]
    monkeypatch.setattr(world.disk, "list", lambda folder: [*there(folder), *gone])
    truncate_suffix(world.log, 2, NOW)
    assert world.log.log_end_offset == 2
    assert world.log.producers.by_id[7].next_sequence == 2


def test_a_roll_may_write_the_same_snapshot_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both are at the log end: one is written from time to time beside the loop, the other when the
    next batch has no room."""
    world = Simulated(LogSettings())
    data = batch(2, producer_id=7, producer_epoch=0, base_sequence=0)
    world.log.append_as_leader(data, 0, NOW)
    rename = world.disk.rename

    def rename_after_a_roll(source: str, target: str) -> None:
        monkeypatch.setattr(world.disk, "rename", rename)
        world.log.roll()
        rename(source, target)

    monkeypatch.setattr(world.disk, "rename", rename_after_a_roll)
    run_now(world.log.snapshotting())
    assert world.log_dir.failure is None
    assert world.log.snapshot_offset == world.log.segments.active.base_offset == 2
    expected = summary(world.log.producers)
    assert summary(world.kill().producers) == expected != {}


@pytest.mark.parametrize("waits", [0, 1])
def test_a_snapshot_of_what_is_cut_meanwhile_does_not_outlive_its_process(waits: int) -> None:
    """V13: the disk holds it up, the log is cut and grows again, and before the loop hears that it
    is there the process dies. What it says would count for the log as it is now."""
    world = Simulated(LogSettings())
    for n in range(4):
        data = batch(producer_id=7, producer_epoch=0, base_sequence=n)
        world.log.append_as_leader(data, 0, NOW)
    steps = world.log.snapshotting()
    wait = next(steps)
    for _ in range(waits):
        wait()
        wait = next(steps, wait)
    truncate_suffix(world.log, 2, NOW)
    for _ in range(3):
        world.log.append_as_leader(batch(), 1, NOW)
    with suppress(FileNotFoundError):
        wait()
    assert world.kill().producers.by_id[7].next_sequence == 2


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("death", ["process", "all", "some", "none"])
def test_producers_of_a_log_that_was_begun_anew_do_not_come_back(death: str, seed: int) -> None:
    """X23, X27: a snapshot of the old log would bring back a transaction that was open in it. Its
    marker is below the new start and never comes, so that nothing would be stable any more."""
    number, died = 0, True
    while died:
        world = _with_an_open_transaction(seed)
        world.disk.crash_at(number)
        died = not _is_done(partial(restart_at, world.log, 50, NOW))
        log = world.kill() if death == "process" else world.lose_power(death)
        if log.log_start_offset == 50:
            assert (number, log.log_end_offset, summary(log.producers)) == (number, 50, {})
        number += 1
    assert log.log_start_offset == 50


@pytest.mark.parametrize("death", ["process", "all", "some", "none"])
def test_nor_when_the_start_after_it_is_cut_short_too(death: str) -> None:
    """X27: the log start is durable already, and all of the old log is still there."""
    number, died = 0, True
    while died:
        world = _with_an_open_transaction(number)
        world.log.log_start_offset = 50
        world.log_dir.persist_log_starts()
        world.disk.process_dies()
        world.disk.crash_at(number)
        died = not _is_done(world.open)
        log = world.kill() if death == "process" else world.lose_power(death)
        assert (number, log.log_start_offset, log.log_end_offset) == (number, 50, 50)
        assert (number, summary(log.producers)) == (number, {})
        number += 1


def _with_an_open_transaction(seed: int) -> Simulated:
    world = Simulated(LogSettings(), seed)
    for n in range(3):
        data = batch(producer_id=7, producer_epoch=0, base_sequence=n, transactional=True)
        world.log.append_as_leader(data, 0, NOW)
    world.log.roll()
    world.log.flush(NOW)
    world.log_dir.checkpoint()
    return world


def _is_done(step: Callable[[], object]) -> bool:
    try:
        step()
    except Crashed:
        return False
    return True
