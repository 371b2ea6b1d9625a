"""What a program does with topics on a Spark cluster: reads them as a DataFrame and as a stream,
and writes to one.

    python standalone_driver.py MASTER BOOTSTRAP TOPIC TARGET FOLDER

Prints one line of JSON: counts, and whether it has come to read or write records by itself.
"""

import json
import os
import sys
from typing import Final

from pyspark.sql import SparkSession

READS: Final = "tidelog.spark.reading"
WRITES: Final = "tidelog.spark.task_writing"
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    # Python processes of executors, and no others, tell what they import.
    "spark.executorEnv.PYTHONPROFILEIMPORTTIME": "1",
}


def main(master: str, bootstrap: str, topic: str, target: str, folder: str) -> None:
    builder = SparkSession.builder.appName("standalone").master(master)
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "minPartitions": "8"}
    rows = spark.read.format("tidelog").options(**options).load()
    written = rows.select("key", "value").write.format("tidelog").mode("append")
    written.option("kafka.bootstrap.servers", bootstrap).option("topic", target).save()
    stream = spark.readStream.format("tidelog").options(**options, startingOffsets="earliest")
    table = stream.load().writeStream.option("checkpointLocation", f"{folder}/checkpoint")
    query = table.trigger(availableNow=True).start(f"{folder}/table")
    assert query.awaitTermination(240)
    found = {
        "batch": rows.count(),
        "stream": spark.read.parquet(f"{folder}/table").count(),
        "driver": READS in sys.modules or WRITES in sys.modules,
    }
    print(json.dumps(found), flush=True)
    # Spark would take seconds to take itself apart.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
