"""The quick codec of followers says, and understands, what the general one does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import KafkaError
from tidelog.wire.fetch import FETCH, FetchRequest, write_fetch_response
from tidelog.wire.fetch_client import (
    FOLLOWER_VERSION,
    read_fetch_response,
    write_fetch_request,
)
from tidelog.wire.follower_fetch import FetchFrames, read_answer, read_coming
from tidelog.wire.header import request_header
from tidelog.wire.leader_tags import FetchTags, tag_fetch_response

TOPIC_IDS = st.sampled_from((b"a topic's id: 16", b"another one's id"))
INDEXES = st.integers(0, 300)
INT32 = st.integers(-1, (1 << 31) - 1)
INT64 = st.integers(-1, (1 << 63) - 1)
ROWS = st.lists(st.tuples(TOPIC_IDS, INDEXES, INT32, INT64, INT32, INT64, INT32), max_size=300)
FORGOTTEN = st.lists(st.tuples(TOPIC_IDS, INDEXES), max_size=200)


@given(INT32, INT64, st.tuples(INT32, INT32, INT32), st.tuples(INT32, INT32), ROWS, FORGOTTEN)
def test_a_request_is_as_the_general_codec_writes_it(
    number: int,
    broker_epoch: int,
    limits: tuple[int, int, int],
    session: tuple[int, int],
    rows: list[tuple[bytes, int, int, int, int, int, int]],
    forgotten: list[tuple[bytes, int]],
) -> None:
    request = FetchRequest()
    request.replica_id, request.replica_epoch = 5, broker_epoch
    request.max_wait_ms, request.min_bytes, request.max_bytes = limits
    request.session_id, request.session_epoch = session
    request.partitions = list(rows)
    request.forgotten = list(forgotten)
    header = request_header(FETCH, FOLLOWER_VERSION, number, "follower-5")
    expected = write_fetch_request(header, FOLLOWER_VERSION, request)
    frames = FetchFrames(5, "follower-5")
    assert frames.write(number, broker_epoch, limits, session, rows, forgotten) == expected
    assert frames.write(number, broker_epoch, limits, session, rows, forgotten) == expected


ANSWERS = st.lists(
    st.tuples(
        TOPIC_IDS,
        INDEXES,
        st.sampled_from((0, 0, 0, 6, 103)),
        INT64,
        INT64,
        INT64,
        st.sampled_from((None, None, [], [(7, 8)])),
        st.just(-1),
        st.integers(0, 300),
    ),
    max_size=40,
)
DIVERGING = st.dictionaries(st.integers(0, 60), st.tuples(INT32, INT64), max_size=2)


@given(INT32, ANSWERS, DIVERGING, st.sampled_from((0, 70)))
def test_an_answer_is_understood_as_by_the_general_codec(
    session_id: int,
    rows: list[tuple[bytes, int, int, int, int, int, list[tuple[int, int]] | None, int, int]],
    diverging: dict[int, tuple[int, int]],
    error: int,
) -> None:
    frame = answer_of(session_id, rows, diverging, error)
    expected = read_fetch_response(memoryview(frame), FOLLOWER_VERSION)
    answer = read_answer(memoryview(frame))
    assert (answer.error, answer.session_id) == (error, session_id)
    assert [
        (
            found.topic,
            found.partition,
            found.error_code,
            found.high_watermark,
            found.log_start_offset,
            found.diverging,
            found.records,
        )
        for found in expected.partitions
    ] == [tuple(found) for found in answer.partitions]


def answer_of(
    session_id: int,
    rows: list[tuple[bytes, int, int, int, int, int, list[tuple[int, int]] | None, int, int]],
    diverging: dict[int, tuple[int, int]],
    error: int,
) -> bytes:
    pieces = write_fetch_response(9, FOLLOWER_VERSION, session_id, error, rows)
    tags = {row: FetchTags(diverging=where) for row, where in diverging.items() if row < len(rows)}
    if tags:
        tag_fetch_response(pieces, FOLLOWER_VERSION, tags)
    whole = pieces[0]
    for place, piece in enumerate(pieces[1:]):
        whole += bytes([place % 256]) * rows[place][8] + piece
    return whole[4:]


@given(ANSWERS, DIVERGING, st.data())
def test_a_damaged_answer_is_an_error_or_another_answer_and_nothing_else(
    rows: list[tuple[bytes, int, int, int, int, int, list[tuple[int, int]] | None, int, int]],
    diverging: dict[int, tuple[int, int]],
    data: st.DataObject,
) -> None:
    frame = bytearray(answer_of(1, rows, diverging, 0))
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(frame) - 1))
        frame[place] = data.draw(st.integers(0, 255))
    del frame[data.draw(st.integers(0, len(frame))) :]
    view = memoryview(bytes(frame))
    try:
        expected = read_fetch_response(view, FOLLOWER_VERSION)
    except KafkaError:
        with pytest.raises(KafkaError):
            read_answer(view)
    else:
        answer = read_answer(view)
        assert [found.records for found in answer.partitions] == [
            found.records for found in expected.partitions
        ]


@given(ANSWERS, DIVERGING, st.data())
def test_of_an_answer_that_is_coming_nothing_is_told_that_the_whole_does_not_say(
    rows: list[tuple[bytes, int, int, int, int, int, list[tuple[int, int]] | None, int, int]],
    diverging: dict[int, tuple[int, int]],
    data: st.DataObject,
) -> None:
    frame = memoryview(answer_of(1, rows, diverging, 0))
    told = [found for found in read_answer(frame).partitions if found.records and not found.error]
    coming = read_coming(frame[: data.draw(st.integers(0, len(frame)))])
    assert len(coming) <= len(told)
    for place, (part, whole) in enumerate(zip(coming, told, strict=False)):
        assert whole.records is not None
        size = len(part.records)
        assert part.fetched.records == part.records
        assert part.fetched._replace(records=None) == whole._replace(records=None, diverging=None)
        assert part.records == whole.records[:size]
        assert size == len(whole.records) or place == len(coming) - 1


def test_the_records_of_an_answer_are_told_as_they_come() -> None:
    topic, other = b"a topic's id: 16", b"another one's id"
    rows: list[tuple[bytes, int, int, int, int, int, list[tuple[int, int]] | None, int, int]] = [
        (topic, 0, 0, 9, 9, 1, None, -1, 0),
        (topic, 1, 0, 9, 9, 1, None, -1, 300),
        (other, 2, 6, -1, -1, -1, None, -1, 0),
        (other, 3, 0, 8, 8, 2, None, -1, 200),
    ]
    frame = memoryview(answer_of(1, rows, {}, 0))
    sizes = [
        sum(len(found.records) for found in read_coming(frame[:end]))
        for end in range(len(frame) + 1)
    ]
    assert sizes == sorted(sizes)
    assert set(sizes) == set(range(501))
    refused = memoryview(answer_of(1, rows, {}, 70))
    assert read_coming(refused) == []


@given(ANSWERS, st.data())
def test_a_damaged_answer_that_is_coming_raises_nothing(
    rows: list[tuple[bytes, int, int, int, int, int, list[tuple[int, int]] | None, int, int]],
    data: st.DataObject,
) -> None:
    """Whether it can be read is for the whole to say."""
    frame = bytearray(answer_of(1, rows, {}, 0))
    for _ in range(data.draw(st.integers(0, 5))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    for found in read_coming(memoryview(bytes(frame))):
        assert len(found.records) <= len(frame) - found.at


@given(ANSWERS, DIVERGING, st.data())
def test_an_answer_without_what_was_taken_in_is_the_answer_with_fewer_records(
    rows: list[tuple[bytes, int, int, int, int, int, list[tuple[int, int]] | None, int, int]],
    diverging: dict[int, tuple[int, int]],
    data: st.DataObject,
) -> None:
    """Whatever comes behind it, rare things too, is read as it would be."""
    whole = answer_of(1, rows, diverging, 0)
    told = read_answer(memoryview(whole)).partitions
    end = data.draw(st.integers(0, len(whole)))
    part = bytearray(whole[:end])
    taken = [
        (found, data.draw(st.integers(1, len(found.records))))
        for found in read_coming(memoryview(part))
        if found.records
    ]
    spans = [found.shorten(memoryview(part), size) for found, size in taken]
    shortened = bytearray(bytes(part))
    for at, size in reversed(spans):
        del shortened[at : at + size]
    rest = read_answer(memoryview(shortened + whole[end:]))
    gone = iter(taken)
    found, size = next(gone, (None, 0))
    for before, after in zip(told, rest.partitions, strict=True):
        expected = before.records
        if found is not None and before.records and not before.error:
            expected = before.records[size:]
            found, size = next(gone, (None, 0))
        assert after.records == expected
        assert after._replace(records=None) == before._replace(records=None)
    assert found is None
