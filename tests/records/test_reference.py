"""The plain reader and writer of records: the format, and every way a batch can be wrong."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.records.batch import HEADER_SIZE, BatchHeader, read_header, seal
from tidelog.records.reference import Record, encode_batch, read_records
from tidelog.records.varint import Reader, append_varint

RECORDS = [
    Record(offset=0, timestamp=1000, key=b"k", value=b"v", headers=(("a", b"1"), ("b", None))),
    Record(offset=1, timestamp=900, key=None, value=None),
    Record(offset=2, timestamp=1100, key=b"", value=b"", headers=(("", b""),)),
]


def rebuilt(body: bytes, **changes: Any) -> bytes:
    """A batch with a good CRC around any bytes."""
    header: BatchHeader = read_header(encode_batch(RECORDS))
    return bytes(seal(header._replace(**changes), body))


def body_of(*records: Record) -> bytes:
    return bytes(encode_batch(records)[HEADER_SIZE:])


def refusal(batch: bytes) -> KafkaError:
    with pytest.raises(KafkaError) as raised:
        list(read_records(batch, verify_crc=True))
    return raised.value


def test_one_record_is_laid_out_as_kafka_documents_it() -> None:
    record = Record(offset=0, timestamp=5, key=b"key", value=b"value", headers=(("h", None),))
    assert body_of(record) == bytes.fromhex("22 00 00 00 06 6b6579 0a 76616c7565 02 02 68 01")


def test_the_header_describes_its_records() -> None:
    batch = encode_batch(
        [Record(offset=7, timestamp=30), Record(offset=9, timestamp=20)],
        base_offset=6,
        compression=4,
        producer_id=11,
        producer_epoch=2,
        base_sequence=40,
        leader_epoch=3,
        transactional=True,
    )
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (6, 9, 2)
    assert (header.base_timestamp, header.max_timestamp) == (30, 30)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (11, 2, 40)
    assert (header.partition_leader_epoch, header.compression) == (3, 4)
    assert header.is_transactional
    assert not header.is_control
    assert [record.offset for record in read_records(batch)] == [7, 9]


def test_records_of_a_log_append_time_batch_have_the_largest_timestamp() -> None:
    batch = encode_batch(RECORDS, log_append_time=True)
    assert [record.timestamp for record in read_records(batch)] == [1100] * 3


def test_a_batch_that_compaction_emptied_has_no_records() -> None:
    assert list(read_records(rebuilt(b"", record_count=0))) == []


def test_bytes_that_are_not_utf8_survive_in_a_header_key() -> None:
    body = body_of(Record(offset=0, timestamp=0, headers=(("\udcff\udc80", b"x"),)))
    batch = rebuilt(body, record_count=1)
    (record,) = read_records(batch)
    assert record.headers == (("\udcff\udc80", b"x"),)
    assert body_of(record) == body


@given(st.integers(-(2**63), 2**63 - 1))
@settings(deadline=None)
def test_varints_come_back_in_at_most_10_bytes(value: int) -> None:
    output = bytearray()
    append_varint(output, value)
    assert Reader(bytes(output)).long() == value
    assert len(output) <= 10
    if -(2**31) <= value < 2**31:
        assert Reader(bytes(output)).integer() == value
        assert len(output) <= 5


def test_bits_of_a_varint_that_do_not_fit_are_dropped() -> None:
    assert Reader(b"\xff\xff\xff\xff\x7f").integer() == -(2**31)
    assert Reader(b"\xff" * 9 + b"\x7f").long() == -(2**63)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"\xff\xff\xff\xff\xff\x01" + bytes(20), "more than 5 bytes"),
        (b"\x18\x00" + b"\xff" * 10 + b"\x01" + bytes(30), "more than 10 bytes"),
        (b"\x80\x80\x80\x80", "cannot be in"),
        (b"\x01" + bytes(20), "length of -1"),
        (bytes([2 * 50]) + bytes(20), "length of 50"),
        (bytes([14, 0, 0, 0, 3, 1, 0, 0]) + bytes(20), "length of -2"),
        (bytes([14, 0, 0, 0, 1, 3, 0, 0]) + bytes(20), "length of -2"),
        (bytes([14, 0, 0, 0, 1, 20, 0, 0]) + bytes(20), "length of 10"),
        (bytes([14, 0, 0, 0, 1, 1, 1, 0]) + bytes(20), "-1 headers"),
        (bytes([14, 0, 0, 0, 1, 1, 8, 0]) + bytes(20), "4 headers"),
        (bytes([16, 0, 0, 0, 1, 1, 2, 1, 0]) + bytes(20), "length of -1"),
        (bytes([14, 0, 0, 0, 1, 1, 0, 0]) + bytes(20), "1 bytes follow"),
        (bytes([12, 0, 0, 1, 1, 1, 0]) + bytes(20), "offset -1"),
        (bytes([12, 0, 0, 6, 1, 1, 0]) + bytes(20), "offset 3"),
        (bytes([12, 0, 0, 0, 1, 1, 0]) * 3, "record 1 has offset 0"),
    ],
)
def test_a_record_that_is_not_sound_is_invalid(body: bytes, message: str) -> None:
    error = refusal(rebuilt(body))
    assert error.code is ErrorCode.invalid_record
    assert message in error.message
    assert "offset 0" in error.message


def test_a_count_that_disagrees_with_the_records_is_invalid() -> None:
    body = body_of(*RECORDS)
    for count, delta in [(2, 2), (4, 3)]:
        error = refusal(rebuilt(body, record_count=count, last_offset_delta=delta))
        assert error.code is ErrorCode.invalid_record


@pytest.mark.parametrize(
    "changes",
    [
        {"record_count": -1},
        {"record_count": 4},
        {"record_count": 0, "last_offset_delta": -1},
        {"base_offset": -1},
        {"base_offset": 2**63 - 2},
        {"magic": 3},
    ],
)
def test_a_header_that_cannot_be_is_corrupt(changes: dict[str, int]) -> None:
    assert refusal(rebuilt(body_of(*RECORDS), **changes)).code is ErrorCode.corrupt_message


def test_a_count_of_billions_costs_nothing() -> None:
    batch = rebuilt(b"", record_count=2**31 - 1, last_offset_delta=2**31 - 1)
    assert refusal(batch).code is ErrorCode.invalid_record


def test_a_bad_crc_is_refused_when_asked() -> None:
    batch = encode_batch(RECORDS)
    batch[-1] ^= 1
    batch[17] ^= 1
    assert refusal(bytes(batch)).code is ErrorCode.corrupt_message


def test_a_batch_is_refused_before_its_records_are_asked_for() -> None:
    with pytest.raises(KafkaError):
        read_records(b"")


@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=6),
    st.integers(0, 4),
)
@settings(max_examples=400, deadline=None)
def test_garbage_raises_nothing_but_a_kafka_error(
    changes: list[tuple[int, int]], compression: int
) -> None:
    batch = encode_batch(RECORDS, compression=compression)
    for position, byte in changes:
        batch[position % len(batch)] = byte
    try:
        found = list(read_records(batch))
    except KafkaError:
        return
    assert len(found) == read_header(batch).record_count
