"""The leader epochs of one replica's log: at which offset each of them began.

Entries are (epoch, start offset), both growing. One is added with the first batch of an epoch, by
a leader and by a follower; that a leader's epoch has begun without a record yet is known to its
replica machine, and leaves no trace here. A reader who asks where an epoch
ended gets the start of the next one: that is how a returning follower finds what it must
drop (L2).
"""

from bisect import bisect_right
from collections.abc import Iterable

from tidelog.base.ids import NO_EPOCH

NO_OFFSET = -1
NOTHING_KNOWN = 1 << 31


class LeaderEpochs:
    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest: int = NO_EPOCH
        for epoch, start in entries:
            self.assign(epoch, start)
        self.changed = False

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def earliest(self) -> int:
        """The first epoch of which anything is known; one beyond all that can be if none is."""
        return self._epochs[0] if self._epochs else NOTHING_KNOWN

    def assign(self, epoch: int, start: int) -> None:
        """Notes that `epoch` begins at `start`. What contradicts it is dropped: entries that
        begin at or above `start`, and those of the same or a later epoch."""
        assert epoch >= 0, f"{epoch} is no leader epoch"
        if epoch == self.latest and self._starts[-1] <= start:
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start)
        self._touch()

    def end_of(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch not above `epoch`, and its end; (-1, -1) if nothing is known.
        Data of an epoch before the first known one is gone: it ended where that one began."""
        if epoch == NO_EPOCH or not self._epochs:
            return NO_EPOCH, NO_OFFSET
        after = bisect_right(self._epochs, epoch)
        if after == 0:
            return epoch, self._starts[0]
        end = self._starts[after] if after < len(self._starts) else log_end_offset
        return self._epochs[after - 1], end

    def at(self, offset: int) -> int:
        """The epoch in which the record at `offset` was written; -1 if not known."""
        found = bisect_right(self._starts, offset)
        return self._epochs[found - 1] if found else NO_EPOCH

    def truncate_suffix(self, to: int) -> None:
        """Drops entries that begin at or above `to`."""
        before = len(self._starts)
        while self._starts and self._starts[-1] >= to:
            self._starts.pop()
            self._epochs.pop()
        if len(self._starts) != before:
            self._touch()

    def advance_log_start(self, to: int) -> None:
        """Drops entries that end at or below `to`; the one that spans it begins there now."""
        first = bisect_right(self._starts, to)
        if first > 1 or (first == 1 and self._starts[0] < to):
            del self._starts[: first - 1]
            del self._epochs[: first - 1]
            self._starts[0] = to
            self._touch()

    def _touch(self) -> None:
        self.latest = self._epochs[-1] if self._epochs else NO_EPOCH
        self.changed = True
