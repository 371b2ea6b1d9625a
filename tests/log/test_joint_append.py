"""Several produced batches in one write: as if each had been appended on its own (S1, A3, B5)."""

import errno
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.joining import append_together
from support.logs import NOW, Simulated, batch, check_everything, summary
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.log_settings import LogSettings
from tidelog.log.partition_log import PartitionLog
from tidelog.records.batch import HEADER_SIZE, read_header, seal

EPOCH = 3
WIDE = LogSettings(segment_bytes=100_000, index_interval_bytes=300)
PRODUCER = 7


@pytest.fixture
def world() -> Simulated:
    return begun(WIDE)


def begun(log_settings: LogSettings) -> Simulated:
    """A log that is in its epoch, and knows a producer whose next sequence is 1."""
    world = Simulated(log_settings)
    world.log.append_as_leader(batch(), EPOCH, NOW)
    world.log.append_as_leader(numbered(0), EPOCH, NOW)
    return world


def numbered(sequence: int, count: int = 1, *, epoch: int = 0, **fields: object) -> bytearray:
    return batch(
        count, producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence, **fields
    )


def together(log: PartitionLog, *data: bytearray) -> list[int] | None:
    return append_together(log, [memoryview(one) for one in data], EPOCH, NOW)


def state_of(world: Simulated) -> object:
    log = world.log
    segment = log.segments.active
    return (
        world.disk.view(),
        log.log_end_offset,
        log.epochs.entries,
        summary(log.producers),
        segment.size,
        segment.offset_index.entries(),
        segment.time_index.entries(),
        (segment.max_timestamp, segment.max_timestamp_offset, segment.first_timestamp),
    )


kinds = st.sampled_from(["plain", "large", "late", "timeless", "next", "repeated", "skipping"])


def made(kind: str, sequence: int, number: int) -> bytearray:
    if kind == "large":
        return batch(3, value=b"x" * 500)
    if kind == "late":
        return batch(2, at=NOW + 1000 * number)
    if kind == "timeless":
        return batch(at=-1)
    if kind == "plain":
        return batch(1 + number)
    ahead = {"next": 0, "repeated": -1, "skipping": 1}[kind]
    return numbered(sequence + ahead, 1 + number if ahead >= 0 else 1)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(kinds, st.integers(0, 3)), min_size=1, max_size=8))
def test_batches_written_together_leave_what_they_leave_one_by_one(
    plan: list[tuple[str, int]],
) -> None:
    joint, single = begun(WIDE), begun(WIDE)
    sequence, is_ordinary, data = 1, True, []
    for kind, number in plan:
        data.append(made(kind, sequence, number))
        is_ordinary = is_ordinary and kind not in ("timeless", "repeated", "skipping")
        if kind == "next":
            sequence += 1 + number
    before = state_of(joint)
    offsets = together(joint.log, *map(bytearray, data))
    assert (offsets is not None) == is_ordinary
    if offsets is None:
        assert state_of(joint) == before, "nothing has changed, and all can be appended by itself"
    else:
        assert offsets == [single.log.append_as_leader(one, EPOCH, NOW) for one in data]
        assert state_of(joint) == state_of(single)
    check_everything(joint.log)
    assert joint.kill().log_end_offset == joint.log.log_end_offset


def test_several_batches_take_one_write(world: Simulated) -> None:
    trace = world.disk.trace()
    assert together(world.log, batch(), numbered(1, 2), batch(3)) == [2, 3, 5]
    assert [name for name, *_ in trace] == ["pwrite"]


@pytest.mark.parametrize(
    "other",
    [
        lambda: batch()[:-1],
        lambda: batch()[:20],
        lambda: batch() + b"x",
        lambda: bytearray(batch()[:-1] + b"?"),
        lambda: batch(value=b"x" * 2_000_000),
        lambda: batch(at=NOW + (2 << 40)),
        lambda: numbered(1, transactional=True),
        lambda: numbered(0, epoch=1),
        lambda: numbered(5),
        lambda: batch(producer_id=8, producer_epoch=0, base_sequence=0),
        lambda: seal(read_header(batch())._replace(attributes=0x10), batch()[HEADER_SIZE:]),
    ],
)
def test_one_that_is_not_ordinary_keeps_all_of_them_from_being_written(
    world: Simulated, other: Callable[[], bytearray]
) -> None:
    before = state_of(world)
    sent = [batch(), other(), batch()]
    copies = [bytes(one) for one in sent]
    assert together(world.log, *sent) is None
    assert state_of(world) == before
    assert [bytes(one) for one in sent] == copies, "not even stamped"


def test_the_first_batch_of_a_segment_or_an_epoch_is_appended_by_itself(world: Simulated) -> None:
    assert append_together(world.log, [memoryview(batch())], EPOCH + 1, NOW) is None
    world.log.roll()
    assert together(world.log, batch(), batch()) is None


def test_no_more_is_written_together_than_a_segment_has_room_for() -> None:
    one = len(batch())
    world = begun(LogSettings(segment_bytes=one * 6))
    room = (one * 6 - world.log.segments.active.size) // one
    assert together(world.log, *[batch() for _ in range(room + 1)]) is None
    assert together(world.log, *[batch() for _ in range(room)]) is not None
    world = begun(LogSettings(segment_ms=1000))
    assert together(world.log, batch(), batch(at=NOW + 1001)) is None
    assert together(world.log, batch(), batch(at=NOW + 1000)) == [2, 3]


def test_a_topic_of_append_time_is_written_one_by_one() -> None:
    world = begun(LogSettings(timestamp_type_log_append=True))
    assert together(world.log, batch(), batch()) is None


@pytest.mark.parametrize("part", [0.0, 0.6, 1.0])
def test_a_failed_write_appends_none_and_takes_the_log_dir_offline(
    world: Simulated, part: float
) -> None:
    log = world.log
    sent = [memoryview(batch()), memoryview(numbered(1))]
    end, producers = log.log_end_offset, summary(log.producers)
    size = log.segments.active.size
    world.disk.fail(errno.ENOSPC, operations=["pwrite"], part=part)
    with pytest.raises(KafkaError) as caught:
        append_together(log, sent, EPOCH, NOW)
    assert caught.value.code is ErrorCode.kafka_storage_error
    assert append_together(log, sent, EPOCH, NOW) is None, "each is refused by itself"
    assert (log.log_end_offset, summary(log.producers)) == (end, producers)
    assert log.segments.active.size == size
    found = world.kill().log_end_offset - end
    assert 0 <= found <= 2, "what was not acknowledged may be there, whole"
    check_everything(world.log)
