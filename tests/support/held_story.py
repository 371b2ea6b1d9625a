"""What happens to a streaming query over a topic: its driver, its Python processes and brokers are
killed, in a phase that is reached on purpose, and it goes on.

A `Story` holds one query. What it writes, and into what, is for those who derive from it.
"""

import os
import signal
from collections.abc import Collection, Mapping
from typing import Final

from confluent_kafka import Producer

from support.cluster_processes import Cluster
from support.held_driver import HeldDriver
from support.held_query import ROWS_IN_A_BATCH
from support.held_source import DIVIDING, PLANNED, PLANNING, READ, READING

PARTITIONS: Final = 3
SOURCE_DOORS: Final = {
    "planning": PLANNING,
    "planned": PLANNED,
    "logged": DIVIDING,
    "reading": READING,
    "writing": READ,
}
IDLE: Final = "idle"
Kill = tuple[str, str]
"""Victim and phase."""
Content = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Key, value and headers."""


def content(number: int) -> Content:
    """Of the so-many-th record that is produced."""
    name = b"%d" % number
    return name, name.rjust(300), (("number", name),)


class Story:
    doors: Mapping[str, str] = SOURCE_DOORS
    """By the phases in which somebody waits at them."""
    under_way: Collection[str] = ()
    """Phases in which Spark has logged a batch, and not that it is done."""

    def __init__(self, cluster: Cluster, topic: str, driver: HeldDriver) -> None:
        self.cluster = cluster
        self.topic = topic
        self.driver = driver
        self.produced = 0
        # It would tell of each broker that is killed.
        self._sender = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        self.plans: dict[int, str] = {}
        """Of batches that were logged and not done when something was killed."""

    def produce(self) -> None:
        """Some more than a batch takes, all over the partitions."""
        count = ROWS_IN_A_BATCH + 100
        for number in range(self.produced, self.produced + count):
            key, value, headers = content(number)
            place = {"partition": number % PARTITIONS, "headers": list(headers)}
            self._sender.produce(self.topic, key=key, value=value, **place)
        assert self._sender.flush(120) == 0
        self.produced += count

    def strike(self, victim: str, phase: str) -> None:
        """Returns when the query has got over it."""
        waiting = self.reach(phase)
        batch = self.driver.planned()
        is_under_way = batch > self.driver.committed()
        assert is_under_way == (phase in self.under_way)
        if is_under_way:
            self.plans[batch] = self.driver.plan_text(batch)
        self.kill(victim, waiting)
        self.produce()
        self.leave(phase, is_driver_dead=victim == "driver")
        if victim == "driver":
            self.driver.start()
        self.driver.wait_until(lambda: self.driver.committed() > batch, "the query goes on")

    def reach(self, phase: str) -> int:
        """The process of Python's that is busy then."""
        if phase in self.doors:
            self.driver.doors.close(self.doors[phase])
            self.produce()
            return self.driver.doors.wait_for_somebody(self.doors[phase])
        self.wait_until_idle()
        return self.driver.planner()

    def wait_until_idle(self) -> None:
        self.driver.wait_until(lambda: self.driver.read_so_far() == self.produced, "all is read")

    def kill(self, victim: str, waiting: int) -> None:
        match victim:
            case "driver":
                self.driver.kill()
            case "worker":
                os.kill(waiting, signal.SIGKILL)
            case "leader":
                self.cluster.leader(self.topic, 0).kill()
            case _:
                raise AssertionError(f"nobody knows how to kill a {victim}")

    def leave(self, phase: str, *, is_driver_dead: bool) -> None:
        del is_driver_dead
        if phase in self.doors:
            self.driver.doors.open(self.doors[phase])
