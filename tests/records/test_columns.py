"""The compiled decoder and encoder agree with the reference, on good batches and on bad ones."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.records.batch import check_produced, read_header, seal, walk
from tidelog.records.columns import SCHEMA, Wanted, decode, decode_stream, encode
from tidelog.records.control import EndTransaction, encode_end_transaction
from tidelog.records.reference import Record, checked_header, encode_batch, read_records

INT64 = st.integers(-(2**63), 2**63 - 1)
TIMESTAMPS = st.integers(1_700_000_000_000, 1_700_000_100_000) | INT64
CELLS = st.none() | st.binary(max_size=12) | st.integers(100, 20_000).map(bytes)
HEADERS = st.lists(
    st.tuples(st.text(max_size=6), st.none() | st.binary(max_size=6)), max_size=3
).map(tuple)


@st.composite
def batches(draw: st.DrawFn) -> tuple[bytearray, list[Record]]:
    """A batch with gaps between offsets, as compaction leaves them."""
    base = draw(st.integers(0, 2**62))
    offset = base
    records = []
    for _ in range(draw(st.integers(0, 8))):
        offset += draw(st.integers(0, 3) | st.integers(0, 2**27))
        records.append(
            Record(
                offset=offset,
                timestamp=draw(TIMESTAMPS),
                key=draw(CELLS),
                value=draw(CELLS),
                headers=draw(HEADERS),
            )
        )
        offset += 1
    batch = encode_batch(
        records,
        base_offset=base,
        compression=draw(st.integers(0, 4)),
        log_append_time=draw(st.booleans()),
    )
    return batch, list(read_records(batch))


def as_records(columns: pa.RecordBatch) -> list[Record]:
    return [
        Record(
            offset=row["offset"],
            timestamp=row["timestamp"],
            key=row["key"],
            value=row["value"],
            headers=tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for row in columns.to_pylist()
    ]


def reference(data: bytes, *, verify_crc: bool = False) -> list[Record]:
    found: list[Record] = []
    for position, _ in walk(data):
        batch = memoryview(data)[position:]
        if not checked_header(batch, verify_crc=verify_crc).is_control:
            found += read_records(batch)
    return found


def outcome(read: Any) -> Any:
    try:
        return read()
    except KafkaError as error:
        return str(error)


@given(st.lists(batches(), max_size=4))
@settings(max_examples=150, deadline=None)
def test_decoding_gives_what_the_reference_reads(
    made: list[tuple[bytearray, list[Record]]],
) -> None:
    columns = decode(b"".join(batch for batch, _ in made), verify_crc=True)
    columns.validate(full=True)
    assert columns.schema == SCHEMA
    assert as_records(columns) == [record for _, records in made for record in records]
    assert columns["timestamp_type"].to_pylist() == [
        int(read_header(batch).is_log_append_time) for batch, records in made for _ in records
    ]


@given(st.lists(batches(), min_size=1, max_size=3), INT64, INT64, st.integers(0, 70_000))
@settings(max_examples=100, deadline=None)
def test_offsets_outside_the_range_and_a_cut_off_batch_are_left_out(
    made: list[tuple[bytearray, list[Record]]], start: int, end: int, cut: int
) -> None:
    data = b"".join(batch for batch, _ in made)
    start, end = (offset % (2 * read_header(data).base_offset + 9) for offset in (start, end))
    last, _ = made[-1]
    data += bytes(last)[: cut % len(last)]
    expected = [record for _, records in made for record in records]
    assert as_records(decode(data, from_offset=start, upto_offset=end)) == [
        record for record in expected if start <= record.offset < end
    ]
    assert as_records(decode(data, from_offset=start)) == [
        record for record in expected if start <= record.offset
    ]


@given(
    st.lists(batches(), min_size=1, max_size=2),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_garbage_is_refused_or_read_exactly_as_by_the_reference(
    made: list[tuple[bytearray, list[Record]]], changes: list[tuple[int, int]], reseal: bool
) -> None:
    for (batch, _), (position, byte) in zip(made, changes, strict=False):
        batch[position % len(batch)] = byte
    for position, byte in changes[len(made) :]:
        batch = made[-1][0]
        batch[position % min(len(batch), 90)] = byte
    if reseal:
        made = [(resealed(batch), records) for batch, records in made]
    data = b"".join(batch for batch, _ in made)
    if any(header.magic != 2 for _, header in walk(data)) or not all_are_whole(data):
        expect_refusal_or_records(data)
        return
    for verify_crc in (False, True):
        expected = outcome(lambda verify=verify_crc: shown(reference(data, verify_crc=verify)))
        found = outcome(lambda verify=verify_crc: as_records(decode(data, verify_crc=verify)))
        assert found == expected


def resealed(batch: bytearray) -> bytearray:
    return seal(read_header(batch), batch[61:])


def all_are_whole(data: bytes) -> bool:
    return sum(header.size for _, header in walk(data)) == len(data)


def expect_refusal_or_records(data: bytes) -> None:
    found = outcome(lambda: as_records(decode(data)))
    assert isinstance(found, str | list)


def shown(records: Iterable[Record]) -> list[Record]:
    """Header keys that are not UTF-8 as Arrow's text shows them."""
    return [
        Record(
            offset=record.offset,
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=tuple((as_text(key), value) for key, value in record.headers),
        )
        for record in records
    ]


