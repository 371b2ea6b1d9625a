"""What reading and writing topics with Spark costs, beside Spark's own Kafka connector.

`python -m bench spark [--quick] [--only NAME,...]` measures rows a second into an aggregation, into
Parquet files and into another topic, with all seven columns and checked CRCs; how soon a stream has
its first batch; and what a Python worker takes. Beside ours run the connector on the same topic,
where Maven is at hand; the same data as Parquet; a Python source that yields a row at a time; and
one that has its Arrow batches ready, which is what Spark itself takes for them.
"""

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.load.brokers import Tidelog
from bench.load.contest import Row, add_only, taken
from bench.peers.spark_peer import SparkHome
from bench.spark.first_batch import first_batch
from bench.spark.scenarios import (
    FULL,
    QUICK,
    SIZES,
    Place,
    aggregation,
    copying,
    into_files,
    new_place,
    worker_memory,
    writing,
)
from bench.spark.topics import Topics

FOLDER = (Path(".bench") / f"spark-{os.getpid()}").absolute()
SCENARIOS: dict[str, Callable[[Place], list[Row]]] = {
    "first-batch": first_batch,
    "aggregation": aggregation,
    "parquet": into_files,
    "writing": writing,
    "copying": copying,
    "memory": worker_memory,
}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds: 5 minutes")
    add_only(parser, SCENARIOS)
    parser.add_argument("--bytes", default="100,1000", help="sizes of values, of: %(default)s")
    parser.add_argument("--alone", action="store_true", help="without the connector")
    options = parser.parse_args(arguments)
    options.bytes = tuple(size for size in SIZES if str(size) in options.bytes.split(","))
    return options


def run(arguments: Sequence[str] = ()) -> list[Row]:
    options = parse(arguments)
    if shutil.which("java") is None:
        print("Spark was not measured: there is no `java` here", file=sys.stderr)
        return []
    home = None if options.alone else SparkHome.find()
    # Whoever is told to end must take the broker and Spark with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    broker = Tidelog(FOLDER / "broker")
    try:
        broker.start()
        topics = Topics(broker)
        effort = QUICK if options.quick else FULL
        effort = replace(effort, sizes=options.bytes)
        place = new_place(topics, FOLDER, home, effort)
        return taken({name: partial(SCENARIOS[name], place) for name in options.only})
    except RuntimeError as error:
        print(f"Spark was not measured: {error}", file=sys.stderr)
        return []
    finally:
        broker.stop()
        shutil.rmtree(FOLDER, ignore_errors=True)
