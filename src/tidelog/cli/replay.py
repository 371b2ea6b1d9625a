"""`tidelog replay`: a part of a topic, by offsets or time, copied to another one by Spark (P6)."""

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog.base.errors import BadValue, KafkaError
from tidelog.cli.kafka_style import BOOTSTRAP_SERVER, Bootstrap
from tidelog.cli.printing import JsonOption, complain, counted, remark, say, say_json, say_table
from tidelog.cli.progress import ProgressLine
from tidelog.cli.spark_session import Master, Remote, check_place, spark_session
from tidelog.client.client import Client
from tidelog.client.cluster import Topic
from tidelog.client.errors import Unreachable
from tidelog.client.fetching import Range
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.client.places import find_ranges, parse_place
from tidelog.spark.copy_targets import find_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.replaying import Replay

_PROGRESS_SECONDS: Final = 1.0
_WHERE = "An offset, offsets such as 0:12,1:7, a time, earliest or latest"

_KeepPartitions = Annotated[
    bool, typer.Option("--keep-partitions", help="To the same partitions, not where keys belong.")
]
_AllowSame = Annotated[
    bool, typer.Option("--allow-same-topic", help="TOPIC and --into may be the same.")
]


def replay_topic(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Whose records.")],
    start: Annotated[str, typer.Option("--from", metavar="WHERE", help=f"{_WHERE}.")],
    into: Annotated[str, typer.Option(metavar="TOPIC", help="Where they are written to.")],
    end: Annotated[
        str, typer.Option("--to", metavar="WHERE", help="The same; up to, without it.")
    ] = "latest",
    keeps_partitions: _KeepPartitions = False,
    allows_same: _AllowSame = False,
    is_real: Annotated[bool, typer.Option("--execute", help="Copy them.")] = False,
    as_json: JsonOption = False,
    master: Master = None,
    remote: Remote = None,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
) -> None:
    """Copy part of a topic to another one, as a Spark job; without --execute, say what it would be.

    WHERE is an offset (1200, or 0:1200,3:7 by partition), a time (2026-05-01T12:00:00Z, in UTC if
    it does not say otherwise, or 1777636800000ms), earliest or latest; the end is what is there
    now. Keys, values, headers and times are kept. At least once: a task that is run again writes
    its records again.

    \b
    For example:
      tidelog replay orders --from 2026-05-01T12:00:00Z --to 2026-05-01T13:00:00Z --into again
      tidelog replay orders --from 0:1200,1:1170 --into again --keep-partitions --execute
    """
    places = (parse_place("--from", start), parse_place("--to", end))
    if into == topic and not allows_same:
        raise BadValue(f"--into {into}: is the topic itself; --allow-same-topic to add to it")
    if is_real:
        check_place(master, remote)
    with Client(bootstrap) as client:
        source = client.cluster([topic]).topic(topic)
        target = find_target(client, into, partition_count=len(source.partitions))
        found = find_ranges(client, source, *places)
        ranges = tuple(one for one in found if one.start < one.end)
        if keeps_partitions:
            check_partitions(ranges, target)
    if not as_json:
        show(ranges, into)
    copied = None
    if is_real and ranges:
        from tidelog.spark.replaying import Replay

        copied = _copy(
            Replay(
                bootstrap=bootstrap,
                ranges=ranges,
                into=into,
                keeps_partitions=keeps_partitions,
            ),
            master,
            remote,
        )
    _say_outcome(ranges, copied, into, as_json=as_json)


def check_partitions(ranges: tuple[Range, ...], target: Topic) -> None:
    count = len(target.partitions)
    for one in ranges:
        if one.partition >= count:
            raise BadValue(
                f"--keep-partitions: {target.name} has partitions 0 to {count - 1}, and none for "
                f"{one}: tidelog topics alter {target.name} --partitions {one.partition + 1}"
            )


def show(ranges: tuple[Range, ...], into: str) -> None:
    if ranges:
        rows = [(one.partition, one.start, one.end, one.end - one.start) for one in ranges]
        say(f"from {ranges[0].topic} to {into}")
        say_table(("PARTITION", "FROM", "TO", "RECORDS"), rows)


def _say_outcome(
    ranges: tuple[Range, ...], copied: int | None, into: str, *, as_json: bool
) -> None:
    """Offsets that compaction or transactions have used up are not records."""
    most = sum(one.end - one.start for one in ranges)
    if as_json:
        parts = [{"partition": r.partition, "from": r.start, "to": r.end} for r in ranges]
        say_json({"into": into, "ranges": parts, "records_max": most, "copied": copied or 0})
    elif not ranges:
        say("nothing to copy: no records are there")
    elif copied is None:
        say(f"at most {counted(most)} would be copied; nothing was: add --execute to copy them")
    else:
        say(f"{counted(copied)} copied to {into}")


def _copy(replay: "Replay", master: str | None, remote: str | None) -> int:
    # Py4J tells of Ctrl-C with a traceback, wherever messages go that nobody takes.
    logging.getLogger().addHandler(logging.NullHandler())
    name = f"replay of {replay.ranges[0].topic}"
    with spark_session(name, master=master, remote=remote) as spark:
        return run(spark, replay)


def run(spark: "SparkSession", replay: "Replay") -> int:
    """Spark's pages of Java become a sentence."""
    from pyspark.errors import PySparkException

    from tidelog.cli.pipeline_run import cause
    from tidelog.spark.replaying import run_replay

    remark("copying; Ctrl-C ends, and leaves in the topic what was written")
    try:
        with _watched(replay.bootstrap, replay.into):
            return run_replay(spark, replay)
    except KeyboardInterrupt:
        spark.interruptAll()
        complain(f"interrupted: some records may have been written to {replay.into}")
        raise
    except PySparkException as error:
        raise BadValue(
            f"replay to {replay.into}: {cause(str(error))} (some records may have been written)"
        ) from error


@contextmanager
def _watched(bootstrap: str, into: str) -> Iterator[None]:
    """Shows how far the topic has grown; Spark does not say while a job runs."""
    if not sys.stderr.isatty():
        yield
        return
    is_over = threading.Event()
    line = ProgressLine("records written")
    arguments: tuple[Any, ...] = (bootstrap, into, line.tell, is_over)
    watcher = threading.Thread(target=_watch, args=arguments, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
        line.clear()


def _watch(
    bootstrap: str, into: str, tell: Callable[[int], None], is_over: threading.Event
) -> None:
    try:
        with Client(bootstrap) as client:
            partitions = client.cluster([into]).topic(into).partitions
            asked = {one.index: LATEST for one in partitions}
            before = sum(list_offsets(client, into, asked).values())
            while not is_over.wait(_PROGRESS_SECONDS):
                tell(sum(list_offsets(client, into, asked).values()) - before)
    except (KafkaError, Unreachable):
        # The job itself says what is wrong, or gets over it.
        return
