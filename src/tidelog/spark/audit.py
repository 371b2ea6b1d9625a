"""The audit of a topic as a Spark job over the files of all its replicas (P8).

Every batch of every replica is read and checked. From the highest log start to the high
watermark all replicas must hold the same batches, byte for byte, without a gap; compacted ones
the same last value of every key, and the same record at every offset that two of them hold (R6).
No producer's batch may be there twice. With a ledger, what a producer noted as acknowledged must
be there too, unchanged. What retention removes meanwhile is not missed.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark import StorageLevel
from pyspark.sql import functions as sql

from tidelog.base.errors import BadValue
from tidelog.spark.audit_report import Audited, Finding, Ledger, Report
from tidelog.spark.audit_scan import BATCHES, RECORDS, TASKS, VANISHED, scan_batches, scan_records
from tidelog.spark.audited_files import Subject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHOWN_MAX: Final = 20
LEDGER_COLUMNS: Final = ("partition", "offset", "checksum")
_TRIES: Final = 3
_SAME: Final = ("next_offset", "leader_epoch", "size", "crc", "records")

Starts = Callable[[], Mapping[int, int]]


class Audit:
    """One run. `starts` tells where the partitions begin by now, and is asked once all was read."""

    def __init__(
        self,
        spark: "SparkSession",
        subject: Subject,
        starts: Starts | None = None,
        ledger: "DataFrame | None" = None,
    ) -> None:
        self._spark = spark
        self._subject = subject
        self._starts = starts or dict
        self._ledger = ledger
        self._report = Report(topic=subject.topic, is_compacted=subject.is_compacted)

    def run(self) -> Report:
        batches = self._scanned()
        bounded = self._bounded(batches)
        good = bounded.where("problem is null and next_offset > start")
        self._damage(bounded)
        self._totals(good)
        self._repeats(good)
        if self._subject.is_compacted:
            self._compare_keys()
        else:
            self._compare_batches(good)
        if self._ledger is not None:
            self._check_ledger(self._ledger)
        batches.unpersist()
        return self._report

    # -- reading

    def _tasks(self) -> "DataFrame":
        rows = [
            (replica.partition, replica.broker, base, replica.path(base))
            for replica in self._subject.replicas
            for base in replica.segments()
        ]
        return self._spark.createDataFrame(rows, TASKS).repartition(max(1, len(rows)))

    def _scanned(self) -> "DataFrame":
        """All batches. A cleaner replaces files by others: then a listing is out of date, and is
        made again."""
        for _ in range(_TRIES):
            tasks = self._tasks()
            found = tasks.mapInArrow(scan_batches, BATCHES).persist(StorageLevel.DISK_ONLY)
            self._records = tasks.mapInArrow(scan_records, RECORDS)
            vanished = found.where(sql.col("problem").endswith(VANISHED))
            if not self._subject.is_compacted or vanished.isEmpty():
                return found
        raise BadValue(f"topic {self._subject.topic}: it is being compacted; try again in a while")

    def _bounded(self, batches: "DataFrame") -> "DataFrame":
        """What counts, with the bounds of its partition: where it begins now that all was read,
        up to where it was committed before anything was."""
        batches.count()
        starts = dict(self._subject.log_starts())
        for partition, start in self._starts().items():
            starts[partition] = max(starts[partition], start)
        self._rows = [
            (
                partition,
                starts[partition],
                self._subject.high_watermarks[partition],
                replica.broker,
                replica.is_in_sync,
            )
            for partition in self._subject.partitions
            for replica in self._subject.replicas_of(partition)
        ]
        schema = "partition int, start bigint, end bigint, broker string, is_in_sync boolean"
        self._bounds = self._spark.createDataFrame(self._rows, schema)
        joined = batches.join(sql.broadcast(self._bounds), ["partition", "broker"])
        return joined.where("is_in_sync and base_offset < end")

    # -- each replica

    def _damage(self, bounded: "DataFrame") -> None:
        wrong = bounded.where("problem is not null and base_offset >= start")
        self._find("damage", wrong, lambda row: f"broker {row.broker}: {row.problem}")

    def _totals(self, good: "DataFrame") -> None:
        """What there is of each replica, and whether it is all there should be."""
        found = {
            (row.partition, row.broker): row
            for row in good.groupBy("partition", "broker")
            .agg(
                sql.min("base_offset").alias("first"),
                sql.max("next_offset").alias("last"),
                sql.sum(sql.col("next_offset") - sql.col("base_offset")).alias("offsets"),
                sql.count("*").alias("batches"),
                sql.sum("records").alias("records"),
                sql.sum("size").alias("size"),
            )
            .collect()
        }
        for partition in self._subject.partitions:
            self._audited(partition, found)
        for partition, start, end, broker, is_in_sync in self._rows:
            if is_in_sync and start < end:
                self._check_extent((partition, start, end, broker), found, good)

    def _audited(self, partition: int, found: Mapping[tuple[int, str], Any]) -> None:
        rows = [row for row in self._rows if row[0] == partition]
        here = [found[partition, row[3]] for row in rows if (partition, row[3]) in found]
        self._report.partitions.append(
            Audited(
                partition=partition,
                start=rows[0][1],
                end=rows[0][2],
                brokers=tuple(row[3] for row in rows if row[4]),
                not_in_sync=tuple(row[3] for row in rows if not row[4]),
                batches=max((row.batches for row in here), default=0),
                records=max((row.records for row in here), default=0),
                size=sum(row.size for row in here),
            )
        )

    def _check_extent(
        self, bounds: tuple[int, int, int, str], found: Mapping[Any, Any], good: "DataFrame"
    ) -> None:
        partition, start, end, broker = bounds
        row = found.get((partition, broker))
        last = start if row is None else row.last
        if last < end:
            what = f"broker {broker}: ends here, below the high watermark {end}"
            self._note(Finding(kind="behind", partition=partition, offset=last, what=what))
        if row is None or self._subject.is_compacted:
            return
        if row.first > start:
            what = f"broker {broker}: begins only at {row.first}"
            self._note(Finding(kind="gap", partition=partition, offset=start, what=what))
        if row.offsets != row.last - row.first:
            self._locate(good.where(sql.col("partition") == partition), broker)

    def _locate(self, good: "DataFrame", broker: str) -> None:
        """Where a replica's batches do not follow one another."""
        order = "over (partition by broker order by base_offset)"
        followed = good.where(sql.col("broker") == broker).selectExpr(
            "*", f"lag(next_offset) {order} as expected"
        )
        gaps = followed.where("base_offset > expected").withColumn(
            "base_offset", sql.col("expected")
        )
        self._find("gap", gaps, lambda row: f"broker {row.broker}: the next batch is further on")
        overlaps = followed.where("base_offset < expected")
        self._find("offset used twice", overlaps, lambda row: f"broker {row.broker}")

    def _repeats(self, good: "DataFrame") -> None:
        """A batch that an idempotent producer sent once must not be there twice (A3)."""
        same = ["partition", "broker", "producer_id", "producer_epoch", "base_sequence"]
        twice = (
            good.where("producer_id >= 0 and base_sequence >= 0")
            .groupBy(*same)
            .agg(sql.count("*").alias("times"), sql.max("base_offset").alias("base_offset"))
            .where("times > 1")
        )
        self._find(
            "duplicate",
            twice,
            lambda row: (
                f"broker {row.broker}: producer {row.producer_id} epoch "
                f"{row.producer_epoch} sequence {row.base_sequence} is there {row.times} times"
            ),
        )

    # -- replicas with one another

    def _compare_batches(self, good: "DataFrame") -> None:
        counts = (
            self._bounds.where("is_in_sync").groupBy("partition").agg(sql.count("*").alias("of"))
        )
        same = sql.struct(*_SAME)
        differing = (
            good.where("base_offset >= start")
            .groupBy("partition", "base_offset")
            .agg(
                sql.collect_set("broker").alias("brokers"),
                sql.count("*").alias("times"),
                sql.min(same).alias("least"),
                sql.max(same).alias("most"),
            )
            .join(sql.broadcast(counts), "partition")
            .where("times != of or least != most")
        )
        self._find("replicas differ", differing, _difference)

    def _compare_keys(self) -> None:
        records = self._counted_records()
        offsets = (
            records.groupBy("partition", sql.col("offset").alias("base_offset"))
            .agg(
                sql.collect_set("digest").alias("digests"),
                sql.collect_set("broker").alias("brokers"),
            )
            .where("size(digests) > 1")
        )
        self._find("replicas differ", offsets, lambda row: f"brokers {_named(row.brokers)}")
        counts = (
            self._bounds.where("is_in_sync").groupBy("partition").agg(sql.count("*").alias("of"))
        )
        last = records.groupBy("partition", "broker", "key").agg(
            sql.max(sql.struct("offset", "value", "digest")).alias("last")
        )
        # A tombstone may be gone from one replica and not yet from another.
        differing = (
            last.where("last.value is not null")
            .groupBy("partition", "key")
            .agg(
                sql.collect_set("broker").alias("brokers"),
                sql.count("*").alias("times"),
                sql.min("last.digest").alias("least"),
                sql.max("last.digest").alias("most"),
                sql.max("last.offset").alias("base_offset"),
            )
            .join(sql.broadcast(counts), "partition")
            .where("times != of or least != most")
        )
        self._find("last value differs", differing, _difference)

    def _counted_records(self) -> "DataFrame":
        return (
            self._records.join(sql.broadcast(self._bounds), ["partition", "broker"])
            .where("is_in_sync and offset >= start and offset < end")
            .withColumn("digest", sql.xxhash64("offset", "key", "value"))
        )

    # -- what was acknowledged

    def _check_ledger(self, ledger: "DataFrame") -> None:
        known = ledger.selectExpr(
            "cast(partition as int) partition",
            "cast(offset as bigint) offset",
            "cast(checksum as bigint) checksum",
        )
        result = self._report.ledger = Ledger()
        entries = known.groupBy("partition", "offset").agg(
            sql.count("*").alias("times"), sql.max("checksum").alias("checksum")
        )
        bounds = self._bounds.where("is_in_sync")
        expected = entries.join(sql.broadcast(bounds), "partition", "left")
        records = self._counted_records().select(
            "partition", "broker", "offset", sql.crc32("value").alias("found")
        )
        verdict = (
            sql.when(sql.col("offset") < sql.col("start"), "aged_out")
            .when(sql.col("found") == sql.col("checksum"), "kept")
            .when(sql.col("found").isNotNull(), "changed")
            .otherwise("compacted" if self._subject.is_compacted else "lost")
        )
        judged = (
            expected.join(records, ["partition", "broker", "offset"], "left")
            .withColumn("verdict", verdict)
            .withColumnRenamed("offset", "base_offset")
            .persist(StorageLevel.DISK_ONLY)
        )
        for row in (
            judged.groupBy("verdict")
            .agg(sql.count_distinct("partition", "base_offset").alias("count"))
            .collect()
        ):
            if row.verdict != "kept":
                setattr(result, row.verdict, row["count"])
        result.acknowledged = known.count()
        if result.lost:
            self._find("acknowledged and lost", judged.where("verdict = 'lost'"), _on_broker)
        if result.changed:
            self._find("acknowledged and changed", judged.where("verdict = 'changed'"), _on_broker)
        repeated = entries.where("times > 1").withColumnRenamed("offset", "base_offset")
        result.repeated = self._find(
            "acknowledged twice", repeated, lambda row: f"{row.times} records have this offset"
        )
        judged.unpersist()

    # -- findings

    def _find(self, kind: str, rows: "DataFrame", what: Callable[[Any], str]) -> int:
        """Notes the first of what is wrong, and how many there are."""
        shown = rows.orderBy("partition", "base_offset").limit(SHOWN_MAX).collect()
        count = rows.count() if len(shown) == SHOWN_MAX else len(shown)
        if count:
            self._report.counts[kind] = self._report.counts.get(kind, 0) + count
            self._report.findings += [
                Finding(kind=kind, partition=row.partition, offset=row.base_offset, what=what(row))
                for row in shown
            ]
        return count

    def _note(self, finding: Finding) -> None:
        self._report.findings.append(finding)
        self._report.counts[finding.kind] = self._report.counts.get(finding.kind, 0) + 1


def _difference(row: Any) -> str:
    if row.times < row.of:
        return f"only brokers {_named(row.brokers)} have it"
    return f"not the same on brokers {_named(row.brokers)}"


def _named(brokers: list[str]) -> str:
    return ", ".join(sorted(brokers))


def _on_broker(row: Any) -> str:
    return f"broker {row.broker}" if row.broker is not None else "there is no such partition"
