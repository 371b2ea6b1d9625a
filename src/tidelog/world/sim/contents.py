"""The content of one simulated file: what programs read, and what the medium holds.

`live` is the page cache: what every reader sees. `unsynced` lists the changes since the last
sync with the bytes they replaced, so that the medium's content is found by undoing them. A
write to the end of a file replaces nothing and is one slice assignment and one tuple; a
sync forgets the list. Only a power loss walks it.
"""

from collections.abc import Iterator
from random import Random
from typing import Literal, NamedTuple

SECTOR = 512

Loss = Literal["all", "none", "some"]
"""What a power loss takes of the changes that no sync has saved; `some` is drawn from the seed."""

Fate = Literal["keep", "drop", "tear", "zeros"]

_MIXED = ["prefix", "each"]


class Change(NamedTuple):
    """`new` written at `offset`, or (`new` is None) the file cut or extended to `offset`."""

    offset: int
    new: bytes | None
    replaced: bytes
    size_before: int


class FileNode:
    """A file, whatever its name: names belong to folders."""

    __slots__ = ("live", "modified_ms", "settled", "unsynced")

    def __init__(self, modified_ms: int) -> None:
        self.live = bytearray()
        self.modified_ms = modified_ms
        self.unsynced: list[Change] = []
        # Once a sync has failed, changes can no longer be forgotten: a lost one may lie under
        # a durable one. The flag says whether the change was lost.
        self.settled: list[tuple[Change, bool]] = []

    def write(self, new: bytes, offset: int) -> None:
        live = self.live
        size = len(live)
        end = offset + len(new)
        if offset > size:
            self.unsynced.append(Change(offset, new, b"", size))
            live.extend(bytes(offset - size))
        else:
            self.unsynced.append(Change(offset, new, bytes(live[offset:end]), size))
        live[offset:end] = new

    def resize(self, size: int) -> None:
        live = self.live
        self.unsynced.append(Change(size, None, bytes(live[size:]), len(live)))
        _resize(live, size)

    def sync(self) -> None:
        if self.settled:
            self.settled += [(change, False) for change in self.unsynced]
        self.unsynced.clear()

    def fail_sync(self) -> None:
        """As Linux does: the pages count as clean, though they never reached the medium, so
        a later sync succeeds without writing them."""
        self.settled += [(change, True) for change in self.unsynced]
        self.unsynced.clear()

    def evict(self) -> None:
        """Memory pressure drops clean pages; reading them again shows what a failed sync lost."""
        waiting, settled = self._undo()
        for change, lost in settled:
            if not lost:
                _apply(self.live, change)
        for change in waiting:
            if change.new is None:
                self.resize(change.offset)
            else:
                self.write(change.new, change.offset)

    def lose_power(self, loss: Loss, draws: Random) -> None:
        if not self.unsynced and not self.settled:
            return
        waiting, settled = self._undo()
        changes = settled + [(change, True) for change in waiting]
        fates = _draw_fates(sum(uncertain for _, uncertain in changes), loss, draws)
        for change, uncertain in changes:
            _survive(self.live, change, next(fates) if uncertain else "keep", draws)

    def _undo(self) -> tuple[list[Change], list[tuple[Change, bool]]]:
        """Goes back to the content before the first listed change; hands out the lists."""
        waiting, settled = self.unsynced, self.settled
        self.unsynced, self.settled = [], []
        for change in [*reversed(waiting), *(change for change, _ in reversed(settled))]:
            del self.live[change.size_before :]
            self.live[change.offset : change.offset + len(change.replaced)] = change.replaced
        return waiting, settled

    def copy(self) -> "FileNode":
        twin = FileNode(self.modified_ms)
        twin.live = bytearray(self.live)
        twin.unsynced = list(self.unsynced)
        twin.settled = list(self.settled)
        return twin


def _resize(live: bytearray, size: int) -> None:
    if size <= len(live):
        del live[size:]
    else:
        live.extend(bytes(size - len(live)))


def _apply(live: bytearray, change: Change) -> None:
    if change.new is None:
        _resize(live, change.offset)
    else:
        _put(live, change.new, change.offset)


def _put(live: bytearray, new: bytes, offset: int) -> None:
    if offset > len(live):
        live.extend(bytes(offset - len(live)))
    live[offset : offset + len(new)] = new


def _draw_fates(count: int, loss: Loss, draws: Random) -> Iterator[Fate]:
    """Whole files mostly live or die together, or up to some moment; drawing each change by
    itself alone would hardly ever show a long surviving prefix."""
    styles = {"all": ["drop"], "none": ["keep"], "some": ["keep", "drop", *_MIXED * 2]}
    style = draws.choice(styles[loss])
    cut = draws.randint(0, count)
    for place in range(count):
        if style == "each":
            yield draws.choice(("keep", "keep", "drop", "tear", "zeros"))
        elif style == "keep" or (style == "prefix" and place < cut):
            yield "keep"
        elif style == "prefix" and place == cut:
            yield draws.choice(("drop", "tear", "zeros"))
        else:
            yield "drop"


def _survive(live: bytearray, change: Change, fate: Fate, draws: Random) -> None:
    if fate == "drop":
        return
    if change.new is None or fate == "keep":
        _apply(live, change)
    elif fate == "zeros":
        # The new length reached the medium, the bytes did not.
        _resize(live, max(len(live), change.offset + len(change.new)))
    else:
        for offset, part in _tear(change.new, change.offset, draws):
            _put(live, part, offset)


def _tear(new: bytes, offset: int, draws: Random) -> list[tuple[int, bytes]]:
    """The parts of a write that reached the medium: it ends at any byte, or at a sector, or
    each sector came through or not."""
    style = draws.choice(("byte", "sector", "sectors"))
    if style == "byte":
        return [(offset, new[: draws.randint(0, len(new))])]
    starts = [0, *range(SECTOR - offset % SECTOR, len(new), SECTOR)]
    if style == "sector":
        return [(offset, new[: draws.choice(starts)])]
    ends = [*starts[1:], len(new)]
    return [
        (offset + start, new[start:end])
        for start, end in zip(starts, ends, strict=True)
        if draws.random() < 0.5
    ]
