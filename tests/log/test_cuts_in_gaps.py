"""Cuts of a log at an offset that no batch holds: compaction has left a gap there, or a batch says
of itself that it lies elsewhere (F12)."""

import pytest

from support.cleaner_world import World
from support.logs import NOW, Simulated, batch, check_everything, contents
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.log_settings import LogSettings
from tidelog.log.truncation import truncate_suffix
from tidelog.records.batch import stamp

COUNT = 300


def rotted_upwards(number: int, per_batch: int, roll_behind: int = -1) -> Simulated:
    """One of its batches says that it lies much farther behind."""
    sim = Simulated(LogSettings(index_interval_bytes=2_000))
    for each in range(COUNT):
        sim.log.append_as_leader(batch(per_batch), 0, NOW)
        if each == roll_behind:
            sim.log.roll()
    offset = number * per_batch
    position = sim.log.read(offset, 1, sim.log.log_end_offset).position
    path = sim.log.segments.first.path(".log")
    sim.log_dir.close()
    sim.disk.flip_bit(path, position + 5)
    sim.open()
    assert sim.log.log_end_offset == COUNT * per_batch
    return sim


@pytest.mark.parametrize("per_batch", [1, 5])
@pytest.mark.parametrize("behind", [1, 2, 3])
def test_a_batch_that_has_rotted_is_not_taken_for_what_lies_behind_a_gap(
    per_batch: int, behind: int
) -> None:
    """What it held, and all up to the cut, would be missing, and nobody would know."""
    sim = rotted_upwards(50, per_batch)
    for _ in range(2):
        with pytest.raises(KafkaError) as refused:
            truncate_suffix(sim.log, (50 + behind) * per_batch, NOW)
        assert refused.value.code == ErrorCode.corrupt_message
    assert sim.log.log_end_offset == COUNT * per_batch


@pytest.mark.parametrize("into", [1, 4])
def test_the_last_batch_of_a_segment_is_not_either(into: int) -> None:
    """Behind it there is none that could tell."""
    sim = rotted_upwards(50, 5, roll_behind=50)
    with pytest.raises(KafkaError) as refused:
        truncate_suffix(sim.log, 50 * 5 + into, NOW)
    assert refused.value.code == ErrorCode.corrupt_message


UPWARDS, DOWNWARDS, NO_LENGTH = (5, 0), (7, 5), (8, 7)


@pytest.mark.parametrize(
    "bits", [[UPWARDS], [DOWNWARDS], [UPWARDS, NO_LENGTH]], ids=["up", "down", "no batch"]
)
@pytest.mark.parametrize("roll_behind", [-1, 20, 60])
def test_what_has_rotted_since_it_was_written_is_not_cut_by(
    bits: list[tuple[int, int]], roll_behind: int
) -> None:
    """Where it is may be known without a look at it."""
    sim = Simulated(LogSettings())
    for each in range(COUNT):
        sim.log.append_as_leader(batch(), 0, NOW)
        if each == roll_behind:
            sim.log.roll()
    number = 50
    segment = sim.log.segments.all[sim.log.segments.at(number)]
    position, _ = segment.locate(number)
    for byte, bit in bits:
        sim.disk.flip_bit(segment.path(".log"), position + byte, bit)
    with pytest.raises(KafkaError) as refused:
        truncate_suffix(sim.log, number, NOW)
    assert refused.value.code == ErrorCode.corrupt_message
    assert sim.log.log_end_offset == COUNT


@pytest.mark.parametrize("was_there", [True, False], ids=["at the start", "written since"])
@pytest.mark.parametrize("bit", [0, 1, 2, 3])
def test_a_batch_that_has_rotted_by_less_than_its_length_is_noticed_too(
    bit: int, *, was_there: bool
) -> None:
    """By one that comes before it or behind it: both cannot have the same offsets."""
    sim = Simulated(LogSettings())
    for _ in range(COUNT):
        sim.log.append_as_leader(batch(100), 0, NOW)
    first, segment = 5_000, sim.log.segments.active
    path, (position, _) = segment.path(".log"), segment.locate(first)
    if was_there:
        sim.log_dir.close()
    sim.disk.flip_bit(path, position + 7, bit)
    if was_there:
        sim.open()
    for to in (first + 20, first + 50, first + 80):
        with pytest.raises(KafkaError) as refused:
            truncate_suffix(sim.log, to, NOW)
        assert refused.value.code == ErrorCode.corrupt_message
    assert sim.log.log_end_offset == COUNT * 100


def test_a_log_is_cut_in_a_gap_that_compaction_has_left() -> None:
    world = World()
    assert world.cleaner.run_once() is not None
    before = contents(world.log)
    first = before[0].header.base_offset
    assert first > 2
    for to in range(world.log.log_end_offset - 1, first, -1):
        truncate_suffix(world.log, to, NOW)
        assert [held.data for held in check_everything(world.log)] == [
            held.data for held in before if held.header.next_offset <= to
        ]


@pytest.mark.parametrize("is_flushed", [False, True])
@pytest.mark.parametrize("end", ["kill", "power"])
def test_an_empty_segment_behind_a_gap_is_gone_on_with_after_a_crash(
    end: str, is_flushed: bool
) -> None:
    """S9: the log was cut in a gap, and rolled there."""
    world = Simulated(LogSettings(cleanup_compact=True))
    for base, epoch in ((0, 0), (8, 1)):
        data = batch(5)
        stamp(data, base, epoch)
        world.log.append_as_follower(data, 1)
    truncate_suffix(world.log, 8, NOW)
    world.log.roll()
    if is_flushed:
        world.log.flush(NOW)
        world.log_dir.checkpoint()
    log = world.kill() if end == "kill" else world.lose_power("none")
    assert log.segments.active.base_offset <= log.log_end_offset <= 8
    for number in range(3):
        log.append_as_leader(batch(), 2 + number, NOW)
    log.roll()
    assert len(check_everything(log)) == 4
    assert len(check_everything(world.kill())) == 4
