"""Frames come out whole and in order however the bytes arrive, and cost what was received, not
what was declared (rule B1)."""

import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.wire.frames import SHARED_BYTES, FrameReader, ReceiveBuffers

LIMIT = 100 * 1024 * 1024
MB = 1024 * 1024


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def feed(reader: FrameReader, data: bytes | memoryview, chunk: int = 1 << 30) -> list[bytes]:
    """Hands bytes over as a socket would, and takes the frames as a handler must: at once."""
    frames = []
    data = memoryview(data)
    while data:
        buffer = reader.buffer()
        assert len(buffer) > 0
        size = min(len(buffer), len(data), chunk)
        buffer[:size] = data[:size]
        data = data[size:]
        frames += [bytes(frame) for frame in reader.received(size)]
    return frames


sizes = st.one_of(
    st.integers(0, 50),
    st.integers(16_300, 16_500),
    st.integers(SHARED_BYTES - 30, SHARED_BYTES + 30),
    st.integers(0, 3 * SHARED_BYTES),
)


@settings(max_examples=150, deadline=None)
@given(
    lengths=st.lists(sizes, min_size=1, max_size=8),
    chunks=st.lists(st.integers(1, SHARED_BYTES), min_size=1, max_size=30),
    seed=st.integers(0, 1000),
)
def test_frames_come_out_as_they_were_sent(
    lengths: list[int], chunks: list[int], seed: int
) -> None:
    random = Random(seed)
    contents = [random.randbytes(length) for length in lengths]
    stream = memoryview(b"".join(map(framed, contents)))
    reader = FrameReader(ReceiveBuffers(), LIMIT)
    frames: list[bytes] = []
    for chunk in (*chunks, len(stream)):
        frames += feed(reader, stream[:chunk])
        stream = stream[chunk:]
    assert frames == contents


def test_every_way_to_cut_small_frames_in_two() -> None:
    stream = b"".join(map(framed, (b"", b"a", b"hello", b"", b"x" * 20)))
    for cut in range(len(stream) + 1):
        reader = FrameReader(ReceiveBuffers(), LIMIT)
        frames = feed(reader, stream[:cut]) + feed(reader, stream[cut:])
        assert frames == [b"", b"a", b"hello", b"", b"x" * 20]


def test_a_byte_at_a_time() -> None:
    contents = [b"a" * 17_000, b"b", b"c" * 300]
    reader = FrameReader(ReceiveBuffers(), LIMIT)
    assert feed(reader, b"".join(map(framed, contents)), chunk=1) == contents


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_connections_that_share_buffers_do_not_mix(seed: int) -> None:
    """Views of large frames are kept at random, as a writer thread would, and never change."""
    random = Random(seed)
    buffers = ReceiveBuffers()
    readers = [FrameReader(buffers, LIMIT) for _ in range(4)]
    contents = [
        [random.randbytes(random.choice((3, 900, 20_000, 300_000))) for _ in range(6)]
        for _ in readers
    ]
    streams = [memoryview(b"".join(map(framed, each))) for each in contents]
    received: list[list[bytes]] = [[] for _ in readers]
    kept: list[tuple[memoryview, bytes]] = []
    while any(streams):
        number = random.choice([number for number, stream in enumerate(streams) if stream])
        buffer = readers[number].buffer()
        size = min(len(buffer), len(streams[number]), random.choice((1, 5_000, 200_000)))
        buffer[:size] = streams[number][:size]
        streams[number] = streams[number][size:]
        for frame in readers[number].received(size):
            received[number].append(bytes(frame))
            if random.random() < 0.5:
                kept.append((buffers.lasting(frame), bytes(frame)))
        if kept and random.random() < 0.3:
            kept.pop(random.randrange(len(kept)))
        assert all(view == content for view, content in kept)
    assert received == contents


