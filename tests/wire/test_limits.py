"""A message costs what its bytes justify: counts are checked before anything is made of them
(rule B2), and unknown tagged fields are skipped without an object."""

import time
import tracemalloc
from collections.abc import Callable
from datetime import timedelta

import pytest

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.wire import entity_reader
from tidelog.wire.codec import entity_type, read_request
from tidelog.wire.entity_reader import REQUEST_VALUES_MAX, VALUES_MAX, read_entity
from tidelog.wire.values import encode_count, encode_string, read_varint, varint

METADATA = entity_type(3, 12, "request")
CREATE_TOPICS = entity_type(19, 7, "request")
MB = 1024 * 1024


def refused(entity: type, data: bytes, why: str) -> None:
    with pytest.raises(KafkaError, match=why) as raised:
        read_entity(entity, data, 0)
    assert raised.value.code is ErrorCode.invalid_request


def peak_bytes(work: Callable[[], None]) -> int:
    """Threads that other tests have left allocate some too."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("count", [2**31 - 1, 2**28, 1_000_000])
def test_a_count_without_the_bytes_is_refused_before_anything_is_made(count: int) -> None:
    """kio's reader allocates 8 bytes an item and aborts the process when it cannot."""
    flexible = varint(count) + bytes(20)
    classic = count.to_bytes(4, "big") + bytes(20)
    refused(METADATA, b"", "ends early")
    refused(entity_type(3, 1, "request"), b"", "ends early")
    assert peak_bytes(lambda: refused(METADATA, flexible, "an array of")) < MB
    assert peak_bytes(lambda: refused(entity_type(3, 1, "request"), classic, "array")) < MB


def test_four_megabytes_of_empty_items_are_refused_cheaply() -> None:
    """Topics of CreateTopics with empty configs: three bytes a config, fifty in memory."""
    configs = (4 * MB - 100) // 3
    topic = encode_string("t", True) + bytes(6) + b"\x01" + encode_count(configs, True)
    body = b"\x02" + topic + b"\x01\x00\x00" * configs + b"\x00" + bytes(6)
    started = time.thread_time()
    assert peak_bytes(lambda: refused(CREATE_TOPICS, body, f"{VALUES_MAX} values")) < MB
    assert time.thread_time() - started < 2


def test_values_are_counted_over_the_whole_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """No array is too long by itself: 100 topics of 200 configs."""
    monkeypatch.setattr(entity_reader, "VALUES_MAX", 50_000)
    topic = encode_string("t", True) + bytes(6) + b"\x01" + encode_count(200, True)
    topic += b"\x01\x00\x00" * 200 + b"\x00"
    body = encode_count(100, True) + topic * 100 + bytes(6)
    assert peak_bytes(lambda: refused(CREATE_TOPICS, body, "50000 values")) < 3 * MB
    fewer = encode_count(50, True) + topic * 50 + bytes(6)
    assert len(read_entity(CREATE_TOPICS, fewer, 0).topics) == 50


def test_a_large_message_that_is_real_is_read() -> None:
    topics = b"".join(
        bytes(15) + bytes([1]) + encode_string(f"topic-{number:06}", True) + b"\x00"
        for number in range(50_000)
    )
    body = encode_count(50_000, True) + topics + b"\x01\x00\x00"
    assert len(read_entity(METADATA, body, 0).topics) == 50_000


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\xff\xff\xff\xff\x7f", "past 2147483647"),
        (b"\xff\xff\xff\xff\xff\x01", "longer than 5 bytes"),
        (b"\x02" + bytes(16) + b"\x02\xff\x00\x01\x00\x00", "not UTF-8"),
        (b"\x02" + bytes(16) + b"\x09a\x00\x01\x00\x00", "string of 8 bytes"),
        (b"\x02" + bytes(16) + b"\x02a\x00\x01\x00\x00\x00", "1 bytes after its end"),
        (b"\x02" + bytes(16) + b"\x02a\x00\x01\x00\x01\x05\x7f", "runs past the end"),
        (b"\x02" + bytes(16) + b"\x02a\x00\x01\x00\x7f", "127 tagged fields"),
        (b"\x02" + bytes(16) + b"\x02a\x00\x01", "ends early"),
    ],
)
def test_what_is_wrong_is_named(body: bytes, why: str) -> None:
    refused(METADATA, body, why)


def test_null_is_refused_where_there_is_none() -> None:
    refused(CREATE_TOPICS, b"\x00" + bytes(6), "the array topics is null")
    refused(CREATE_TOPICS, b"\x02\x00" + bytes(20), "the string name is null")
    refused(entity_type(3, 0, "request"), b"\xff\xff\xff\xff", "the array topics is null")
    assert read_entity(entity_type(3, 1, "request"), b"\xff\xff\xff\xff", 0).topics is None
    refused(entity_type(36, 2, "request"), b"\x00\x00", "the bytes auth_bytes are null")


