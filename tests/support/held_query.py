"""The driver of a streaming query from a topic into a table of Parquet files, as a program that can
be killed:

    python held_query.py BOOTSTRAP TOPIC FOLDER

Stops when it is told to, with all records there are in the table. A query that fails is noted and
started again, as whoever runs one would.
"""

import os
import sys
from pathlib import Path
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from support.held_source import HeldSource

ROWS_IN_A_BATCH: Final = 1500
FINISH: Final = "finish"
FAILURES: Final = "failures"
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


def main(bootstrap: str, topic: str, folder: Path) -> None:
    builder = SparkSession.builder.appName("held query")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(HeldSource)
    while True:
        query = _start(spark, bootstrap, topic, folder)
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


def _start(spark: SparkSession, bootstrap: str, topic: str, folder: Path) -> Any:
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
    writer = reader.load().writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.start(str(folder / "table"))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
