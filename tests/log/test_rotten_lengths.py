"""Lengths of batches that have rotted below the recovery point (F12): what comes behind such a one
cannot be found by it."""

import pytest

from support.logs import NOW, Simulated, batch, contents
from support.stopped import stop, stops
from tidelog.base.log_settings import LogSettings
from tidelog.log.files import LOG

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
