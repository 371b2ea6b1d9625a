"""A Spark session in a process of its own that works on request: a line of JSON in, one out.

`python -m bench.spark.session '{"spark.jars": ...}'` runs with our PySpark, and as well with the
older one that Spark's Kafka connector is published for, so that nothing but PySpark is imported
here. A job is timed from the first mention of the topic to the end of the action, planning
included.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

Job = dict[str, Any]

ALL_COLUMNS = (
    "count(1)",
    "sum(octet_length(key))",
    "sum(octet_length(value))",
    "sum(octet_length(topic))",
    "sum(partition)",
    "max(offset)",
    "max(timestamp)",
    "sum(timestampType)",
)
"""So that each of the seven columns is needed."""
_POLL_SECONDS = 0.005
_FIRST_BATCH_SECONDS_MAX = 120


def new_session(settings: dict[str, str]) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("bench")
    defaults = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
    }
    for name, value in {**defaults, **settings}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def load(spark: SparkSession, job: Job) -> DataFrame:
    source = job["source"]
    return spark.read.format(source["format"]).options(**source["options"]).load()


def save(rows: DataFrame, job: Job) -> None:
    sink = job["sink"]
    rows.write.format(sink["format"]).options(**sink["options"]).mode(sink["mode"]).save()


def aggregate(spark: SparkSession, job: Job) -> int:
    found = load(spark, job).selectExpr(*ALL_COLUMNS).collect()
    return int(found[0][0])


def copy(spark: SparkSession, job: Job) -> int:
    """All columns, into files or another topic."""
    rows = load(spark, job)
    save(rows.select("key", "value") if job["as_records"] else rows, job)
    return int(job["rows"])


def write(spark: SparkSession, job: Job) -> int:
    made = spark.range(0, job["rows"], 1, 2).selectExpr(
        "cast(lpad(cast(id as string), 16, '0') as binary) as key",
        f"cast(rpad(cast(id as string), {job['value_bytes']}, 'x') as binary) as value",
    )
    save(made, job)
    return int(job["rows"])


def first_batch(spark: SparkSession, job: Job) -> int:
    """From the start of a streaming query to the end of its first batch."""
    source = job["source"]
    rows = spark.readStream.format(source["format"]).options(**source["options"]).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", job["checkpoint"]).start()
    deadline = time.monotonic() + _FIRST_BATCH_SECONDS_MAX
    progress = query.lastProgress
    while progress is None or not progress["numInputRows"]:
        if not query.isActive or time.monotonic() > deadline:
            raise RuntimeError(f"no batch came: {query.exception()}")
        time.sleep(_POLL_SECONDS)
        progress = query.lastProgress
    # Stopping it belongs to nobody's first batch.
    job["ended"] = time.perf_counter()
    query.stop()
    return int(progress["numInputRows"])


def stream(spark: SparkSession, job: Job) -> int:
    """From the start of a streaming query until it has read all that was there, stop included."""
    source, sink = job["source"], job["sink"]
    rows = spark.readStream.format(source["format"]).options(**source["options"]).load()
    writing = rows.select("key", "value").writeStream.format(sink["format"])
    options = {**sink["options"], "checkpointLocation": job["checkpoint"]}
    query = writing.options(**options).trigger(availableNow=True).start()
    query.awaitTermination()
    return int(job["rows"])


JOBS: dict[str, Callable[[SparkSession, Job], int]] = {
    "aggregate": aggregate,
    "copy": copy,
    "write": write,
    "first_batch": first_batch,
    "stream": stream,
}


def done(spark: SparkSession, job: Job) -> dict[str, Any]:
    began = time.perf_counter()
    try:
        rows = JOBS[job["do"]](spark, job)
    except Exception as error:
        # Whoever asked for it says what could not be measured, and goes on with the next.
        return {"error": f"{job['do']}: {type(error).__name__}: {str(error)[:2000]}"}
    return {"rows": rows, "seconds": job.get("ended", time.perf_counter()) - began}


def main(settings: dict[str, str]) -> None:
    # Answers have standard output for themselves; whatever Spark prints goes elsewhere.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark = new_session(settings)
    print(json.dumps({"version": spark.version}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(done(spark, json.loads(line))), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
