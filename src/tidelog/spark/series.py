"""Which numbers of a series of batch writes were written.

Of decisions only the last one is kept, so that it is noted beside it which were made: a write with
a lower number is passed over if it was written, and must not be if it never was.

    0-4,7,20261117-20261118

Where a note would be too long its lowest gaps are closed: what is as old as that counts as written.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Self

from tidelog.base.errors import BadValue
from tidelog.base.ids import CONSUMER_OFFSETS, TopicPartition
from tidelog.spark.decisions import NOTE_CHARACTERS_MAX

_PLACE: Final = TopicPartition(CONSUMER_OFFSETS, 0)


def group_of_numbers(series: str) -> str:
    """The group in which they are noted."""
    return f"tl/{series}/numbers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    ranges: tuple[tuple[int, int], ...] = ()
    """Each with its last number, in order, with gaps between them."""

    def __contains__(self, number: int) -> bool:
        return any(first <= number <= last for first, last in self.ranges)

    def with_range(self, first: int, last: int) -> Self:
        return replace(self, ranges=tuple(_joined(sorted([*self.ranges, (first, last)]))))

    def offsets(self) -> dict[TopicPartition, tuple[int, str]]:
        """As they are committed."""
        ranges = list(self.ranges)
        while len(note := ",".join(map(_text, ranges))) > NOTE_CHARACTERS_MAX:
            ranges[:2] = [(ranges[0][0], ranges[1][1])]
        return {_PLACE: (0, note)}


def numbers_in(notes: Iterable[str]) -> Numbers:
    """Those that were committed in a group."""
    texts = [text for note in notes for text in note.split(",") if text]
    try:
        return Numbers(ranges=tuple(map(_range, texts)))
    except ValueError as error:
        raise BadValue(f"which writes of a series were made cannot be read: {texts}") from error


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for first, last in ranges:
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


def _text(numbers: tuple[int, int]) -> str:
    first, last = numbers
    return str(first) if first == last else f"{first}-{last}"


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)
