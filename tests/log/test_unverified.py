"""What was in a segment when it was opened is looked at once, before it is sent (F12)."""

from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.logs import batch
from tidelog.base.ports import File
from tidelog.log import unverified
from tidelog.log.unverified import SOUND, Stretch, Unverified
from tidelog.records.batch import HEADER_SIZE, stamp
from tidelog.world.sim.disk import SimDisk

PATH = "/data/0.log"
BASE = 1000
EPOCH_BYTES = range(12, 16)


class Stored:
    """A segment of batches of some records each, as a start finds it."""

    def __init__(self, counts: Sequence[int], epochs: Sequence[int] = (), size: int = 10) -> None:
        self.disk = SimDisk()
        self.disk.make_folder("/data")
        self.file: File = self.disk.open(PATH, "create")
        self.offsets = [BASE, *(BASE + count for count in accumulate(counts))]
        written = [batch(count, value=b"v" * size) for count in counts]
        self.positions = [0, *accumulate(len(each) for each in written)]
        for number, each in enumerate(written):
            stamp(each, self.offsets[number], epochs[number] if epochs else 0)
            self.file.pwrite(each, self.positions[number])
        self.end = self.positions[-1]
        self.unverified = Unverified(BASE, self.end, self.offsets[-1])

    def flip(self, position: int, bit: int = 0) -> None:
        self.disk.flip_bit(PATH, position, bit)

    def look(self, position: int, size: int) -> int:
        """As a reader does: how much it gets."""
        part = self.unverified
        if part.good_bytes(position, size) < size:
            found = part.check(self.file, position, size)
            if found is not None:
                part.note(found)
        return part.good_bytes(position, size)


