"""What became of the records that a producer noted as acknowledged (P8).

A ledger has a row for each: partition, offset, and the CRC-32 of the value, where no value counts
as an empty one. Each must be on every replica in sync, unless retention or compaction has removed
it by now: neither removes what lies at the end of a log or behind it.
"""

from typing import TYPE_CHECKING, Any, Final

from pyspark import StorageLevel
from pyspark.sql import functions as sql

from tidelog.spark.audit_findings import note_rows
from tidelog.spark.audit_report import Ledger, Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LEDGER_COLUMNS: Final = ("partition", "offset", "checksum")


def check_ledger(
    ledger: "DataFrame", extents: "DataFrame", records: "DataFrame", report: Report
) -> None:
    """`records` are those that count, with the checksums of what they hold."""
    entries = ledger.selectExpr(
        "cast(partition as int) partition",
        "cast(offset as bigint) offset",
        "cast(checksum as bigint) noted",
    )
    places = entries.groupBy("partition", "offset").agg(
        sql.count("*").alias("times"), sql.max("noted").alias("noted")
    )
    judged = _judged(places, extents, records, report).persist(StorageLevel.DISK_ONLY)
    result = report.ledger = Ledger(acknowledged=entries.count())
    by_verdict = judged.groupBy("verdict").agg(
        sql.count_distinct("partition", "offset").alias("places")
    )
    for row in by_verdict.where("verdict != 'kept'").collect():
        setattr(result, row.verdict, row.places)
    for verdict in ("lost", "changed"):
        wrong = judged.where(sql.col("verdict") == verdict)
        note_rows(report, f"acknowledged and {verdict}", wrong, _on_broker)
    twice = places.where("times > 1")
    result.repeated = note_rows(
        report, "acknowledged twice", twice, lambda row: f"{row.times} records have this offset"
    )
    judged.unpersist()


def _judged(
    places: "DataFrame", extents: "DataFrame", records: "DataFrame", report: Report
) -> "DataFrame":
    """Each place on each replica that should hold it, with what was found there."""
    verdict = (
        sql.when(sql.col("broker").isNull() | (sql.col("offset") >= sql.col("end")), "lost")
        .when(sql.col("offset") < sql.col("start"), "aged_out")
        .when(sql.col("checksum") == sql.col("noted"), "kept")
        .when(sql.col("checksum").isNotNull(), "changed")
        .otherwise("compacted" if report.is_compacted else "lost")
    )
    expected = places.join(sql.broadcast(extents.where("is_in_sync")), "partition", "left")
    found = records.select("partition", "broker", "offset", "checksum")
    return expected.join(found, ["partition", "broker", "offset"], "left").select(
        "partition", "broker", "offset", "end", verdict.alias("verdict")
    )


def _on_broker(row: Any) -> str:
    if row.broker is None:
        return "there is no such partition"
    return f"broker {row.broker}" + (f": ends at {row.end}" if row.offset >= row.end else "")
