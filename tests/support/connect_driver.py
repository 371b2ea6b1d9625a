"""What a program does with a batch at a Spark Connect server, while records keep coming: it takes
some, and commits to a group what it has taken.

    python connect_driver.py ADDRESS BOOTSTRAP TOPIC GROUP

Prints one line of JSON: how many there were at first and later in the same DataFrame, why that was
not committed, and how many there were in one that was.
"""

import json
import os
import sys
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from clients.confluent import send
from clients.samples import Sample
from pyspark_tidelog import commit_read
from tidelog.base.errors import BadValue


def main(address: str, bootstrap: str, topic: str, group: str) -> None:
    spark: Any = SparkSession.builder.remote(address).getOrCreate()
    sender = Producer({"bootstrap.servers": bootstrap})
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "kafka.group.id": group}
    reader = spark.read.format("tidelog").options(**options, startingOffsets="committed")
    samples = [Sample(key=None, value=b"x")] * 2
    send(sender, topic, samples)
    rows = reader.load()
    found: dict[str, Any] = {"first": rows.count()}
    send(sender, topic, samples)
    spark.range(1).count()
    found["later"] = rows.count()
    try:
        commit_read(rows.where("offset >= 0"), bootstrap, group)
    except BadValue as error:
        found["why"] = str(error)
    kept = reader.load().localCheckpoint()
    found["taken"] = kept.count()
    send(sender, topic, samples)
    spark.range(2).count()
    commit_read(kept.where("offset >= 0"), bootstrap, group)
    print(json.dumps(found), flush=True)
    # Spark would take seconds to take itself apart.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
