"""The hand-written Produce codec says what kio says, in both roles and all versions, and what
Apache Kafka 4.3.1 said (`tests/fixtures/kafka/wire`)."""

from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.joining import joiner
from support.messages import kio_bytes, kio_reads, message
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.wire.codec import entity_type, read_request, read_response, write_request
from tidelog.wire.header import read_request_header, request_header
from tidelog.wire.produce import ProduceRequest, read_produce_request
from tidelog.wire.produce_answer import ProduceResult, RecordsRefused, write_produce_response
from tidelog.wire.produce_client import read_produce_response, write_produce_request
from tidelog.wire.values import ITEMS_MAX, varint

GOLDEN = Path(__file__).parents[1] / "fixtures" / "kafka" / "wire"
VERSIONS = range(3, 14)
versions = st.sampled_from(VERSIONS)
seeds = st.integers(0, 2**32)
results = st.tuples(
    st.sampled_from([int(code.value) for code in ErrorCode]),
    st.integers(-(2**63), 2**63 - 1),
    st.just(-1) | st.integers(0, 2**32).map(lambda seconds: seconds * 1000),
    st.integers(-(2**63), 2**63 - 1),
    st.none() | st.text(max_size=200),
)


def topic_of(entity: Any) -> str | bytes:
    if hasattr(entity, "name"):
        name: str = entity.name
        return name
    return bytes(16) if entity.topic_id is None else entity.topic_id.bytes


def request_of(version: int, seed: int) -> tuple[Any, memoryview, int]:
    entity = message(Random(seed), entity_type(0, version, "request"))
    frame = write_request(0, version, 7, "client", entity)
    assert frame.endswith(kio_bytes(entity))
    view = memoryview(bytearray(frame))[4:]
    return entity, view, read_request_header(view)[1]


def flattened(entity: Any) -> list[tuple[str | bytes, int, bytes | None]]:
    return [
        (topic_of(topic), partition.index, partition.records)
        for topic in entity.topic_data
        for partition in topic.partition_data
    ]


def copied(request: ProduceRequest) -> list[tuple[str | bytes, int, bytes | None]]:
    return [
        (topic, index, None if records is None else bytes(records))
        for topic, index, records in request.partitions
    ]


@settings(max_examples=250, deadline=None)
@given(version=versions, seed=seeds)
def test_a_request_is_read_as_kio_reads_it(version: int, seed: int) -> None:
    entity, view, at = request_of(version, seed)
    request = read_produce_request(view, at, version)
    assert request.transactional_id == entity.transactional_id
    assert request.acks == entity.acks
    assert timedelta(milliseconds=request.timeout_ms) == entity.timeout
    assert copied(request) == flattened(entity)


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_writable_slices_of_the_frame(version: int) -> None:
    sent = (GOLDEN / f"produce_v{version}.request").read_bytes()
    view = memoryview(bytearray(sent))[4:]
    request = read_produce_request(view, read_request_header(view)[1], version)
    slices = [records for _, _, records in request.partitions if records is not None]
    assert len(slices) == 4
    for records in slices:
        assert records.obj is view.obj
        assert not records.readonly