def as_text(key: str) -> str:
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_noise_raises_nothing_but_a_kafka_error(data: bytes) -> None:
    expect_refusal_or_records(data)


RECORDS = [
    Record(
        offset=index,
        timestamp=1000 - index,
        key=None if index % 3 == 0 else b"key %d" % index,
        value=None if index % 7 == 0 else b"value" * index,
        headers=(("h", b"x"), ("é", None)) if index % 4 == 0 else (),
    )
    for index in range(60)
]


def test_control_batches_are_skipped() -> None:
    marker = EndTransaction(producer_id=1, producer_epoch=0, committed=True, coordinator_epoch=0)
    control = encode_end_transaction(marker, timestamp=5, base_offset=60)
    data = (
        encode_batch(RECORDS)
        + control
        + encode_batch([Record(offset=61, timestamp=0)], base_offset=61)
    )
    assert [record.offset for record in as_records(decode(data))] == [*range(60), 61]


def test_zeros_after_the_last_batch_are_ignored() -> None:
    assert as_records(decode(encode_batch(RECORDS) + bytes(5000))) == RECORDS


def test_rows_without_headers_are_null_and_headers_keep_their_nulls() -> None:
    headers = decode(encode_batch(RECORDS))["headers"].to_pylist()
    assert headers[0] == [{"key": "h", "value": b"x"}, {"key": "é", "value": None}]
    assert headers[1] is None


def test_a_header_key_that_is_not_utf8_is_shown_with_replacement_characters() -> None:
    record = Record(offset=0, timestamp=0, headers=(("a\udcff", b"x"), ("fine", b"y")))
    headers = decode(encode_batch([record]))["headers"].to_pylist()
    assert headers == [[{"key": "a\ufffd", "value": b"x"}, {"key": "fine", "value": b"y"}]]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", [30, 61, 400])
def test_old_formats_are_refused_as_unsupported(magic: int, size: int) -> None:
    message = bytearray(size)
    message[8:12] = (size - 12).to_bytes(4, "big")
    message[16] = magic
    with pytest.raises(KafkaError) as raised:
        decode(encode_batch(RECORDS) + message)
    assert raised.value.code is ErrorCode.unsupported_for_message_format


def test_a_bad_crc_is_refused_only_when_asked() -> None:
    batch = encode_batch(RECORDS)
    batch[17] ^= 1
    assert as_records(decode(batch)) == RECORDS
    with pytest.raises(KafkaError, match="CRC") as raised:
        decode(batch, verify_crc=True)
    assert raised.value.code is ErrorCode.corrupt_message


def test_a_batch_that_decompresses_to_too_much_is_refused() -> None:
    batch = encode_batch([Record(offset=0, timestamp=0, value=bytes(100_000))], compression=4)
    assert decode(batch, limit=100_020).num_rows == 1
    with pytest.raises(KafkaError, match="limit of 100000 bytes"):
        decode(batch, limit=100_000)


def test_a_count_of_billions_costs_nothing() -> None:
    header = read_header(encode_batch(RECORDS))
    batch = seal(header._replace(record_count=2**31 - 1, last_offset_delta=2**31 - 1), b"")
    with pytest.raises(KafkaError, match="cannot be in"):
        decode(batch)


@pytest.mark.parametrize(
    "columns", [("offset",), ("value", "offset"), ("headers",), ("key", "timestamp"), ()]
)
def test_only_the_wanted_columns_are_made(columns: tuple[str, ...]) -> None:
    data = encode_batch(RECORDS, compression=3)
    found = decode(data, columns=columns)
    assert set(found.schema.names) == set(columns)
    everything = decode(data)
    for name in columns:
        assert found[name].equals(everything[name])


def test_a_column_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(BadValue, match="partition"):
        decode(b"", columns=("partition",))


@pytest.mark.parametrize("compression", range(5))
def test_a_stream_gives_the_same_records_in_bounded_chunks(compression: int) -> None:
    data = b"".join(
        encode_batch(
            [Record(offset=base + index, timestamp=0, value=bytes(500)) for index in range(10)],
            base_offset=base,
            compression=compression,
        )
        for base in range(0, 200, 10)
    )
    chunks = list(decode_stream(data, Wanted(), chunk_bytes=12_000))
    assert [chunk.num_rows for chunk in chunks] == [30] * 6 + [20]
    offsets = [offset for chunk in chunks for offset in chunk["offset"].to_pylist()]
    assert offsets == list(range(200))
    assert [chunk.num_rows for chunk in decode_stream(b"", Wanted())] == [0]


