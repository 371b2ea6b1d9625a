"""Offsets that have rotted in the header of a batch, outside of its checksum (F12)."""

import pytest

from support.logs import NOW, PARTITION, Simulated, batch
from support.stopped import open_dir, stop
from tidelog.base.errors import KafkaError
from tidelog.base.log_settings import LogSettings
from tidelog.log.partition_log import PartitionLog

LARGE, SMALL = 9000, 10
OFFSET_BITS = ((7, 0), (7, 1), (7, 2), (7, 3), (6, 0), (1, 0), (0, 7))
DELTA_BITS = ((26, 0), (26, 1), (23, 6), (23, 7))


def filled(value_bytes: int) -> Simulated:
    """Some closed segments of some batches each."""
    world = Simulated(LogSettings(index_interval_bytes=150))
    for number in range(15):
        value = b"%d" % number + b"x" * value_bytes
        world.log.append_as_leader(batch(value=value), 1, NOW)
        if number % 5 == 4:
            world.log.roll()
    world.log.append_as_leader(batch(), 1, NOW)
    return world


def places(log: PartitionLog) -> list[tuple[str, int]]:
    """The file of each batch, and where in it."""
    found = []
    for offset in range(15):
        segment = log.segments.all[log.segments.at(offset)]
        found.append((segment.path(".log"), segment.locate(offset)[0]))
    return found


@pytest.mark.parametrize("value_bytes", [LARGE, SMALL])
@pytest.mark.parametrize("number", range(15))
def test_nobody_is_given_what_lies_behind_what_he_asked_for(value_bytes: int, number: int) -> None:
    """He would take it for the next one, and never know of the other. What lies at the rotten batch
    or before it is looked through before it is sent."""
    world = filled(value_bytes)
    wanted = places(world.log)
    path, position = wanted[number]
    disk = stop(world, "stop")
    for byte, bit in OFFSET_BITS + DELTA_BITS:
        twin = disk.fork()
        twin.flip_bit(path, position + byte, bit)
        log = open_dir(twin).logs[PARTITION]
        for _ in range(2):
            for offset in range(15):
                try:
                    piece = log.read(offset, 1, log.log_end_offset)
                except KafkaError:
                    continue
                found = next(s for s in log.segments.all if s.open_file() is piece.file)
                assert (found.path(".log"), piece.position) <= wanted[offset], (byte, bit, offset)


@pytest.mark.parametrize("number", [0, 7, 14])
def test_other_segments_are_read_as_before(number: int) -> None:
    world = filled(SMALL)
    wanted = places(world.log)
    path, position = wanted[number]
    disk = stop(world, "stop")
    disk.flip_bit(path, position + 7, 3)
    log = open_dir(disk).logs[PARTITION]
    for offset in range(15):
        if wanted[offset][0] != path:
            assert log.read(offset, 1, log.log_end_offset).position == wanted[offset][1]