def test_negative_lengths_are_refused() -> None:
    refused(entity_type(3, 1, "request"), b"\xff\xff\xff\xfb", "an array of -5")
    refused(entity_type(3, 1, "request"), b"\x00\x00\x00\x01\xff\xfe", "a string of -2")
    refused(entity_type(36, 0, "request"), b"\x80\x00\x00\x00", "an array of -2147483648")


def test_a_string_past_32767_bytes_is_refused() -> None:
    topic = bytes(16) + varint(32_769) + b"a" * 32_768 + b"\x00"
    refused(METADATA, b"\x02" + topic + b"\x01\x00\x00", "more than 32767 bytes")
    topic = bytes(16) + varint(32_768) + b"a" * 32_767 + b"\x00"
    assert len(read_entity(METADATA, b"\x02" + topic + b"\x01\x00\x00", 0).topics[0].name) == 32_767
    with pytest.raises(KafkaError, match="more than 32767"):
        encode_string("a" * 32_768, False)


def test_unknown_tagged_fields_are_skipped() -> None:
    """kio raises `KeyError` for them; Kafka goes on."""
    tags = b"\x02\x05\x03abc\x88\x01\x00"
    body = b"\x02" + bytes(16) + b"\x02a" + tags + b"\x01\x00" + tags
    value = read_entity(METADATA, body, 0)
    assert value.topics[0].name == "a"
    assert value.allow_auto_topic_creation is True


def test_a_tagged_field_of_the_wrong_size_is_refused() -> None:
    entity = entity_type(18, 3, "response")
    start = b"\x00\x00\x01\x00\x00\x00\x00"
    epoch = (7).to_bytes(8, "big")
    assert read_entity(entity, start + b"\x01\x01\x08" + epoch, 0).finalized_features_epoch == 7
    refused(entity, start + b"\x01\x01\x09" + epoch + b"\x00", "wrong size")
    refused(entity, start + b"\x01\x01\x07" + epoch[:7], "ends early|wrong size")


def test_many_tagged_fields_make_no_objects() -> None:
    """Two bytes a field, in the part that is read before anyone is known. An object for each would
    take more than two megabytes."""
    count = 40_000
    body = b"\x01\x00\x00" + varint(count) + b"\x05\x00" * count
    assert peak_bytes(lambda: _read(METADATA, body)) < 1_000_000


def _read(entity: type, body: bytes) -> None:
    assert read_entity(entity, body, 0) is not None


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 16_383, 16_384, 2**21, 2**28, 2**31 - 1])
def test_varints_come_out_as_they_went_in(value: int) -> None:
    assert read_varint(varint(value) + b"\xff", 0) == (value, len(varint(value)))


def test_a_date_before_1970_or_after_9999_is_refused() -> None:
    entity = entity_type(65, 0, "response")
    fields = b"\x00\x00" + b"\x01" + b"\x01" + bytes(4)
    for date in (-2, 2**62):
        body = bytes(4) + b"\x02" + fields + date.to_bytes(8, "big", signed=True)
        refused(entity, body + bytes(10) + b"\x01\x00\x00", "date|ends early")


@pytest.mark.parametrize(
    ("value_ms", "longest"), [(2**63 - 1, timedelta.max), (-(2**63), timedelta.min)]
)
def test_a_duration_that_is_too_long_is_as_long_as_can_be(
    value_ms: int, longest: timedelta
) -> None:
    """Old clients keep offsets for ever by a retention that no timedelta can hold."""
    head = encode_string("g", False) + bytes(4) + encode_string("", False)
    body = head + value_ms.to_bytes(8, "big", signed=True) + bytes(4)
    assert read_request(8, 2, body, 0).retention_time == longest


def test_a_clients_request_has_fewer_values_than_an_answer_may_have() -> None:
    """Whoever else is served waits while it is read: a topic of Metadata is three values."""
    names = REQUEST_VALUES_MAX // 3

    def body(count: int) -> bytes:
        topic = bytes(16) + encode_string("t", True) + b"\x00"
        return encode_count(count, True) + topic * count + b"\x00\x00\x00"

    assert len(read_request(3, 12, body(names), 0).topics) == names
    with pytest.raises(KafkaError, match=f"more than {REQUEST_VALUES_MAX} values"):
        read_request(3, 12, body(names + 1), 0)
    assert len(read_entity(METADATA, body(names + 1), 0).topics) == names + 1
