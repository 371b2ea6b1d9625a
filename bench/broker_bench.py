"""What the broker costs, beside Apache Kafka and against the least that the machine allows.

Load of requests that were encoded beforehand goes to both in turns (`bench/load`). Where Java and
Maven are missing there is no Kafka to compare with and ratios are left out; without a C compiler
there is no load. Memory is taken after `TIDELOG_BENCH_GB` gigabytes in and out, 10 if not told.
`python -m bench broker [--only NAME,...]` takes eight minutes in full.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.load.brokers import Broker, Kafka, Tidelog
from bench.load.contest import Row, Side, add_only, taken
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    brokers: list[Broker]
    sides: list[Side]
    """Those that run."""
    generator: Generator
    folder: Path


Scenario = Callable[[Place], list[Row]]

BEFORE_LOAD: dict[str, Scenario] = {
    "ceiling": lambda place: ceiling(place.generator),
    "start": lambda place: first_answers(place.brokers),
}
UNDER_LOAD: dict[str, Scenario] = {
    "requests-java": lambda place: requests_in_flight(place.sides, "java", ROUNDS),
    "requests-librdkafka": lambda place: requests_in_flight(place.sides, "librdkafka", FEW_ROUNDS),
    "latency": lambda place: one_at_a_time(place.sides),
    "produce-100": lambda place: bulk_produce(place.sides, 100, "librdkafka", ROUNDS),
    "produce-1000": lambda place: bulk_produce(place.sides, 1000, "librdkafka", ROUNDS),
    "produce-java": lambda place: bulk_produce(place.sides, 100, "java", FEW_ROUNDS),
    "consume": lambda place: bulk_consume(place.sides),
    "memory": lambda place: memory_after(place.sides, GIGABYTES),
    "partitions-10": lambda place: many_partitions(place.sides, 10),
    "partitions-200": lambda place: many_partitions(place.sides, 200),
    "bare": lambda place: against_bare_servers(place.sides[0], place.generator, place.folder),
    "flood": lambda place: flood_at_dirty_limit(place.sides, place.generator, place.folder),
}
AT_REST: dict[str, Scenario] = {"idle": lambda place: idle_partitions(place.brokers)}


def brokers_in(folder: Path) -> list[Broker]:
    """Ours first; one that is not at hand is left out, which is said."""
    home = KafkaHome.find()
    ours = Tidelog(folder / "tidelog")
    return [ours] if home is None else [ours, Kafka(folder / "kafka", home)]


def measured(place: Place, only: Collection[str]) -> list[Row]:
    def rows_of(scenarios: Mapping[str, Scenario]) -> list[Row]:
        return taken({name: partial(scenarios[name], place) for name in scenarios})

    def wanted(scenarios: Mapping[str, Scenario]) -> dict[str, Scenario]:
        return {name: scenarios[name] for name in scenarios if name in only}

    rows = rows_of(wanted(BEFORE_LOAD))
    try:
        if loads := wanted(UNDER_LOAD):
            for broker in place.brokers:
                broker.start()
                place.sides.append(Side(broker, place.generator))
            rows += rows_of({"warm": lambda place: warm(place.sides), **loads})
            for side in place.sides:
                side.close()
                side.broker.stop()
        return rows + rows_of(wanted(AT_REST))
    finally:
        for broker in place.brokers:
            broker.stop()


def run(arguments: Sequence[str] = ()) -> list[Row]:
    parser = argparse.ArgumentParser(prog="python -m bench broker", description=__doc__)
    add_only(parser, BEFORE_LOAD | UNDER_LOAD | AT_REST)
    only = parser.parse_args(arguments).only
    generator = Generator.find()
    if generator is None:
        return []
    folder = FOLDER.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        brokers = brokers_in(folder)
        place = Place(brokers=brokers, sides=[], generator=generator, folder=folder)
        return measured(place, only)
    except RuntimeError as error:
        print(f"the broker was not measured: {error}", file=sys.stderr)
        return []
    finally:
        generator.close()
        shutil.rmtree(folder, ignore_errors=True)
