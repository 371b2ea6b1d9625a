"""Control batches: markers that end transactions, and whatever else may be there."""

from struct import pack

import pytest

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.records.batch import check_stored, read_header
from tidelog.records.control import (
    ControlType,
    EndTransaction,
    control_type,
    encode_end_transaction,
    read_end_transaction,
)
from tidelog.records.reference import Record, encode_batch, read_records


def marker(committed: bool) -> EndTransaction:
    return EndTransaction(
        producer_id=4, producer_epoch=2, committed=committed, coordinator_epoch=11
    )


def control_batch(key: bytes | None, value: bytes | None) -> bytearray:
    record = Record(offset=0, timestamp=0, key=key, value=value)
    return encode_batch([record], producer_id=4, producer_epoch=2, control=True)


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_comes_back_as_it_was_written(committed: bool) -> None:
    batch = encode_end_transaction(
        marker(committed), timestamp=77, base_offset=1000, leader_epoch=6
    )
    assert read_end_transaction(batch) == marker(committed)
    check_stored(batch)
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.base_offset, header.partition_leader_epoch, header.record_count) == (1000, 6, 1)
    assert header.base_sequence == -1


def test_a_marker_is_laid_out_as_kafka_has_it() -> None:
    (record,) = read_records(encode_end_transaction(marker(True), timestamp=77))
    assert (record.key, record.value) == (pack(">hh", 0, 1), pack(">hi", 0, 11))
    (record,) = read_records(encode_end_transaction(marker(False), timestamp=77))
    assert record.key == pack(">hh", 0, 0)


def test_a_later_version_with_more_fields_is_read_as_far_as_it_is_known() -> None:
    batch = control_batch(pack(">hhq", 1, 1, 99), pack(">hiq", 5, 11, 99))
    assert read_end_transaction(batch) == marker(True)


@pytest.mark.parametrize("number", [2, 3, 4, 5, 6, 7, 99, -1, -5])
def test_other_types_are_not_markers(number: int) -> None:
    key = pack(">hh", 0, number)
    assert read_end_transaction(control_batch(key, None)) is None
    known = control_type(key)
    assert known.value == number if 2 <= number <= 6 else known is ControlType.UNKNOWN


def test_a_control_batch_that_compaction_emptied_has_no_marker() -> None:
    assert read_end_transaction(encode_batch([], control=True)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"", b""),
        (b"\0\0\0", pack(">hi", 0, 1)),
        (pack(">hh", -1, 1), pack(">hi", 0, 1)),
        (pack(">hh", 0, 1), None),
        (pack(">hh", 0, 1), b"\0\0\0\0\0"),
        (pack(">hh", 0, 1), pack(">hi", -1, 1)),
    ],
)
def test_a_marker_that_is_not_sound_is_invalid(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(KafkaError) as raised:
        read_end_transaction(control_batch(key, value))
    assert raised.value.code is ErrorCode.invalid_record