@settings(max_examples=250, deadline=None)
@given(version=versions, seed=seeds, data=st.data(), throttle=st.integers(0, 2**31 - 1))
def test_kio_reads_the_answer_that_was_written(
    version: int, seed: int, data: st.DataObject, throttle: int
) -> None:
    entity, view, at = request_of(version, seed)
    request = read_produce_request(view, at, version)
    count = len(request.partitions)
    answers = data.draw(st.lists(results, min_size=count, max_size=count))
    frame = write_produce_response(7, version, request, answers, throttle)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, response = read_response(0, version, frame[4:])
    assert correlation_id == 7
    assert response.throttle_time == timedelta(milliseconds=throttle)
    header_bytes = 9 if version >= 9 else 8
    assert kio_reads(entity_type(0, version, "response"), frame[header_bytes:]) == response
    assert [topic_of(topic) for topic in response.responses] == [
        topic_of(topic) for topic in entity.topic_data
    ]
    wanted = [as_sent(version, answer) for answer in answers]
    assert [as_read(version, partition) for partition in partitions_of(response)] == wanted
    assert [partition.index for partition in partitions_of(response)] == [
        index for _, index, _ in request.partitions
    ]
    assert read_produce_response(memoryview(frame)[4:], version)[1] == [
        (topic, index, result)
        for (topic, index, _), result in zip(request.partitions, wanted, strict=True)
    ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("places", [[0], [2, 5, 70_000], list(range(300))])
def test_records_that_are_to_blame_are_named(version: int, places: list[int]) -> None:
    _, view, at = request_of(version, 2)
    request = read_produce_request(view, at, version)
    why = RecordsRefused("it has no key", places)
    refused = (int(ErrorCode.invalid_record), -1, -1, -1, why)
    frame = write_produce_response(7, version, request, [refused] * len(request.partitions))
    _, response = read_response(0, version, frame[4:])
    answers = partitions_of(response)
    assert [as_read(version, one) for one in answers] == [
        as_sent(version, (*refused[:4], why.message)) for _ in request.partitions
    ]
    assert answers
    for one in answers if version >= 8 else []:
        told = [(row.batch_index, row.batch_index_error_message) for row in one.record_errors]
        assert told == [(place, why.message) for place in places]


def partitions_of(response: Any) -> list[Any]:
    return [one for topic in response.responses for one in topic.partition_responses]


def as_sent(version: int, answer: ProduceResult) -> ProduceResult:
    """An answer with what its version cannot say left out."""
    code, base, append_time, log_start, text = answer
    return (
        code,
        base,
        append_time,
        log_start if version >= 5 else -1,
        text if version >= 8 else None,
    )


def as_read(version: int, partition: Any) -> ProduceResult:
    date = partition.log_append_time
    return (
        partition.error_code.value,
        partition.base_offset,
        -1 if date is None else round(date.timestamp() * 1000),
        partition.log_start_offset if version >= 5 else -1,
        partition.error_message if version >= 8 else None,
    )


@settings(max_examples=300, deadline=None)
@given(version=versions, seed=seeds)
def test_an_answer_of_kio_is_read(version: int, seed: int) -> None:
    """Record errors, which our client has no use for, and the current leader and the endpoints,
    which tidelog does not send, are skipped."""
    entity = message(Random(seed), entity_type(0, version, "response"))
    head = b"\x00\x00\x00\x09" + (b"\x00" if version >= 9 else b"")
    frame = memoryview(head + kio_bytes(entity))
    correlation_id, answers, throttle = read_produce_response(frame, version)
    assert correlation_id == 9
    assert timedelta(milliseconds=throttle) == entity.throttle_time
    assert answers == [
        (topic_of(topic), partition.index, as_read(version, partition))
        for topic in entity.responses
        for partition in topic.partition_responses
    ]


@settings(max_examples=300, deadline=None)
@given(version=versions, seed=seeds)
def test_kio_reads_the_request_that_was_written(version: int, seed: int) -> None:
    entity, _, _ = request_of(version, seed)
    partitions = [(topic, index, records or b"") for topic, index, records in flattened(entity)]
    header = request_header(0, version, 3, "me")
    timeout_ms = entity.timeout // timedelta(milliseconds=1)
    pieces = write_produce_request(
        header, version, entity.acks, timeout_ms, partitions, entity.transactional_id
    )
    frame = b"".join(pieces)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    again = read_request(0, version, frame[4:], len(header))
    assert kio_reads(type(again), frame[4 + len(header) :]) == again
    assert flattened(again) == partitions
    assert (again.acks, again.timeout) == (entity.acks, entity.timeout)
    assert again.transactional_id == entity.transactional_id


@pytest.mark.parametrize("version", VERSIONS)
def test_kafka_answered_what_we_would(version: int) -> None:
    """Apache Kafka sorts the partitions of its answer in its own way; all else is the same."""
    sent = (GOLDEN / f"produce_v{version}.request").read_bytes()
    answer = (GOLDEN / f"produce_v{version}.answer").read_bytes()
    view = memoryview(bytearray(sent))[4:]
    header, at = read_request_header(view)
    request = read_produce_request(view, at, version)
    assert [(index, len(records or b"")) for _, index, records in request.partitions] == [
        (0, 78),
        (2, 73),
        (9, 75),
        (0, 73),
    ]
    correlation_id, theirs, throttle = read_produce_response(memoryview(answer)[4:], version)
    assert correlation_id == header.correlation_id
    assert {code for _, _, (code, *_) in theirs} == {0, 3}
    request.partitions = [(topic, index, None) for topic, index, _ in theirs]
    ours = write_produce_response(
        correlation_id, version, request, [result for _, _, result in theirs], throttle
    )
    assert ours == answer


def body(version: int, content: str) -> memoryview:
    assert version >= 9
    return memoryview(bytearray.fromhex(content))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("00 ffff 00000000 00 00", "topics"),
        ("00 ffff 00000000 02 00 01 00 00", "topic name of -1"),
        ("00 ffff 00000000 02 0274 00 00 00", "partitions in one topic"),
        ("00 ffff 00000000 02 0274 ffffffff07 00 00", "partitions in one topic"),
        ("00 ffff 00000000 ffffffff07", "topics"),
        ("00 ffff 00000000 02 02ff 01 00 00", "not UTF-8"),
        ("00 ffff 00000000 02 0274 02 00000000 05 00 00 00", "ends early"),
        ("00 ffff 00000000 01 00 00", "1 bytes after its end"),
        ("00 ffff 00000000 01 02 00 00", "tagged"),
        ("00 ffff 00000000 ffffffffffff01", "longer than 5 bytes"),
        ("ffffffff7f ffff 00000000 01 00", "past 2147483647"),
    ],
)
def test_what_is_wrong_is_named(content: str, why: str) -> None:
    with pytest.raises(KafkaError, match=why) as raised:
        read_produce_request(body(9, content), 0, 9)
    assert raised.value.code is ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("ffff ffff 00000000 ffffffff", "-1 topics"),
        ("ffff ffff 00000000 7fffffff", "2147483647 topics"),
        ("ffff ffff 00000000 00000001 ffff 00000000", "topic name of -1"),
        ("ffff ffff 00000000 00000001 7fff 74 00000000", "topic name of 32767"),
        ("ffff ffff 00000000 00000001 0001 74 ffffffff", "-1 partitions"),
        ("ffff ffff 00000000 00000001 0001 74 00000001 00000000 fffffffe", "records of -2"),
        ("ffff ffff 00000000 00000001 0001 74 00000001 00000000 00000009", "records of 9"),
        ("fffe ffff 00000000 00000000", "string of -2"),
    ],
)
def test_what_is_wrong_in_an_old_request_is_named(content: str, why: str) -> None:
    with pytest.raises(KafkaError, match=why):
        read_produce_request(memoryview(bytearray.fromhex(content)), 0, 8)


