"""The records of `__transaction_state`: the bytes are those that Kafka 4.3.1 has written (A4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.transactions.records import decode_key, decode_value, encode_key, encode_value
from tidelog.transactions.state import Status, Transaction

KEY = "0000000b6f72646572732dc3a92d31"
ONGOING_0 = (
    "00000000000000000fa200070000ea6001000000020005616c70686100000002000000000000000200125f5f636f"
    "6e73756d65725f6f66667365747300000001000000110000018bcfe5687b0000018bcfe56801"
)
ONGOING_1 = (
    "00010000000000000fa200070000ea60010306616c70686103000000000000000200135f5f636f6e73756d65725f"
    "6f6666736574730200000011000000018bcfe5687b0000018bcfe5680100"
)
PREPARED_1 = (
    "00010000000000000fa200070000ea60020306616c70686103000000000000000200135f5f636f6e73756d65725f"
    "6f6666736574730200000011000000018bcfe5687b0000018bcfe568010300080000000000000fa1010800000000"
    "00000fa302020002"
)
EMPTY_0 = "000000000000000000010000000003e800ffffffff0000000000000005ffffffffffffffff"
EMPTY_1 = "000100000000000000010000000003e800000000000000000005ffffffffffffffff00"
EMPTY_WITH_NEXT_EPOCH = (
    "000100000000000000010000000003e800000000000000000005ffffffffffffffff0103020005"
)

ongoing = Transaction(
    transactional_id="t",
    producer_id=4002,
    producer_epoch=7,
    timeout_ms=60_000,
    status=Status.Ongoing,
    updated_ms=1_700_000_000_123,
    started_ms=1_700_000_000_001,
    partitions=(
        TopicPartition("alpha", 0),
        TopicPartition("alpha", 2),
        TopicPartition("__consumer_offsets", 17),
    ),
)
prepared = Transaction(
    transactional_id="t",
    producer_id=4002,
    producer_epoch=7,
    timeout_ms=60_000,
    status=Status.PrepareCommit,
    updated_ms=1_700_000_000_123,
    started_ms=1_700_000_000_001,
    partitions=ongoing.partitions,
    previous_producer_id=4001,
    next_producer_id=4003,
    client_version=2,
)
empty = Transaction(
    transactional_id="t",
    producer_id=1,
    producer_epoch=0,
    timeout_ms=1000,
    status=Status.Empty,
    updated_ms=5,
)


def test_a_key_is_written_and_read_as_kafka_does() -> None:
    assert encode_key("orders-é-1").hex() == KEY
    assert decode_key(bytes.fromhex(KEY)) == "orders-é-1"


def test_a_key_of_another_kind_is_passed_over() -> None:
    assert decode_key(bytes.fromhex("0001") + bytes(4)) is None


@pytest.mark.parametrize(
    ("transaction", "data"), [(ongoing, ONGOING_1), (prepared, PREPARED_1), (empty, EMPTY_1)]
)
def test_a_value_is_written_byte_for_byte_as_kafka_does(
    transaction: Transaction, data: str
) -> None:
    assert encode_value(transaction).hex() == data


@pytest.mark.parametrize(
    ("data", "transaction"),
    [
        (ONGOING_0, ongoing),
        (ONGOING_1, ongoing),
        (PREPARED_1, prepared),
        (EMPTY_0, empty),
        (EMPTY_1, empty),
        (EMPTY_WITH_NEXT_EPOCH, empty),
    ],
)
def test_values_of_all_versions_are_read(data: str, transaction: Transaction) -> None:
    assert decode_value("t", bytes.fromhex(data)) == transaction


def test_a_value_of_a_later_version_is_passed_over() -> None:
    assert decode_value("t", bytes.fromhex("0002") + bytes(40)) is None


@given(st.integers(0, len(PREPARED_1) // 2 - 1))
def test_a_value_that_is_cut_is_refused_and_never_misread(size: int) -> None:
    with pytest.raises(KafkaError):
        decode_value("t", bytes.fromhex(PREPARED_1)[:size])


@given(
    st.lists(st.tuples(st.text(max_size=300), st.integers(0, 2**31 - 1)), max_size=40),
    st.sampled_from([status for status in Status if status is not Status.Empty]),
    st.integers(-1, 2**63 - 1),
    st.integers(0, 2),
)
def test_what_is_written_is_read_again(
    partitions: list[tuple[str, int]], status: Status, next_id: int, version: int
) -> None:
    written = Transaction(
        transactional_id="t",
        producer_id=9,
        producer_epoch=32767,
        timeout_ms=1,
        status=status,
        updated_ms=1,
        started_ms=2,
        partitions=tuple(TopicPartition(*each) for each in sorted(set(partitions))),
        next_producer_id=next_id,
        client_version=version,
    )
    assert decode_value("t", encode_value(written)) == written
