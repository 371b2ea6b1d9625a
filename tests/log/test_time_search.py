"""A search for a time in steps: each is short, and the log may change between any two (S3)."""

from itertools import islice

from support.logs import NOW, Simulated, batch
from tidelog.base.log_settings import LogSettings
from tidelog.log.partition_log import PartitionLog
from tidelog.log.retention import delete_records
from tidelog.log.time_search import STRETCH_BYTES, Batch, searching
from tidelog.records.batch import read_header, seal

YOUNG = NOW + 1_000


def filled(*, stretches: int) -> PartitionLog:
    """A batch that says it has a young record, and has none; then many that do not say so; and one
    that has one."""
    log = Simulated(LogSettings(segment_bytes=1 << 30)).log
    append_false_claim(log)
    while log.segments.active.size < stretches * STRETCH_BYTES:
        log.append_as_leader(batch(2, at=NOW), 0, NOW)
    log.append_as_leader(batch(2, at=YOUNG), 0, NOW)
    return log


def append_false_claim(log: PartitionLog) -> None:
    good = batch(2, at=NOW)
    body = bytes(good[61:])
    log.append_as_leader(seal(read_header(good)._replace(max_timestamp=YOUNG), body), 0, NOW)


def test_a_step_looks_at_no_more_than_a_stretch_of_headers() -> None:
    log = filled(stretches=4)
    search = searching(log, YOUNG)
    first = next(search)
    assert isinstance(first, Batch)
    assert first.header.base_offset == 0
    assert [search.send(None) for _ in range(3)] == [None] * 3
    last = next(step for step in search if isinstance(step, Batch))
    assert last.header.last_offset == log.log_end_offset - 1
    assert log.offset_for_timestamp(YOUNG) == (log.log_end_offset - 2, YOUNG)


def test_a_search_goes_on_from_where_the_log_begins_now() -> None:
    log = filled(stretches=4)
    search = searching(log, YOUNG)
    next(search)
    search.send(None)
    delete_records(log, log.log_end_offset - 1, log.log_end_offset)
    last = next(step for step in search if isinstance(step, Batch))
    assert last.header.last_offset == log.log_end_offset - 1
    assert log.offset_for_timestamp(YOUNG) == (log.log_end_offset - 1, YOUNG + 1)


def test_a_search_ends_where_everything_was_deleted_meanwhile() -> None:
    log = filled(stretches=2)
    search = searching(log, YOUNG)
    next(search)
    delete_records(log, log.log_end_offset, log.log_end_offset)
    assert list(search) == []


def test_an_offset_that_has_rotted_does_not_lead_a_search_back() -> None:
    """F12: offsets are outside the CRC."""
    log = Simulated(LogSettings(index_interval_bytes=100)).log
    for _ in range(5):
        log.append_as_leader(batch(2, at=NOW), 0, NOW)
    append_false_claim(log)
    log.append_as_leader(batch(2, at=NOW), 0, NOW)
    position, _ = log.segments.active.locate(10)
    log.segments.active.open_file().pwrite(bytes(8), position)
    steps = list(islice(searching(log, YOUNG), 100))
    assert 0 < len(steps) < 100, "it ends"
