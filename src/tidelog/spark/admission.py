"""How much of a backlog one micro-batch takes, so that it stays within rows and bytes.

Each partition gives its share of the limit, in proportion to what waits in it, as Spark's own
connector does it: a share below one record is one record, so that a small partition beside huge
ones is read too. Bytes are an estimate, from the average size of what a partition holds.
"""

from collections.abc import Mapping
from fractions import Fraction

from tidelog.base.ids import TopicPartition

Rows = Mapping[TopicPartition, int]
Sizes = Mapping[TopicPartition, float]
"""The bytes that one offset stands for, on average."""


def admit(
    backlog: Rows, *, rows_max: int | None, bytes_max: int | None, sizes: Sizes
) -> dict[TopicPartition, int]:
    """How many records of each partition are taken."""
    share = min(
        _share(rows_max, sum(backlog.values())),
        _share(bytes_max, sum(int(sizes.get(one, 0.0) * rows) for one, rows in backlog.items())),
    )
    return {one: _part(rows, share) for one, rows in backlog.items()}


def _share(limit: int | None, total: int) -> Fraction:
    if limit is None or total <= limit:
        return Fraction(1)
    return Fraction(limit, total)


def _part(rows: int, share: Fraction) -> int:
    return min(rows, max(1, int(rows * share))) if rows > 0 else 0
