"""Shares of a backlog, and ranges cut into tasks: the arithmetic of a micro-batch (row P3)."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.ids import TopicPartition
from tidelog.spark.admission import admit
from tidelog.spark.offsets import Planned, Symbolic, TopicOffsets, read_offset
from tidelog.spark.options import Splitting
from tidelog.spark.planning import Span, count_tasks, cut

PARTITIONS = [TopicPartition("t", index) for index in range(5)]
ROWS = st.integers(0, 1 << 62)
BACKLOGS = st.lists(ROWS, min_size=1, max_size=5).map(
    lambda rows: dict(zip(PARTITIONS, rows, strict=False))
)
SIZES = st.lists(st.floats(0, 1e7), min_size=5, max_size=5).map(
    lambda sizes: dict(zip(PARTITIONS, sizes, strict=True))
)


def splitting(
    tasks_min: int | None = None, rows_max: int | None = None, bytes_max: int | None = None
) -> Splitting:
    return Splitting(tasks_min=tasks_min, rows_max=rows_max, bytes_max=bytes_max)


@given(backlog=BACKLOGS, limit=st.integers(1, 1 << 62))
def test_a_limit_in_rows_is_kept_but_for_one_record_of_each_small_partition(
    backlog: dict[TopicPartition, int], limit: int
) -> None:
    """P1: as Spark's connector does it."""
    admitted = admit(backlog, rows_max=limit, bytes_max=None, sizes={})
    assert all(0 <= admitted[one] <= rows for one, rows in backlog.items())
    assert all(admitted[one] >= 1 for one, rows in backlog.items() if rows)
    assert sum(admitted.values()) <= limit + len(backlog)
    if sum(backlog.values()) <= limit:
        assert admitted == backlog


@given(backlog=BACKLOGS, limit=st.integers(1, 1 << 40), sizes=SIZES)
def test_a_limit_in_bytes_is_kept_but_for_one_record_of_each_partition(
    backlog: dict[TopicPartition, int], limit: int, sizes: dict[TopicPartition, float]
) -> None:
    admitted = admit(backlog, rows_max=None, bytes_max=limit, sizes=sizes)
    taken = sum(sizes[one] * rows for one, rows in admitted.items())
    assert all(admitted[one] >= 1 for one, rows in backlog.items() if rows)
    assert taken <= limit * 1.001 + sum(sizes.values()) + len(backlog)


def test_shares_are_in_proportion_to_what_waits() -> None:
    backlog = {PARTITIONS[0]: 1000, PARTITIONS[1]: 100, PARTITIONS[2]: 1, PARTITIONS[3]: 0}
    admitted = admit(backlog, rows_max=110, bytes_max=None, sizes={})
    assert list(admitted.values()) == [99, 9, 1, 0]


def test_the_tighter_of_two_limits_counts() -> None:
    backlog = {PARTITIONS[0]: 1000}
    sizes = {PARTITIONS[0]: 10.0}
    assert admit(backlog, rows_max=500, bytes_max=1000, sizes=sizes) == {PARTITIONS[0]: 100}
    assert admit(backlog, rows_max=50, bytes_max=1000, sizes=sizes) == {PARTITIONS[0]: 50}


def test_partitions_of_one_size_do_not_miss_the_number_of_tasks_that_is_wanted() -> None:
    """P1: half a task each is one more, as with Spark's connector."""
    spans = {one: Span(start=0, end=100) for one in PARTITIONS[:2]}
    for wanted, each in ((4, 2), (5, 3), (6, 3), (9, 5)):
        counts = count_tasks(spans, splitting(tasks_min=wanted), {})
        assert counts == dict.fromkeys(PARTITIONS[:2], each)


@given(start=st.integers(0, 1 << 61), rows=ROWS, pieces=st.integers(1, 50))
def test_pieces_of_a_range_are_all_of_it_in_order_and_alike(
    start: int, rows: int, pieces: int
) -> None:
    """P3"""
    found = cut(Span(start=start, end=start + rows), pieces)
    assert len(found) == min(pieces, rows)
    at = start
    for piece in found:
        assert piece.start == at
        at = piece.end
    assert at == start + rows or not found
    if found:
        assert max(one.rows for one in found) - min(one.rows for one in found) <= 1


@given(
    backlog=BACKLOGS,
    tasks_min=st.none() | st.integers(1, 40),
    rows_max=st.none() | st.integers(1 << 55, 1 << 62),
    sizes=st.just({}) | SIZES,
)
def test_every_partition_with_records_has_a_task_and_no_other_has(
    backlog: dict[TopicPartition, int],
    tasks_min: int | None,
    rows_max: int | None,
    sizes: dict[TopicPartition, float],
) -> None:
    spans = {one: Span(start=3, end=3 + rows) for one, rows in backlog.items()}
    counts = count_tasks(spans, splitting(tasks_min, rows_max), sizes)
    assert set(counts) == {one for one, rows in backlog.items() if rows}
    assert all(1 <= count <= backlog[one] for one, count in counts.items())
    if rows_max is not None:
        assert all(backlog[one] <= count * rows_max for one, count in counts.items())


def test_a_partition_that_weighs_more_is_cut_more_often() -> None:
    """As many records in each, but ten times the bytes in one of them."""
    spans = {one: Span(start=0, end=1000) for one in PARTITIONS[:3]}
    sizes = {PARTITIONS[0]: 1000.0, PARTITIONS[1]: 100.0, PARTITIONS[2]: 100.0}
    by_bytes = count_tasks(spans, splitting(tasks_min=12), sizes)
    assert list(by_bytes.values()) == [10, 1, 1]
    by_rows = count_tasks(spans, splitting(tasks_min=12), {})
    assert list(by_rows.values()) == [4, 4, 4]


def test_tasks_are_bounded_in_bytes() -> None:
    spans = {one: Span(start=0, end=1000) for one in PARTITIONS[:2]}
    sizes = {PARTITIONS[0]: 1000.0, PARTITIONS[1]: 10.0}
    counts = count_tasks(spans, splitting(bytes_max=100_000), sizes)
    assert list(counts.values()) == [10, 1]


@given(
    offsets=st.dictionaries(
        st.text(min_size=1, max_size=5),
        st.dictionaries(st.integers(0, 9), st.tuples(ROWS, ROWS), min_size=1),
        max_size=3,
    ),
    tasks=st.dictionaries(st.sampled_from(PARTITIONS), st.integers(2, 9)),
    topic_id=st.none() | st.text(max_size=22),
)
def test_a_planned_batch_survives_the_checkpoint(
    offsets: dict[str, dict[int, tuple[int, int]]],
    tasks: dict[TopicPartition, int],
    topic_id: str | None,
) -> None:
    """P3: all that is needed to run it again is in its end offset."""
    planned = Planned(
        start={
            topic: TopicOffsets(topic_id=topic_id, offsets={p: a for p, (a, _) in found.items()})
            for topic, found in offsets.items()
        },
        end={
            topic: TopicOffsets(topic_id=topic_id, offsets={p: b for p, (_, b) in found.items()})
            for topic, found in offsets.items()
        },
        tasks=tasks,
    )
    assert read_offset(planned.to_json()) == planned
    assert read_offset({"start": "latest"}) == Symbolic(name="latest")
