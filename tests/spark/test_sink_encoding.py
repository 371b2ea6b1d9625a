"""Rows become record batches that hold them all, each in the partition where Kafka's own producer
would put it (P1), with no Python per record (P2). Read back with the reference decoder.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.base.errors import BadValue, KafkaError
from tidelog.records.batch import check_produced, read_header
from tidelog.records.murmur2 import partition_for
from tidelog.records.reference import read_records
from tidelog.spark import encoding
from tidelog.spark.encoding import Encoder, gather
from tidelog.spark.sink_options import SinkOptions

NOW = 1_800_000_000_000
PARTITIONS = {"one": 1, "three": 3, "ten": 10, "narrow": 2}
BATCH_BYTES_MAX = {"narrow": 1000}
HEADER = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("headers", HEADER),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)
Row = dict[str, Any]
Place = tuple[str, int]
Given = Mapping[str, str]
NOTHING: Given = {}

ROWS: st.SearchStrategy[Row] = st.fixed_dictionaries(
    {
        "key": st.none() | st.binary(max_size=9),
        "value": st.none() | st.binary(max_size=40),
        "headers": st.none()
        | st.lists(
            st.fixed_dictionaries(
                {"key": st.text(max_size=4), "value": st.none() | st.binary(max_size=5)}
            ),
            max_size=3,
        ),
        "timestamp": st.none() | st.integers(0, 4_000_000_000_000_000),
    }
)


@st.composite
def rows_of_topics(draw: st.DrawFn) -> list[Row]:
    rows: list[Row] = draw(st.lists(ROWS, min_size=1, max_size=30))
    for row in rows:
        row["topic"] = draw(st.sampled_from(sorted(PARTITIONS)))
        row["partition"] = draw(st.none() | st.integers(0, PARTITIONS[row["topic"]] - 1))
    return rows


def encoder(topic: str | None = None, first: int = 0, given: Given = NOTHING) -> Encoder:
    return Encoder(
        SinkOptions.parse({"kafka.bootstrap.servers": "a:1", **given}, is_stream=False).batching,
        topic=topic,
        partition_count=PARTITIONS.__getitem__,
        batch_bytes_max=lambda name: BATCH_BYTES_MAX.get(name, 1 << 20),
        first_partition=first,
    )


def arrow(rows: list[Row], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema)


def encoded(made: Encoder, rows: pa.RecordBatch) -> dict[Place, list[Row]]:
    """What was encoded, as rows again, by partition."""
    found: dict[Place, list[Row]] = defaultdict(list)
    for one in made.encode(rows, NOW):
        check_produced(memoryview(one.batch), 1 << 30)
        for record in read_records(one.batch, verify_crc=True):
            found[one.topic, one.partition].append(
                {
                    "key": record.key,
                    "value": record.value,
                    "headers": list(record.headers),
                    "timestamp": record.timestamp,
                }
            )
    return found


def as_written(row: Row) -> Row:
    return {
        "key": row["key"],
        "value": row["value"],
        "headers": [(header["key"], header["value"]) for header in row["headers"] or ()],
        "timestamp": NOW if row["timestamp"] is None else row["timestamp"] // 1000,
    }


@given(rows_of_topics(), st.integers(0, 4), st.integers(62, 400), st.integers(0, 99))
@settings(max_examples=200)
def test_every_row_is_encoded_once_and_where_it_belongs(
    rows: list[Row], codec: int, batch_bytes: int, first: int
) -> None:
    names = ("none", "gzip", "snappy", "lz4", "zstd")
    given = {"kafka.compression.type": names[codec], "kafka.batch.size": str(batch_bytes)}
    found = encoded(encoder(None, first, given), arrow(rows))
    expected: dict[Place, list[Row]] = defaultdict(list)
    anywhere: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        topic, partition = row["topic"], row["partition"]
        if partition is None and row["key"] is None:
            anywhere[topic].append(as_written(row))
            continue
        if partition is None:
            partition = partition_for(row["key"], PARTITIONS[topic])
        expected[topic, partition].append(as_written(row))
    for place, wanted in expected.items():
        assert in_order(wanted, found[place]), f"rows of {place} in their order"
    for topic, count in PARTITIONS.items():
        written = [row for index in range(count) for row in found.get((topic, index), ())]
        chosen = [row for place, wanted in expected.items() if place[0] == topic for row in wanted]
        assert sorted(map(repr, written)) == sorted(map(repr, chosen + anywhere[topic]))


def in_order(wanted: list[Row], found: Iterable[Row]) -> bool:
    remaining: Iterator[Row] = iter(found)
    return all(row in remaining for row in wanted)


@given(rows_of_topics(), st.integers(62, 200))
def test_the_option_topic_counts_before_the_column(rows: list[Row], batch_bytes: int) -> None:
    for row in rows:
        row["partition"] = None
    given = {"kafka.batch.size": str(batch_bytes)}
    found = encoded(encoder("ten", 0, given), arrow(rows))
    assert {topic for topic, _ in found} == {"ten"}
    assert sum(map(len, found.values())) == len(rows)


@given(st.lists(rows_of_topics(), min_size=1, max_size=5), st.integers(0, 3))
def test_gathering_changes_nothing_but_the_size_of_batches(
    parts: list[list[Row]], linger_ms: int
) -> None:
    extra = pa.field("offset", pa.int64())
    batches = [arrow(part).append_column(extra, pa.array([1] * len(part))) for part in parts]
    ticks = iter(range(10_000))
    gathered = list(gather([*batches, arrow([])], linger_ms, lambda: next(ticks)))
    assert [row for batch in gathered for row in batch.to_pylist()] == [
        row for part in parts for row in arrow(part).to_pylist()
    ]
    if linger_ms == 0:
        assert len(gathered) == len(batches)


def test_rows_are_gathered_until_there_are_enough_or_time_is_over() -> None:
    batch = arrow([{"value": bytes(100_000)}] * 5)
    count = encoding.GATHERED_BYTES_MAX // batch.nbytes + 1
    sizes = [one.num_rows for one in gather([batch] * (2 * count + 1), 1000, lambda: 0)]
    assert sizes == [5 * count, 5 * count, 5]
    times = iter((0, 10, 20, 100, 100, 100))
    waiting = gather([batch] * 4, 100, lambda: next(times))
    assert [one.num_rows for one in waiting] == [15, 5]


def test_rows_without_key_fill_one_partition_after_the_other() -> None:
    rows = arrow([{"value": bytes(84)}] * 100)
    given = {"kafka.batch.size": "1061"}
    made = list(encoder("three", 2, given).encode(rows, NOW))
    assert [one.partition for one in made] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert all(read_header(one.batch).record_count == 10 for one in made)
    few = arrow([{"value": bytes(84)}] * 25)
    made = list(encoder("three", 2, given).encode(few, NOW))
    assert [(one.partition, read_header(one.batch).record_count) for one in made] == [
        (0, 10),
        (1, 5),
        (2, 10),
    ]


def test_small_batches_without_keys_take_turns() -> None:
    made = encoder("three", 1)
    rows = arrow([{"value": b"a"}, {"value": b"b"}])
    assert [list(encoded(made, rows)) for _ in range(4)] == [
        [("three", 1)],
        [("three", 2)],
        [("three", 0)],
        [("three", 1)],
    ]
    keyed = arrow([{"key": b"k", "value": b"a"}])
    encoded(made, keyed)
    assert list(encoded(made, rows)) == [("three", 2)], "rows with keys do not take a turn"


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary()])
def test_keys_values_and_topics_may_be_of_any_type_of_bytes(kind: pa.DataType) -> None:
    schema = pa.schema([("key", kind), ("value", kind), ("topic", kind)])
    rows: list[Row] = [{"key": "ключ", "value": "値", "topic": "ten"}, {"topic": "one"}]
    found = encoded(encoder(), arrow(rows, schema))
    assert {place: [row["value"] for row in there] for place, there in found.items()} == {
        ("ten", partition_for("ключ".encode(), 10)): ["値".encode()],
        ("one", 0): [None],
    }


def test_slices_of_arrow_data_are_read_where_they_begin() -> None:
    rows: list[Row] = [
        {"key": b"%d" % n, "value": b"v%d" % n, "topic": "three", "partition": n % 3}
        for n in range(40)
    ]
    found = encoded(encoder(), arrow(rows).slice(7, 20))
    assert sorted(row["value"] for there in found.values() for row in there) == sorted(
        b"v%d" % n for n in range(7, 27)
    )


@pytest.mark.parametrize("partition", [-1, 3, 2**31 - 1, -(2**31)])
def test_a_partition_that_does_not_exist_is_named(partition: int) -> None:
    rows = arrow([{"value": b"", "topic": "ten", "partition": 3}])
    bad = arrow([{"value": b"", "topic": "three", "partition": partition}])
    wrong = f"partition {partition} of topic three: must be 0 to 2"
    with pytest.raises(BadValue, match=wrong):
        list(encoder().encode(pa.concat_batches([rows, bad]), NOW))
    with pytest.raises(BadValue, match=wrong):
        list(encoder("three").encode(bad, NOW))


def test_a_row_without_topic_is_an_error_that_says_so() -> None:
    rows = arrow([{"value": b"", "topic": "ten"}, {"value": b"", "topic": None}])
    with pytest.raises(BadValue, match="1 of 2 rows have no topic"):
        list(encoder().encode(rows, NOW))


def test_a_topic_that_is_no_text_is_refused() -> None:
    schema = pa.schema([("value", pa.binary()), ("topic", pa.binary())])
    with pytest.raises(BadValue, match="topic's name must be text"):
        list(encoder().encode(arrow([{"value": b"", "topic": b"\xff"}], schema), NOW))


def test_a_timestamp_before_1970_is_refused() -> None:
    rows = arrow([{"value": b"", "timestamp": 5}, {"value": b"", "timestamp": -3000}])
    with pytest.raises(BadValue, match="3 ms before 1970"):
        list(encoder("one").encode(rows, NOW))


def test_a_header_without_key_is_refused() -> None:
    rows = arrow([{"value": b"", "headers": [{"key": None, "value": b""}]}])
    with pytest.raises(BadValue, match="headers need a key"):
        list(encoder("one").encode(rows, NOW))


def test_a_record_that_is_too_large_is_refused_with_its_partition_and_the_option() -> None:
    rows = arrow([{"key": b"k", "value": bytes(70_000), "partition": 2}])
    given = {"kafka.max.request.size": "65536"}
    with pytest.raises(KafkaError, match=r"three-2: .* larger than 65536.*kafka.max.request.size"):
        list(encoder("three", 0, given).encode(rows, NOW))


def test_a_record_larger_than_a_batch_goes_alone() -> None:
    rows = arrow([{"value": bytes(size)} for size in (10, 5000, 10, 10)])
    given = {"kafka.batch.size": "1000"}
    made = list(encoder("one", 0, given).encode(rows, NOW))
    assert [read_header(one.batch).record_count for one in made] == [1, 1, 2]


def test_a_batch_is_no_larger_than_its_topic_takes() -> None:
    """Also beside a topic that takes more; a record that does not fit goes alone."""
    sizes = [10, 5000, *[10] * 200]
    topics = ("narrow", "one")
    rows = [{"value": bytes(n), "topic": name} for name in topics for n in sizes]
    found = defaultdict(list)
    for one in encoder(None, 0).encode(arrow(rows), NOW):
        found[one.topic].append((len(one.batch), read_header(one.batch).record_count))
    assert [count for size, count in found["narrow"] if size > 1000] == [1]
    assert sum(count for _, count in found["narrow"]) == len(sizes)
    assert [count for _, count in found["one"]] == [len(sizes)]
    assert len(found["narrow"]) < 10


def test_the_time_of_rows_that_have_none_is_now() -> None:
    schema = pa.schema([("value", pa.binary())])
    found = encoded(encoder("one"), arrow([{"value": b"a"}], schema))
    assert found["one", 0][0]["timestamp"] == NOW
