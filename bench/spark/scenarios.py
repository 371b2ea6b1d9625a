"""What Spark does with topics, timed beside the others that can do it, in turns.

Cold is the first query of a session, warm the median of several after some that do not count; a
ratio is taken within a round. What only a part of a topic was read for, a row at a time, is
compared by its rate.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from bench.load.contest import Row, compared, in_turns, row, tell
from bench.peers.spark_peer import SparkHome
from bench.spark.side import Session, connector_session, our_session
from bench.spark.topics import Topics

OURS, CONNECTOR, ROWS, PARQUET = "tidelog", "kafka", "row-at-a-time", "parquet"
READY = "ready-made"
FAR = "tidelog-by-port"
"""Ours, as it reads from a broker on another machine."""
_READY_ROWS_MAX = 20_000
_READY_BYTES = 8 * 1024 * 1024
"""Of an Arrow batch: as ours are through the port."""
SIZES = {100: "100 B", 1000: "1 KB"}
MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    rows: Mapping[int, int]
    """That are read, by the bytes of a value: so many that a query's start is of little weight."""
    written: Mapping[int, int]
    slow_rows: int
    """For whoever reads a row at a time."""
    rounds: int
    cold_rounds: int
    sizes: tuple[int, ...] = tuple(SIZES)
    """Of values, that are read and written warm."""


