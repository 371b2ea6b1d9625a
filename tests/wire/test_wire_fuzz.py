"""Nothing that arrives can do more than be refused (rules B1, B2, B6; tests Z1 and Z2).

A plain seeded loop makes most of the frames, because it is ten times as fast as hypothesis;
hypothesis looks for what the loop's injuries do not do. `tests/fuzz_wire.py` is guided by coverage.

A run of CI tries more than 1.5 million frames:

    here    200,000 mutated requests, 30,000 mutated answers, 30,000 Produce and Fetch requests read
            in two ways, 100,000 prefixes of valid requests, a million streams of random bytes,
            1,800 of hypothesis
    60,000  on sockets, in tests/broker/test_robustness.py
    200,000 guided by coverage, by `make fuzz`
"""

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.mutants import mutated, receive, requests, responses, serve
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.wire import codec
from tidelog.wire.fetch import FetchRequest
from tidelog.wire.frames import FrameReader, ReceiveBuffers
from tidelog.wire.header import read_request_header
from tidelog.wire.produce import ProduceRequest

GOLDEN = Path(__file__).parents[1] / "fixtures" / "kafka" / "wire"
REQUESTS = requests(seed=1, each=4)
RESPONSES = responses(seed=2, each=3)
RSS_GROWTH_MAX = 64 * 1024 * 1024


def refusal(work: Callable[..., object], *arguments: object) -> KafkaError | None:
    """What was raised, if it is what may be."""
    try:
        work(*arguments)
    except KafkaError as error:
        return error
    return None


def is_fine(error: KafkaError | None) -> bool:
    return error is None or error.code is ErrorCode.invalid_request


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.parametrize("seed", range(8))
def test_mutated_requests_are_read_or_refused(seed: int) -> None:
    """25,000 frames a seed: 200,000 in all."""
    random = Random(seed)
    refusals = 0
    before = resident_bytes()
    longest = 0.0
    for _ in range(25_000):
        frame = mutated(random, random.choice(REQUESTS), random.choice(REQUESTS))
        started = time.thread_time()
        error = refusal(serve, frame)
        longest = max(longest, time.thread_time() - started)
        assert is_fine(error)
        refusals += error is not None
    assert 10_000 < refusals < 23_000
    assert longest < 1.0
    assert resident_bytes() - before < RSS_GROWTH_MAX


@pytest.mark.parametrize("seed", range(2))
def test_mutated_answers_are_read_or_refused(seed: int) -> None:
    random = Random(seed)
    refusals = 0
    for _ in range(15_000):
        api_key, version, frame = random.choice(RESPONSES)
        damaged = mutated(random, frame, random.choice(RESPONSES)[2])
        error = refusal(receive, api_key, version, damaged)
        assert is_fine(error)
        refusals += error is not None
    assert 5_000 < refusals < 14_000


@pytest.mark.parametrize("seed", range(2))
def test_what_the_general_reader_reads_the_hand_written_ones_read_alike(seed: int) -> None:
    random = Random(seed)
    ours = [frame for frame in REQUESTS if frame[:2] in (b"\x00\x00", b"\x00\x01")]
    compared = 0
    for _ in range(15_000):
        view = memoryview(mutated(random, random.choice(ours), random.choice(ours)))
        try:
            header, at = read_request_header(view)
            entity = codec.read_request(header.api_key, header.version, view, at)
        except KafkaError:
            continue
        request = serve(bytes(view))
        if isinstance(request, ProduceRequest):
            counts = [len(topic.partition_data) for topic in entity.topic_data]
            assert [count for _, count in request.groups] == counts
            assert request.acks == entity.acks
            compared += 1
        elif isinstance(request, FetchRequest):
            offsets = [one.fetch_offset for topic in entity.topics for one in topic.partitions]
            assert [one[3] for one in request.partitions] == offsets
            compared += 1
    assert compared > 1_500


def test_no_prefix_of_a_valid_request_is_valid() -> None:
    golden = [path.read_bytes()[4:] for path in sorted(GOLDEN.glob("*_v?*.request"))]
    assert len(golden) == 30
    for frame in golden:
        if frame[:4] == b"\x00\x12\x00\x63":
            continue
        assert serve(frame) is not None
        for cut in range(len(frame)):
            with pytest.raises(KafkaError):
                serve(frame[:cut])


def test_no_prefix_of_an_arbitrary_request_is_valid() -> None:
    """Z2: more than 100,000."""
    count = 0
    for frame in requests(seed=3, each=12):
        for cut in range(max(0, len(frame) - 400), len(frame)):
            count += 1
            assert refusal(serve, frame[:cut]) is not None, (frame, cut)
    assert count > 100_000


def test_nothing_may_follow_a_request_but_metadata() -> None:
    """librdkafka 2.x leaves three bytes behind a Metadata request for all topics."""
    for frame in REQUESTS:
        serve(frame)
        if frame[:2] == b"\0\3":
            serve(frame + b"\0\0\0")
            continue
        with pytest.raises(KafkaError, match="after its end"):
            serve(frame + b"\x00")


@settings(max_examples=500, deadline=None)
@given(frame=st.binary(max_size=200), api_key=st.integers(0, 92), version=st.integers(-1, 20))
def test_noise_is_read_or_refused(frame: bytes, api_key: int, version: int) -> None:
    start = api_key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True)
    for data in (frame, start + frame, start + bytes(4) + b"\xff\xff\x00" + frame):
        assert is_fine(refusal(serve, data))


@pytest.mark.parametrize("seed", range(5))
def test_streams_of_random_bytes_are_read_or_refused(seed: int) -> None:
    """Z2: 200,000 a seed, a million in all. A third begins as a request does, or no more would be
    tried than the first four bytes."""
    random = Random(seed)
    randbytes, randrange = random.randbytes, random.randrange
    starts = [frame[: randrange(4, 20)] for frame in REQUESTS]
    buffers = ReceiveBuffers()
    refusals = 0
    for number in range(200_000):
        data = randbytes(randrange(1, 60))
        if number % 3 == 0:
            data = random.choice(starts) + data
        framed = len(data).to_bytes(4, "big") + data if number % 2 else data
        reader = FrameReader(buffers, 1_000)
        error = refusal(feed, reader, [framed]) or refusal(serve, data)
        assert is_fine(error)
        refusals += error is not None
    assert refusals > 190_000


@settings(max_examples=300, deadline=None)
@given(chunks=st.lists(st.binary(min_size=1, max_size=2_000), max_size=20))
def test_a_stream_of_noise_is_cut_or_refused(chunks: list[bytes]) -> None:
    reader = FrameReader(ReceiveBuffers(), 1_000_000)
    assert is_fine(refusal(feed, reader, chunks))


def feed(reader: FrameReader, chunks: list[bytes]) -> None:
    for data in chunks:
        rest = data
        while rest:
            buffer = reader.buffer()
            size = min(len(buffer), len(rest))
            buffer[:size] = rest[:size]
            rest = rest[size:]
            reader.received(size)
