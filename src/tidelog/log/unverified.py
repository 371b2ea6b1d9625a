"""The part of a segment that was there when it was opened, and what is known of it since.

A start does not read what was durable before: bytes may have rotted there. What this process
appends it has checked, so only the rest counts, and only until it was looked at once. A range is
looked at beside the loop before it is sent (`check`), with the batch behind it, because offsets
lie outside a batch's CRC and the next one shows whether they are wrong; what was found is noted in
the loop (`note`). Sequential readers leave one stretch that grows.
"""

from bisect import bisect_right
from typing import Final, NamedTuple

from tidelog.base.errors import KafkaError
from tidelog.base.ports import File
from tidelog.records.batch import HEADER_SIZE, LENGTH_OVERHEAD, OFFSET_AND_LENGTH, check_stored

PIECE_BYTES: Final = 1 << 20
STRETCHES_MAX: Final = 64
SOUND: Final = -1
_FAR: Final = 1 << 62


class Stretch(NamedTuple):
    """Good batches from one position to another; and the bad one behind them, if there is."""

    start: int
    end: int
    next_offset: int
    """Behind the last of them: where the bad one begins."""
    bad: int = SOUND


class Unverified:
    __slots__ = ("_bad", "_good", "_limit", "base_offset", "end")

    def __init__(self, base_offset: int, end: int, limit: int) -> None:
        """`end` is a position, `limit` the offset behind the last one."""
        self.base_offset = base_offset
        self.end = end
        """From here on there is nothing to verify."""
        self._limit = limit
        # Replaced, never changed: a thread may be looking at them.
        self._good: tuple[Stretch, ...] = ()
        self._bad: frozenset[int] = frozenset()

    def good_bytes(self, position: int, size: int) -> int:
        """How much of a range is known to be good, from its start on."""
        if position >= self.end:
            return size
        found = bisect_right(self._good, (position, _FAR)) - 1
        upto = self._good[found].end if found >= 0 else 0
        return size if upto >= self.end else max(0, min(upto - position, size))

    def check(self, file: File, position: int, size: int) -> list[Stretch]:
        """Looks at a range that begins with a batch, as far as that is not known yet. Where one is
        bad the segment is looked at from its start: only so is it known at which offset."""
        if position in self._bad:
            return []
        begin = self._known_up_to(position)
        stop = min(position + size + 1, self.end)
        first = self._walk(file, begin, stop)
        if first.bad == SOUND or first.start == 0:
            return [first]
        return [first, self._walk(file, self._known_up_to(0), first.bad + 1)]

    def _known_up_to(self, position: int) -> Stretch:
        """The good stretch that reaches to a position, which may be empty."""
        found = bisect_right(self._good, (position, _FAR)) - 1
        if found >= 0 and self._good[found].end >= position:
            return self._good[found]
        return Stretch(position, position, self.base_offset)

    def _walk(self, file: File, known: Stretch, stop: int) -> Stretch:
        """What is known, and what is good behind it up to the batch that reaches `stop`."""
        start, position, expected, _ = known
        before = (position, expected)
        while position < stop:
            data = self._read(file, position, stop)
            at = 0
            while at < len(data) and position + at < stop:
                after = self._check_one(data, at, position + at)
                if after is None:
                    break
                base, next_offset, batch_size = after
                if base < expected and at + position > start:
                    return Stretch(start, *before, bad=before[0])
                if base < expected or not base < next_offset <= self._limit:
                    return Stretch(start, position + at, expected, bad=position + at)
                before = (position + at, expected)
                expected = next_offset
                at += batch_size
            if not at:
                return Stretch(start, position, expected, bad=position)
            position += at
        return Stretch(start, position, expected)

    def _read(self, file: File, position: int, stop: int) -> memoryview:
        """The next piece; at least one batch, if its length can be."""
        wanted = min(max(stop - position, HEADER_SIZE), PIECE_BYTES)
        data = file.pread(wanted, position)
        if len(data) >= LENGTH_OVERHEAD:
            size = LENGTH_OVERHEAD + OFFSET_AND_LENGTH.unpack_from(data)[1]
            if wanted < size <= self.end - position:
                data = file.pread(size, position)
        return memoryview(data)

    def _check_one(self, data: memoryview, at: int, position: int) -> tuple[int, int, int] | None:
        """First offset, next offset and size of the batch there; None if it is not whole or not
        good."""
        try:
            base, length, _, _, _, _, delta, *_ = check_stored(data, at)
        except KafkaError:
            return None
        size = LENGTH_OVERHEAD + length
        return (base, base + delta + 1, size) if position + size <= self.end else None

    def note(self, found: Stretch) -> bool:
        """Takes in what `check` found, unless the log was cut there since; whether the bad batch
        in it, if there is one, is still there."""
        end = min(found.end, self.end)
        is_bad = SOUND != found.bad < self.end
        if is_bad:
            self._bad |= {found.bad}
        if end > found.start:
            touching = [g for g in self._good if g.start <= end and found.start <= g.end]
            furthest = max([found._replace(end=end, bad=SOUND), *touching], key=lambda g: g.end)
            merged = furthest._replace(start=min(g.start for g in (found, *touching)))
            others = [g for g in self._good if g not in touching]
            self._good = _few([*others, merged])
        if self._good and self._good[0][:2] == (0, self.end):
            self.end = 0
        return is_bad

    def cut(self, end: int) -> None:
        """The segment is cut there: what comes behind it is not of before."""
        if end < self.end:
            self.end = end
            self._bad = frozenset(bad for bad in self._bad if bad < end)
            # Stretches that are cut would tell a wrong next offset.
            self._good = tuple(good for good in self._good if good.end <= end)


def _few(stretches: list[Stretch]) -> tuple[Stretch, ...]:
    """Sorted; the smallest of too many is forgotten, and looked at again if need be."""
    if len(stretches) > STRETCHES_MAX:
        stretches.remove(min(stretches, key=lambda stretch: stretch.end - stretch.start))
    return tuple(sorted(stretches))
