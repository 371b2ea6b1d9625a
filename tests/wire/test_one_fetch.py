"""A fetch of one partition is read and answered as any fetch is, or it is not taken for one."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.messages import kio_bytes, message
from tidelog.base.errors import KafkaError
from tidelog.wire.codec import entity_type
from tidelog.wire.fetch import FetchRequest, read_fetch_request, write_fetch_response
from tidelog.wire.fetch_client import write_fetch_request
from tidelog.wire.one_fetch import ANSWER_END, read_one_fetch, write_one_fetched

VERSIONS = range(4, 19)
FIRST = 15
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)


def fields(request: FetchRequest) -> list[object]:
    return [getattr(request, name) for name in dir(FetchRequest) if name[0] != "_"]


@st.composite
def requests(draw: st.DrawFn) -> FetchRequest:
    request = FetchRequest()
    for name in ("max_wait_ms", "min_bytes", "max_bytes", "session_id", "session_epoch"):
        setattr(request, name, draw(int32))
    request.isolation_level = draw(st.integers(-128, 127))
    topic = draw(st.binary(min_size=16, max_size=16))
    places = draw(st.tuples(int32, int32, int64, int32, int64, int32))
    request.partitions.append((topic, *places))
    return request


def body(request: FetchRequest, version: int) -> bytes:
    return write_fetch_request(b"header", version, request)[4:]


@settings(max_examples=100, deadline=None)
@given(request=requests(), version=st.integers(FIRST, 18))
def test_a_request_for_one_partition_is_read(request: FetchRequest, version: int) -> None:
    frame = memoryview(body(request, version))
    found = read_one_fetch(frame, 6, version)
    assert found is not None
    assert fields(found) == fields(request) == fields(read_fetch_request(frame, 6, version))


@settings(max_examples=300, deadline=None)
@given(request=requests(), seed=st.integers(0, 2**32), version=st.sampled_from(VERSIONS))
def test_what_is_not_like_that_is_left_to_who_reads_all(
    request: FetchRequest, seed: int, version: int
) -> None:
    """Also if it only has the right size, with a few bytes that are others."""
    random = Random(seed)
    frame = bytearray(body(request, max(FIRST, version)))[6:]
    for _ in range(random.randint(1, 3)):
        frame[random.randrange(len(frame))] = random.choice((0, 1, 2, 3, random.randrange(256)))
    any_frame = kio_bytes(message(random, entity_type(1, version, "request")))
    for data in (frame, any_frame):
        found = read_one_fetch(memoryview(data), 0, version)
        if found is not None:
            assert fields(found) == fields(read_fetch_request(memoryview(data), 0, version))


@pytest.mark.parametrize("at", range(-5, 0))
def test_a_request_with_something_optional_is_not_taken_for_one_without(at: int) -> None:
    """Each of the five bytes behind the partition says that nothing more comes."""
    request = FetchRequest()
    request.partitions.append((bytes(16), 0, -1, 0, -1, -1, 1 << 20))
    frame = bytearray(body(request, FIRST))
    assert read_one_fetch(memoryview(frame), 6, FIRST) is not None
    assert read_one_fetch(memoryview(frame), 6, FIRST - 1) is None
    frame[at] = 5
    assert read_one_fetch(memoryview(frame), 6, FIRST) is None
    with pytest.raises(KafkaError):
        read_fetch_request(memoryview(frame), 6, FIRST)


@pytest.mark.parametrize("committed_only", [False, True])
@pytest.mark.parametrize(
    "size", [1, 126, 127, 16_382, 16_383, 1_036_592, 2_097_150, 2_097_151, 50 << 20]
)
def test_an_answer_is_the_one_that_is_written_for_many(size: int, committed_only: bool) -> None:
    topic, marks = bytes(range(16)), (1 << 40, (1 << 40) - 1, 3)
    aborted: list[tuple[int, int]] | None = [] if committed_only else None
    row = (topic, 5, 0, *marks, aborted, -1, size)
    pieces = write_fetch_response(77, 17, 0, 0, [row])
    assert [write_one_fetched(77, topic, 5, marks, committed_only, size), ANSWER_END] == pieces
