"""Which transactions of a partition are open, committed or aborted: read off what is committed.

It is what a reader of committed records is held against, and knows nothing of the production code
that tells readers the same.
"""

from tidelog.trials.model_log import Record
from tidelog.trials.stamped_log import Stamp, Stamps


class _Opened:
    """A transaction in one partition, from its first record on."""

    __slots__ = ("first", "marker")

    def __init__(self, first: int) -> None:
        self.first = first
        self.marker: int | None = None
        """Where it ends."""


class Decided:
    def __init__(self, committed: list[Record], stamps: Stamps) -> None:
        self._committed = committed
        self._stamps = stamps
        self._seen = 0
        self._open: dict[int, _Opened] = {}
        """By producer id."""
        self._undecided: dict[int, list[int]] = {}
        """Offsets of records of open transactions, by producer id."""
        self._all: list[_Opened] = []
        self._hidden: set[int] = set()
        """Offsets that no reader of committed records is to see."""

    @property
    def end(self) -> int:
        return self._seen

    def catch_up(self) -> None:
        committed = self._committed
        for offset in range(self._seen, len(committed)):
            stamp = self._stamps.get(committed[offset][1])
            if isinstance(stamp, Stamp):
                self._extend(stamp.producer.producer_id, offset)
            elif stamp is not None:
                self._hidden.add(offset)
                self._end(stamp.producer_id, offset, is_commit=stamp.committed)
        self._seen = len(committed)

    def _extend(self, producer_id: int, offset: int) -> None:
        if producer_id not in self._open:
            self._open[producer_id] = opened = _Opened(offset)
            self._all.append(opened)
        self._undecided.setdefault(producer_id, []).append(offset)

    def _end(self, producer_id: int, offset: int, *, is_commit: bool) -> None:
        opened = self._open.pop(producer_id, None)
        if opened is not None:
            opened.marker = offset
        offsets = self._undecided.pop(producer_id, ())
        if not is_commit:
            self._hidden.update(offsets)

    def stable_end(self, high_watermark: int) -> int:
        """How far whoever has so much may be told."""
        for opened in self._all:
            if opened.first >= high_watermark:
                break
            if opened.marker is None or opened.marker >= high_watermark:
                return opened.first
        return high_watermark

    def visible(self, start: int, end: int) -> list[int]:
        """Values of a range that is decided."""
        committed, hidden = self._committed, self._hidden
        return [committed[offset][1] for offset in range(start, end) if offset not in hidden]

    def open_count(self) -> int:
        return len(self._open)
