"""Ranges that are read end where a batch does: what a reader could not use is not sent (S3)."""

from itertools import pairwise

import pytest

from support.logs import NOW, Held, Simulated, batch, contents
from tidelog.base.log_settings import LogSettings
from tidelog.log import segment
from tidelog.log.index import OFFSET_PARTS
from tidelog.log.partition_log import PartitionLog, Slice

BATCHES = 40
LIMITS = (1, 9_000, 20_000, 65_536, 100_000)


def filled(size: int = 3000, segment_bytes: int = 1 << 20) -> PartitionLog:
    """Batches of different sizes: large ones, each of which has an entry in the index, or small
    ones, of which many are between two entries."""
    log = Simulated(LogSettings(segment_bytes=segment_bytes)).log
    for number in range(BATCHES):
        log.append_as_leader(batch(3, value=bytes(size + 10 * number)), 0, NOW)
    return log


def check_whole(found: Slice, here: list[Held], limit: int) -> None:
    """The batches of a segment from the first that is read on: as many as fit, but one at least."""
    sizes = [item.header.size for item in here]
    fitting = max(1, sum(sum(sizes[: count + 1]) <= limit for count in range(len(sizes))))
    assert found.size == sum(sizes[:fitting])
    is_cut = fitting < len(sizes) and sizes[0] < limit
    assert found.left_out == (limit - found.size if is_cut else 0)


@pytest.mark.parametrize("size", [5, 3000])
def test_range_near_the_end_of_the_log_is_whole_batches(size: int) -> None:
    log = filled(size)
    held = contents(log)
    for number, item in enumerate(held):
        for limit in (1, 200, 500, *LIMITS):
            found = log.read(item.header.base_offset, limit, log.log_end_offset)
            check_whole(found, held[number:], limit)


def test_range_of_the_active_segment_far_from_its_end_is_whole_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segment, "TAIL_BATCHES", 4)
    log = filled()
    held = contents(log)
    for number, item in enumerate(held[:20]):
        for limit in LIMITS:
            found = log.read(item.header.base_offset, limit, log.log_end_offset)
            check_whole(found, held[number:], limit)


def test_range_of_a_closed_segment_is_whole_batches() -> None:
    """But for its last batches: whether there are more entries behind is not at hand."""
    log = filled(segment_bytes=250_000)
    held = contents(log)
    here = [item for item in held if item.header.base_offset < log.segments.all[1].base_offset]
    assert len(here) > 15
    for number, item in enumerate(here[:10]):
        for limit in (1, 9_000, 20_000):
            found = log.read(item.header.base_offset, limit, log.log_end_offset)
            check_whole(found, here[number:], limit)


def test_range_below_an_offset_is_not_cut_further() -> None:
    log = filled()
    held = contents(log)
    upto = held[5].header.base_offset
    found = log.read(0, 1 << 20, upto)
    assert found.size == sum(item.header.size for item in held[:5])
    assert found.left_out == 0


def test_who_reads_on_behind_whole_batches_gets_every_batch_once() -> None:
    log = filled(segment_bytes=250_000)
    held = contents(log)
    offset, seen = 0, bytearray()
    after = {first.data: second.header.base_offset for first, second in pairwise(held)}
    while offset < log.log_end_offset:
        found = log.read(offset, 50_000, log.log_end_offset)
        data = found.file.pread(found.size, found.position)
        whole = [item.data for item in held if item.data in data]
        seen += b"".join(whole)
        offset = after.get(whole[-1], log.log_end_offset)
    assert seen == b"".join(item.data for item in held)


def test_wrong_position_in_an_index_never_costs_the_first_batch() -> None:
    log = filled(segment_bytes=250_000)
    closed = log.segments.all[0]
    first = log.read(6, 1, log.log_end_offset)
    (block,) = closed.offset_index.blocks.values()
    count = len(block) // OFFSET_PARTS
    for entry in range(3, count - 1):
        block[count + entry] = first.position + 1 + entry
    assert log.read(6, first.size + 100, log.log_end_offset).size == first.size
