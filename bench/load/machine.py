"""Brokers against the machine: bare servers, the dirty limit, idle partitions, memory, the start.

What is wanted here is mostly absolute, or a multiple of the least that the same work costs in
Python. Each function gives rows; where something needed is not there, it says so and gives none.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench.load import bare_servers, dirty_pages
from bench.load.brokers import Broker
from bench.load.contest import Row, Side, compared, in_turns, row, tell
from bench.load.frames import FETCH, PRODUCE, Frame, batch, fetch, produce
from bench.load.generator import Generator, Load, Stream
from bench.load.processes import cpu_seconds, memory
from bench.load.scenarios import (
    BULK_SECONDS_MAX,
    IN_FLIGHT,
    ROUNDS,
    SECONDS,
    bulk,
    filled,
    following,
    one_record,
    settle,
)
from bench.load.target import CLIENTS

STARTS = 3
IDLE_PARTITIONS = 2000
IDLE_SETTLE_SECONDS, IDLE_SECONDS = 3.0, 6.0
FLOOD_SECONDS = 6.0
FLOOD_ROUNDS = 5
CHUNK_MEGABYTES = 1000


@contextmanager
def bare_server(kind: str, path: Path) -> Iterator[tuple[int, int]]:
    """Its process id and port."""
    command = [sys.executable, "-m", "bench.load.bare_servers", kind, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.kill()
            path.unlink(missing_ok=True)


def against_bare_servers(ours: Side, generator: Generator, folder: Path) -> list[Row]:
    tell("bulk against bare servers")
    topic = filled(ours)

    def produced() -> Load:
        with ours.topic() as fresh:
            data = batch(1000, 1_000_000)
            frame = produce(fresh, [(0, data)], ours.target.versions[PRODUCE])
            return ours.run(bulk(frame), seconds=BULK_SECONDS_MAX)[0]

    def consumed() -> Load:
        return ours.run(following(ours, topic), seconds=SECONDS)[0]

    rows = []
    for kind, ours_does, target in (("produce", produced, "<= 1.5"), ("fetch", consumed, "<= 1.3")):
        with bare_server(kind, folder / "bare") as (pid, port):
            bare = bare_run(generator, kind, pid, port)
            ours_does(), bare()
            loads = [_pair(number, ours_does, bare) for number in range(ROUNDS)]
        costs = {
            "ours": [mine.cpu_per_gb for mine, _ in loads],
            "bare": [other.cpu_per_gb for _, other in loads],
        }
        what = "recv_into + crc32c + pwrite" if kind == "produce" else "sendfile"
        rows.append(compared(f"{kind}, CPU of a GB against bare {what}", costs, "s", target))
    ours.delete(topic)
    return rows


def _pair(number: int, first: Callable[[], Load], second: Callable[[], Load]) -> tuple[Load, Load]:
    if number % 2:
        return first(), second()
    later = second()
    return first(), later


def bare_run(generator: Generator, kind: str, pid: int, port: int) -> Callable[[], Load]:
    if kind == "produce":
        stream = bulk(bare_servers.large())
    else:
        version = CLIENTS["java"][FETCH]
        frame = fetch(bare_servers.TOPIC, 1, bare_servers.FETCH_BYTES, version)
        stream = Stream(name="bare", frames=[frame], follow=True)
    seconds = BULK_SECONDS_MAX if kind == "produce" else SECONDS

    def run() -> Load:
        address = ("127.0.0.1", port)
        return generator.run(address, [stream], pids=[pid], seconds=seconds, warm_up=0.3)[0]

    return run


def ceiling(generator: Generator) -> list[Row]:
    """What the generator itself can do: the broker is measured while this is much more."""
    tell("the generator's own limit")
    topic = bare_servers.TOPIC
    version = CLIENTS["java"][PRODUCE]
    small: Frame = produce(topic, [(0, batch(100))], version)
    large: Frame = produce(topic, [(0, batch(100, 1_000_000))], version)
    with generator.answerer() as process:
        assert process.stdout is not None
        address = ("127.0.0.1", int(process.stdout.readline()))
        streams = [
            Stream(name="limit", frames=[frame], in_flight=IN_FLIGHT) for frame in (small, large)
        ]
        few, many = (generator.run(address, [stream], seconds=1)[0] for stream in streams)
        process.kill()
    return [
        row("load generator alone, 5 in flight", few.rate, "requests/s"),
        row("load generator alone, bulk produce", many.speed, "MB/s"),
    ]


def first_answers(brokers: list[Broker]) -> list[Row]:
    """The first start of each, which finds nothing in memory or on disk, is not counted."""
    tell("starts")
    times: dict[str, list[float]] = {broker.name: [] for broker in brokers}
    for number in range(STARTS + 1):
        for broker in brokers if number % 2 else reversed(brokers):
            seconds = broker.start()
            broker.stop()
            if number:
                times[broker.name].append(seconds)
    return [compared("first answer after the process starts", times, "s", "<= 0.333")]


def flood_at_dirty_limit(sides: list[Side], generator: Generator, folder: Path) -> list[Row]:
    """Small requests of others, one that writes and one that reads, while bulk is written as fast
    as the disk takes it. Beside brokers a bare server, with a thread for each connection, says what
    the machine allows who writes."""
    if not dirty_pages.has_room(folder):
        print(f"no flood at the dirty limit: {folder} has too little room", file=sys.stderr)
        return []
    tell("a flood at the dirty limit")
    with dirty_pages.at_the_limit(folder) as was_reached:
        loads = in_turns(sides, FLOOD_ROUNDS, _beside_a_flood, warm_rounds=0)
        with bare_server("flood", folder / "bare") as (_, port):
            streams = _flood(bare_servers.large(), write=bare_servers.single())
            server = ("127.0.0.1", port)
            loads["a bare server"] = [generator.run(server, streams, seconds=FLOOD_SECONDS)]
    where = "at" if was_reached else "below"
    return [
        _flooded(
            f"{name}: p99 of who {does} beside a flood {where} the dirty limit",
            [(flood, other) for flood, *others in rounds for other in others if other.name == does],
            "<= 20" if name == sides[0].name else "",
        )
        for name, rounds in loads.items()
        for does in [load.name for load in rounds[0][1:]]
    ]


def _beside_a_flood(side: Side) -> list[Load]:
    with side.topic() as flooded, side.topic() as other:
        versions = side.target.versions
        large = produce(flooded, [(0, batch(1000, 1_000_000))], versions[PRODUCE])
        small = one_record(side, other)
        settle(side, small)
        small_read = fetch(other, 1, len(batch(100)), versions[FETCH])
        streams = _flood(large, write=small, read=small_read)
        return side.run(*streams, seconds=FLOOD_SECONDS)


def _flooded(name: str, rounds: list[tuple[Load, Load]], target: str) -> Row:
    """The median of the rounds, and beside it each of them: what holds up a loop comes and goes."""
    ninety_nine = [other.p99_us / 1000 for _, other in rounds]
    told = ", ".join(f"{ms:.3g}" for ms in sorted(ninety_nine))
    speed = median(flood.speed for flood, _ in rounds)
    return row(name, median(ninety_nine), f"ms ({told}; flood {speed:.0f} MB/s)", target)


def _flood(large: Frame, **others: Frame) -> list[Stream]:
    flood = Stream(name="floods", frames=[large], in_flight=5)
    return [
        flood,
        *(
            Stream(name=f"{does}s", frames=[frame], rate=200, in_flight=1000)
            for does, frame in others.items()
        ),
    ]


def idle_partitions(brokers: list[Broker]) -> list[Row]:
    """With the settings that a broker has when nobody changes any."""
    tell(f"{IDLE_PARTITIONS} idle partitions")
    for broker in brokers:
        broker.settings = {}
        broker.start()
        with broker.target() as target:
            target.create_topic("idle", IDLE_PARTITIONS)
    time.sleep(IDLE_SETTLE_SECONDS)
    before = [cpu_seconds(broker.pid) for broker in brokers]
    time.sleep(IDLE_SECONDS)
    return [
        row(
            f"{broker.name}: idle with {IDLE_PARTITIONS:,} partitions open",
            (cpu_seconds(broker.pid) - used) / IDLE_SECONDS * 100,
            f"% of a core, {memory(broker.pid).now_mb:.0f} MB",
            "<= 3" if broker is brokers[0] else "",
        )
        for broker, used in zip(brokers, before, strict=True)
    ]


def memory_after(sides: list[Side], gigabytes: float) -> list[Row]:
    """In and out through topics of 1 GB that are deleted, so that little disk is needed."""
    tell(f"memory after {gigabytes:g} GB")
    used = {}
    for side in sides:
        for _ in range(max(1, round(gigabytes * 1000 / CHUNK_MEGABYTES))):
            topic = filled(side, CHUNK_MEGABYTES)
            read = following(side, topic, CHUNK_MEGABYTES * 0.95)
            side.run(read, seconds=BULK_SECONDS_MAX, warm_up=0)
            side.delete(topic)
        used[side.name] = memory(side.pid)
    return [
        row(
            f"{name}: memory after {gigabytes:g} GB in and out",
            found.now_mb,
            f"MB, at most {found.most_mb:.0f}",
            "<= 80" if name == sides[0].name else "",
        )
        for name, found in used.items()
    ]