@given(batches(), st.integers(0, 4), st.integers(0, 9), st.integers(1, 9), st.integers(700, 3000))
@settings(max_examples=150, deadline=None)
def test_what_is_encoded_is_what_the_reference_reads(
    made: tuple[bytearray, list[Record]], compression: int, start: int, size: int, room: int
) -> None:
    columns = decode(made[0]).slice(start, size)
    expected = as_records(columns)
    max_bytes = 61 + 43_000 if room % 3 else 61 + room
    alone = [encode_batch([record], base_offset=record.offset) for record in expected]
    if compression == 0 and any(len(batch) > max_bytes for batch in alone):
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            encode(columns, max_bytes=max_bytes)
        return
    try:
        encoded = encode(columns, compression=compression, max_bytes=max_bytes)
    except KafkaError as error:
        if error.code is ErrorCode.message_too_large and compression:
            return
        raise
    found = [record for batch in encoded for record in read_records(batch, verify_crc=True)]
    assert [without_offset(record) for record in found] == [
        without_offset(record) for record in expected
    ]
    for batch in encoded:
        assert len(batch) <= max_bytes
        offsets = [record.offset for record in read_records(batch)]
        assert offsets == list(range(read_header(batch).record_count))


def without_offset(record: Record) -> tuple[Any, ...]:
    return record.timestamp, record.key, record.value, record.headers


@pytest.mark.parametrize("compression", range(5))
def test_an_uncompressed_batch_is_encoded_as_the_reference_does(compression: int) -> None:
    columns = decode(encode_batch(RECORDS))
    (batch,) = encode(
        columns,
        compression=compression,
        producer_id=5,
        producer_epoch=1,
        base_sequence=9,
        transactional=True,
    )
    assert batch == encode_batch(
        RECORDS,
        compression=compression,
        producer_id=5,
        producer_epoch=1,
        base_sequence=9,
        transactional=True,
    )
    check_produced(batch, 1 << 20)


def test_batches_are_split_before_they_are_too_large_and_sequences_count_on() -> None:
    rows = pa.record_batch({"value": pa.array([bytes(100)] * 50), "timestamp": pa.array([1] * 50)})
    encoded = encode(rows, max_bytes=615, producer_id=1, producer_epoch=0, base_sequence=2**31 - 3)
    assert [read_header(batch).record_count for batch in encoded] == [5] * 10
    assert all(61 + 5 * 100 < len(batch) <= 615 for batch in encoded)
    assert [read_header(batch).base_sequence for batch in encoded[:3]] == [2**31 - 3, 2, 7]


def test_a_row_that_is_too_large_is_refused_unless_compression_helps() -> None:
    rows = pa.record_batch({"value": pa.array([b"small", bytes(5000), b"small"])})
    with pytest.raises(KafkaError, match="row 1 ") as raised:
        encode(rows, max_bytes=1000)
    assert raised.value.code is ErrorCode.message_too_large
    encoded = encode(rows, max_bytes=1000, compression=4)
    assert [read_header(batch).record_count for batch in encoded] == [1, 1, 1]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_keys_and_values_may_be_any_bytes_or_text(kind: pa.DataType) -> None:
    column = pa.array(["left out", "é", None, "", "end", "left out"], kind)[1:5]
    rows = pa.record_batch({"key": column, "value": column})
    (batch,) = encode(rows, default_timestamp=7)
    expected = ["é".encode(), None, b"", b"end"]
    found = list(read_records(batch))
    assert [record.key for record in found] == [record.value for record in found] == expected
    assert {record.timestamp for record in found} == {7}


def test_timestamps_may_be_arrow_timestamps_and_may_be_missing() -> None:
    micros = pa.array([1_000_000, None, 3_500_999], pa.timestamp("us", "UTC"))
    (batch,) = encode(pa.record_batch({"timestamp": micros}), default_timestamp=42)
    assert [record.timestamp for record in read_records(batch)] == [1000, 42, 3500]
    header = read_header(batch)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 3500)


def test_headers_of_null_rows_are_not_written() -> None:
    entries = pa.array(
        [{"key": key, "value": b"v"} for key in "abcd"], SCHEMA.field("headers").type.value_type
    )
    mask = pa.array([False, True, False])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3, 4], pa.int32()), entries, mask=mask)
    (batch,) = encode(pa.record_batch({"headers": lists}))
    assert [[key for key, _ in record.headers] for record in read_records(batch)] == [
        ["a"],
        [],
        ["d"],
    ]


@pytest.mark.parametrize(
    "columns",
    [
        {"key": pa.array([1, 2])},
        {"headers": pa.array([["a"], []])},
        {"headers": pa.array([[{"name": "a", "value": b""}]])},
        {
            "headers": pa.array(
                [[{"key": None, "value": b""}]],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            )
        },
        {"timestamp": pa.array(["yesterday"])},
    ],
)
def test_columns_that_cannot_be_records_are_refused(columns: dict[str, Any]) -> None:
    with pytest.raises(BadValue):
        encode(pa.record_batch(columns))


def test_nothing_to_encode_gives_no_batch() -> None:
    assert encode(decode(b"")) == []
    assert encode(pa.record_batch({"key": pa.array([], pa.binary())})) == []
