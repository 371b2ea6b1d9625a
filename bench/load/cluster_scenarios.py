"""What three brokers are compared by while all are well: acks=all, RF 3, min ISR 2.

Throughput is batches of 16 KB for six partitions, five requests in flight to each leader; latency
is one record at a time at a low fixed rate. CPU and memory are of all three brokers together with
their guards and children; what ZooKeeper takes beside them has a row of its own.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.load.bare_replication import bare_replication_cost
from bench.load.cluster_side import SAFE, ClusterSide
from bench.load.contest import Figure, Row, compared, in_turns, row, rows, tell
from bench.load.frames import Topic, batch, keyed_batch
from bench.load.generator import Load, Stream
from bench.load.processes import family, memory, share_mb
from bench.load.scenarios import CPU_OF_BYTES, P50, P99, SPEED, wanting
from bench.load.used_memory import use_memory
from tidelog.records.batch import read_header

OURS = "tidelog"
PARTITIONS, BATCH_BYTES, IN_FLIGHT = 6, 16_384, 5
SECONDS_MAX = 60
LATENCY_RATE = 200
SAMPLE_SECONDS = 0.1
KEYS, KEYED_RECORDS, KEYED_FRAMES = 2000, 120, 50
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(8 << 20),
    "min.cleanable.dirty.ratio": "0.01",
    **SAFE,
}
_CHECKPOINT = "cleaner-offset-checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    rounds: int
    seconds: float
    megabytes: float
    kills: int
    warm_seconds: float
    settle_seconds: float
    judges_ours_alone: bool
    """Where what is wanted is no ratio, the other side is left out."""


FULL = Effort(
    rounds=5,
    seconds=5,
    megabytes=300,
    kills=3,
    warm_seconds=15,
    settle_seconds=30,
    judges_ours_alone=False,
)
QUICK = Effort(
    rounds=2,
    seconds=3,
    megabytes=120,
    kills=1,
    warm_seconds=6,
    settle_seconds=10,
    judges_ours_alone=True,
)

Sides = Sequence[ClusterSide]


def judged(sides: Sides, effort: Effort) -> Sides:
    return sides[:1] if effort.judges_ours_alone else sides


def bulk(megabytes: float) -> Stream:
    return Stream(name="bulk", frames=[], in_flight=IN_FLIGHT, megabytes=megabytes)


def bulk_load(side: ClusterSide, data: bytes, replicas: int, megabytes: float) -> Load:
    topic = side.new_topic(PARTITIONS, replicas, SAFE if replicas > 1 else {})
    use_memory(side.cluster.folder, replicas * megabytes)
    load = side.load(side.frames(topic, data), bulk(megabytes), SECONDS_MAX)
    side.delete(topic)
    return load


def warm(sides: Sides, effort: Effort) -> list[Row]:
    """A virtual machine compiles what it runs often: until then it is not what is meant."""
    tell("warming up")
    for side in sides:
        topic = side.new_topic(PARTITIONS)
        shape = Stream(name="warm", frames=[], in_flight=IN_FLIGHT)
        seconds = 1.0 if side.name == OURS else effort.warm_seconds
        side.load(side.frames(topic, batch(100)), shape, seconds)
        side.load(side.frames(topic, batch(100, BATCH_BYTES)), shape, seconds)
        side.delete(topic)
    return []


def throughput(sides: Sides, effort: Effort) -> list[Row]:
    found: list[Row] = []
    for record_bytes in (100, 1000):
        tell(f"acks=all in batches of {record_bytes} B records")
        found += throughput_of(sides, effort, batch(record_bytes, BATCH_BYTES), record_bytes)
    return found


def throughput_of(sides: Sides, effort: Effort, data: bytes, record_bytes: int) -> list[Row]:
    records = read_header(data).record_count
    taken = in_turns(sides, effort.rounds, lambda side: bulk_load(side, data, 3, effort.megabytes))

    def records_a_second(load: Load) -> float:
        return load.megabytes * 1e6 / len(data) * records / load.seconds / 1000

    figures = (
        Figure(name="records", unit="thousand/s", of=records_a_second, target=">= 1.5"),
        SPEED,
        wanting(CPU_OF_BYTES, "<= 0.6"),
    )
    return rows(f"acks=all, {record_bytes:,} B in 16 KB batches", taken, *figures)


def latency(sides: Sides, effort: Effort) -> list[Row]:
    tell("acks=all, one record at a time")
    topics = {side.name: side.new_topic() for side in sides}
    data = batch(100)

    def paced(side: ClusterSide) -> Load:
        shape = Stream(name="paced", frames=[], rate=LATENCY_RATE, in_flight=1000)
        return side.load(side.frames(topics[side.name], data), shape, effort.seconds)

    def closed(side: ClusterSide) -> Load:
        shape = Stream(name="single", frames=[])
        return side.load(side.frames(topics[side.name], data), shape, effort.seconds / 2)

    figures = (wanting(P50, "<= 0.6"), wanting(P99, "<= 0.4"))
    name = "acks=all, one 100 B record"
    taken = [
        *rows(f"{name}, {LATENCY_RATE} a second", in_turns(sides, effort.rounds, paced), *figures),
        *rows(f"{name} after the other", in_turns(sides, effort.rounds, closed), P50, P99),
    ]
    for side in sides:
        side.delete(topics[side.name])
    return taken


def replication_cost(sides: Sides, effort: Effort) -> list[Row]:
    """What a GB costs with three copies, as a multiple of one copy."""
    sides = judged(sides, effort)
    tell("RF 3 against RF 1")
    data = batch(1000, BATCH_BYTES)

    def both(side: ClusterSide) -> tuple[float, float]:
        once, thrice = (bulk_load(side, data, replicas, effort.megabytes) for replicas in (1, 3))
        return once.cpu_per_gb, thrice.cpu_per_gb

    taken = in_turns(sides, effort.rounds, both)
    bare = [bare_replication_cost(side, effort.rounds) for side in sides if side.name == OURS]
    return bare + [
        row(
            f"{side.name}: CPU of a GB at RF 3, of RF 1",
            median(thrice / once for once, thrice in taken[side.name]),
            f"x ({median(once for once, _ in taken[side.name]):.3g} s at RF 1)",
            "<= 3.5" if side.name == OURS else "",
        )
        for side in sides
    ]


def memory_while_cleaning(sides: Sides, effort: Effort) -> list[Row]:
    """The most that all together had at a time: under load, and then while logs are cleaned."""
    tell("memory under load and while a compacted topic is cleaned")
    loaded: dict[str, list[float]] = {}
    cleaned: dict[str, list[float]] = {}
    beside: list[Row] = []
    for side in sides:
        with sampled(side) as samples:
            bulk_load(side, batch(100, BATCH_BYTES), 3, effort.megabytes)
        loaded[side.name] = [max(samples).all_mb]
        with sampled(side) as samples:
            clean_once(side, effort.megabytes)
        most = max(samples)
        cleaned[side.name] = [most.all_mb]
        if side.cluster.coordination_pids:
            used = memory(*side.cluster.coordination_pids).now_mb
            beside += [
                row(f"{side.name}: of this in {most.children} children", most.children_mb, "MB"),
                row(f"{side.name}: memory of ZooKeeper beside them", used, "MB"),
            ]
    return [
        compared("memory of three brokers under load", loaded, "MB"),
        compared("memory of three brokers, a compacted topic cleaned", cleaned, "MB", "<= 0.1"),
        *beside,
    ]


@dataclass(frozen=True, slots=True, order=True)
class Sample:
    all_mb: float
    children_mb: float
    children: int


@contextmanager
def sampled(side: ClusterSide) -> Iterator[list[Sample]]:
    """What the brokers and their children had meanwhile, again and again."""
    done = threading.Event()
    samples: list[Sample] = []

    def sample() -> None:
        while not done.wait(SAMPLE_SECONDS):
            samples.append(sample_of(side.cluster.pids))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        done.set()
        thread.join()


def sample_of(pids: Sequence[int]) -> Sample:
    each = {pid: share_mb(pid) for pid in family(*pids)}
    children = [size for pid, size in each.items() if pid not in pids]
    return Sample(sum(each.values()), sum(children), len(children))


def clean_once(side: ClusterSide, megabytes: float) -> None:
    topic = side.new_topic(3, configs=COMPACTED)
    lots = [
        keyed_batch(
            100,
            [b"key-%06d" % ((n * KEYED_RECORDS + i) * 7919 % KEYS) for i in range(KEYED_RECORDS)],
        )
        for n in range(KEYED_FRAMES)
    ]
    side.load(side.frames(topic, lots), bulk(megabytes), SECONDS_MAX)
    folders = [node.logs for node in side.cluster.nodes.values()]
    side.wait(
        lambda: all(cleaned_partitions(folder, topic) == 3 for folder in folders),
        "a compacted topic is not cleaned everywhere",
    )
    side.delete(topic)


def cleaned_partitions(folder: Path, topic: Topic) -> int:
    """How many of them the broker's own checkpoint says were cleaned."""
    path = folder / _CHECKPOINT
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    words = [line.split() for line in lines]
    return sum(name == topic.name and int(offset) > 0 for name, _, offset in words)
