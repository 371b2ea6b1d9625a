"""The part of a segment that was there when it was opened, and what is known of it since.

A start does not read what was durable before: bytes may have rotted there. What this process
appends it has checked, so only the rest counts, and only until it was looked at once. A range is
looked at beside the loop before it is sent (`check`), with the batch behind it: offset and epoch
lie outside a batch's CRC, and the next one shows whether they are wrong. What was found is noted
in the loop (`note`). Sequential readers leave one stretch that grows.
"""

from bisect import bisect_right
from typing import Final, NamedTuple

from tidelog.base.errors import KafkaError
from tidelog.base.ids import NO_EPOCH
from tidelog.base.ports import File
from tidelog.records.batch import LENGTH_OVERHEAD, OFFSET_AND_LENGTH, check_stored

PIECE_BYTES: Final = 1 << 20
PIECE_BYTES_MIN: Final = 4096
STRETCHES_MAX: Final = 64
SOUND: Final = -1


class Stretch(NamedTuple):
    """Good batches from one position to another; and the bad one behind them, if there is."""

    start: int
    end: int
    next_offset: int
    """Behind the last of them; the segment's first one, where that is not known."""
    epoch: int = NO_EPOCH
    """Of the last of them."""
    bad: int = SOUND


class Unverified:
    __slots__ = ("_bad", "_base_offset", "_good", "_limit", "end")

    def __init__(self, base_offset: int, end: int, limit: int) -> None:
        """`end` is a position, `limit` the offset behind the last one."""
        self.end = end
        """From here on there is nothing to verify."""
        self._base_offset = base_offset
        self._limit = limit
        # Replaced, never changed: a thread may be looking at them.
        self._good: tuple[Stretch, ...] = ()
        self._bad: frozenset[int] = frozenset()

    @property
    def is_damaged(self) -> bool:
        return bool(self._bad)

    def good_bytes(self, position: int, size: int) -> int:
        """How much of a range is known to be good, from its start on."""
        if position >= self.end:
            return size
        upto = self._known_up_to(position).end
        return size if upto >= self.end else min(upto - position, size)

    def _known_up_to(self, position: int) -> Stretch:
        """The good stretch that reaches to a position; an empty one if there is none."""
        good = self._good
        found = bisect_right(good, position, key=_start_of) - 1
        if found >= 0 and good[found].end >= position:
            return good[found]
        return Stretch(position, position, self._base_offset)

    # -- beside the loop

    def check(self, file: File, position: int, size: int) -> Stretch | None:
        """Looks at a range that begins with a batch, as far as it is not known already."""
        if position in self._bad:
            return None
        return self._walk(file, self._known_up_to(position), position + size)

    def _walk(self, file: File, known: Stretch, stop: int) -> Stretch:
        """What is known, and what is good behind it, at least up to `stop`. A batch counts when
        the next one agrees with it; where that is bad, only if no offset is missing before it."""
        start, position, expected, epoch, _ = known
        last = sure = (position, expected, epoch)
        while last[0] < stop and position < self.end:
            data = self._read(file, position, stop)
            at = 0
            while last[0] < stop and at < len(data):
                batch = _checked(data, at)
                if batch is None:
                    break
                here, goes_on = position + at, batch.base >= expected and batch.epoch >= epoch
                if not goes_on and here > known.end:
                    return Stretch(start, *last, bad=last[0])
                if not goes_on or batch.next_offset > self._limit:
                    return Stretch(start, *sure, bad=sure[0])
                last, is_whole = (here, expected, epoch), batch.base == expected
                expected, epoch = batch.next_offset, batch.epoch
                at += batch.size
                # What comes before the first is not known where that is not the file's first.
                is_sure = is_whole or here == start > 0
                sure = (position + at, expected, epoch) if is_sure else last
            if not at:
                return Stretch(start, *sure, bad=sure[0])
            position += at
        if position < self.end:
            return Stretch(start, *last)
        return Stretch(start, position, expected, epoch)

    def _read(self, file: File, position: int, stop: int) -> memoryview:
        """The next piece; at least one batch, if its length can be."""
        left = self.end - position
        wanted = min(max(stop - position, PIECE_BYTES_MIN), PIECE_BYTES, left)
        data = file.pread(wanted, position)
        if len(data) >= LENGTH_OVERHEAD:
            size = LENGTH_OVERHEAD + OFFSET_AND_LENGTH.unpack_from(data)[1]
            if wanted < size <= left:
                data = file.pread(size, position)
        return memoryview(data)

    # -- in the loop

    def note(self, found: Stretch) -> bool:
        """Takes in what `check` found, unless the log was cut there since. Whether it is news of
        a batch that is bad."""
        if found.start < found.end <= self.end:
            touching = [g for g in self._good if g.start <= found.end and found.start <= g.end]
            longest = max([found, *touching], key=_end_of)
            start = min(stretch.start for stretch in (found, *touching))
            merged = longest._replace(start=start, bad=SOUND)
            self._good = _few([*(g for g in self._good if g not in touching), merged])
            if start == 0 and merged.end == self.end:
                self.end = 0
        if found.bad == SOUND or found.bad >= self.end:
            return False
        is_new = found.bad not in self._bad
        self._bad |= {found.bad}
        return is_new

    def cut(self, end: int) -> None:
        """The segment is cut there: what comes behind it is not of before. Of a stretch that is
        cut it is not known which offset comes next."""
        if end < self.end:
            self.end = end
            self._good = tuple(good for good in self._good if good.end <= end)
            self._bad = frozenset(bad for bad in self._bad if bad < end)


class _Batch(NamedTuple):
    base: int
    next_offset: int
    epoch: int
    size: int


def _checked(data: memoryview, at: int) -> _Batch | None:
    """The batch there; None if it is not whole, or bad."""
    try:
        base, length, epoch, _, _, _, delta, *_ = check_stored(data, at)
    except KafkaError:
        return None
    return _Batch(base, base + delta + 1, epoch, LENGTH_OVERHEAD + length)


def _start_of(stretch: Stretch) -> int:
    return stretch.start


def _end_of(stretch: Stretch) -> int:
    return stretch.end


def _few(stretches: list[Stretch]) -> tuple[Stretch, ...]:
    """Sorted; the smallest of too many is forgotten, and looked at again if need be."""
    if len(stretches) > STRETCHES_MAX:
        stretches.remove(min(stretches, key=lambda stretch: stretch.end - stretch.start))
    return tuple(sorted(stretches))
