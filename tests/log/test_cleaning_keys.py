"""The hash and the map of compaction: keys come from clients, so no two of them may be taken for
one, whatever they are (S6)."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.base.errors import BadValue
from tidelog.log.decided import DecidedTransactions
from tidelog.log.key_map import MapPass
from tidelog.records.batch import HEADER_SIZE
from tidelog.records.key_kernels import hash_of
from tidelog.records.key_table import (
    LIMIT,
    OFFSETS_MAX,
    SLOT_BYTES,
    SPAN_END,
    SPAN_START,
    make_table,
)
from tidelog.records.native import judge_records, map_records
from tidelog.records.reference import Record, encode_batch
from tidelog.records.rules import DROP
from tidelog.records.stops import DONE

MASK = (1 << 64) - 1
SECRET = bytes(range(16))


def turn(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & MASK


def one_round(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
    a, c = (a + b) & MASK, (c + d) & MASK
    b, d = turn(b, 13) ^ a, turn(d, 16) ^ c
    a = turn(a, 32)
    a, c = (a + d) & MASK, (c + b) & MASK
    d, b = turn(d, 21) ^ a, turn(b, 17) ^ c
    return a, b, turn(c, 32), d


def siphash_128(secret: bytes, data: bytes, per_word: int, at_end: int) -> bytes:
    """SipHash-c-d with 128 bits of result, as its authors describe it."""
    low, high = struct.unpack("<QQ", secret)
    state = (
        low ^ 0x736F6D6570736575,
        high ^ 0x646F72616E646F6D ^ 0xEE,
        low ^ 0x6C7967656E657261,
        high ^ 0x7465646279746573,
    )
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    for (word,) in struct.iter_unpack("<Q", padded):
        a, b, c, d = state
        state = (a, b, c, d ^ word)
        for _ in range(per_word):
            state = one_round(*state)
        a, b, c, d = state
        state = (a ^ word, b, c, d)
    a, b, c, d = state
    state = (a, b, c ^ 0xEE, d)
    halves = []
    for change in (0, 0xDD):
        a, b, c, d = state
        state = (a, b ^ change, c, d)
        for _ in range(at_end):
            state = one_round(*state)
        a, b, c, d = state
        halves.append(a ^ b ^ c ^ d)
    return struct.pack("<QQ", *halves)


@pytest.mark.parametrize(
    ("size", "published"),
    [
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (2, "8177228da4a45dc7fca38bdef60affe4"),
    ],
)
def test_the_plain_hash_is_the_published_one(size: int, published: str) -> None:
    assert siphash_128(SECRET, bytes(range(size)), 2, 4).hex() == published


@given(st.binary(max_size=300), st.binary(min_size=16, max_size=16))
@settings(max_examples=300, deadline=None)
def test_the_compiled_hash_is_the_plain_one_with_fewer_rounds(key: bytes, secret: bytes) -> None:
    result = np.zeros(2, np.uint64)
    hash_of(np.frombuffer(key, np.uint8), np.frombuffer(secret, "<u8"), result)
    assert result.tobytes() == siphash_128(secret, key, 1, 3)


def test_a_map_takes_what_it_is_given_and_no_more() -> None:
    table = make_table(SLOT_BYTES * 100, 0.9, (0, 1 << 40), SECRET)
    assert table.words.nbytes == SLOT_BYTES * 100
    assert table.tally[LIMIT] == 90
    assert table.tally[SPAN_START] == table.tally[SPAN_END], "no bits for that many offsets"


def test_a_map_is_no_larger_than_the_offsets_need() -> None:
    table = make_table(1 << 30, 0.9, (1000, 1010), SECRET)
    assert table.words.nbytes == SLOT_BYTES * 13
    assert table.tally[LIMIT] == 12
    assert table.outdated.nbytes == 2


def test_a_map_is_never_quite_full() -> None:
    assert make_table(SLOT_BYTES * 10, 1.0, (0, 100), SECRET).tally[LIMIT] == 9
    with pytest.raises(BadValue, match="31 bytes hold no key"):
        make_table(31, 0.9, (0, 100), SECRET)


@pytest.mark.parametrize("first", [0, 7, 1 << 40])
def test_a_map_tells_apart_the_first_and_the_last_of_its_offsets(first: int) -> None:
    """S6: offsets take 32 bits there; a run ends before they could not be told apart."""
    last = first + OFFSETS_MAX - 1
    table = make_table(1 << 20, 0.9, (first, last + 1), SECRET)
    passing = MapPass(table, DecidedTransactions([]), first, 1 << 60, 1 << 20)
    assert passing.end == last + 1
    record = encode_batch([Record(offset=0, timestamp=0, key=b"k", value=b"v")])[HEADER_SIZE:]
    data = np.frombuffer(record, np.uint8)
    verdicts = np.empty(1, np.uint8)
    for offset in (first, last):
        shape = np.array([offset, 0, 1], np.int64)
        assert map_records(data, shape, first, table, passing.window) == DONE
        kept = []
        for asked in (first - 1, first, last - 1, last):
            shape = np.array([asked, 0, 1], np.int64)
            judge_records(data, shape, False, table, passing.window, verdicts)
            kept.append(asked if verdicts[0] != DROP else None)
        assert [asked for asked in kept if asked is not None] == [
            asked for asked in (first - 1, first, last - 1, last) if asked >= offset
        ]