@pytest.mark.parametrize("length", [-1, -(2**31), LIMIT + 1, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused(length: int) -> None:
    reader = FrameReader(ReceiveBuffers(), LIMIT)
    with pytest.raises(KafkaError, match=f"a frame of {length} bytes") as raised:
        feed(reader, length.to_bytes(4, "big", signed=True))
    assert raised.value.code is ErrorCode.invalid_request


def test_whole_frames_before_a_bad_length_still_come_out() -> None:
    reader = FrameReader(ReceiveBuffers(), LIMIT)
    assert feed(reader, framed(b"good") + b"\xff\xff\xff\xff" + b"more") == [b"good"]
    assert reader.refused is not None
    with pytest.raises(KafkaError, match="a frame of -1 bytes"):
        feed(reader, b"x")


def test_the_largest_frame_allowed_passes_and_one_more_byte_does_not() -> None:
    reader = FrameReader(ReceiveBuffers(), 1000)
    assert feed(reader, framed(b"x" * 1000)) == [b"x" * 1000]
    with pytest.raises(KafkaError, match="at most 1000"):
        feed(reader, framed(b"x" * 1001))


def test_a_declared_length_allocates_nothing() -> None:
    """2,000 connections that declare 100 MB and send ten bytes hold 16 KiB each."""
    buffers = ReceiveBuffers()
    tracemalloc.start()
    readers = [FrameReader(buffers, LIMIT) for _ in range(2_000)]
    for reader in readers:
        feed(reader, LIMIT.to_bytes(4, "big") + b"123456")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000 * 17 * 1024


def test_a_buffer_grows_with_what_was_received() -> None:
    buffers = ReceiveBuffers()
    reader = FrameReader(buffers, LIMIT)
    data = LIMIT.to_bytes(4, "big") + bytes(MB)
    tracemalloc.start()
    feed(reader, data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * MB


def test_a_stream_of_large_frames_uses_one_buffer_again_and_again() -> None:
    buffers = ReceiveBuffers()
    reader = FrameReader(buffers, LIMIT)
    frame = framed(bytes(MB))
    feed(reader, frame)
    tracemalloc.start()
    for _ in range(20):
        buffer = reader.buffer()
        data = memoryview(frame)
        while data:
            buffer = reader.buffer()
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            data = data[size:]
            reader.received(size)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 * 1024


def test_the_rest_of_a_known_size_is_received_at_once() -> None:
    """After a frame of 1 MB the next one takes two reads: a little, which is copied, and the rest.
    Small ones behind it have all the room again."""
    reader = FrameReader(ReceiveBuffers(), LIMIT)
    frame = memoryview(framed(bytes(MB)))
    feed(reader, frame)
    buffer = reader.buffer()
    first = len(buffer)
    assert first < SHARED_BYTES / 10
    buffer[:] = frame[:first]
    assert reader.received(first) == []
    assert len(reader.buffer()) == len(frame) - first
    reader.received(len(frame) - first)
    assert feed(reader, framed(b"small")) == [b"small"]
    assert len(reader.buffer()) == SHARED_BYTES


def test_many_kept_frames_do_not_fill_the_pool() -> None:
    """What was kept is dropped by whoever kept it: the pool holds a bounded amount."""
    buffers = ReceiveBuffers()
    reader = FrameReader(buffers, LIMIT)
    frame = memoryview(framed(bytes(MB)))
    tracemalloc.start()
    kept = []
    for _ in range(50):
        data = frame
        while data:
            buffer = reader.buffer()
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            data = data[size:]
            kept += reader.received(size)
    assert len({id(view.obj) for view in kept}) == 50
    kept.clear()
    current, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert current < 18 * MB


def test_closing_gives_the_buffer_back() -> None:
    buffers = ReceiveBuffers()
    reader = FrameReader(buffers, LIMIT)
    feed(reader, (MB).to_bytes(4, "big") + bytes(500_000))
    own = reader.buffer().obj
    reader.close()
    assert buffers.take(MB) is own


def test_of_several_buffers_the_one_that_was_used_last_is_used_again() -> None:
    """Its bytes are in the core's caches; those of the others are not any more."""
    buffers = ReceiveBuffers()
    first, second, third = (buffers.take(MB) for _ in range(3))
    for buffer in (first, second, third):
        buffers.give_back(buffer)
    kept = memoryview(third)
    assert buffers.take(MB) is second
    del kept
    assert buffers.take(MB) is third


def test_a_small_frame_made_lasting_survives_the_next_read() -> None:
    buffers = ReceiveBuffers()
    reader = FrameReader(buffers, LIMIT)
    buffer = reader.buffer()
    buffer[:9] = framed(b"first")
    (frame,) = reader.received(9)
    lasting = buffers.lasting(frame)
    feed(reader, framed(b"other"))
    assert bytes(lasting) == b"first"
    assert not lasting.readonly


def test_what_has_come_of_a_large_frame_can_be_looked_at() -> None:
    reader = FrameReader(ReceiveBuffers(), LIMIT)
    content = bytes(range(256)) * 12_000
    data = memoryview(framed(content))
    assert reader.coming() is None
    seen = []
    for at in range(0, len(data) - 1, 100_000):
        assert feed(reader, data[at : min(at + 100_000, len(data) - 1)]) == []
        coming = reader.coming()
        assert coming is not None
        assert coming == content[: len(coming)]
        seen.append(len(coming))
    assert seen == sorted(seen)
    assert seen[-1] == len(content) - 1
    del coming
    assert feed(reader, bytes(data[-1:])) == [content]
    assert feed(reader, framed(b"next")) == [b"next"]
    assert reader.coming() is None


def test_a_large_frame_is_received_in_steps() -> None:
    """So that whoever uses it as it comes does that while the rest is on its way."""
    reader = FrameReader(ReceiveBuffers(), LIMIT)
    frame = framed(bytes(4 * MB))
    feed(reader, frame)
    feed(reader, frame[:SHARED_BYTES])
    steps = []
    left = len(frame) - SHARED_BYTES
    while left:
        size = len(reader.buffer())
        steps.append(size)
        left -= size
        reader.received(size)
    assert max(steps) == MB
    assert len(steps) == 4


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_frame_comes_out_without_what_was_taken_out_of_it(seed: int) -> None:
    """Spans anywhere in what has come, several at a time; frames around it are as they were."""
    random = Random(seed)
    reader = FrameReader(ReceiveBuffers(), LIMIT)
    content = random.randbytes(random.choice((20_000, 400_000, 3 * MB)))
    stream = memoryview(framed(b"before") + framed(content) + framed(b"after"))
    left = bytearray(content)
    frames: list[bytes] = []
    while stream:
        size = random.randint(1, MB)
        frames += feed(reader, stream[:size])
        stream = stream[size:]
        coming = reader.coming()
        if coming is not None:
            assert coming == left[: len(coming)]
            spans = random_spans(random, len(coming))
            del coming
            reader.take_out(spans)
            for at, size in reversed(spans):
                del left[at : at + size]
    assert frames == [b"before", bytes(left), b"after"]


def random_spans(random: Random, size: int) -> list[tuple[int, int]]:
    ends = sorted(random.sample(range(size + 1), k=min(random.choice((0, 2, 2, 6)), size)))
    return [(at, end - at) for at, end in zip(ends[::2], ends[1::2], strict=True)]


def test_the_buffer_of_a_frame_that_is_used_as_it_comes_does_not_grow_with_it() -> None:
    """Of 64 MB there is never more than about a megabyte, and the next one begins with that."""
    buffers = ReceiveBuffers()
    reader = FrameReader(buffers, LIMIT)
    step = bytes(MB // 2)
    tracemalloc.start()
    for _ in range(2):
        feed(reader, (64 * MB).to_bytes(4, "big"))
        for _ in range(128):
            feed(reader, step)
            coming = reader.coming()
            if coming is not None:
                reader.take_out([(0, len(coming))])
        assert reader.coming() is None, "it has come to its end"
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * MB