class CountingFile:
    """Counts what is read of a file."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.bytes_read = 0

    def pread(self, size: int, offset: int) -> bytes:
        data = self._file.pread(size, offset)
        self.bytes_read += len(data)
        return data


def test_nothing_is_good_before_it_was_looked_at_and_all_is_afterwards() -> None:
    stored = Stored([3, 1, 5])
    assert stored.unverified.good_bytes(0, stored.end) == 0
    assert stored.look(0, stored.end) == stored.end
    assert stored.unverified.end == 0, "there is nothing left to look at"


def test_what_was_appended_since_needs_no_look() -> None:
    stored = Stored([3, 1])
    assert stored.unverified.good_bytes(stored.end, 500) == 500
    assert stored.look(0, stored.end + 500) == stored.end + 500


@pytest.mark.parametrize("piece_bytes", [100, 4096, 1 << 20])
def test_a_sequential_reader_reads_everything_about_once(
    monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    monkeypatch.setattr(unverified, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(unverified, "PIECE_BYTES_MIN", min(piece_bytes, 128))
    stored = Stored([2] * 200, size=40)
    counting = CountingFile(stored.file)
    stored.file = counting  # type: ignore[assignment]
    position = 0
    while position < stored.end:
        size = min(2000, stored.end - position)
        assert stored.look(position, size) == size
        position = max(at for at in stored.positions if at <= position + size)
    assert counting.bytes_read < 2.5 * stored.end
    assert stored.unverified.end == 0
    before = counting.bytes_read
    assert stored.look(0, stored.end) == stored.end
    assert counting.bytes_read == before, "nothing is read twice"


@pytest.mark.parametrize("behind", [0, 69], ids=["offset", "records"])
def test_a_batch_that_claims_another_offset_is_not_believed_because_the_next_is_bad(
    behind: int,
) -> None:
    """Nothing but the next one could contradict it."""
    stored = Stored([1] * 5, size=1)
    size = stored.positions[1]
    stored.flip(2 * size + 7)
    stored.flip(3 * size + behind)
    assert stored.look(0, stored.end) == 2 * size
    assert stored.unverified.is_damaged


def test_what_lies_before_a_bad_batch_is_served_from_anywhere() -> None:
    stored = Stored([2, 1, 3, 1, 1])
    stored.flip(stored.positions[3])
    for first in (0, 1, 2):
        at = stored.positions[first]
        assert stored.look(at, stored.end - at) == stored.positions[3] - at
        stored.unverified = Unverified(BASE, stored.end, stored.offsets[-1])


@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    flips=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 7)), min_size=1, max_size=2),
    step=st.integers(1, 600),
    size=st.sampled_from([1, 30, 300]),
)
@example(counts=[1, 1], flips=[(7, 0), (70, 0)], step=1, size=1)
@settings(max_examples=200, deadline=None)
def test_no_flipped_bit_gets_to_a_reader_from_the_start(
    counts: list[int], flips: list[tuple[int, int]], step: int, size: int
) -> None:
    """F12: wherever it is but in the epoch, which a range is not enough to know. What lies before
    it is served."""
    stored = Stored(counts, size=size)
    starts = stored.positions[:-1]

    def batch_of(position: int) -> int:
        return max(number for number, start in enumerate(starts) if start <= position)

    places = [(place % stored.end, bit) for place, bit in flips]
    places = [(at, bit) for at, bit in places if at - starts[batch_of(at)] not in EPOCH_BYTES]
    if len(set(places)) < len(places) or not places:
        return
    for place, bit in places:
        stored.flip(place, bit)
    first_bad = starts[min(batch_of(place) for place, _ in places)]
    position = 0
    while position < stored.end:
        number = starts.index(position)
        wanted = min(max(step, stored.positions[number + 1] - position), stored.end - position)
        got = stored.look(position, wanted)
        assert position + got <= first_bad
        whole = [at for at in stored.positions if position < at <= position + got]
        if not whole:
            break
        position = whole[-1]
    before_it = max(0, starts.index(first_bad) - 1)
    assert position >= starts[before_it], "what lies before it is served"
    assert stored.unverified.is_damaged


def test_a_range_in_the_middle_is_checked_alone() -> None:
    stored = Stored([1] * 10)
    stored.flip(HEADER_SIZE + 2)
    middle, size = stored.positions[4], stored.positions[7] - stored.positions[4]
    assert stored.look(middle, size) == size
    assert stored.look(0, stored.end) == 0
    assert stored.look(middle, stored.end - middle) == stored.end - middle


def test_a_batch_that_is_known_to_be_bad_is_not_read_again() -> None:
    stored = Stored([1] * 10)
    stored.flip(stored.positions[5] + HEADER_SIZE + 1)
    assert stored.look(0, stored.end) == stored.positions[5]
    counting = CountingFile(stored.file)
    stored.file = counting  # type: ignore[assignment]
    assert stored.look(stored.positions[5], 100) == 0
    assert counting.bytes_read == 0


def test_a_bad_batch_is_told_of_once() -> None:
    stored = Stored([1] * 3)
    stored.flip(stored.positions[1] + HEADER_SIZE)
    found = stored.unverified.check(stored.file, 0, stored.end)
    assert found == Stretch(0, stored.positions[1], BASE + 1, 0, stored.positions[1])
    assert stored.unverified.note(found)
    assert not stored.unverified.note(found)


@pytest.mark.parametrize("bit", [0, 4])
def test_an_offset_that_is_too_large_is_seen_by_the_next_batch(bit: int) -> None:
    stored = Stored([1] * 5)
    stored.flip(stored.positions[2] + 7, bit)
    upto = stored.positions[2]
    assert stored.look(0, stored.positions[3]) == upto


def test_an_epoch_that_is_too_large_is_seen_by_the_next_batch() -> None:
    stored = Stored([1] * 4, epochs=[1, 1, 2, 2])
    stored.flip(stored.positions[1] + 15, 3)
    assert stored.look(0, stored.positions[2]) == stored.positions[1]


def test_gaps_that_compaction_left_are_good() -> None:
    stored = Stored([1] * 4)
    thinned = Stored([1] * 4)
    for number in (1, 3):
        data = bytearray(stored.file.pread(stored.positions[1], stored.positions[number]))
        thinned.file.pwrite(data, stored.positions[number // 2])
    size = stored.positions[2]
    part = Unverified(BASE, size, BASE + 4)
    found = part.check(thinned.file, 0, size)
    assert found == Stretch(0, size, BASE + 4, 0, SOUND)


def test_what_was_looked_at_before_a_cut_says_nothing_about_what_comes_after_it() -> None:
    stored = Stored([1] * 6)
    part = stored.unverified
    seen = part.check(stored.file, 0, stored.positions[4])
    assert seen is not None
    stored.flip(stored.positions[5] + HEADER_SIZE)
    bad = part.check(stored.file, stored.positions[3], stored.end - stored.positions[3])
    assert bad is not None
    assert bad.bad == stored.positions[5]
    part.cut(stored.positions[2])
    assert not part.note(seen)
    assert not part.note(bad)
    assert not part.is_damaged
    assert part.good_bytes(stored.positions[2], 100) == 100
    assert part.good_bytes(0, 100) == 0
    assert stored.look(0, stored.positions[2]) == stored.positions[2]


def test_readers_all_over_a_segment_do_not_make_it_remember_without_end() -> None:
    stored = Stored([1] * 400)
    for number in range(0, 398, 3):
        position = stored.positions[number]
        assert stored.look(position, 10) == 10
    assert len(stored.unverified._good) <= unverified.STRETCHES_MAX
    assert stored.look(0, stored.end) == stored.end
