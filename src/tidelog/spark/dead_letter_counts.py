"""Dead letters counted by what they have in common, however many there are: how many, when they
were written first and last, and how often the worst of them has failed.

Reasons may quote the record that did not decode, and so all be different; then the most that are
kept apart is `GROUPS_MAX`, and the others are counted together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

GROUPS_MAX: Final = 1_000
REASON_LENGTH_MAX: Final = 300
OTHERS: Final = "(others)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    group: tuple[str | None, ...]
    """A text for each column that was counted by."""
    records: int
    first_ms: int
    last_ms: int
    attempt_max: int | None


class Counts:
    def __init__(self, by: Sequence[str]) -> None:
        """Columns of text."""
        self._by = list(by)
        self._counts: dict[tuple[str | None, ...], Count] = {}

    def add(self, letters: pa.RecordBatch) -> None:
        columns: dict[str, Any] = {name: _shortened(letters.column(name)) for name in self._by}
        columns |= {name: letters.column(name) for name in ("timestamp", "attempt")}
        grouped = pa.table(columns).group_by(self._by, use_threads=False)
        wanted = [("timestamp", kind) for kind in ("count", "min", "max")]
        for row in grouped.aggregate([*wanted, ("attempt", "max")]).to_pylist():
            self._merge(
                Count(
                    group=tuple(row[name] for name in self._by),
                    records=row["timestamp_count"],
                    first_ms=row["timestamp_min"],
                    last_ms=row["timestamp_max"],
                    attempt_max=row["attempt_max"],
                )
            )

    def sorted(self) -> list[Count]:
        """The most frequent first."""
        return sorted(
            self._counts.values(),
            key=lambda count: (-count.records, [(t is None, t or "") for t in count.group]),
        )

    @property
    def records(self) -> int:
        return sum(count.records for count in self._counts.values())

    def _merge(self, new: Count) -> None:
        group = new.group
        if group not in self._counts and len(self._counts) >= GROUPS_MAX:
            group = (OTHERS,) * len(self._by)
        old = self._counts.get(group, new)
        is_first = group not in self._counts
        attempts = [one for one in (old.attempt_max, new.attempt_max) if one is not None]
        self._counts[group] = Count(
            group=group,
            records=new.records + (0 if is_first else old.records),
            first_ms=min(old.first_ms, new.first_ms),
            last_ms=max(old.last_ms, new.last_ms),
            attempt_max=max(attempts, default=None),
        )


def _shortened(column: Any) -> Any:
    return pc.utf8_slice_codeunits(column, 0, REASON_LENGTH_MAX)
