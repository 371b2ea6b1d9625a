"""The header of a batch: what is refused, with which code, and what stamping changes."""

from typing import Any

import pytest
from crc32c import crc32c

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.records.batch import (
    CONTROL,
    CRC_START,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BatchHeader,
    check_produced,
    check_stored,
    read_header,
    seal,
    sequence_after,
    stamp,
    stamp_log_append_time,
    walk,
)

MAX_BYTES = 1000
GOOD = BatchHeader(
    base_offset=0,
    length=0,
    partition_leader_epoch=-1,
    magic=2,
    crc=0,
    attributes=0,
    last_offset_delta=2,
    base_timestamp=1000,
    max_timestamp=1002,
    producer_id=-1,
    producer_epoch=-1,
    base_sequence=-1,
    record_count=3,
)
RECORDS = b"three records, unread"


def sealed(**changes: Any) -> bytearray:
    return seal(GOOD._replace(**changes), RECORDS)


def produced_code(data: bytes | bytearray) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        check_produced(data, MAX_BYTES)
    return raised.value.code


def stored_code(data: bytes | bytearray) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        check_stored(data)
    return raised.value.code


def test_a_sealed_batch_is_good_both_as_produced_and_as_stored() -> None:
    batch = sealed()
    assert check_produced(batch, MAX_BYTES) == check_stored(batch) == tuple(read_header(batch))
    assert batch[HEADER_SIZE:] == RECORDS
    assert read_header(batch).size == len(batch)


@pytest.mark.parametrize("size", [0, 1, 16, HEADER_SIZE - 1])
def test_fewer_bytes_than_a_header_are_corrupt(size: int) -> None:
    assert produced_code(bytes(sealed())[:size]) is ErrorCode.corrupt_message
    assert stored_code(bytes(sealed())[:size]) is ErrorCode.corrupt_message


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_refused_as_unsupported(magic: int) -> None:
    batch = sealed(magic=magic)
    assert produced_code(batch) is ErrorCode.unsupported_for_message_format
    assert produced_code(batch[:30]) is ErrorCode.unsupported_for_message_format
    assert stored_code(batch) is ErrorCode.unsupported_for_message_format


@pytest.mark.parametrize("magic", [3, 127, -1])
def test_formats_nobody_knows_are_corrupt(magic: int) -> None:
    assert produced_code(sealed(magic=magic)) is ErrorCode.corrupt_message
    assert stored_code(sealed(magic=magic)) is ErrorCode.corrupt_message


def test_a_batch_over_max_message_bytes_is_too_large_and_one_at_it_is_not() -> None:
    batch = sealed()
    check_produced(batch, len(batch))
    with pytest.raises(KafkaError, match=f"max.message.bytes={len(batch) - 1}") as raised:
        check_produced(batch, len(batch) - 1)
    assert raised.value.code is ErrorCode.message_too_large


@pytest.mark.parametrize("length", [-(2**31), -13, -1, 0, 48, 49 + len(RECORDS) + 1])
def test_a_length_that_does_not_fit_is_corrupt(length: int) -> None:
    batch = sealed()
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    assert produced_code(batch) is ErrorCode.corrupt_message
    assert stored_code(batch) is ErrorCode.corrupt_message


def test_a_produce_request_carries_exactly_one_batch_for_a_partition() -> None:
    assert produced_code(sealed() + sealed()) is ErrorCode.invalid_record
    check_stored(sealed() + sealed())


def test_any_flipped_bit_under_the_crc_is_corrupt() -> None:
    for position in range(CRC_START - 4, len(sealed())):
        batch = sealed()
        batch[position] ^= 0x10
        assert produced_code(batch) is ErrorCode.corrupt_message
        assert stored_code(batch) is ErrorCode.corrupt_message


@pytest.mark.parametrize(("count", "delta"), [(2, 2), (4, 2), (0, -1), (-1, -2), (0, 0)])
def test_a_produced_batch_has_as_many_records_as_offsets(count: int, delta: int) -> None:
    batch = sealed(record_count=count, last_offset_delta=delta)
    assert produced_code(batch) is ErrorCode.invalid_record


