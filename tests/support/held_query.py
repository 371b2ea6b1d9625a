"""The driver of a streaming query from a topic into a table of Parquet files, or exactly once into
another topic, as a program that can be killed:

    python held_query.py FOLDER BOOTSTRAP TOPIC [TARGET]

Stops when it is told to, with all records there are in the table or topic. A query that fails is
noted and started again, as whoever runs one would. Each time it writes with another number of tasks
into a topic.
"""

import os
import sys
from pathlib import Path
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from support.held_source import HeldSource

ROWS_IN_A_BATCH: Final = 1500
FINISH: Final = "finish"
FAILURES: Final = "failures"
STARTS: Final = "starts"
_LOOK_S: Final = 0.05
_SETTINGS: Final = {
    # A task may be tried four times, as on a cluster.
    "spark.master": "local[2,4]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.streaming.fileSink.log.compactInterval": "1000",
}


def main(folder: Path, bootstrap: str, topic: str, target: str | None = None) -> None:
    builder = SparkSession.builder.appName("held query")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(HeldSource)
    while True:
        rows = _read(spark, bootstrap, topic)
        if target is None:
            query = _into_table(rows, folder)
        else:
            query = _into_topic(rows, folder, bootstrap, target)
        try:
            while not (folder / FINISH).exists():
                query.awaitTermination(_LOOK_S)
            query.processAllAvailable()
            query.stop()
            # Spark would take seconds to take itself apart.
            os._exit(0)
        except StreamingQueryException as error:
            with (folder / FAILURES).open("a") as failures:
                failures.write(f"{error}\0")


def _read(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    reader = spark.readStream.format("tidelog").options(
        **{
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "includeHeaders": "true",
            "maxOffsetsPerTrigger": str(ROWS_IN_A_BATCH),
            # A task's records come in several fetches.
            "kafka.max.partition.fetch.bytes": "40000",
        }
    )
    return reader.load()


def _into_table(rows: DataFrame, folder: Path) -> Any:
    writer = rows.writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.start(str(folder / "table"))


def _into_topic(rows: DataFrame, folder: Path, bootstrap: str, target: str) -> Any:
    with (folder / STARTS).open("a+") as starts:
        starts.write("x")
        tasks = 2 + starts.tell() % 2
    chosen = rows.selectExpr("key", "value", "headers").coalesce(tasks)
    writer = chosen.writeStream.format("tidelog").options(
        **{
            "kafka.bootstrap.servers": bootstrap,
            "topic": target,
            "delivery": "exactly-once",
            "checkpointLocation": str(folder / "checkpoint"),
        }
    )
    return writer.start()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
