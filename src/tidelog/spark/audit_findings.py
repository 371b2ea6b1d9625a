"""From rows that say what is wrong to the findings of a report: the first few, and how many."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tidelog.spark.audit_report import Finding, Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHOWN_MAX: Final = 20


def note_rows(report: Report, kind: str, rows: "DataFrame", what: Callable[[Any], str]) -> int:
    """Notes rows, which have a partition and an offset; returns how many there are."""
    shown = rows.orderBy("partition", "offset").limit(SHOWN_MAX).collect()
    count = rows.count() if len(shown) == SHOWN_MAX else len(shown)
    if count:
        report.counts[kind] = report.counts.get(kind, 0) + count
        report.findings += [
            Finding(kind=kind, partition=row.partition, offset=row.offset, what=what(row))
            for row in shown
        ]
    return count


def on_broker(row: Any) -> str:
    return f"broker {row.broker}"


def named(brokers: list[str]) -> str:
    return ", ".join(sorted(brokers))
