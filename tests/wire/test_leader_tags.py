"""What an answer says of divergence and of new leaders is what kio reads in it, and a follower
and a leader understand one another (D1, D4; KIP-595, KIP-951)."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.messages import kio_reads
from tidelog.base.errors import KafkaError
from tidelog.wire.codec import read_response
from tidelog.wire.fetch import FetchAnswer, FetchRequest, read_fetch_request, write_fetch_response
from tidelog.wire.fetch_client import FOLLOWER_VERSION, read_fetch_response, write_fetch_request
from tidelog.wire.header import read_request_header, request_header
from tidelog.wire.leader_tags import (
    FetchTags,
    NodeEndpoint,
    tag_fetch_response,
    tag_produce_response,
)
from tidelog.wire.produce import read_produce_request
from tidelog.wire.produce_answer import ProduceResult, write_produce_response
from tidelog.wire.produce_client import read_produce_response, write_produce_request
from tidelog.wire.topics import Topic

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
topic_ids = st.binary(min_size=16, max_size=16).filter(any)
names = st.text("abc.-_", min_size=1, max_size=150)
endpoints = st.lists(
    st.builds(NodeEndpoint, int32, names, int32, st.none() | st.text(max_size=130)), max_size=4
)
fetch_tags = st.builds(
    FetchTags, st.none() | st.tuples(int32, int64), st.none() | st.tuples(int32, int32)
)


def sent(pieces: list[bytes], records: list[bytes]) -> bytes:
    assert len(pieces) == len(records) + 1
    frame = b"".join(piece + more for piece, more in zip(pieces, [*records, b""], strict=True))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame


@st.composite
def rows(draw: st.DrawFn, version: int) -> list[tuple[FetchAnswer, bytes]]:
    """Partitions as a leader answers them, with their records."""
    topics: st.SearchStrategy[Topic] = topic_ids if version >= 13 else names
    drawn = []
    for topic in draw(st.lists(topics, max_size=4, unique=True)):
        for index in range(draw(st.integers(1, 3))):
            records = bytes(draw(st.sampled_from((0, 5, 126, 127, 16_382, 16_383))))
            aborted = draw(st.none() | st.lists(st.tuples(int64, int64), max_size=2))
            drawn.append(((topic, index, 6, 9, 8, 7, aborted, -1, len(records)), records))
    return drawn


def partitions_of(response: Any, name: str) -> list[Any]:
    return [one for topic in response.responses for one in getattr(topic, name)]


def endpoints_of(response: Any) -> list[NodeEndpoint]:
    return [
        NodeEndpoint(one.node_id, one.host, one.port, one.rack) for one in response.node_endpoints
    ]


@settings(max_examples=150, deadline=None)
@given(version=st.integers(12, 18), data=st.data(), brokers=endpoints)
def test_kio_reads_what_a_fetch_answer_says_besides(
    version: int, data: st.DataObject, brokers: list[NodeEndpoint]
) -> None:
    drawn = data.draw(rows(version))
    numbers = st.integers(0, len(drawn) - 1) if drawn else st.nothing()
    tagged = data.draw(st.dictionaries(numbers, fetch_tags))
    answers = [answer for answer, _ in drawn]
    pieces = write_fetch_response(7, version, 4, 0, answers)
    plain = sent(list(pieces), [records for _, records in drawn])
    tag_fetch_response(pieces, version, tagged, brokers)
    frame = sent(pieces, [records for _, records in drawn])
    _, response = read_response(1, version, frame[4:])
    assert kio_reads(type(response), frame[9:]) == response
    ours = read_fetch_response(memoryview(frame)[4:], version).partitions
    told = zip(partitions_of(response, "partitions"), ours, answers, strict=True)
    for row, (theirs, read, answer) in enumerate(told):
        wanted = tagged.get(row, FetchTags())
        diverging, leader = theirs.diverging_epoch, theirs.current_leader
        assert (diverging.epoch, diverging.end_offset) == (wanted.diverging or (-1, -1))
        assert (leader.leader_id, leader.leader_epoch) == (wanted.current_leader or (-1, -1))
        assert read.diverging == wanted.diverging
        assert read.current_leader == (wanted.current_leader or (-1, -1))
        assert len(read.records or b"") == len(theirs.records) == answer[8]
    if version >= 16:
        assert endpoints_of(response) == brokers
    if not tagged and (version < 16 or not brokers):
        assert frame == plain


@pytest.mark.parametrize("version", range(4, 12))
def test_an_old_fetch_answer_stays_as_it_is(version: int) -> None:
    answer: FetchAnswer = ("orders", 0, 6, -1, -1, -1, None, -1, 0)
    pieces = write_fetch_response(7, version, 0, 0, [answer])
    before = list(pieces)
    tag_fetch_response(pieces, version, {0: FetchTags((1, 2), (3, 4))}, [NodeEndpoint(1, "h", 2)])
    assert pieces == before


def test_an_answer_without_partitions_may_still_name_brokers() -> None:
    pieces = write_fetch_response(7, 17, 0, 0, [])
    tag_fetch_response(pieces, 17, {}, [NodeEndpoint(1, "host", 9092)])
    _, response = read_response(1, 17, sent(pieces, [])[4:])
    assert endpoints_of(response) == [(1, "host", 9092, None)]


def test_a_row_is_not_tagged_twice() -> None:
    pieces = write_fetch_response(7, 17, 0, 0, [(bytes(16), 0, 6, -1, -1, -1, None, -1, 0)])
    tag_fetch_response(pieces, 17, {0: FetchTags(current_leader=(3, 4))})
    with pytest.raises(AssertionError, match="already"):
        tag_fetch_response(pieces, 17, {0: FetchTags(current_leader=(3, 5))})


@pytest.mark.parametrize("tag", [0, 1])
@pytest.mark.parametrize("grown", [-2, -1, 1])
def test_a_tagged_field_of_the_wrong_size_is_refused(tag: int, grown: int) -> None:
    """A log would be cut where nobody said."""
    said = FetchTags((5, 77), None) if tag == 0 else FetchTags(None, (3, 4))
    pieces = write_fetch_response(7, 17, 0, 0, [(bytes(16), 0, 0, 9, 9, 0, None, -1, 0)])
    tag_fetch_response(pieces, 17, {0: said})
    frame = bytearray(sent(pieces, [b""]))
    at = frame.rindex(bytes((1, tag, 13 if tag == 0 else 9)))
    frame[at + 2] += grown
    with pytest.raises(KafkaError):
        read_fetch_response(memoryview(frame)[4:], 17)


# -- follower and leader


@st.composite
def follower_requests(draw: st.DrawFn) -> FetchRequest:
    request = FetchRequest()
    request.replica_id = draw(st.integers(0, 2**31 - 1))
    request.replica_epoch = draw(st.integers(0, 2**63 - 1))
    request.max_wait_ms, request.min_bytes = draw(st.integers(0, 500)), 1
    request.max_bytes = draw(st.integers(1, 2**31 - 1))
    request.session_id, request.session_epoch = draw(int32), draw(int32)
    for topic in draw(st.lists(topic_ids, max_size=4, unique=True)):
        for index in range(draw(st.integers(1, 3))):
            numbers = draw(st.tuples(int32, int64, int32, int64, int32))
            request.partitions.append((topic, index, *numbers))
    request.forgotten = [
        (topic, index)
        for topic in draw(st.lists(topic_ids, max_size=3, unique=True))
        for index in range(draw(st.integers(1, 3)))
    ]
    return request


@settings(max_examples=150, deadline=None)
@given(request=follower_requests(), version=st.sampled_from((FOLLOWER_VERSION, 18)))
def test_a_leader_reads_what_a_follower_asks(request: FetchRequest, version: int) -> None:
    """With broker epoch, last fetched epoch, log start and what it forgets (R2, D4)."""
    frame = write_fetch_request(request_header(1, version, 9, "broker-2"), version, request)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    view = memoryview(bytearray(frame))[4:]
    header, at = read_request_header(view)
    read = read_fetch_request(view, at, version)
    assert (header.api_key, header.version, header.client_id) == (1, version, "broker-2")
    for name in [name for name in dir(FetchRequest) if name[0] != "_"]:
        assert getattr(read, name) == getattr(request, name), name


@settings(max_examples=150, deadline=None)
@given(request=follower_requests(), data=st.data())
def test_a_follower_reads_what_its_leader_answers(
    request: FetchRequest, data: st.DataObject
) -> None:
    """Each partition has records, an error, or the epoch and offset where the logs part (D1)."""
    contents = st.one_of(
        st.tuples(st.just(0), st.binary(max_size=200), st.none()),
        st.tuples(st.sampled_from((3, 6, 74, 76)), st.just(b""), st.none()),
        st.tuples(st.just(0), st.just(b""), st.tuples(int32, int64)),
    )
    found = [data.draw(contents) for _ in request.partitions]
    answers: list[FetchAnswer] = [
        (asked[0], asked[1], code, 50, 40, 30, None, -1, len(records))
        for asked, (code, records, _) in zip(request.partitions, found, strict=True)
    ]
    pieces = write_fetch_response(9, FOLLOWER_VERSION, 4, 0, answers)
    tagged = {row: FetchTags(diverging) for row, (_, _, diverging) in enumerate(found) if diverging}
    tag_fetch_response(pieces, FOLLOWER_VERSION, tagged)
    frame = sent(pieces, [records for _, records, _ in found])
    response = read_fetch_response(memoryview(frame)[4:], FOLLOWER_VERSION)
    assert (response.correlation_id, response.session_id, response.error_code) == (9, 4, 0)
    assert [
        (one.topic, one.partition, one.error_code, bytes(one.records or b""), one.diverging)
        for one in response.partitions
    ] == [
        (asked[0], asked[1], *content)
        for asked, content in zip(request.partitions, found, strict=True)
    ]
    offsets = {
        (one.high_watermark, one.last_stable_offset, one.log_start_offset)
        for one in response.partitions
    }
    assert offsets <= {(50, 40, 30)}


# -- Produce


@st.composite
def produced(draw: st.DrawFn, version: int) -> tuple[list[tuple[Topic, int]], list[ProduceResult]]:
    topics: st.SearchStrategy[Topic] = topic_ids if version >= 13 else names
    partitions = [
        (topic, index)
        for topic in draw(st.lists(topics, max_size=4, unique=True))
        for index in range(draw(st.integers(1, 3)))
    ]
    results = [
        (draw(st.sampled_from((0, 6))), draw(int64), -1, 0, draw(st.none() | st.text(max_size=200)))
        for _ in partitions
    ]
    return partitions, results


def written_and_read(version: int, partitions: list[tuple[Topic, int]]) -> Any:
    header = request_header(0, version, 7, "me")
    rows = [(topic, index, b"records") for topic, index in partitions]
    frame = b"".join(write_produce_request(header, version, -1, 1_000, rows))
    return read_produce_request(memoryview(bytearray(frame))[4:], len(header), version)


@settings(max_examples=150, deadline=None)
@given(version=st.integers(10, 13), data=st.data(), brokers=endpoints)
def test_kio_reads_the_new_leaders_of_a_produce_answer(
    version: int, data: st.DataObject, brokers: list[NodeEndpoint]
) -> None:
    partitions, results = data.draw(produced(version))
    request = written_and_read(version, partitions)
    numbers = st.integers(0, len(partitions) - 1) if partitions else st.nothing()
    leaders = data.draw(st.dictionaries(numbers, st.tuples(int32, int32)))
    plain = write_produce_response(7, version, request, results, 33)
    frame = tag_produce_response(plain, version, request, leaders, brokers)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    _, response = read_response(0, version, frame[4:])
    assert kio_reads(type(response), frame[9:]) == response
    read = partitions_of(response, "partition_responses")
    assert [(one.current_leader.leader_id, one.current_leader.leader_epoch) for one in read] == [
        leaders.get(row, (-1, -1)) for row in range(len(partitions))
    ]
    assert endpoints_of(response) == brokers
    unchanged = read_produce_response(memoryview(plain)[4:], version)
    assert read_produce_response(memoryview(frame)[4:], version) == unchanged
    if not leaders and not brokers:
        assert frame == plain


def test_an_old_produce_answer_stays_as_it_is() -> None:
    for version in range(3, 10):
        request = written_and_read(version, [("orders", 0)])
        plain = write_produce_response(7, version, request, [(6, -1, -1, -1, None)])
        tagged = tag_produce_response(
            plain, version, request, {0: (1, 2)}, [NodeEndpoint(1, "h", 9)]
        )
        assert tagged == plain


def test_an_answer_of_very_many_topics_is_tagged_in_the_right_place() -> None:
    """The count of topics is longer than a byte, and so are some messages."""
    random = Random(3)
    partitions: list[tuple[Topic, int]] = [(f"topic-{number}", number) for number in range(300)]
    request = written_and_read(12, partitions)
    results: list[ProduceResult] = [
        (6, -1, -1, -1, random.choice((None, "", "x" * 126, "y" * 20_000))) for _ in partitions
    ]
    leaders = {row: (row, 1_000 + row) for row in range(0, 300, 7)}
    plain = write_produce_response(7, 12, request, results)
    frame = tag_produce_response(plain, 12, request, leaders)
    _, response = read_response(0, 12, frame[4:])
    assert {
        one.index: (one.current_leader.leader_id, one.current_leader.leader_epoch)
        for one in partitions_of(response, "partition_responses")
        if one.current_leader.leader_id != -1
    } == leaders
