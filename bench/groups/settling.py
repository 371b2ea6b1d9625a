"""How soon a group of a hundred members over three hundred partitions is itself again.

One member leaves, then one joins, and again. A group has settled when all of its members are in
one generation, or epoch, and every partition is with one of them. The times are the slowest seen,
as somebody waits for each of them; so is the CPU that the broker used meanwhile, which has the
heartbeats of all members in it.
"""

import time
from collections.abc import Callable, Sequence

from bench.groups.crowd import Crowd
from bench.groups.members import (
    INTERVAL_SECONDS,
    ClassicMember,
    NewerMember,
    has_settled,
)
from bench.groups.place import Place
from bench.load.contest import Row, row, tell
from bench.load.frames import Topic
from bench.load.processes import fine_cpu_seconds

MEMBERS, PARTITIONS = 100, 300
SETTLING_SECONDS_MAX = 30
_PAUSE_SECONDS = 0.7
"""Between two changes: the next one comes at another point of the heartbeats."""

AnyMember = ClassicMember | NewerMember


class Group:
    def __init__(self, place: Place, topic: Topic, kind: Callable[..., AnyMember]) -> None:
        self._broker = place.side.broker
        self._crowd = Crowd(self._broker.address)
        self._kind, self._topic = kind, topic
        self.name = kind.__name__
        self.members: list[AnyMember] = []

    def form(self) -> tuple[float, float]:
        """All members join at once."""
        return self._timed(self._all_come)

    def leave(self, number: int) -> tuple[float, float]:
        leaver = self.members.pop(number % len(self.members))
        return self._timed(leaver.leave)

    def join(self) -> tuple[float, float]:
        return self._timed(lambda: self._come(0.5))

    def pause(self) -> None:
        self._crowd.run_for(_PAUSE_SECONDS)

    def close(self) -> None:
        self._crowd.close()

    def _all_come(self) -> None:
        for number in range(MEMBERS):
            self._come(number / MEMBERS)

    def _come(self, phase: float) -> None:
        new = self._kind(self._crowd, self.name, self._topic, PARTITIONS)
        self.members.append(new)
        new.join()
        new.start_beating(phase * INTERVAL_SECONDS)

    def _timed(self, change: Callable[[], object]) -> tuple[float, float]:
        """Seconds until it has settled, and how much of the CPU the broker used."""
        after = max((member.step for member in self.members), default=-1)
        before, began = fine_cpu_seconds(self._broker.pid), time.monotonic()
        change()
        self._crowd.run_until(
            lambda: has_settled(self.members, PARTITIONS, after), SETTLING_SECONDS_MAX
        )
        return time.monotonic() - began, fine_cpu_seconds(self._broker.pid) - before


def settling(place: Place) -> list[Row]:
    topic = place.side.new_topic(PARTITIONS)
    return [
        *_settling_of(place, Group(place, topic, ClassicMember), "classic"),
        *_settling_of(place, Group(place, topic, NewerMember), "newer"),
    ]


def _settling_of(place: Place, group: Group, protocol: str) -> list[Row]:
    tell(f"a group of {MEMBERS} members, {protocol} protocol")
    try:
        formed = group.form()
        left, joined = [], []
        for number in range(place.effort.changes):
            group.pause()
            # Now and then it is the one that leads.
            left.append(group.leave(number * 37))
            group.pause()
            joined.append(group.join())
    finally:
        group.close()
    what = f"{protocol} group of {MEMBERS} members, {PARTITIONS} partitions"
    return [
        *_rows(f"{what}: a member leaves", left),
        *_rows(f"{what}: a member joins", joined),
        row(f"{what}: all join at once", formed[0], f"s ({formed[1]:.2f} s of CPU)"),
    ]


def _rows(what: str, taken: Sequence[tuple[float, float]]) -> list[Row]:
    seconds, cpu = max(one for one, _ in taken), max(one for _, one in taken)
    told = ", ".join(f"{one:.2f}" for one, _ in taken)
    told_cpu = ", ".join(f"{one * 1000:.0f}" for _, one in taken)
    return [
        row(f"{what}: settled after", seconds, f"s (each time: {told})", "<= 2"),
        row(f"{what}: the broker's CPU", cpu * 1000, f"ms (each time: {told_cpu})", "<= 200"),
    ]