def test_unknown_tagged_fields_are_skipped() -> None:
    tags = "02 05 01 aa 06 00"
    content = f"00 ffff 00000000 02 0274 02 00000007 03 abcd {tags} {tags} {tags}"
    request = read_produce_request(body(9, content), 0, 9)
    assert copied(request) == [("t", 7, b"\xab\xcd")]


def test_more_items_than_anyone_has_are_refused() -> None:
    count = ITEMS_MAX + 1
    start = bytes.fromhex("ffff ffff 00000000 00000001 0001 74")
    content = start + count.to_bytes(4, "big") + b"\x00\x00\x00\x00\xff\xff\xff\xff" * count
    with pytest.raises(KafkaError, match="200001 partitions"):
        read_produce_request(memoryview(content), 0, 8)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_large_request_is_read_like_a_small_one(version: int) -> None:
    topic = bytes(range(16)) if version >= 13 else "orders"
    partitions = [(topic, index, bytes([index % 256]) * (index * 7)) for index in range(300)]
    header = request_header(0, version, 3, None)
    frame = b"".join(write_produce_request(header, version, 1, 30, list(partitions)))
    request = read_produce_request(memoryview(bytearray(frame))[4:], len(header), version)
    assert copied(request) == partitions
    answer = write_produce_response(3, version, request, [(0, 5, -1, 0, None)] * 300)
    assert len(partitions_of(read_response(0, version, answer[4:])[1])) == 300


