"""Writing to the journal of a shard: what is written is replayed before anybody is told of it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tidelog.base.errors import KafkaError
from tidelog.base.journal import Committed, Entry, Journal, Origin

Replay = Callable[[Entry, Origin], None]

PART_BYTES: Final = 64 * 1024
"""Many entries that need not stand together are written in parts of this size."""


class Journaled:
    def __init__(self, journal: Journal, replay: Replay) -> None:
        self.journal = journal
        self._replay = replay

    def write(
        self,
        entries: Sequence[Entry],
        committed: Committed,
        producer: tuple[int, int] | None = None,
        *,
        must_fit: bool = True,
    ) -> None:
        """Writes and replays entries. If they cannot be written, nothing changes."""

        def replayed(origin: Origin) -> None:
            for number, entry in enumerate(entries):
                self._replay(entry, origin._replace(offset=origin.offset + number))

        self.apply(entries, replayed, committed, producer, must_fit=must_fit)

    def apply(
        self,
        entries: Sequence[Entry],
        replayed: Callable[[Origin], None],
        committed: Committed,
        producer: tuple[int, int] | None = None,
        *,
        must_fit: bool = True,
    ) -> None:
        """The same for entries whose effect is known without reading them again."""
        outcome = _Outcome(committed)
        try:
            origin = self.journal.append(entries, outcome.end, producer, must_fit=must_fit)
        except KafkaError as error:
            committed(error)
            return
        replayed(origin)
        outcome.tell()

    def keep(self, entries: Sequence[Entry], committed: Committed) -> None:
        """Writes entries that say what is so already."""
        try:
            self.journal.append(entries, committed)
        except KafkaError as error:
            committed(error)

    def write_in_parts(self, entries: Sequence[Entry], committed: Committed) -> None:
        """Writes what may be found half done; the last part is the one that is waited for. None is
        left out because it is larger than a batch may be."""
        parts = list(_parts(entries))
        for number, part in enumerate(parts, 1):
            told = committed if number == len(parts) else _no_matter
            self.write(part, told, must_fit=False)
        if not parts:
            committed(None)


class _Outcome:
    """Holds back what came of an append until it has been replayed."""

    __slots__ = ("_committed", "_ended", "_is_open")

    def __init__(self, committed: Committed) -> None:
        self._committed = committed
        self._ended: tuple[KafkaError | None] | None = None
        self._is_open = False

    def end(self, error: KafkaError | None) -> None:
        if self._is_open:
            self._committed(error)
        else:
            self._ended = (error,)

    def tell(self) -> None:
        self._is_open = True
        if self._ended is not None:
            self._committed(*self._ended)


def _parts(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    part: list[Entry] = []
    size = 0
    for entry in entries:
        part.append(entry)
        size += len(entry.key) + len(entry.value or b"")
        if size >= PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _no_matter(_error: KafkaError | None) -> None:
    """What was not removed now is removed another time."""
