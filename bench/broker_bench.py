"""What the broker costs, beside Apache Kafka and against the least that the machine allows.

Load of requests that were encoded beforehand goes to both in turns (`bench/load`). Where Java and
Maven are missing there is no Kafka to compare with and ratios are left out; without a C compiler
there is no load. Memory is taken after `TIDELOG_BENCH_GB` gigabytes in and out, 10 if not told.
"""

import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.load.brokers import Broker, Kafka, Tidelog
from bench.load.contest import Row, Side
from bench.load.generator import Generator
from bench.load.machine import (
    against_bare_servers,
    ceiling,
    first_answers,
    flood_at_dirty_limit,
    idle_partitions,
    memory_after,
)
from bench.load.scenarios import (
    FEW_ROUNDS,
    ROUNDS,
    bulk_consume,
    bulk_produce,
    many_partitions,
    one_at_a_time,
    requests_in_flight,
    warm,
)
from bench.peers.kafka_peer import KafkaHome

FOLDER = Path(".bench") / "broker"
GIGABYTES = float(os.environ.get("TIDELOG_BENCH_GB", "10"))

Maker = Callable[[], Broker]
Step = Callable[[], list[Row]]


def makers(folder: Path) -> list[Maker]:
    """Ours first; a broker that is not at hand is left out, which is said."""
    found: list[Maker] = [partial(Tidelog, folder / "tidelog")]
    home = KafkaHome.find()
    if home is not None:
        found.append(partial(Kafka, folder / "kafka", home))
    return found


def steps(sides: list[Side], generator: Generator, folder: Path) -> list[Step]:
    return [
        partial(warm, sides),
        partial(requests_in_flight, sides, "java", ROUNDS),
        partial(requests_in_flight, sides, "librdkafka", FEW_ROUNDS),
        partial(one_at_a_time, sides),
        partial(bulk_produce, sides, 100, "librdkafka", ROUNDS),
        partial(bulk_produce, sides, 1000, "librdkafka", ROUNDS),
        partial(bulk_produce, sides, 100, "java", FEW_ROUNDS),
        partial(bulk_consume, sides),
        partial(memory_after, sides, GIGABYTES),
        partial(many_partitions, sides, 10),
        partial(many_partitions, sides, 200),
        partial(against_bare_servers, sides[0], generator, folder),
        partial(flood_at_dirty_limit, sides, folder),
    ]


def taken(todo: list[Step]) -> list[Row]:
    """What one step cannot measure does not keep the others from it."""
    rows: list[Row] = []
    for step in todo:
        try:
            rows += step()
        except RuntimeError as error:
            print(f"not measured: {error}", file=sys.stderr)
    return rows


def measured(make: list[Maker], generator: Generator, folder: Path) -> list[Row]:
    brokers = [maker() for maker in make]
    rows = taken([partial(ceiling, generator), partial(first_answers, brokers)])
    sides: list[Side] = []
    try:
        for broker in brokers:
            broker.start()
            sides.append(Side(broker, generator))
        rows += taken(steps(sides, generator, folder))
        for side in sides:
            side.close()
            side.broker.stop()
        return rows + taken([partial(idle_partitions, brokers)])
    finally:
        for broker in brokers:
            broker.stop()


def run() -> list[Row]:
    generator = Generator.find()
    if generator is None:
        return []
    folder = FOLDER.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return measured(makers(folder), generator, folder)
    except RuntimeError as error:
        print(f"the broker was not measured: {error}", file=sys.stderr)
        return []
    finally:
        generator.close()
        shutil.rmtree(folder, ignore_errors=True)