def test_an_answer_of_many_topics_has_a_long_count() -> None:
    partitions = [(f"topic-{index}", index, b"") for index in range(500)]
    header = request_header(0, 9, 3, None)
    frame = b"".join(write_produce_request(header, 9, 1, 30, list(partitions)))
    request = read_produce_request(memoryview(frame)[4:], len(header), 9)
    answer = write_produce_response(3, 9, request, [(0, 5, -1, 0, None)] * 500)
    assert len(read_response(0, 9, answer[4:])[1].responses) == 500


def test_an_empty_request_has_an_empty_answer() -> None:
    for version in VERSIONS:
        answer = write_produce_response(1, version, ProduceRequest(memoryview(b"")), [])
        assert read_response(0, version, answer[4:])[1].responses == ()


def requests_of(rows: list[list[bytes]], version: int) -> bytes:
    """A body with so many topics of so many partitions, in which these are the records."""
    topics = b""
    for number, of_topic in enumerate(rows):
        topics += bytes([number]) * 16 if version >= 13 else varint(3) + b"t%d" % number
        topics += varint(len(of_topic) + 1)
        for index, records in enumerate(of_topic):
            topics += index.to_bytes(4, "big") + varint(len(records) + 1) + records + b"\0"
        topics += b"\0"
    return b"\0\0\1\0\0\0\7" + varint(len(rows) + 1) + topics + b"\0"


sizes = st.one_of(st.integers(61, 300), st.just(0), st.just(60), st.integers(16_000, 17_000))
shapes = st.lists(st.lists(sizes, max_size=6), max_size=5)
changes = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=3)


def read_both_ways(body: bytes, version: int) -> list[object]:
    """What kernels find, and what is found without them."""
    found: list[object] = []
    for finder in (joiner(), None):
        try:
            request = read_produce_request(memoryview(bytearray(body)), 0, version, finder)
            found.append((request.groups, request.acks, copied(request), request.partition_count))
        except KafkaError as error:
            found.append(error.message)
    return found


@settings(max_examples=300, deadline=None)
@given(shapes, st.sampled_from([9, 12, 13]), changes, st.integers(-3, 3))
def test_kernels_find_what_is_found_without_them(
    shape: list[list[int]], version: int, changed: list[tuple[int, int]], cut: int
) -> None:
    """B1: also in damaged requests, and those that end too early or too late."""
    body = bytearray(requests_of([[b"r" * size for size in row] for row in shape], version))
    for at, value in changed:
        body[at % len(body)] = value
    body = body[:cut] if cut < 0 else body + bytes(cut)
    with_kernels, without = read_both_ways(bytes(body), version)
    assert with_kernels == without


def test_kernels_find_the_batches_of_many_partitions() -> None:
    body = requests_of([[b"r" * 61] * 200, [b"s" * 300] * 300], 13)
    request = read_produce_request(memoryview(bytearray(body)), 0, 13, joiner())
    assert request.rows is not None
    assert request.partition_count == 500
    assert [(len(records or b"")) for _, _, records in request.partitions] == [61] * 200 + [
        300
    ] * 300
    large = requests_of([[b"r" * 16_000] * 6], 13)
    assert read_produce_request(memoryview(bytearray(large)), 0, 13, joiner()).rows is None
