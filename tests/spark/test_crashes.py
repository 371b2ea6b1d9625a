"""A streaming query from a topic into a table, while its driver, its Python processes and the
leaders it reads from are killed, in every phase: nothing is lost, the table holds each record once,
and a batch that is run again reads exactly the same records (P1, P3).

Three kills, one after the other, are part of the other tests. The long form has every kill alone:

    pytest tests/spark/test_crashes.py --long --timeout 0
"""

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from support.cluster_processes import Cluster
from support.held_driver import HeldDriver
from support.held_query import ROWS_IN_A_BATCH
from support.held_source import DIVIDING, PLANNED, PLANNING, READ, READING
from support.topic_rows import Row, by_confluent
from tidelog.spark.offsets import each_partition

PARTITIONS: Final = 3
DOORS: Final = {
    "planning": PLANNING,
    "planned": PLANNED,
    "logged": DIVIDING,
    "reading": READING,
    "writing": READ,
}
BETWEEN_COMMITS: Final = "between the commits"
IDLE: Final = "idle"
PHASES: Final = (*DOORS, BETWEEN_COMMITS, IDLE)
VICTIMS: Final = ("driver", "worker", "leader")
Kill = tuple[str, str]
"""Victim and phase."""
UNDER_WAY: Final = ("logged", "reading", "writing", BETWEEN_COMMITS)
"""Spark has logged a batch, and not that it is done."""
IN_TASKS: Final = ("reading", "writing")
WHILE_TASKS_READ: Final = (("leader", "reading"), ("worker", "reading"), ("driver", "reading"))
HARMLESS: Final = {
    *(("leader", phase) for phase in PHASES),
    *(("worker", phase) for phase in IN_TASKS),
}
"""The query does not even fail."""
RUN_AGAIN: Final = {(victim, phase) for victim in ("driver", "worker") for phase in IN_TASKS}
"""Tasks had read something, and read it again."""


class Story:
    """One query and what happens to it."""

    def __init__(self, cluster: Cluster, topic: str, folder: Path) -> None:
        self.cluster = cluster
        self.topic = topic
        self.driver = HeldDriver(folder, cluster.bootstrap, topic)
        self._produced = 0
        # It would tell of each broker that is killed.
        self._sender = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        self._plans: dict[int, str] = {}
        """Of batches that were logged and not done when something was killed."""

    def produce(self) -> None:
        """Some more than a batch takes, all over the partitions."""
        count = ROWS_IN_A_BATCH + 100
        for number in range(self._produced, self._produced + count):
            name = b"%d" % number
            place = {"partition": number % PARTITIONS, "headers": [("number", name)]}
            self._sender.produce(self.topic, key=name, value=name.rjust(300), **place)
        assert self._sender.flush(30) == 0
        self._produced += count

    def strike(self, victim: str, phase: str) -> None:
        """Returns when the query has got over it."""
        waiting = self._reach(phase)
        batch = self.driver.planned()
        is_under_way = batch > self.driver.committed()
        assert is_under_way == (phase in UNDER_WAY)
        if is_under_way:
            self._plans[batch] = self.driver.plan_text(batch)
        self._kill(victim, waiting)
        self.produce()
        self._leave(phase, is_driver_dead=victim == "driver")
        if victim == "driver":
            self.driver.start()
        self.driver.wait_until(lambda: self.driver.committed() > batch, "the query goes on")

    def _reach(self, phase: str) -> int:
        """The process of Python's that is busy then."""
        if phase in DOORS:
            self.driver.doors.close(DOORS[phase])
            self.produce()
            waiting = self.driver.doors.wait_for_somebody(DOORS[phase])
            if phase == "writing":
                self.driver.wait_until(self.driver.has_written_a_file, "another task is done")
            return waiting
        if phase == BETWEEN_COMMITS:
            self.driver.stop_between_the_commits(self.produce)
        else:
            self.driver.wait_until(self._is_idle, "all is read")
        return self.driver.planner()

    def _is_idle(self) -> bool:
        return self.driver.read_so_far() == self._produced

    def _kill(self, victim: str, waiting: int) -> None:
        match victim:
            case "driver":
                self.driver.kill()
            case "worker":
                os.kill(waiting, signal.SIGKILL)
            case "leader":
                self.cluster.leader(self.topic, 0).kill()

    def _leave(self, phase: str, *, is_driver_dead: bool) -> None:
        if phase in DOORS:
            self.driver.doors.open(DOORS[phase])
        elif phase == BETWEEN_COMMITS and not is_driver_dead:
            self.driver.signal_driver(signal.SIGCONT)

    def check(self) -> None:
        self.driver.finish()
        rows = by_confluent(self.cluster.bootstrap, self.topic, PARTITIONS)
        assert len(rows) == self._produced
        batches = range(self.driver.committed() + 1)
        in_table = [row for batch in batches for row in self.driver.table(batch)]
        assert sorted(in_table) == rows
        for batch in batches:
            assert self.driver.table(batch) == self._meant_for(batch, rows)
        for batch, text in self._plans.items():
            assert self.driver.plan_text(batch) == text
        self._check_attempts(rows)

    def _meant_for(self, batch: int, rows: list[Row]) -> list[Row]:
        plan = self.driver.plan(batch)
        starts = {one.partition: at for one, at in each_partition(plan.start)}
        ends = {one.partition: at for one, at in each_partition(plan.end)}
        return [row for row in rows if starts[row.partition] <= row.offset < ends[row.partition]]

    def _check_attempts(self, rows: list[Row]) -> None:
        for one in self.driver.attempts():
            wanted = [
                row
                for row in rows
                if row.partition == one.partition and one.start <= row.offset < one.end
            ]
            assert one.rows == wanted[: len(one.rows)], f"a task of batch {one.batch}"
            assert set(wanted) <= set(self.driver.table(one.batch))

    def tasks_run_again(self) -> int:
        tasks = [(one.batch, one.partition, one.start) for one in self.driver.attempts()]
        return len(tasks) - len(set(tasks))


@pytest.fixture
def story(brokers: Cluster, topic_names: Iterator[str], tmp_path: Path) -> Iterator[Story]:
    topic = next(topic_names)
    brokers.heal()
    brokers.create(topic, partitions=PARTITIONS)
    made = Story(brokers, topic, tmp_path)
    made.produce()
    try:
        made.driver.start()
        yield made
    finally:
        made.driver.close()
        brokers.heal()


@pytest.fixture(scope="session")
def topic_names() -> Iterator[str]:
    return (f"crashes-{number}" for number in itertools.count())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    stories: list[tuple[Kill, ...]] = [WHILE_TASKS_READ]
    if metafunc.config.getoption("--long", False):
        stories += [(kill,) for kill in itertools.product(VICTIMS, PHASES)]
    names = [", ".join(" ".join(kill) for kill in kills) for kills in stories]
    metafunc.parametrize("kills", stories, ids=names)


@pytest.mark.timeout(900)
def test_each_record_is_in_the_table_once_whoever_is_killed_and_when(
    story: Story, kills: tuple[Kill, ...]
) -> None:
    """P3"""
    for kill in kills:
        failures = len(story.driver.failures())
        story.strike(*kill)
        story.cluster.heal()
        if kill in HARMLESS:
            assert len(story.driver.failures()) == failures, "the query has not noticed"
    story.check()
    again = [kill for kill in kills if kill in RUN_AGAIN]
    assert story.tasks_run_again() >= len(again)
