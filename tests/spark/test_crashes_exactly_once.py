"""A streaming query from a topic exactly once into another, while its driver, its Python processes
and the brokers it depends on are killed, in every phase: a reader of committed records sees what
became of each input exactly once, and no transaction stays open (P4).

Three kills, one after the other, are part of the other tests. The long form has all of them:

    pytest tests/spark/test_crashes_exactly_once.py --long --timeout 0
"""

import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from support.cluster_processes import Cluster, wait_until
from support.held_driver import HeldDriver
from support.held_sink import ALL_PREPARED, CARRIED_OUT, DECIDED, HALFWAY, PREPARED
from support.held_story import IDLE, PARTITIONS, SOURCE_DOORS, Kill, Story, content
from support.topic_rows import by_confluent
from tidelog.client.client import Client
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.client.transactions import (
    Transaction,
    TransactionFilter,
    describe_transactions,
    list_transactions,
)
from tidelog.spark.deciding import last_decision
from tidelog.spark.decisions import group_of

IN_DRIVER: Final = (ALL_PREPARED, DECIDED, HALFWAY, CARRIED_OUT)
IN_SINK: Final = (PREPARED, *IN_DRIVER)
IN_TASKS: Final = ("reading", "writing", PREPARED)
PHASES: Final = (*SOURCE_DOORS, *IN_SINK, IDLE)
VICTIMS: Final = {"driver": PHASES, "worker": PHASES, "leader": PHASES, "coordinator": IN_SINK}
THREE: Final = (("worker", PREPARED), ("driver", DECIDED), ("coordinator", HALFWAY))
HARMLESS: Final = {
    *(("leader", phase) for phase in PHASES),
    *(("coordinator", phase) for phase in IN_SINK),
    *(("worker", phase) for phase in IN_TASKS),
}
"""The query does not even fail."""
ENDING: Final = ("PrepareCommit", "PrepareAbort")


class TopicStory(Story):
    doors = SOURCE_DOORS | {phase: phase for phase in IN_SINK}
    under_way = ("logged", *IN_TASKS, *IN_DRIVER)

    def __init__(self, cluster: Cluster, topic: str, target: str, folder: Path) -> None:
        super().__init__(cluster, topic, HeldDriver(folder, cluster.bootstrap, topic, target))
        self.target = target
        self.client = Client(cluster.bootstrap)

    def reach(self, phase: str) -> int:
        waiting = super().reach(phase)
        if phase in IN_SINK:
            decision = last_decision(self.client, self.driver.query())
            assert decision is not None
            is_decided = decision.batch == self.driver.planned()
            assert is_decided == (phase in (DECIDED, HALFWAY, CARRIED_OUT))
            assert bool(self.listed("Ongoing")) == (phase != CARRIED_OUT)
        return waiting

    def kill(self, victim: str, waiting: int) -> None:
        match victim:
            case "leader":
                self.cluster.leader(self.target, 0).kill()
            case "coordinator":
                self.cluster.brokers[self._coordinator()].kill()
            case _:
                super().kill(victim, waiting)

    def _coordinator(self) -> int:
        """Of the decisions' transactions."""
        name = group_of(self.driver.query())
        found = describe_transactions(self.client, [name])[name]
        assert isinstance(found, Transaction)
        return found.coordinator

    def listed(self, *states: str) -> list[str]:
        found = list_transactions(self.client, TransactionFilter(states=states))
        prefix = group_of(self.driver.query())
        return [one.transactional_id for one in found if one.transactional_id.startswith(prefix)]

    def check(self) -> None:
        self.wait_until_idle()
        assert self.listed("Ongoing") == []
        wait_until(lambda: not self.listed(*ENDING), "what was ended has come to its end")
        everywhere = dict.fromkeys(range(PARTITIONS), LATEST)
        ends = list_offsets(self.client, self.target, everywhere)
        assert list_offsets(self.client, self.target, everywhere, committed_only=True) == ends
        rows = by_confluent(
            self.cluster.bootstrap, self.target, PARTITIONS, isolation_level="read_committed"
        )
        seen = Counter((row.key, row.value, row.headers) for row in rows)
        wanted = Counter(map(content, range(self.produced)))
        lost, added = wanted - seen, seen - wanted
        assert (len(lost), len(added)) == (0, 0), f"{list(lost)[:3]} lost, {list(added)[:3]} twice"

    def heal(self) -> None:
        """So that any one broker may be killed next."""
        self.cluster.heal()
        for topic in (self.topic, self.target, "__consumer_offsets", "__transaction_state"):
            self.cluster.wait_in_sync(topic)


@pytest.fixture
def story(brokers: Cluster, tmp_path: Path) -> Iterator[TopicStory]:
    topic = f"crashes-{uuid.uuid4().hex[:8]}"
    brokers.heal()
    for name in (topic, f"{topic}.out"):
        brokers.create(name, partitions=PARTITIONS)
    made = TopicStory(brokers, topic, f"{topic}.out", tmp_path)
    made.produce()
    try:
        made.driver.start()
        made.driver.wait_until(lambda: made.driver.committed() >= 0, "a batch is written")
        yield made
    finally:
        made.driver.close()
        made.client.close()
        brokers.heal()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    stories: dict[str, tuple[Kill, ...]] = {"three kills": THREE}
    if metafunc.config.getoption("--long", False):
        for victim, phases in VICTIMS.items():
            stories[f"{victim} in every phase"] = tuple((victim, phase) for phase in phases)
    metafunc.parametrize("kills", stories.values(), ids=stories)


@pytest.mark.timeout(1800)
def test_each_input_has_its_output_once_whoever_is_killed_and_when(
    story: TopicStory, kills: tuple[Kill, ...]
) -> None:
    """P4"""
    for kill in kills:
        failures = len(story.driver.failures())
        story.strike(*kill)
        story.heal()
        if kill in HARMLESS:
            assert story.driver.failures()[failures:] == [], f"the query has not noticed {kill}"
        story.check()
        print(f"{' '.join(kill)}: {story.produced} records, each once")
    story.driver.finish()
