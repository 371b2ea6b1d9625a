"""A thousand partitions on three brokers: made, left alone, and led by a broker that is killed."""

import time

from bench.load.cluster_faults import recovery
from bench.load.cluster_scenarios import OURS, Effort, Sides, judged
from bench.load.cluster_side import ClusterSide
from bench.load.contest import Row, compared, row, tell
from bench.load.frames import Topic
from bench.load.processes import cpu_seconds, memory

PARTITIONS = 1000
IDLE_SECONDS = 10.0


def creation(sides: Sides, _: Effort) -> list[Row]:
    """Until all have leaders that serve and followers that are in sync."""
    tell(f"creating {PARTITIONS:,} partitions")
    found = []
    for side in sides:
        began = time.monotonic()
        many(side)
        found.append(
            row(
                f"{side.name}: creating {PARTITIONS:,} partitions, RF 3",
                time.monotonic() - began,
                "s until all replicas are in sync",
                "<= 10" if side.name == OURS else "",
            )
        )
    return found


def idle(sides: Sides, effort: Effort) -> list[Row]:
    for side in sides:
        many(side)
    tell(f"{PARTITIONS:,} idle partitions")
    time.sleep(effort.settle_seconds)
    pids = {side.name: side.cluster.pids for side in sides}
    pids["ZooKeeper"] = [pid for side in sides for pid in side.cluster.coordination_pids]
    before = {name: cpu_seconds(*of_name) for name, of_name in pids.items()}
    time.sleep(IDLE_SECONDS)
    used = {
        name: (cpu_seconds(*of_name) - before[name]) / IDLE_SECONDS * 100
        for name, of_name in pids.items()
    }
    values = {side.name: [used[side.name]] for side in sides}
    sizes = {side.name: [memory(*side.cluster.pids).now_mb] for side in sides}
    what = f"three brokers idle with {PARTITIONS:,} partitions"
    return [
        compared(f"{what}: CPU", values, "% of a core", "<= 0.5"),
        compared(f"{what}: memory", sizes, "MB"),
        *(
            [row(f"{what}: ZooKeeper beside ours", used["ZooKeeper"], "% of a core")]
            if pids["ZooKeeper"]
            else []
        ),
    ]


def failover_of_many(sides: Sides, effort: Effort) -> list[Row]:
    """Two kills: one writer of one partition, and then one that writes to each of them."""
    found: list[Row] = []
    for side in judged(sides, effort):
        topic = many(side)
        tell(f"{side.name}: kill -9 of a leader of {PARTITIONS:,} partitions")
        victim, led = most_led(side, topic)
        first = recovery(side, topic, victim, set(led[:1]))
        victim, _led = most_led(side, topic)
        everything = recovery(side, topic, victim, set(range(PARTITIONS)))
        name = f"{side.name}: kill -9 with {PARTITIONS:,} partitions to"
        target = "<= 2" if side.name == OURS else ""
        found += [
            row(f"{name} the next acknowledged record", first, "s", target),
            row(f"{name} a record for each partition", everything, "s", target),
        ]
    return found


def most_led(side: ClusterSide, topic: Topic) -> tuple[int, list[int]]:
    """The broker, other than the controller, that leads the most partitions, and these."""
    found = side.metadata(topic)
    led = {n: found.led_by(n) for n in side.cluster.nodes if n != found.controller}
    return max(led.items(), key=lambda item: len(item[1]))


def many(side: ClusterSide) -> Topic:
    """Made when it is first needed, and kept."""
    if side.many is None:
        side.many = side.new_topic(PARTITIONS)
    return side.many
