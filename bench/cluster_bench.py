"""What three brokers cost with RF 3 and min ISR 2, beside three of Apache Kafka.

`python -m bench cluster [--quick] [--only NAME,...] [--side tidelog|kafka]` runs the scenarios
named in `SCENARIOS`, or all. Both clusters run at the same time and are loaded in turns, but where
a cluster is compared with itself: there it runs alone, since even an idle one takes caches and
processor time. Where Java or Kafka's jars are missing ratios are left out. Times of recovery are
the slowest seen.
"""

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.load.cluster_faults import catch_up, failover, machine_death
from bench.load.cluster_partitions import creation, failover_of_many, idle
from bench.load.cluster_scenarios import (
    FULL,
    QUICK,
    Effort,
    Sides,
    latency,
    memory_while_cleaning,
    replication_cost,
    throughput,
    warm,
)
from bench.load.cluster_side import ClusterSide
from bench.load.contest import Row, add_only, taken, tell
from bench.load.generator import Generator
from bench.peers.cluster import SETTINGS, TIDIES_AT_ONCE, Cluster, Settings
from bench.peers.kafka_cluster import KafkaCluster
from bench.peers.kafka_peer import KafkaHome
from bench.peers.tidelog_cluster import TidelogCluster

FOLDER = (Path(".bench") / f"cluster-{os.getpid()}").absolute()
Scenario = Callable[[Sides, Effort], list[Row]]
Maker = Callable[[Path, Settings], Cluster]

LOADED: dict[str, Scenario] = {
    "latency": latency,
    "throughput": throughput,
    "memory": memory_while_cleaning,
}
"""On clusters that tidy up at once."""
ALONE: dict[str, Scenario] = {
    "replication": replication_cost,
    "catch-up": catch_up,
}
"""The same, one after the other."""
DISTURBED: dict[str, Scenario] = {
    "failover": failover,
    "machine-death": machine_death,
    "creation": creation,
    "idle": idle,
    "failover-1000": failover_of_many,
}
"""On clusters with default settings, in this order: the last ones leave a topic for the next."""
SCENARIOS = LOADED | ALONE | DISTURBED


def makers(which: str) -> list[Maker]:
    """Ours first; a cluster that is not at hand is left out, which is said."""
    found: list[Maker] = []
    if which != "kafka":
        found.append(TidelogCluster)
    home = KafkaHome.find() if which != "tidelog" else None
    if home is not None:
        found.append(partial(KafkaCluster, home=home))
    return found


def measure(scenarios: Mapping[str, Scenario], effort: Effort, sides: Sides) -> list[Row]:
    return taken({name: partial(scenarios[name], sides, effort) for name in scenarios})


def on_clusters(
    make: Sequence[Maker],
    settings: Settings,
    generator: Generator,
    measured: Callable[[Sides], list[Row]],
) -> list[Row]:
    with ExitStack() as stack:
        sides = []
        for number, maker in enumerate(make):
            cluster = maker(FOLDER / str(number), settings)
            stack.callback(cluster.stop)
            tell(f"{cluster.name} serves after {cluster.start():.1f} s")
            sides.append(ClusterSide(cluster, generator))
        return measured(sides)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench cluster", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few and short rounds: 3 minutes")
    add_only(parser, SCENARIOS)
    parser.add_argument("--side", choices=["tidelog", "kafka", "both"], default="both")
    return parser.parse_args(arguments)


def run(arguments: Sequence[str] = ()) -> list[Row]:
    options = parse(arguments)
    generator = Generator.find()
    if generator is None:
        return []
    effort = QUICK if options.quick else FULL
    # Whoever is told to end must take the brokers with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    found: list[Row] = []
    try:
        both = makers(options.side)
        alone = [[maker] for maker in (both[:1] if effort.judges_ours_alone else both)]
        for scenarios, settings, groups in (
            (LOADED, TIDIES_AT_ONCE, [both]),
            (ALONE, TIDIES_AT_ONCE, alone),
            (DISTURBED, SETTINGS, [both]),
        ):
            wanted = {name: scenarios[name] for name in scenarios if name in options.only}
            if wanted:
                first: dict[str, Scenario] = {} if scenarios is DISTURBED else {"warm": warm}
                measured = partial(measure, first | wanted, effort)
                for group in groups:
                    found += on_clusters(group, settings, generator, measured)
    except RuntimeError as error:
        print(f"the cluster was not measured: {error}", file=sys.stderr)
    finally:
        generator.close()
        shutil.rmtree(FOLDER, ignore_errors=True)
    return found
