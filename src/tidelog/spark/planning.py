"""Ranges of offsets cut into tasks: enough of them, and none too long.

How often a range is cut depends on what it weighs, in bytes where the brokers tell sizes and in
records where they do not; where it is cut depends on nothing but its ends and the number of pieces,
so that the same plan always gives the same tasks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from tidelog.base.ids import TopicPartition
from tidelog.spark.admission import Sizes
from tidelog.spark.offsets import Planned
from tidelog.spark.options import Splitting


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Offsets of one partition, before `end`."""

    start: int
    end: int

    @property
    def rows(self) -> int:
        return max(0, self.end - self.start)


Spans = Mapping[TopicPartition, Span]


def count_tasks(spans: Spans, splitting: Splitting, sizes: Sizes) -> dict[TopicPartition, int]:
    """In how many tasks each partition is read that has anything to read."""
    filled = {one: span for one, span in spans.items() if span.rows}
    counts = {one: _pieces(span, splitting, sizes.get(one)) for one, span in filled.items()}
    wanted = splitting.tasks_min or 0
    if sum(counts.values()) >= wanted:
        return counts
    weights = _weights(filled, sizes)
    total = sum(weights.values())
    # What is below a fair share is one task; the heavier ones have the others among them.
    heavy = {one: weight for one, weight in weights.items() if weight * wanted >= total}
    left = wanted - sum(counts[one] for one in counts if one not in heavy)
    for one, weight in heavy.items():
        # A half counts as one more, so that partitions of one size do not miss the number wanted.
        fair = int(weight / sum(heavy.values()) * left + 0.5)
        counts[one] = min(filled[one].rows, max(counts[one], fair))
    return counts


def _pieces(span: Span, splitting: Splitting, size: float | None) -> int:
    pieces = 1
    if splitting.rows_max is not None:
        pieces = -(-span.rows // splitting.rows_max)
    if splitting.bytes_max is not None and size is not None:
        pieces = max(pieces, -(-int(span.rows * size) // splitting.bytes_max))
    return min(pieces, span.rows)


def _weights(spans: Spans, sizes: Sizes) -> dict[TopicPartition, float]:
    """In bytes if they are known of all, otherwise in records."""
    if all(one in sizes for one in spans):
        return {one: span.rows * max(sizes[one], 1e-9) for one, span in spans.items()}
    return {one: float(span.rows) for one, span in spans.items()}


def cut(span: Span, pieces: int) -> list[Span]:
    """Pieces that differ by one record at most, none of them empty."""
    pieces = max(1, min(pieces, span.rows))
    ends = [span.start + span.rows * piece // pieces for piece in range(pieces + 1)]
    return [Span(start=start, end=end) for start, end in pairwise(ends) if start < end]


def spans_of(planned: Planned) -> dict[TopicPartition, Span]:
    """Sorted; where a partition has no start it is a mistake of ours."""
    return {
        TopicPartition(topic, partition): Span(
            start=planned.start[topic].offsets[partition], end=end
        )
        for topic in sorted(planned.end)
        for partition, end in sorted(planned.end[topic].offsets.items())
    }
