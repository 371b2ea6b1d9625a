"""A streaming query from a topic into a table, while its driver, its Python processes and the
leaders it reads from are killed, in every phase: nothing is lost, the table holds each record once,
and a batch that is run again reads exactly the same records (P1, P3).

Three kills, one after the other, are part of the other tests. The long form has every kill alone:

    pytest tests/spark/test_crashes.py --long --timeout 0
"""

import itertools
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from support.cluster_processes import Cluster
from support.held_driver import HeldDriver
from support.held_story import IDLE, PARTITIONS, SOURCE_DOORS, Kill, Story
from support.topic_rows import Row, by_confluent
from tidelog.spark.offsets import each_partition

BETWEEN_COMMITS: Final = "between the commits"
PHASES: Final = (*SOURCE_DOORS, BETWEEN_COMMITS, IDLE)
VICTIMS: Final = ("driver", "worker", "leader")
IN_TASKS: Final = ("reading", "writing")
WHILE_TASKS_READ: Final = (("leader", "reading"), ("worker", "reading"), ("driver", "reading"))
HARMLESS: Final = {
    *(("leader", phase) for phase in PHASES),
    *(("worker", phase) for phase in IN_TASKS),
}
"""The query does not even fail."""
RUN_AGAIN: Final = {(victim, phase) for victim in ("driver", "worker") for phase in IN_TASKS}
"""Tasks had read something, and read it again."""


class TableStory(Story):
    under_way = ("logged", "reading", "writing", BETWEEN_COMMITS)

    def reach(self, phase: str) -> int:
        if phase == BETWEEN_COMMITS:
            self.driver.stop_between_the_commits(self.produce)
            return self.driver.planner()
        waiting = super().reach(phase)
        if phase == "writing":
            self.driver.wait_until(self.driver.has_written_a_file, "another task is done")
        return waiting

    def leave(self, phase: str, *, is_driver_dead: bool) -> None:
        super().leave(phase, is_driver_dead=is_driver_dead)
        if phase == BETWEEN_COMMITS and not is_driver_dead:
            self.driver.signal_driver(signal.SIGCONT)

    def check(self) -> None:
        self.driver.finish()
        rows = by_confluent(self.cluster.bootstrap, self.topic, PARTITIONS)
        assert len(rows) == self.produced
        batches = range(self.driver.committed() + 1)
        in_table = [row for batch in batches for row in self.driver.table(batch)]
        assert sorted(in_table) == rows
        for batch in batches:
            assert self.driver.table(batch) == self._meant_for(batch, rows)
        for batch, text in self.plans.items():
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
def story(brokers: Cluster, tmp_path: Path) -> Iterator[TableStory]:
    topic = f"crashes-{uuid.uuid4().hex[:8]}"
    brokers.heal()
    brokers.create(topic, partitions=PARTITIONS)
    made = TableStory(brokers, topic, HeldDriver(tmp_path, brokers.bootstrap, topic))
    made.produce()
    try:
        made.driver.start()
        yield made
    finally:
        made.driver.close()
        brokers.heal()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    stories: list[tuple[Kill, ...]] = [WHILE_TASKS_READ]
    if metafunc.config.getoption("--long", False):
        stories += [(kill,) for kill in itertools.product(VICTIMS, PHASES)]
    names = [", ".join(" ".join(kill) for kill in kills) for kills in stories]
    metafunc.parametrize("kills", stories, ids=names)


@pytest.mark.timeout(900)
def test_each_record_is_in_the_table_once_whoever_is_killed_and_when(
    story: TableStory, kills: tuple[Kill, ...]
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
