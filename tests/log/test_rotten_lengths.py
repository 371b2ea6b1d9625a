"""Lengths of batches that have rotted below the recovery point (F12): what comes behind such a one
cannot be found by it."""

from unittest.mock import patch

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from support.logs import NOW, PARTITION, Simulated, batch, contents
from support.stopped import open_dir, stop, stops
from tidelog.base.log_settings import LogSettings
from tidelog.log import lengths
from tidelog.log.files import LOG, OFFSET_INDEX, TIME_INDEX
from tidelog.log.lengths import restore_lengths
from tidelog.log.scan import Place
from tidelog.records.batch import CRC_START, read_header
from tidelog.records.checksum import crc32c
from tidelog.world.sim.disk import Crashed, SimDisk

LENGTH, RECORDS = 8, 61
"""Where in a batch they begin."""


@stops
@pytest.mark.parametrize("number", [27, 28, 29])
def test_what_is_cut_off_does_not_come_back_behind_what_is_appended_then(
    how: str, number: int
) -> None:
    """V18: its content has rotted too, so the length is lost. An epoch begins behind it that is not
    there any more, so the start looks again from further in front."""
    world = Simulated(LogSettings(index_interval_bytes=150))
    for n in range(30):
        world.log.append_as_leader(batch(value=b"%02d" % n), n // 4 + 1, NOW)
    world.log.flush(NOW)
    world.log_dir.checkpoint()
    active = world.log.segments.active
    active.write_indexes()
    path, position = active.path(LOG), active.locate(number)[0]
    disk = stop(world, how)
    for at in (LENGTH, RECORDS):
        disk.flip_bit(path, position + at, 6)
    world.open()
    assert world.log.log_end_offset <= number
    world.log.append_as_leader(batch(value=b"30"), 9, NOW)
    before = contents(world.log)
    assert contents(world.kill()) == before


ROLLS = {"one segment": (), "before": (30,), "behind": (30, 60)}


def durable(rolls: tuple[int, ...] = ()) -> Simulated:
    """60 batches of some kilobytes are durable, some small ones more are only written."""
    world = Simulated(LogSettings())
    for n in range(65):
        if n in rolls:
            world.log.roll()
        if n == 60:
            world.log.flush(NOW)
            world.log_dir.checkpoint()
        data = b"%02d" % n + b"x" * (5000 + 7 * n if n < 60 else 10)
        world.log.append_as_leader(batch(value=data), n // 20, NOW)
    return world


def place_of(world: Simulated, number: int) -> tuple[str, int]:
    segment = world.log.segments.all[world.log.segments.at(number)]
    return segment.path(LOG), segment.locate(number)[0]


@stops
@pytest.mark.parametrize("rolls", ROLLS.values(), ids=ROLLS)
@pytest.mark.parametrize("number", [1, 30, 59])
def test_a_rotten_length_takes_nothing_with_it(
    how: str, rolls: tuple[int, ...], number: int
) -> None:
    """It can be told from the checksum, and is written back, if the start comes by it."""
    world = durable(rolls)
    before, (path, position) = contents(world.log), place_of(world, number)
    disk = stop(world, how)
    seen = set()
    for bit in range(32):
        twin = disk.fork()
        twin.flip_bit(path, position + LENGTH + bit // 8, bit % 8)
        log_dir = open_dir(twin)
        log = log_dir.logs[PARTITION]
        assert log.log_end_offset == 65, bit
        if twin.view()[path] == disk.view()[path]:
            assert contents(log) == before
            seen.add(bit)
        log.append_as_leader(batch(), 9, NOW)
        twin.process_dies()
        assert open_dir(twin).logs[PARTITION].log_end_offset == 66, bit
    if how != "stop" and path == world.log.segments.active.path(LOG):
        assert len(seen) == 32


@stops
def test_several_lengths_that_have_rotted_are_found_one_behind_the_other(how: str) -> None:
    """The indexes are lost, so all of the log is gone through."""
    world = durable()
    before = contents(world.log)
    places = [place_of(world, number) for number in (1, 3, 40, 59)]
    indexes = [world.log.segments.active.path(kind) for kind in (OFFSET_INDEX, TIME_INDEX)]
    disk = stop(world, how)
    for name in indexes:
        disk.remove(name)
    for path, position in places:
        disk.flip_bit(path, position + LENGTH, 6)
        disk.flip_bit(path, position + LENGTH + 2, 1)
    world.open()
    assert contents(world.log) == before


@pytest.mark.parametrize("death", ["process", "all", "some", "none"])
def test_a_length_is_restored_wherever_a_crash_falls(death: str) -> None:
    """X27."""
    number, died = 0, True
    while died:
        world = durable()
        before, (path, position) = contents(world.log), place_of(world, 1)
        disk = stop(world, "kill")
        disk.flip_bit(path, position + LENGTH, 6)
        disk.crash_at(number, "middle")
        try:
            world.open()
            died = False
        except Crashed:
            pass
        log = world.kill() if death == "process" else world.lose_power(death)
        found = contents(log)
        assert found == before[: len(found)]
        assert len(found) == 65 or (death in ("all", "some") and len(found) >= 60), number
        number += 1


@stops
@pytest.mark.parametrize("is_forged", [True, False])
def test_where_two_ends_fit_neither_is_believed(how: str, is_forged: bool) -> None:
    """A record may contain a batch, and somebody may have chosen its bytes so that the checksum is
    right before it too. Else it could become one of the log, of any producer's."""
    inner = batch(producer_id=99, producer_epoch=9, base_sequence=0)
    inner[:8] = (1).to_bytes(8)
    world = Simulated(LogSettings())
    world.log.append_as_leader(disguised(inner, is_forged=is_forged), 0, NOW)
    for _ in range(3):
        world.log.append_as_leader(batch(value=b"x" * 2000), 0, NOW)
    before = contents(world.log)
    world.log.flush(NOW)
    world.log_dir.checkpoint()
    path = world.log.segments.active.path(LOG)
    disk = stop(world, how)
    disk.flip_bit(path, LENGTH, 6)
    world.open()
    assert contents(world.log) == ([] if is_forged else before)
    assert 99 not in world.log.producers.by_id


def disguised(inner: bytearray, *, is_forged: bool) -> bytearray:
    """A batch around another one; its checksum is that of what comes before that, too, if eight
    bytes are chosen for it. A checksum of so many bytes is linear in their bits."""

    def around(chosen: int) -> bytearray:
        return batch(value=chosen.to_bytes(8) + inner)

    def difference(chosen: int) -> int:
        data = memoryview(around(chosen))[CRC_START:]
        return crc32c(data[: bytes(data).index(inner)]) ^ crc32c(data)

    basis: dict[int, tuple[int, int]] = {}
    wanted, chosen = difference(0), 0
    for bit in range(64):
        value, bits = difference(1 << bit) ^ wanted, 1 << bit
        while value and value.bit_length() in basis:
            value, bits = _reduced((value, bits), basis)
        basis[value.bit_length()] = (value, bits)
    while is_forged and wanted:
        wanted, chosen = _reduced((wanted, chosen), basis)
    return around(chosen)


def _reduced(pair: tuple[int, int], basis: dict[int, tuple[int, int]]) -> tuple[int, int]:
    value, bits = basis[pair[0].bit_length()]
    return pair[0] ^ value, pair[1] ^ bits


@given(
    st.lists(st.tuples(st.integers(0, 300), st.binary(max_size=300)), min_size=1, max_size=8),
    st.sampled_from([0, 5, 255, 65_535, (1 << 32) - 3]),
    st.sampled_from([17, 64, 100, 1 << 20]),
    st.integers(0, 999),
    st.integers(0, 31),
)
def test_a_length_is_found_whatever_the_records_and_the_gaps_between_offsets(
    parts: list[tuple[int, bytes]], base: int, chunk_bytes: int, number: int, bit: int
) -> None:
    """Compaction leaves gaps. What is read at once may end anywhere."""
    disk = SimDisk()
    file, places, offset = disk.open("/log", "create"), [], base
    for gap, value in parts:
        data = batch(value=value)
        data[:8] = (offset + gap).to_bytes(8)
        places.append(file.size())
        file.pwrite(data, file.size())
        offset += gap + 1
    before = disk.view()
    position = places[number % len(places)]
    disk.flip_bit("/log", position + LENGTH + bit // 8, bit % 8)
    # One that leads to another batch hides those between, but stops nobody.
    assume(position + read_header(file.pread(RECORDS, position)).size not in places)
    place = Place(segment_base=base, expected_offset=base, trusted_upto=offset)
    with patch.object(lengths, "CHUNK_BYTES", chunk_bytes):
        assert restore_lengths(file, 0, file.size(), place) == 1
    assert disk.view() == before
