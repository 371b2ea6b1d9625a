"""The hand-written Fetch codec says what kio says, in both roles and all versions, and what
Apache Kafka 4.3.1 said (`tests/fixtures/kafka/wire`)."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.messages import kio_bytes, kio_reads, message
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.wire.codec import entity_type, read_request, read_response, write_request
from tidelog.wire.fetch import (
    FetchAnswer,
    FetchRequest,
    read_fetch_request,
    write_fetch_response,
)
from tidelog.wire.fetch_client import FetchedPartition, read_fetch_response, write_fetch_request
from tidelog.wire.header import read_request_header, request_header
from tidelog.wire.topics import Topic
from tidelog.wire.values import ITEMS_MAX

GOLDEN = Path(__file__).parents[1] / "fixtures" / "kafka" / "wire"
VERSIONS = range(4, 19)
versions = st.sampled_from(VERSIONS)
seeds = st.integers(0, 2**32)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)


def topic_of(entity: Any) -> Topic:
    if hasattr(entity, "topic"):
        name: str = entity.topic
        return name
    return bytes(16) if entity.topic_id is None else entity.topic_id.bytes


def partitions_of(entity: Any) -> list[tuple[Any, ...]]:
    return [
        (
            topic_of(topic),
            one.partition,
            getattr(one, "current_leader_epoch", -1),
            one.fetch_offset,
            getattr(one, "last_fetched_epoch", -1),
            getattr(one, "log_start_offset", -1),
            one.partition_max_bytes,
        )
        for topic in entity.topics
        for one in topic.partitions
    ]


def forgotten_of(entity: Any) -> list[tuple[Topic, int]]:
    topics = getattr(entity, "forgotten_topics_data", ())
    return [(topic_of(topic), index) for topic in topics for index in topic.partitions]


def replica_of(entity: Any) -> tuple[int, int]:
    if hasattr(entity, "replica_state"):
        return entity.replica_state.replica_id, entity.replica_state.replica_epoch
    return entity.replica_id, -1


def check_request(request: FetchRequest, entity: Any) -> None:
    assert request.partitions == partitions_of(entity)
    assert request.forgotten == forgotten_of(entity)
    assert (request.replica_id, request.replica_epoch) == replica_of(entity)
    assert timedelta(milliseconds=request.max_wait_ms) == entity.max_wait
    assert (request.min_bytes, request.max_bytes) == (entity.min_bytes, entity.max_bytes)
    assert request.isolation_level == entity.isolation_level
    assert request.session_id == getattr(entity, "session_id", 0)
    assert request.session_epoch == getattr(entity, "session_epoch", -1)
    assert request.rack_id == getattr(entity, "rack_id", "")


@settings(max_examples=250, deadline=None)
@given(version=versions, seed=seeds)
def test_a_request_is_read_as_kio_reads_it(version: int, seed: int) -> None:
    """Tagged fields of every kind are among them: kio writes what differs from its default."""
    entity = message(Random(seed), entity_type(1, version, "request"))
    frame = write_request(1, version, 7, "client", entity)
    assert frame.endswith(kio_bytes(entity))
    view = memoryview(bytearray(frame))[4:]
    check_request(read_fetch_request(view, read_request_header(view)[1], version), entity)


@settings(max_examples=250, deadline=None)
@given(version=versions, seed=seeds)
def test_kio_reads_the_request_that_was_written(version: int, seed: int) -> None:
    entity = message(Random(seed), entity_type(1, version, "request"))
    view = memoryview(kio_bytes(entity))
    request = read_fetch_request(view, 0, version)
    header = request_header(1, version, 3, "me")
    frame = write_fetch_request(header, version, request)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    again = read_request(1, version, frame[4:], len(header))
    assert kio_reads(type(again), frame[4 + len(header) :]) == again
    check_request(request, again)


@st.composite
def answers(draw: st.DrawFn, version: int) -> list[tuple[FetchAnswer, bytes]]:
    """Partitions as a broker answers them, with their records."""
    names: st.SearchStrategy[Topic] = (
        st.binary(min_size=16, max_size=16).filter(any)
        if version >= 13
        else st.text(min_size=1, max_size=20)
    )
    drawn = []
    for topic in draw(st.lists(names, max_size=4, unique=True)):
        for _ in range(draw(st.integers(1, 3))):
            records = draw(st.binary(max_size=300))
            aborted = draw(st.none() | st.lists(st.tuples(int64, int64), max_size=3))
            code = draw(st.sampled_from([int(code.value) for code in ErrorCode]))
            offsets = draw(st.tuples(int64, int64, int64))
            head = (topic, draw(int32), code, *offsets)
            drawn.append(((*head, aborted, draw(int32), len(records)), records))
    return drawn


def sent(pieces: list[bytes], records: list[bytes]) -> bytes:
    assert len(pieces) == len(records) + 1
    return b"".join(piece + content for piece, content in zip(pieces, [*records, b""], strict=True))


@settings(max_examples=150, deadline=None)
@given(version=versions, data=st.data(), session_id=int32, throttle=st.integers(0, 2**31 - 1))
def test_kio_reads_the_answer_that_was_written(
    version: int, data: st.DataObject, session_id: int, throttle: int
) -> None:
    drawn = data.draw(answers(version))
    partitions = [partition for partition, _ in drawn]
    pieces = write_fetch_response(7, version, session_id, 71, partitions, throttle)
    frame = sent(pieces, [records for _, records in drawn])
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, response = read_response(1, version, frame[4:])
    assert correlation_id == 7
    assert response.throttle_time == timedelta(milliseconds=throttle)
    if version >= 7:
        assert (response.session_id, response.error_code.value) == (session_id, 71)
    body_at = 9 if version >= 12 else 8
    assert kio_reads(type(response), frame[body_at:]) == response
    expected = [(*as_sent(version, partition), records) for partition, records in drawn]
    assert [as_read(version, *one) for one in answered(response)] == expected
    fetched = read_fetch_response(memoryview(frame)[4:], version)
    assert [as_fetched(version, one) for one in fetched.partitions] == expected


def answered(response: Any) -> list[tuple[Topic, Any]]:
    return [(topic_of(topic), one) for topic in response.responses for one in topic.partitions]


def as_sent(version: int, answer: FetchAnswer) -> tuple[Any, ...]:
    """An answer with what its version cannot say left out."""
    log_start = answer[5] if version >= 5 else -1
    return (*answer[:5], log_start, answer[6], answer[7] if version >= 11 else -1)


def as_read(version: int, topic: Topic, one: Any) -> tuple[Any, ...]:
    aborted = one.aborted_transactions
    return (
        topic,
        one.partition_index,
        one.error_code.value,
        one.high_watermark,
        one.last_stable_offset,
        one.log_start_offset if version >= 5 else -1,
        None if aborted is None else [(item.producer_id, item.first_offset) for item in aborted],
        one.preferred_read_replica if version >= 11 else -1,
        one.records,
    )


def as_fetched(version: int, one: FetchedPartition) -> tuple[Any, ...]:
    return (
        one.topic,
        one.partition,
        one.error_code,
        one.high_watermark,
        one.last_stable_offset,
        one.log_start_offset if version >= 5 else -1,
        one.aborted,
        one.preferred_read_replica if version >= 11 else -1,
        one.records,
    )


@settings(max_examples=250, deadline=None)
@given(version=versions, seed=seeds)
def test_an_answer_of_kio_is_read(version: int, seed: int) -> None:
    """With what a leader says to a follower whose log parts from its own."""
    entity = message(Random(seed), entity_type(1, version, "response"))
    head = b"\x00\x00\x00\x09" + (b"\x00" if version >= 12 else b"")
    fetched = read_fetch_response(memoryview(head + kio_bytes(entity)), version)
    assert fetched.correlation_id == 9
    assert timedelta(milliseconds=fetched.throttle_ms) == entity.throttle_time
    assert fetched.error_code == (entity.error_code.value if version >= 7 else 0)
    assert [as_fetched(version, one) for one in fetched.partitions] == [
        as_read(version, *one) for one in answered(entity)
    ]
    if version >= 12:
        for ours, (_, theirs) in zip(fetched.partitions, answered(entity), strict=True):
            leader, diverging = theirs.current_leader, theirs.diverging_epoch
            assert ours.current_leader == (leader.leader_id, leader.leader_epoch)
            assert (ours.diverging or (-1, -1)) == (diverging.epoch, diverging.end_offset)


@pytest.mark.parametrize("version", VERSIONS)
def test_kafka_answered_what_we_would(version: int) -> None:
    question = (GOLDEN / f"fetch_v{version}.request").read_bytes()
    answer = (GOLDEN / f"fetch_v{version}.answer").read_bytes()
    view = memoryview(bytearray(question))[4:]
    header, at = read_request_header(view)
    request = read_fetch_request(view, at, version)
    assert [one[1] for one in request.partitions] == [0, 1, 2, 0]
    assert write_fetch_request(question[4 : 4 + at], version, request) == question
    theirs = read_fetch_response(memoryview(answer)[4:], version)
    assert theirs.correlation_id == header.correlation_id
    assert {one.error_code for one in theirs.partitions} == {0, 1}
    records = [bytes(one.records or b"") for one in theirs.partitions]
    partitions: list[FetchAnswer] = [
        (
            one.topic,
            one.partition,
            one.error_code,
            one.high_watermark,
            one.last_stable_offset,
            one.log_start_offset,
            one.aborted,
            one.preferred_read_replica,
            len(one.records or b""),
        )
        for one in theirs.partitions
    ]
    pieces = write_fetch_response(
        theirs.correlation_id, version, theirs.session_id, 0, partitions, theirs.throttle_ms
    )
    assert sent(pieces, records) == answer


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("00 00 01 0100", "topics of a Fetch request are null"),
        ("ffffffff07", "an array of"),
        ("02 0274 00", "partitions"),
        ("02 00 01 00 01 01 00", "topic name is null"),
        ("01 00 01 00", "forgotten topics of a Fetch request are null"),
        ("01 01 00 00", "rack id of a Fetch request is null"),
        ("01 01 01 00 ff", "1 bytes after its end"),
        ("01 01 01 01 01 7f", "runs past the end"),
        ("01 01 01", "ends early"),
    ],
)
def test_what_is_wrong_is_named(content: str, why: str) -> None:
    start = bytes(4 * 4 + 1 + 8)
    with pytest.raises(KafkaError, match=why) as raised:
        read_fetch_request(memoryview(start + bytes.fromhex(content)), 0, 12)
    assert raised.value.code is ErrorCode.invalid_request


def test_a_replica_state_of_the_wrong_size_is_refused() -> None:
    start = bytes(4 * 3 + 1 + 8) + bytes.fromhex("01 01 01")
    with pytest.raises(KafkaError, match="replica state"):
        read_fetch_request(memoryview(start + b"\x01\x01\x0e" + bytes(14)), 0, 15)
    state = b"\x01\x01\x0d" + (5).to_bytes(4, "big") + (9).to_bytes(8, "big") + b"\x00"
    request = read_fetch_request(memoryview(start + state), 0, 15)
    assert (request.replica_id, request.replica_epoch) == (5, 9)


def test_more_items_than_anyone_has_are_refused() -> None:
    count = ITEMS_MAX + 1
    start = bytes(4 * 4 + 1) + (1).to_bytes(4, "big") + b"\x00\x01t"
    content = start + count.to_bytes(4, "big") + bytes(16) * count
    with pytest.raises(KafkaError, match="200001 partitions"):
        read_fetch_request(memoryview(content), 0, 4)


@pytest.mark.parametrize("version", VERSIONS)
def test_tagged_partitions_among_many_are_read(version: int) -> None:
    """One partition with tagged fields shifts all that follow."""
    entity = message(Random(3), entity_type(1, version, "request"))
    while not entity.topics or not entity.topics[0].partitions:
        entity = message(Random(entity.min_bytes), entity_type(1, version, "request"))
    topic = entity.topics[0]
    many = tuple(replace(topic.partitions[0], partition=index) for index in range(500))
    entity = replace(entity, topics=(replace(topic, partitions=many),) * 2)
    request = read_fetch_request(memoryview(kio_bytes(entity)), 0, version)
    assert request.partitions == partitions_of(entity)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "size", [0, 126, 127, 128, 16_382, 16_383, 2_097_150, 2_097_151, 3_000_000]
)
def test_records_of_any_size_are_counted(version: int, size: int) -> None:
    topic: Topic = bytes(range(16)) if version >= 13 else "orders"
    records = [bytes(size), b"ab", bytes(size)]
    partitions: list[FetchAnswer] = [
        (topic, index, 0, 9, 8, 7, None if index else [], -1, len(content))
        for index, content in enumerate(records)
    ]
    frame = sent(write_fetch_response(1, version, 5, 0, partitions), records)
    fetched = read_fetch_response(memoryview(frame)[4:], version)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert [len(one.records or b"") for one in fetched.partitions] == [size, 2, size]
    assert [one.aborted for one in fetched.partitions] == [[], None, None]
