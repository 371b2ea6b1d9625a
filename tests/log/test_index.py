"""The sparse indexes against a plain list: in memory, closed, zero-tailed, damaged (S3)."""

from struct import Struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.counting import CountingDisk
from tidelog.base.errors import BadValue
from tidelog.log.files import OpenFiles
from tidelog.log.index import (
    BLOCK_ENTRIES,
    NOTHING,
    OFFSET_ENTRY,
    TIME_ENTRY,
    SparseIndex,
    entries_of,
)
from tidelog.world.sim.disk import SimDisk

PATH = "/i"
Entries = list[tuple[int, int]]

kinds = pytest.mark.parametrize("entry", [OFFSET_ENTRY, TIME_ENTRY], ids=["offset", "time"])
entry_lists = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 900)), max_size=300).map(
    lambda steps: _sums(steps)
)


def _sums(steps: Entries) -> Entries:
    entries, key, value = [], 0, 0
    for more, further in steps:
        key, value = key + more, value + further
        entries.append((key, value))
    return entries


def _pack(entries: Entries, entry: Struct) -> bytes:
    return b"".join(entry.pack(*pair) for pair in entries)


def _index(entries: Entries, entry: Struct) -> SparseIndex:
    """An active index with these entries."""
    disk = SimDisk()
    index = SparseIndex(OpenFiles(disk, 4), PATH, entry)
    index.create(disk)
    for key, value in entries:
        index.append(key, value)
    return index


def _closed(data: bytes, entry: Struct) -> SparseIndex:
    """An index of a closed segment, as a start finds it."""
    disk = SimDisk()
    disk.open(PATH, "create").pwrite(data, 0)
    return SparseIndex(OpenFiles(disk, 4), PATH, entry)


def _check(index: SparseIndex, entries: Entries) -> None:
    assert index.count == len(entries)
    assert index.last == (entries[-1] if entries else NOTHING)
    asked = {0, 1, 1 << 30}
    asked.update(key + step for key, _ in entries for step in (-1, 0, 1))
    for key in asked:
        below = [pair for pair in entries if pair[0] <= key]
        above = [pair for pair in entries if pair[0] >= key]
        assert index.floor(key) == (below[-1] if below else NOTHING)
        assert index.ceiling(key) == (above[0] if above else NOTHING)
    assert index.entries() == entries


@kinds
@settings(max_examples=25, deadline=None)
@given(entry_lists)
def test_lookups_agree_with_a_list_active_closed_and_opened_again(
    entry: Struct, entries: Entries
) -> None:
    """S3."""
    index = _index(entries, entry)
    _check(index, entries)
    index.write()
    index.close_for_writing()
    _check(index, entries)
    _check(_closed(_pack(entries, entry), entry), entries)


@kinds
@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_lookups_are_right_at_the_edges_of_a_block(entry: Struct, blocks: int, more: int) -> None:
    entries = [(10 * n, 7 * n) for n in range(1, blocks * BLOCK_ENTRIES + more + 1)]
    _check(_closed(_pack(entries, entry), entry), entries)


@kinds
@pytest.mark.parametrize("zeros", [1, 7, 8, 12, 1024])
def test_zeros_behind_the_last_entry_are_not_entries(entry: Struct, zeros: int) -> None:
    """Kafka leaves its active indexes preallocated."""
    entries = [(256, 512), (512, 1 << 24), (1 << 24, 1 << 25)]
    _check(_closed(_pack(entries, entry) + bytes(zeros), entry), entries)
    _check(_closed(bytes(zeros), entry), [])


def test_largest_numbers_of_both_kinds_are_read_back() -> None:
    _check(_closed(OFFSET_ENTRY.pack((1 << 31) - 1, (1 << 32) - 1), OFFSET_ENTRY),
           [((1 << 31) - 1, (1 << 32) - 1)])  # fmt: skip
    _check(_closed(TIME_ENTRY.pack((1 << 63) - 1, (1 << 31) - 1), TIME_ENTRY),
           [((1 << 63) - 1, (1 << 31) - 1)])  # fmt: skip


@kinds
def test_torn_last_entry_is_refused(entry: Struct) -> None:
    data = _pack([(5, 100), (9, 257)], entry)
    with pytest.raises(BadValue, match="not a multiple"):
        _closed(data[:-1], entry).floor(7)


@kinds
@pytest.mark.parametrize("entries", [[(5, 1), (5, 2)], [(5, 1), (4, 2)], [(-3, 1), (4, 2)]])
def test_keys_that_do_not_grow_from_zero_on_are_refused(entry: Struct, entries: Entries) -> None:
    with pytest.raises(BadValue, match="/i"):
        _closed(_pack(entries, entry), entry).ceiling(7)


@kinds
@given(st.binary(max_size=200))
def test_garbage_is_refused_or_grows(entry: Struct, data: bytes) -> None:
    try:
        found = entries_of(PATH, data, entry)
    except BadValue:
        return
    assert found == sorted(found)
    _check(_closed(data, entry), found)


@kinds
@settings(max_examples=30, deadline=None)
@given(entry_lists, st.integers(0, 300), st.integers(0, 300), st.booleans())
def test_truncated_index_goes_on_where_it_was_cut(
    entry: Struct, entries: Entries, written: int, kept: int, closed: bool
) -> None:
    index = _index(entries[:written], entry)
    index.write()
    for key, value in entries[written:]:
        index.append(key, value)
    if closed:
        index.write()
        index.close_for_writing()
    index.truncate(kept)
    left = entries[:kept]
    after = [(left[-1][0] + 1, left[-1][1] + 1)] if left else [(1, 1)]
    index.append(*after[0])
    _check(index, left + after)
    index.write()
    index.close_for_writing()
    _check(index, left + after)
    assert index.unwritten == 0


@kinds
def test_closed_lookup_reads_one_block_however_long_the_index_is(entry: Struct) -> None:
    """S3: the cost does not grow with the log."""
    entries = [(10 * n, 7 * n) for n in range(1, 20 * BLOCK_ENTRIES)]
    disk = CountingDisk(SimDisk())
    disk.open(PATH, "create").pwrite(_pack(entries, entry), 0)
    index = SparseIndex(OpenFiles(disk, 4), PATH, entry)
    index.floor(1)
    for n in (1, 500, 1000, 2000):
        disk.reads.clear()
        assert index.floor(10 * n + 5) == (10 * n, 7 * n)
        assert disk.bytes_read() <= (BLOCK_ENTRIES + 1) * entry.size


def test_negative_offset_in_a_time_index_is_refused() -> None:
    with pytest.raises(BadValue, match="negative"):
        _closed(TIME_ENTRY.pack(5, -1), TIME_ENTRY).ceiling(1)