@pytest.mark.parametrize(("count", "delta"), [(4, 2), (0, -1), (-1, 2)])
def test_a_stored_batch_with_more_records_than_offsets_is_corrupt(count: int, delta: int) -> None:
    assert (
        stored_code(sealed(record_count=count, last_offset_delta=delta))
        is ErrorCode.corrupt_message
    )


@pytest.mark.parametrize("count", [0, 1, 3])
def test_compaction_may_have_taken_records_out_of_a_stored_batch(count: int) -> None:
    check_stored(sealed(record_count=count))


@pytest.mark.parametrize("changes", [{"base_offset": 5}, {"base_offset": -1}])
def test_a_produced_batch_starts_at_offset_0(changes: dict[str, int]) -> None:
    assert produced_code(sealed(**changes)) is ErrorCode.invalid_record
    check_stored(sealed(**changes))


@pytest.mark.parametrize("codec", range(5))
def test_all_five_codecs_are_stored_as_sent(codec: int) -> None:
    """S11"""
    check_produced(sealed(attributes=codec), MAX_BYTES)
    check_stored(sealed(attributes=codec))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_do_not_exist_are_unsupported(codec: int) -> None:
    assert produced_code(sealed(attributes=codec)) is ErrorCode.unsupported_compression_type
    assert stored_code(sealed(attributes=codec)) is ErrorCode.unsupported_compression_type


@pytest.mark.parametrize("attributes", [CONTROL, DELETE_HORIZON])
def test_only_brokers_write_control_batches_and_delete_horizons(attributes: int) -> None:
    assert produced_code(sealed(attributes=attributes)) is ErrorCode.invalid_record
    check_stored(sealed(attributes=attributes))


@pytest.mark.parametrize(("base", "largest"), [(1000, 999), (-2, 1000), (-2, -2), (0, -2)])
def test_timestamps_that_cannot_be_are_invalid(base: int, largest: int) -> None:
    batch = sealed(base_timestamp=base, max_timestamp=largest)
    assert produced_code(batch) is ErrorCode.invalid_timestamp


def test_records_without_a_timestamp_are_fine() -> None:
    check_produced(sealed(base_timestamp=-1, max_timestamp=-1), MAX_BYTES)


@pytest.mark.parametrize(("epoch", "sequence"), [(-1, 0), (0, -1), (-1, -1)])
def test_an_idempotent_producer_has_an_epoch_and_a_sequence(epoch: int, sequence: int) -> None:
    batch = sealed(producer_id=7, producer_epoch=epoch, base_sequence=sequence)
    assert produced_code(batch) is ErrorCode.invalid_record


def test_stamping_changes_offset_and_epoch_and_leaves_the_crc_good() -> None:
    batch = sealed()
    before = read_header(batch)
    stamp(batch, 1 << 40, 9)
    assert read_header(batch) == before._replace(base_offset=1 << 40, partition_leader_epoch=9)
    check_stored(batch)
    assert read_header(batch).next_offset == (1 << 40) + 3


def test_log_append_time_replaces_the_largest_timestamp_and_renews_the_crc() -> None:
    batch = sealed(attributes=4)
    stamp_log_append_time(batch, 5000)
    header = read_header(batch)
    assert (header.max_timestamp, header.attributes) == (5000, 4 | LOG_APPEND_TIME)
    assert header.crc == crc32c(bytes(batch[CRC_START:]))
    check_stored(batch)


def test_sealing_what_was_read_gives_the_same_bytes() -> None:
    batch = sealed(producer_id=3, producer_epoch=1, base_sequence=5, attributes=0x10)
    assert seal(read_header(batch), batch[HEADER_SIZE:]) == batch


def test_walk_stops_at_a_batch_that_is_cut_off_and_at_zeros() -> None:
    batch = bytes(sealed())
    whole = batch + batch
    positions = [0, len(batch)]
    assert [position for position, _ in walk(whole)] == positions
    assert [position for position, _ in walk(whole + batch[:-1])] == positions
    assert [position for position, _ in walk(whole + bytes(200))] == positions
    assert list(walk(b"")) == []


def test_sequences_wrap_to_0_after_the_largest() -> None:
    assert sequence_after(2**31 - 1, 1) == 0
    assert sealed_header(base_sequence=2**31 - 2).last_sequence == 0
    assert sealed_header().last_sequence == -1


def sealed_header(**changes: Any) -> BatchHeader:
    return read_header(sealed(**changes))
