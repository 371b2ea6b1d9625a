"""What exactly once costs a Spark query: the sink with `delivery=exactly-once` against without.

A batch of a million rows of 100 bytes is written to a new topic; and a streaming query reads a
topic in micro-batches of a million and writes them to another. Warm, in turns; what was written is
counted by a reader of committed records, outside the time that is taken.
"""

import shutil
from collections.abc import Callable
from itertools import count

from bench.groups.place import Place
from bench.load.contest import Row, compared, in_turns, tell
from bench.spark.scenarios import Contender
from bench.spark.side import Session, our_session
from bench.spark.topics import Topics

MILLION = 1_000_000
BATCHES = 2
WANTED = ">= 0.8"
_VALUE_BYTES = 100
_DELIVERIES = ("exactly-once", "at-least-once")


class Sinks:
    def __init__(self, place: Place, session: Session, topics: Topics) -> None:
        self._place, self._session, self._topics = place, session, topics
        self._numbers = count()

    def write(self, delivery: str) -> tuple[int, float]:
        """A batch."""
        job = {"rows": MILLION, "value_bytes": _VALUE_BYTES}
        return self._into_new(
            delivery, MILLION, lambda sink: self._session.ask("write", sink=sink, **job)
        )

    def stream(self, delivery: str, source: str, rows: int) -> tuple[int, float]:
        """Micro-batches, until the source is read."""
        reading = self._topics.source("tidelog", source)
        reading["options"]["maxOffsetsPerTrigger"] = str(MILLION)
        checkpoint = str(self._place.folder / f"checkpoint-{next(self._numbers)}")
        job = {"source": reading, "checkpoint": checkpoint, "rows": rows}
        return self._into_new(
            delivery, rows, lambda sink: self._session.ask("stream", sink=sink, **job)
        )

    def _into_new(
        self, delivery: str, rows: int, run: Callable[[dict[str, object]], tuple[int, float]]
    ) -> tuple[int, float]:
        with self._topics.made() as topic:
            sink = self._topics.sink("tidelog", topic)
            sink["options"]["delivery"] = delivery
            found = run(sink)
            source = self._topics.source("tidelog", topic)
            source["options"]["kafka.isolation.level"] = "read_committed"
            written, _ = self._session.ask("aggregate", source=source)
        if written != rows:
            raise RuntimeError(f"{written} records were written where {rows} should have been")
        return found


def sink(place: Place) -> list[Row]:
    if shutil.which("java") is None:
        raise RuntimeError("there is no `java` here, and so no Spark")
    topics = Topics(place.side.broker)
    try:
        with our_session(place.folder / "spark") as session:
            return _compared(place, Sinks(place, session, topics), topics)
    finally:
        topics.close()


def _compared(place: Place, sinks: Sinks, topics: Topics) -> list[Row]:
    rows = topics.fill("sunk", BATCHES * MILLION, _VALUE_BYTES)
    what = f"exactly-once sink against at-least-once, {_VALUE_BYTES} B"

    def writes(delivery: str) -> Contender:
        return Contender(name=delivery, run=lambda: sinks.write(delivery))

    def streams(delivery: str) -> Contender:
        return Contender(name=delivery, run=lambda: sinks.stream(delivery, "sunk", rows))

    return [
        _rates(place, f"{what}, a batch of a million rows", writes),
        _rates(place, f"{what}, a stream in batches of a million rows", streams),
    ]


def _rates(place: Place, what: str, make: Callable[[str], Contender]) -> Row:
    tell(what)

    def rate(one: Contender) -> float:
        rows, seconds = one.run()
        tell(f"{one.name}: {rows / seconds / MILLION:.2f} M rows/s")
        return rows / seconds / MILLION

    sides = [make(delivery) for delivery in _DELIVERIES]
    return compared(what, in_turns(sides, place.effort.sink_rounds, rate), "M rows/s", WANTED)
