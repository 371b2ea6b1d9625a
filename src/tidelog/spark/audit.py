"""The audit of a topic as a Spark job over the files of all its replicas (P8).

Every batch of every replica is read and checked. From the highest log start to the high
watermark all replicas must hold the same batches, byte for byte, without a gap; compacted ones
the same last value of every key, and the same record at every offset that two of them hold (R6).
No producer's batch may be there twice. With a ledger, what a producer noted as acknowledged must
be there too, unchanged. What retention removes meanwhile is not missed, nor what a cleaner removes
because something newer has come.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import functions as sql

from tidelog.base.errors import BadValue
from tidelog.spark.audit_findings import named, note_rows, on_broker
from tidelog.spark.audit_ledger import check_ledger
from tidelog.spark.audit_report import Audited, Finding, Report
from tidelog.spark.audit_scan import BATCHES, RECORDS, TASKS, VANISHED, scan_batches, scan_records
from tidelog.spark.audited_files import Subject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TRIES: Final = 3
_SEQUENCES: Final = 1 << 31
_SAME: Final = ("next_offset", "leader_epoch", "size", "crc", "records")
_EXTENTS: Final = "partition int, broker string, start bigint, end bigint, is_in_sync boolean"
_RECORDS: Final = (
    "partition",
    "broker",
    "offset",
    "key",
    "problem",
    "is_aborted",
    "value is null as is_tombstone",
    "crc32(coalesce(value, X'')) as checksum",
    "xxhash64(offset, timestamp, timestamp_type, key is null, key, value, headers) as digest",
)
"""What is kept of records while they are compared: not their values. A hash passes over nulls, so
it is told whether the key is one."""

_VANISHED: Final = f"problem like '%{VANISHED}'"

Starts = Callable[[], Mapping[int, int]]


class Extent(NamedTuple):
    """What of a replica counts: from where its partition begins now that all was read, up to where
    it was committed before anything was."""

    partition: int
    broker: str
    start: int
    end: int
    is_in_sync: bool


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
        batches, records = self._scanned()
        extents = self._extents()
        bounds = self._spark.createDataFrame(extents, _EXTENTS)
        bounded = _within(batches, bounds)
        good = bounded.where("problem is null and next_offset > start")
        counted = _within(records, bounds).where("offset >= start")
        sound = counted.where("problem is null")
        self._damage(bounded.where("offset >= start"))
        self._damage(counted)
        self._totals(good, extents, batches)
        self._repeats(good)
        if self._subject.is_compacted:
            self._compare_keys(sound, bounds, _renewed(records, bounds))
        else:
            self._compare_batches(good, bounds)
        if self._ledger is not None:
            check_ledger(self._ledger, bounds, sound, self._report)
        batches.unpersist()
        records.unpersist()
        return self._report

    # -- reading

    def _scanned(self) -> "tuple[DataFrame, DataFrame]":
        """All batches, and all records if they are needed. A cleaner replaces files by others:
        then a listing is out of date, and is made again."""
        for _ in range(_TRIES):
            tasks = self._tasks()
            batches = tasks.mapInArrow(scan_batches, BATCHES)
            batches = batches.withColumnRenamed("base_offset", "offset")
            batches = batches.persist(StorageLevel.DISK_ONLY)
            needs_records = self._subject.is_compacted or self._ledger is not None
            read = tasks if needs_records else tasks.where("false")
            records = read.mapInArrow(scan_records, RECORDS).selectExpr(*_RECORDS)
            records = records.persist(StorageLevel.DISK_ONLY)
            gone = sum(found.where(_VANISHED).count() for found in (batches, records))
            if not gone or not self._subject.is_compacted:
                return batches, records
            batches.unpersist()
            records.unpersist()
        raise BadValue(f"topic {self._subject.topic}: it is being compacted; try again in a while")

    def _tasks(self) -> "DataFrame":
        rows = [
            (replica.partition, replica.broker, base, replica.path(base))
            for replica in self._subject.replicas
            for base in replica.segments()
        ]
        return self._spark.createDataFrame(rows, TASKS).repartition(max(1, len(rows)))

    def _extents(self) -> list[Extent]:
        starts = dict(self._subject.log_starts())
        for partition, start in self._starts().items():
            starts[partition] = max(starts[partition], start)
        ends = self._subject.high_watermarks
        return [
            Extent(
                partition, replica.broker, starts[partition], ends[partition], replica.is_in_sync
            )
            for partition in self._subject.partitions
            for replica in self._subject.replicas_of(partition)
        ]

    # -- each replica

    def _damage(self, rows: "DataFrame") -> None:
        wrong = rows.where("problem is not null")
        note_rows(self._report, "damage", wrong, lambda row: f"broker {row.broker}: {row.problem}")

    def _totals(self, good: "DataFrame", extents: list[Extent], batches: "DataFrame") -> None:
        """What there is of each replica, and whether it is all there should be."""
        found = {
            (row.partition, row.broker): row
            for row in good.groupBy("partition", "broker")
            .agg(
                sql.min("offset").alias("first"),
                sql.max("next_offset").alias("last"),
                sql.sum(sql.col("next_offset") - sql.col("offset")).alias("offsets"),
                sql.count("*").alias("batches"),
                sql.sum("records").alias("records"),
                sql.sum("size").alias("size"),
            )
            .collect()
        }
        for partition in self._subject.partitions:
            self._audited([extent for extent in extents if extent.partition == partition], found)
        for extent in extents:
            if extent.is_in_sync and extent.start < extent.end:
                row = found.get((extent.partition, extent.broker))
                self._check_extent(extent, row, good, batches)

    def _audited(self, extents: list[Extent], found: Mapping[tuple[int, str], Any]) -> None:
        """Notes what there is of a partition; all its replicas have the same bounds."""
        first = extents[0]
        places = [(extent.partition, extent.broker) for extent in extents]
        here = [found[place] for place in places if place in found]
        self._report.partitions.append(
            Audited(
                partition=first.partition,
                start=first.start,
                end=first.end,
                brokers=tuple(extent.broker for extent in extents if extent.is_in_sync),
                not_in_sync=tuple(extent.broker for extent in extents if not extent.is_in_sync),
                batches=max((row.batches for row in here), default=0),
                records=max((row.records for row in here), default=0),
                size=sum(row.size for row in here),
            )
        )

    def _check_extent(
        self, extent: Extent, row: Any, good: "DataFrame", batches: "DataFrame"
    ) -> None:
        """`row` is what there is of the replica, None if there is nothing."""
        last = extent.start if row is None else row.last
        if last < extent.end and not self._goes_on(extent, batches):
            what = f"ends here, below the high watermark {extent.end}"
            self._note("behind", extent, last, what)
        if row is None or self._subject.is_compacted:
            return
        if row.first > extent.start:
            self._note("gap", extent, extent.start, f"begins only at {row.first}")
        if row.offsets != row.last - row.first:
            replica = good.where(
                (sql.col("partition") == extent.partition) & (sql.col("broker") == extent.broker)
            )
            self._locate(replica)

    def _goes_on(self, extent: Extent, batches: "DataFrame") -> bool:
        """Whether it has something further on: then a cleaner has removed what was last."""
        further = batches.where("problem is null").where(
            (sql.col("partition") == extent.partition)
            & (sql.col("broker") == extent.broker)
            & (sql.col("offset") >= extent.end)
        )
        return self._subject.is_compacted and bool(further.limit(1).collect())

    def _locate(self, replica: "DataFrame") -> None:
        """Where a replica's batches do not follow one another."""
        followed = replica.selectExpr(
            "partition", "broker", "offset", "lag(next_offset) over (order by offset) as expected"
        )
        gaps = followed.where("offset > expected").selectExpr(
            "partition", "broker", "expected as offset"
        )
        note_rows(self._report, "gap", gaps, _further_on)
        overlaps = followed.where("offset < expected")
        note_rows(self._report, "offset used twice", overlaps, on_broker)

    def _repeats(self, good: "DataFrame") -> None:
        """A batch that an idempotent producer sent once must not be there twice (A3). It numbers
        its records, from 0 on again when it runs out of numbers: by then as many have gone by. What
        a cleaner has replaced meanwhile may have been read where it was and where it is."""
        same = ["partition", "broker", "producer_id", "producer_epoch", "base_sequence"]
        twice = (
            good.where("producer_id >= 0 and base_sequence >= 0")
            .groupBy(*same)
            .agg(
                sql.count_distinct("offset").alias("times"),
                sql.min("offset").alias("first"),
                sql.max("offset").alias("offset"),
            )
            .where(f"times > 1 + floor((offset - first) / {_SEQUENCES})")
        )
        note_rows(self._report, "duplicate", twice, _repeat)

    # -- replicas with one another

    def _compare_batches(self, good: "DataFrame", bounds: "DataFrame") -> None:
        same = sql.struct(*_SAME)
        compared = (
            good.where("offset >= start")
            .groupBy("partition", "offset")
            .agg(
                sql.collect_set("broker").alias("brokers"),
                sql.count("*").alias("times"),
                sql.min(same).alias("least"),
                sql.max(same).alias("most"),
            )
        )
        note_rows(self._report, "replicas differ", _differing(compared, bounds), _difference)

    def _compare_keys(
        self, records: "DataFrame", bounds: "DataFrame", renewed: "DataFrame"
    ) -> None:
        at_one_offset = (
            records.groupBy("partition", "offset")
            .agg(
                sql.collect_set("digest").alias("digests"),
                sql.collect_set("broker").alias("brokers"),
            )
            .where("size(digests) > 1")
        )
        note_rows(self._report, "replicas differ", at_one_offset, _on_brokers)
        # What was aborted is nobody's last value, and a cleaner removes it.
        last = (
            records.where("not is_aborted")
            .groupBy("partition", "broker", "key")
            .agg(sql.max(sql.struct("offset", "is_tombstone", "digest")).alias("last"))
        )
        # A tombstone may be gone from one replica and not yet from another.
        compared = (
            last.where("not last.is_tombstone")
            .groupBy("partition", "key")
            .agg(
                sql.collect_set("broker").alias("brokers"),
                sql.count("*").alias("times"),
                sql.min("last.digest").alias("least"),
                sql.max("last.digest").alias("most"),
                sql.max("last.offset").alias("offset"),
            )
        )
        differing = _differing(compared, bounds).join(renewed, ["partition", "key"], "left_anti")
        note_rows(self._report, "last value differs", differing, _difference)

    def _note(self, kind: str, extent: Extent, offset: int, what: str) -> None:
        what = f"broker {extent.broker}: {what}"
        finding = Finding(kind=kind, partition=extent.partition, offset=offset, what=what)
        self._report.findings.append(finding)
        self._report.counts[kind] = self._report.counts.get(kind, 0) + 1


