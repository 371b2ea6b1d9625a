"""The segments of one log, in order: found by offset or by time at the price of a bisection.

Timestamps need not grow from segment to segment, but the largest one so far does. So the
first segment that holds a timestamp of at least T is found by bisecting those maxima.
"""

from bisect import bisect_left, bisect_right

from tidelog.log.segment import Segment


class Segments:
    """`all`, `bases` and `active` are plain attributes: every append or read looks at them."""

    active: Segment

    def __init__(self, segments: list[Segment]) -> None:
        self.all: list[Segment] = []
        self.bases: list[int] = []
        self._largest: list[int] = []
        self.replace([], segments)

    @property
    def first(self) -> Segment:
        return self.all[0]

    @property
    def closed(self) -> list[Segment]:
        return self.all[:-1]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.all)

    def at(self, offset: int) -> int:
        """The index of the segment that holds an offset at or above the first base offset."""
        return bisect_right(self.bases, offset) - 1

    def end_of(self, index: int, log_end_offset: int) -> int:
        """The offset behind a segment's last one."""
        return self.bases[index + 1] if index + 1 < len(self.bases) else log_end_offset

    def with_timestamp(self, timestamp: int) -> int:
        """The index of the first segment that may hold a record of that time or later."""
        while self.learn_time():
            continue
        return bisect_left(self._largest, timestamp)

    def learn_time(self) -> bool:
        """Finds out the largest timestamp of one more closed segment; False if all are known."""
        known = len(self._largest)
        if known >= len(self.all) - 1:
            return False
        before = self._largest[-1] if known else -1
        self._largest.append(max(before, self.all[known].largest_timestamp()))
        return True

    def add(self, segment: Segment) -> None:
        self.all.append(segment)
        self.bases.append(segment.base_offset)
        self.active = segment

    def remove(self, segments: list[Segment]) -> None:
        self.replace(segments, [])

    def replace(self, old: list[Segment], new: list[Segment]) -> None:
        kept = [segment for segment in self.all if segment not in old]
        self.all = sorted([*kept, *new], key=lambda segment: segment.base_offset)
        self.bases = [segment.base_offset for segment in self.all]
        self._largest = []
        if self.all:
            self.active = self.all[-1]
