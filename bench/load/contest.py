"""Brokers measured in turns, and the rows of the table that come of it.

Machines differ and are noisy, so that a figure means little and the ratio of two much more: both
sides do the same work in every round, the order is flipped each round, and a row is the median of
the rounds' ratios. With one side only, a row is that side's figure and has no verdict.
"""

import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import strftime
from typing import Any, Protocol, TypeVar

from bench.load.brokers import Broker
from bench.load.frames import Topic
from bench.load.generator import Generator, Load, Stream
from bench.load.target import Target

Row = dict[str, Any]
Loads = dict[str, list[Load]]


class Side:
    """A broker that runs, and topics on it."""

    def __init__(self, broker: Broker, generator: Generator) -> None:
        self.broker = broker
        self.name = broker.name
        self.targets = {client: broker.target(client) for client in ("java", "librdkafka")}
        self.target: Target = self.targets["java"]
        self._generator = generator
        self._topics = 0

    @property
    def pid(self) -> int:
        return self.broker.pid

    def run(self, *streams: Stream, seconds: float, warm_up: float = 0.3) -> list[Load]:
        address = self.broker.address
        return self._generator.run(
            address, streams, pids=[self.pid], seconds=seconds, warm_up=warm_up
        )

    def new_topic(self, partitions: int = 1) -> Topic:
        self._topics += 1
        return self.target.create_topic(f"bench-{self._topics}", partitions)

    @contextmanager
    def topic(self, partitions: int = 1) -> Iterator[Topic]:
        topic = self.new_topic(partitions)
        yield topic
        self.delete(topic)

    def delete(self, topic: Topic) -> None:
        self.target.delete_topic(topic)
        self.broker.await_deleted(topic.name)

    def close(self) -> None:
        for target in self.targets.values():
            target.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What is read off a load, in which unit, and what the ratio of it should be."""

    name: str
    unit: str
    of: Callable[[Load], float]
    target: str = ""


class Named(Protocol):
    @property
    def name(self) -> str: ...


Contender = TypeVar("Contender", bound=Named)
Found = TypeVar("Found")


def in_turns(
    sides: Sequence[Contender],
    rounds: int,
    measure: Callable[[Contender], Found],
    warm_rounds: int = 1,
) -> dict[str, list[Found]]:
    taken: dict[str, list[Found]] = {side.name: [] for side in sides}
    for number in range(-warm_rounds, rounds):
        for side in sides if number % 2 else reversed(sides):
            found = measure(side)
            if number >= 0:
                taken[side.name].append(found)
    return taken


def rows(what: str, loads: Loads, *figures: Figure) -> list[Row]:
    return [
        compared(
            f"{what}: {figure.name}",
            {name: [figure.of(load) for load in of_side] for name, of_side in loads.items()},
            figure.unit,
            figure.target,
        )
        for figure in figures
    ]


def compared(name: str, values: dict[str, list[float]], unit: str, target: str = "") -> Row:
    """The first side as a multiple of the second."""
    middles = {side: median(of_side) for side, of_side in values.items()}
    if len(values) == 1:
        (side, value), *_ = middles.items()
        return row(f"{name} ({side} alone)", value, unit)
    ours, others = values.values()
    ratio = median(one / other for one, other in zip(ours, others, strict=True))
    told = ", ".join(f"{side} {value:.4g}" for side, value in middles.items())
    return row(name, ratio, f"x ({told} {unit})", target)


def row(name: str, value: float, unit: str, target: str = "") -> Row:
    """`target` is like `<= 0.5`; whether it is met is written behind it."""
    if target:
        relation, number = target.split()
        is_met = value <= float(number) if relation == "<=" else value >= float(number)
        target = f"{target} {'met' if is_met else 'MISSED'}"
    return {"name": name, "value": float(value), "unit": unit, "target": target}


def add_only(parser: ArgumentParser, scenarios: Iterable[str]) -> None:
    """`--only`: some of the scenarios, by name."""
    known = list(scenarios)

    def names(told: str) -> list[str]:
        wanted = told.split(",")
        if unknown := sorted(set(wanted) - set(known)):
            told = f"no scenario {', '.join(unknown)}; there are {', '.join(known)}"
            raise ArgumentTypeError(told)
        return wanted

    parser.add_argument("--only", type=names, default=known, help=f"of: {','.join(known)}")


def taken(scenarios: Mapping[str, Callable[[], list[Row]]]) -> list[Row]:
    """What one scenario cannot measure does not keep the others from it."""
    found: list[Row] = []
    for name, scenario in scenarios.items():
        try:
            new = scenario()
        except (RuntimeError, OSError) as error:
            print(f"not measured: {name}: {error}", file=sys.stderr)
            continue
        found += new
        # A run takes minutes: who ends it early keeps what it has measured.
        for one in new:
            tell(f"{one['name']}: {one['value']:.3g} {one['unit']} {one['target']}")
    return found


def tell(what: str) -> None:
    print(f"  {strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)