def _within(rows: "DataFrame", bounds: "DataFrame") -> "DataFrame":
    """What is committed, of replicas in sync."""
    joined = rows.join(sql.broadcast(bounds), ["partition", "broker"])
    return joined.where("is_in_sync and offset < end")


def _renewed(records: "DataFrame", bounds: "DataFrame") -> "DataFrame":
    """Keys that got another value after it was asked up to where all is committed: what they had
    before, replicas that were cleaned since do not have any more."""
    joined = records.join(sql.broadcast(bounds), ["partition", "broker"])
    newer = joined.where("is_in_sync and offset >= end and problem is null and not is_aborted")
    return newer.select("partition", "key").distinct()


def _differing(compared: "DataFrame", bounds: "DataFrame") -> "DataFrame":
    """Of what was brought together from all replicas: where one lacks it, or has another."""
    counts = bounds.where("is_in_sync").groupBy("partition").agg(sql.count("*").alias("of"))
    joined = compared.join(sql.broadcast(counts), "partition")
    return joined.where("times != of or least != most")


def _further_on(row: Any) -> str:
    return f"broker {row.broker}: the next batch is further on"


def _repeat(row: Any) -> str:
    return (
        f"broker {row.broker}: producer {row.producer_id} epoch {row.producer_epoch} sequence "
        f"{row.base_sequence} is there {row.times} times"
    )


def _difference(row: Any) -> str:
    if row.times < row.of:
        return f"only brokers {named(row.brokers)} have it"
    return f"not the same on brokers {named(row.brokers)}"


def _on_brokers(row: Any) -> str:
    return f"brokers {named(row.brokers)}"