_FEW = {100: 1_500_000, 1000: 300_000}
QUICK = Effort(rows=_FEW, written=_FEW, slow_rows=200_000, rounds=3, cold_rounds=1)
FULL = Effort(
    rows={100: 10_000_000, 1000: 4_000_000},
    written={100: 10_000_000, 1000: 2_000_000},
    slow_rows=1_000_000,
    rounds=5,
    cold_rounds=3,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where it all happens."""

    topics: Topics
    folder: Path
    home: SparkHome | None
    effort: Effort
    filled: dict[str, int]
    numbers: Iterator[int]

    @property
    def kinds(self) -> list[str]:
        return [OURS] if self.home is None else [OURS, CONNECTOR]

    @contextmanager
    def sessions(self) -> Iterator[dict[str, Session]]:
        """New ones."""
        with ExitStack() as stack:
            made = {OURS: stack.enter_context(our_session(self.folder / OURS))}
            if self.home is not None:
                theirs = connector_session(self.home, self.folder / CONNECTOR)
                made[CONNECTOR] = stack.enter_context(theirs)
            yield made

    def topic(self, value_bytes: int) -> str:
        name = f"values-{value_bytes}"
        if name not in self.filled:
            tell(f"filling {name}")
            self.filled[name] = self.topics.fill(name, self.effort.rows[value_bytes], value_bytes)
        return name

    def new_folder(self) -> str:
        return str(self.folder / f"made-{next(self.numbers)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One way to do what is measured; `run` gives rows and seconds."""

    name: str
    run: Callable[[], tuple[int, float]]


Maker = Callable[[Mapping[str, Session], str], Contender]


def rates(
    name: str, contenders: Sequence[Contender], rounds: int, warm_rounds: int
) -> dict[str, list[float]]:
    def rate(one: Contender) -> float:
        rows, seconds = one.run()
        tell(f"{name}: {one.name} {rows / seconds / MILLION:.2f} M rows/s")
        return rows / seconds / MILLION

    return in_turns(contenders, rounds, rate, warm_rounds)


def against_each(
    name: str, found: Mapping[str, list[float]], wanted: Mapping[str, str]
) -> list[Row]:
    """Ours as a multiple of each other's."""
    others = [other for other in found if other != OURS]
    if not others:
        return [compared(name, {OURS: found[OURS]}, "M rows/s")]
    return [
        compared(
            f"{name}, by {other}",
            {OURS: found[OURS], other: found[other]},
            "M rows/s",
            wanted.get(other, ""),
        )
        for other in others
    ]


@contextmanager
def beside_others(place: Place, sessions: Mapping[str, Session]) -> Iterator[dict[str, Session]]:
    """The others that sources are compared with have a session, too, as the connector has: what a
    virtual machine has run decides how it compiles."""
    with our_session(place.folder / "others") as others, far_session(place) as far:
        yield {**dict.fromkeys((ROWS, PARQUET, READY), others), FAR: far, **sessions}


def far_session(place: Place) -> AbstractContextManager[Session]:
    return our_session(place.folder / "far", is_far=True)


# -- reading


def reader(place: Place, sessions: Mapping[str, Session], kind: str, topic: str) -> Contender:
    is_slow = kind == ROWS
    source = place.topics.source(kind, topic, place.effort.slow_rows if is_slow else None)
    return aggregator(sessions[kind], kind, source)


def aggregator(session: Session, name: str, source: dict[str, Any]) -> Contender:
    return Contender(name=name, run=lambda: session.ask("aggregate", source=source))


def file_writer(place: Place, session: Session, name: str, source: dict[str, Any]) -> Contender:
    sink = {"format": "parquet", "mode": "overwrite", "options": {"path": place.new_folder()}}
    rows, _ = session.ask("aggregate", source=source)
    job = {"source": source, "sink": sink, "rows": rows, "as_records": False}
    return Contender(name=name, run=lambda: session.ask("copy", **job))


def cold_and_warm(
    place: Place,
    name: str,
    cold: Maker,
    warm: Callable[[Mapping[str, Session]], list[Row]],
    wanted: Mapping[str, str],
) -> list[Row]:
    """The first query of some new sessions; and, in the last of them, what `warm` measures."""
    values: dict[str, list[float]] = {kind: [] for kind in place.kinds}
    found: list[Row] = []
    for number in range(place.effort.cold_rounds):
        with place.sessions() as sessions:
            both = [cold(sessions, kind) for kind in place.kinds]
            for kind, taken in rates(name, both[:: 1 - 2 * (number % 2)], 1, 0).items():
                values[kind] += taken
            if number == place.effort.cold_rounds - 1:
                found = warm(sessions)
    return against_each(f"{name}, cold", values, wanted) + found


def aggregation(place: Place) -> list[Row]:
    topic = place.topic(100)

    def warm(sessions: Mapping[str, Session]) -> list[Row]:
        with beside_others(place, sessions) as every:
            return [
                found
                for value_bytes in place.effort.sizes
                for found in warm_aggregation(place, every, value_bytes)
            ]

    name = "read 100 B into an aggregation"

    def cold(sessions: Mapping[str, Session], kind: str) -> Contender:
        return reader(place, sessions, kind, topic)

    return cold_and_warm(place, name, cold, warm, {CONNECTOR: ">= 1"})


def warm_aggregation(place: Place, sessions: Mapping[str, Session], value_bytes: int) -> list[Row]:
    topic = place.topic(value_bytes)
    name = f"read {SIZES[value_bytes]} into an aggregation, warm"
    files = as_files(place, sessions[PARQUET], topic)
    all_of_them = [reader(place, sessions, kind, topic) for kind in [*place.kinds, ROWS]]
    all_of_them.append(aggregator(sessions[PARQUET], PARQUET, files))
    all_of_them.append(aggregator(sessions[READY], READY, ready_made(place, value_bytes)))
    all_of_them.append(aggregator(sessions[FAR], FAR, place.topics.source(OURS, topic)))
    found = rates(name, all_of_them, place.effort.rounds, 2)
    # What no source in Python is above.
    bound = {READY: found[READY], ROWS: found[ROWS]}
    return [
        *against_each(name, found, {CONNECTOR: ">= 2", ROWS: ">= 10"}),
        *(
            compared(
                f"{name}, {FAR} by {other}", {FAR: found[FAR], other: found[other]}, "M rows/s"
            )
            for other in (CONNECTOR, ROWS)
            if other in found
        ),
        compared(f"{name}, {READY} by {ROWS}", bound, "M rows/s"),
    ]


def ready_made(place: Place, value_bytes: int) -> dict[str, Any]:
    """As much as the topic has, of batches that are there already."""
    options = {
        "rows": str(place.effort.rows[value_bytes]),
        "value_bytes": str(value_bytes),
        "batch_rows": str(min(_READY_ROWS_MAX, _READY_BYTES // value_bytes)),
    }
    return {"format": READY, "options": options}


def as_files(place: Place, session: Session, topic: str) -> dict[str, Any]:
    """The same data as Parquet."""
    files = {"format": "parquet", "options": {"path": place.new_folder()}}
    source = place.topics.source(OURS, topic)
    job = {"sink": {**files, "mode": "overwrite"}, "rows": 0, "as_records": False}
    session.ask("copy", source=source, **job)
    return files


def into_files(place: Place) -> list[Row]:
    found: list[Row] = []
    with place.sessions() as made, beside_others(place, made) as sessions:
        for value_bytes in place.effort.sizes:
            topic = place.topic(value_bytes)
            files = as_files(place, sessions[PARQUET], topic)
            slow = place.topics.source(ROWS, topic, place.effort.slow_rows)
            sources = {kind: place.topics.source(kind, topic) for kind in place.kinds}
            writers = [
                file_writer(place, sessions[kind], kind, source)
                for kind, source in {**sources, ROWS: slow, PARQUET: files}.items()
            ]
            name = f"read {SIZES[value_bytes]} into Parquet, warm"
            found += against_each(name, rates(name, writers, place.effort.rounds, 1), {})
    return found


# -- writing


def writer(place: Place, session: Session, kind: str, value_bytes: int) -> Contender:
    rows = place.effort.written[value_bytes]

    def run() -> tuple[int, float]:
        with place.topics.new(rows) as topic:
            sink = place.topics.sink(kind, topic)
            return session.ask("write", rows=rows, value_bytes=value_bytes, sink=sink)

    return Contender(name=kind, run=run)


def copier(place: Place, session: Session, kind: str, value_bytes: int) -> Contender:
    name = place.topic(value_bytes)
    source = place.topics.source(kind, name)

    def run() -> tuple[int, float]:
        with place.topics.new(place.filled[name]) as topic:
            sink = place.topics.sink(kind, topic)
            job = {"source": source, "sink": sink, "rows": place.filled[name], "as_records": True}
            return session.ask("copy", **job)

    return Contender(name=kind, run=run)


def writing(place: Place) -> list[Row]:
    def cold(sessions: Mapping[str, Session], kind: str) -> Contender:
        return writer(place, sessions[kind], kind, 100)

    def warm(sessions: Mapping[str, Session]) -> list[Row]:
        return in_sizes(place, sessions, "write", writer)

    return cold_and_warm(place, "write 100 B", cold, warm, {})


def copying(place: Place) -> list[Row]:
    with place.sessions() as sessions:
        return in_sizes(place, sessions, "topic to topic,", copier)


def in_sizes(
    place: Place,
    sessions: Mapping[str, Session],
    name: str,
    make: Callable[[Place, Session, str, int], Contender],
) -> list[Row]:
    found: list[Row] = []
    for value_bytes in place.effort.sizes:
        both = [make(place, sessions[kind], kind, value_bytes) for kind in place.kinds]
        what = f"{name} {SIZES[value_bytes]}, warm"
        found += against_each(
            what, rates(what, both, place.effort.rounds, 2), {CONNECTOR: ">= 1.4"}
        )
    return found


# -- memory


def worker_memory(place: Place) -> list[Row]:
    """Of the largest Python worker, after a small range and after a large one."""
    topic = place.topic(1000)
    rows = place.effort.rows[1000]
    with our_session(place.folder / OURS) as session:
        # Enough to fill what a worker keeps, in `--quick` too.
        small = rows // 3
        session.ask("aggregate", source=place.topics.source(OURS, topic, small))
        little = session.worker_mb_max()
        session.ask("aggregate", source=place.topics.source(OURS, topic))
        much = session.worker_mb_max()
    what = "peak memory of a Python worker that reads 1 KB"
    with our_session(place.folder / OURS) as session:
        written, _ = writer(place, session, OURS, 1000).run()
        writes = session.worker_mb_max()
    return [
        row(
            f"{what}: {rows} records, against {small}",
            much / little,
            f"x ({much:.0f} MB)",
            "<= 1.1",
        ),
        row(f"peak memory of a Python worker that writes {written} of 1 KB", writes, "MB"),
    ]


def new_place(topics: Topics, folder: Path, home: SparkHome | None, effort: Effort) -> Place:
    return Place(topics=topics, folder=folder, home=home, effort=effort, filled={}, numbers=count())
