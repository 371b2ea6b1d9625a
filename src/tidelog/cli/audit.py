"""`tidelog audit`: are all replicas of a topic the same, and is all that was acknowledged there?"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.base.errors import BadValue
from tidelog.cli.kafka_style import BOOTSTRAP_SERVER, Bootstrap
from tidelog.cli.printing import JsonOption, remark, say, say_json, say_table
from tidelog.cli.spark_session import Master, Remote, check_place, spark_session
from tidelog.client.client import Client
from tidelog.spark.audited_files import Subject, earliest_offsets, of_cluster, of_log_dirs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelog.spark.audit_report import Report


def audit(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What a producer noted as acknowledged: CSV with partition, offset and checksum "
            "(the CRC-32 of the value).",
        ),
    ] = None,
    log_dirs: Annotated[
        str | None,
        typer.Option(
            metavar="DIR,DIR...",
            help="Read these log dirs, or copies of them, instead of asking a cluster for its own.",
        ),
    ] = None,
    is_compacted: Annotated[
        bool, typer.Option("--compacted", help="With --log-dirs: the topic is compacted.")
    ] = False,
    as_json: JsonOption = False,
    master: Master = None,
    remote: Remote = None,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
) -> None:
    """Compare all replicas of a topic, file by file, as a Spark job.

    From the highest log start to the high watermark the replicas must hold the same batches, in
    order, without a gap, every checksum good; those of a compacted topic the same last value of
    each key. Given a ledger, everything in it must be there, unchanged.

    The files are read where Spark runs: brokers on this machine, or copies of their log dirs. Of
    brokers that run copy replication-offset-checkpoint first and log-start-offset-checkpoint last.
    The status is 0 if all is well and 1 if not.

    \b
    For example:
      tidelog audit orders
      tidelog audit orders --ledger acknowledged.csv
      tidelog audit orders --log-dirs copies/broker-1,copies/broker-2 --json
    """
    check_place(master, remote)
    _check(ledger, log_dirs, is_compacted)
    if log_dirs is not None:
        # Executors run in folders of their own.
        dirs = [str(Path(part).absolute()) for part in log_dirs.split(",") if part]
        subject = of_log_dirs(dirs, topic, is_compacted=is_compacted)
        with _session(subject, master, remote) as spark:
            report = examine(spark, subject, ledger)
    else:
        with Client(bootstrap) as client:
            subject = of_cluster(client, topic)
            with _session(subject, master, remote) as spark:
                report = examine(spark, subject, ledger, client)
    if as_json:
        say_json({**asdict(report), "is_clean": report.is_clean})
    else:
        show(report)
    if not report.is_clean:
        raise typer.Exit(1)


def _check(ledger: Path | None, log_dirs: str | None, is_compacted: bool) -> None:
    if is_compacted and log_dirs is None:
        raise BadValue("--compacted: say which --log-dirs; a cluster knows it by itself")
    if ledger is not None and not ledger.is_file():
        raise BadValue(f"{ledger}: there is no such ledger")


def _session(
    subject: Subject, master: str | None, remote: str | None
) -> AbstractContextManager["SparkSession"]:
    remark(f"reading {sum(len(one.segments()) for one in subject.replicas)} segments...")
    return spark_session(f"audit of {subject.topic}", master=master, remote=remote)


def examine(
    spark: "SparkSession", subject: Subject, ledger: Path | None, client: Client | None = None
) -> "Report":
    """Without a client nobody is asked where the partitions begin by now. Spark's pages of Java
    become a sentence."""
    from pyspark.errors import PySparkException

    from tidelog.cli.pipeline_run import cause
    from tidelog.spark.audit import Audit

    def starts() -> Mapping[int, int]:
        return {} if client is None else earliest_offsets(client, subject)

    try:
        noted = None if ledger is None else read_ledger(spark, ledger, subject.topic)
        return Audit(spark, subject, starts, noted).run()
    except PySparkException as error:
        raise BadValue(f"audit of {subject.topic}: {cause(str(error))}") from error


def read_ledger(spark: "SparkSession", ledger: Path, topic: str) -> "DataFrame":
    """Of one topic, if it names the topics of its records."""
    from tidelog.spark.audit_ledger import LEDGER_COLUMNS

    read = spark.read.csv(str(ledger.absolute()), header=True)
    missing = [name for name in LEDGER_COLUMNS if name not in read.columns]
    if missing:
        raise BadValue(
            f"{ledger}: must be CSV whose first line names partition, offset and checksum; "
            f"{', '.join(missing)} is not there"
        )
    chosen = read.where(read.topic == topic) if "topic" in read.columns else read
    is_bad = " or ".join(f"try_cast({name} as bigint) is null" for name in LEDGER_COLUMNS)
    for row in chosen.where(is_bad).limit(1).collect():
        found = ", ".join(f"{name} {row[name]}" for name in LEDGER_COLUMNS)
        raise BadValue(f"{ledger}: must have whole numbers in each row, and one has {found}")
    # What a producer that was told of no offset notes: such a record cannot be looked for.
    for row in chosen.where("cast(offset as bigint) < 0").limit(1).collect():
        found = f"partition {row.partition}, offset {row.offset}"
        raise BadValue(f"{ledger}: must say where each record is, and one has {found}")
    return chosen


def show(report: "Report") -> None:
    kind = "compacted topic" if report.is_compacted else "topic"
    say(f"{kind} {report.topic}")
    say_table(
        ("PARTITION", "FROM", "TO", "BATCHES", "RECORDS", "BYTES READ", "BROKERS", "NOT IN SYNC"),
        [
            (
                one.partition,
                one.start,
                one.end,
                one.batches,
                one.records,
                one.size,
                ",".join(one.brokers),
                ",".join(one.not_in_sync) or "-",
            )
            for one in report.partitions
        ],
    )
    if report.ledger is not None:
        counts = asdict(report.ledger)
        acknowledged = counts.pop("acknowledged")
        told = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
        say(f"ledger: {acknowledged} acknowledged, of these {told}")
    for finding in report.findings:
        say(str(finding))
    total = sum(report.counts.values())
    if total > len(report.findings):
        say(f"and {total - len(report.findings)} more")
    wrong = ", ".join(f"{count} {kind}" for kind, count in sorted(report.counts.items()))
    say("clean: nothing is wrong" if report.is_clean else f"NOT CLEAN: {wrong}")
