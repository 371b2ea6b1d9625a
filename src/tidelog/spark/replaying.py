"""A part of a topic copied to another one, as a bounded batch job of Spark: source to sink.

Keys, values, headers and times go over as they are, but nothing that was aborted. Each partition
is read by one task, in order; a task that Spark runs again writes its records again: at least once.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sql

from tidelog.client.fetching import Range
from tidelog.spark.sink_options import REQUEST_BYTES_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COUNT: Final = "records"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    bootstrap: str
    ranges: tuple[Range, ...]
    """Of one topic, at least one, and none of them empty."""
    into: str
    keeps_partitions: bool


def run_replay(spark: "SparkSession", replay: Replay) -> int:
    """How many records were copied."""
    from pyspark.sql import Observation

    counted = Observation()
    rows = _read(spark, replay).observe(counted, sql.count(sql.lit(1)).alias(_COUNT))
    writer = rows.write.format("tidelog").option("kafka.bootstrap.servers", replay.bootstrap)
    writer = writer.option("topic", replay.into)
    # How large a record may be is for the topic to say that it goes to.
    writer.option("kafka.max.request.size", REQUEST_BYTES_MAX).mode("append").save()
    return int(counted.get[_COUNT])


def _read(spark: "SparkSession", replay: Replay) -> "DataFrame":
    topic = replay.ranges[0].topic
    starts = {str(one.partition): one.start for one in replay.ranges}
    ends = {str(one.partition): one.end for one in replay.ranges}
    rows = (
        spark.read.format("tidelog")
        .option("kafka.bootstrap.servers", replay.bootstrap)
        .option("assign", json.dumps({topic: [one.partition for one in replay.ranges]}))
        .option("startingOffsets", json.dumps({topic: starts}))
        .option("endingOffsets", json.dumps({topic: ends}))
        .option("includeHeaders", "true")
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
    # A record without a time has one before 1970; the sink gives the present one to a null.
    own_time = sql.when(sql.unix_millis("timestamp") >= 0, sql.col("timestamp"))
    kept = ["key", "value", "headers", *(["partition"] if replay.keeps_partitions else [])]
    return rows.select(*kept, own_time.alias("timestamp"))
