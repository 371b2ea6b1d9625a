"""Batches of a fetch answer, seen from outside: where they end, gaps, and what is refused."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.bulk import batch_of
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.client import batch_walk
from tidelog.client.batch_walk import Walked, walk_batches
from tidelog.records.batch import stamp

Walk = Callable[[memoryview, int, int], Walked]


def log_of(*bases: int) -> bytes:
    """Batches of two records each, at these offsets."""
    batches = [batch_of([b"a", b"b"]) for _ in bases]
    for base, batch in zip(bases, batches, strict=True):
        stamp(batch, base, 1)
    return b"".join(batches)


SIZE = len(log_of(0))


def walk(data: bytes, next_offset: int = 0, end: int = 100) -> Walked:
    return walk_batches(memoryview(data), next_offset, end)


def test_whole_batches_are_counted_and_gaps_passed_over() -> None:
    assert walk(log_of(0, 2, 10)) == (3 * SIZE, 12, 0)
    assert walk(log_of(4, 6), next_offset=5) == (2 * SIZE, 8, 0)
    assert walk(b"") == (0, 0, 0)


def test_batches_behind_the_end_are_left_out() -> None:
    assert walk(log_of(0, 2, 10), end=10) == (2 * SIZE, 10, 0)
    assert walk(log_of(0, 2, 10), end=11) == (3 * SIZE, 12, 0)
    assert walk(log_of(20), next_offset=3, end=10) == (0, 10, 0)


@pytest.mark.parametrize("left", [1, 11, 12, 60, 61, SIZE - 1])
def test_a_batch_that_is_cut_off_is_left_out_and_its_size_told(left: int) -> None:
    size = SIZE if left >= 12 else 0
    assert walk(log_of(0, 2)[: SIZE + left]) == (SIZE, 2, size)


def test_batches_that_go_back_or_do_not_reach_the_offset_are_refused() -> None:
    for data, next_offset in ((log_of(0, 1), 0), (log_of(4, 2), 0), (log_of(0), 2)):
        with pytest.raises(KafkaError, match=r"a batch of .* at offset") as told:
            walk(data, next_offset)
        assert told.value.code is ErrorCode.corrupt_message


@pytest.mark.parametrize("at", [17, 21, 30, SIZE - 1])
def test_a_wrong_checksum_is_named_with_its_offset(at: int) -> None:
    data = bytearray(log_of(0, 2))
    data[SIZE + at] ^= 1
    with pytest.raises(KafkaError, match="CRC-32C of the batch at offset 2"):
        walk(bytes(data))


@pytest.mark.parametrize(
    ("magic", "code"),
    [(1, ErrorCode.unsupported_for_message_format), (3, ErrorCode.corrupt_message)],
)
def test_another_format_is_refused_by_name(magic: int, code: ErrorCode) -> None:
    data = bytearray(log_of(0))
    data[16] = magic
    with pytest.raises(KafkaError) as told:
        walk(bytes(data))
    assert told.value.code is code


def test_a_length_that_cannot_be_is_refused() -> None:
    for length in (-1, 0, 48):
        data = bytearray(log_of(0))
        data[8:12] = length.to_bytes(4, signed=True)
        with pytest.raises(KafkaError, match="a batch of"):
            walk(bytes(data))


@given(data=st.data())
def test_whatever_happened_to_the_bytes_the_walk_ends_as_if_each_batch_were_looked_at(
    data: st.DataObject,
) -> None:
    """P2: the compiled walk over good batches leaves the first other one to the words of Python."""
    content = bytearray(log_of(0, 2, 10, 14))
    for _ in range(data.draw(st.integers(0, 2))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))]
    next_offset, end = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 20))
    assert outcome(content, next_offset, end, walk_batches) == outcome(
        content, next_offset, end, walk_one_by_one
    )


def outcome(content: bytearray, next_offset: int, end: int, walk_over: Walk) -> Walked | str:
    try:
        return walk_over(memoryview(content), next_offset, end)
    except KafkaError as error:
        return str(error)


def walk_one_by_one(data: memoryview, next_offset: int, end: int) -> Walked:
    """The walk, with nothing left to the compiled loop."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_walk, "walk_good", lambda *_: 0)
        return walk_batches(data, next_offset, end)
