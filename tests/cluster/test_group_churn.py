"""Groups of members of five kinds at once, confluent-kafka (both protocols), aiokafka, kafka-python
and kafkajs, while members join, leave, crash, stop and are slow, and coordinators are killed,
stopped and frozen (A5, V15).

Afterwards somebody has read each record, and the journal says that no partition had two owners
in one generation, that no commit went back, and that none was lost which was acknowledged. The
long form draws more of it from a seed:

    pytest tests/cluster/test_group_churn.py --rounds 10 --timeout 0
"""

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer, TopicPartition

from support.churning import CLIENTS, Churn, command_of, run_until
from support.cluster_processes import BrokerProcess, Cluster
from support.group_journal import OFFSETS
from tidelog.coordinators import hash_of

PARTITIONS = 6
MEMBERS = 3
WRITTEN_AT_ONCE = 20
COORDINATOR_GOES = 0.4
HAPPENINGS = (Churn.join, Churn.leave, Churn.crash, Churn.pause, Churn.resume, Churn.slow_down)
WAYS = (BrokerProcess.kill, BrokerProcess.stop, BrokerProcess.pause)

Tell = Callable[[str], None]


class Writer:
    """Writes a little whenever it is its turn, and knows how much has come in."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
        self._numbers = count()
        self.ends = dict.fromkeys(range(PARTITIONS), 0)

    def write(self) -> None:
        for number in (next(self._numbers) for _ in range(WRITTEN_AT_ONCE)):
            self._producer.produce(
                self._topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._note
            )
        self._producer.poll(0.05)

    def _note(self, error: object, message: TopicPartition) -> None:
        assert error is None, f"not written: {error}"
        self.ends[message.partition()] = max(self.ends[message.partition()], message.offset() + 1)

    def finish(self) -> None:
        assert self._producer.flush(60) == 0


class Stage:
    def __init__(self, cluster: Cluster, groups: list[Churn], writer: Writer, tell: Tell) -> None:
        self.cluster = cluster
        self.groups = groups
        self.writer = writer
        self._tell = tell

    def each(self, act: Callable[[Churn], None], what: str) -> None:
        self._tell(f"{what} in each group")
        for group in self.groups:
            act(group)
            self.writer.write()

    def settle(self) -> None:
        for group in self.groups:
            settled = partial(group.is_settled, PARTITIONS)
            run_until(settled, self.writer.write, group.state)

    def lose_coordinator(self, group: Churn, how: Callable[[BrokerProcess], None]) -> None:
        """Another is there when this returns. Whoever was it before comes back by `heal`: one that
        was frozen wakes as a zombie."""
        tree = self.cluster.tree
        partition = hash_of(group.name) % len(tree.replicas(OFFSETS))
        broker = self.cluster.leader(OFFSETS, partition)
        self._tell(f"{how.__name__} of broker {broker.broker_id}, which coordinates {group.name}")
        how(broker)
        gone = (-1, broker.broker_id)
        run_until(
            lambda: tree.leader(OFFSETS, partition) not in gone, self.writer.write, group.state
        )

    def play(self, draw: Random) -> None:
        """Something else happens to each group."""
        for group in self.groups:
            happening = draw.choice(HAPPENINGS)
            self._tell(f"{happening.__name__} in {group.name}")
            happening(group)
            self.writer.write()
        if draw.random() < COORDINATOR_GOES:
            self.lose_coordinator(draw.choice(self.groups), draw.choice(WAYS))
            self.cluster.heal()
        for group in self.groups:
            while len(group.members) < MEMBERS:
                group.join()
        self.settle()

    def end(self) -> None:
        """All is read; then what the coordinators wrote is looked at."""
        self.writer.finish()
        ends = self.writer.ends
        for group in self.groups:
            run_until(partial(group.has_read, ends), _wait, group.state)
        for group in self.groups:
            group.check_journal(len(self.cluster.tree.replicas(OFFSETS)), PARTITIONS)
        self._tell(f"{sum(ends.values())} records were read in each of {len(self.groups)} groups")


def _wait() -> None:
    time.sleep(0.1)


@pytest.fixture
def stage(cluster: Cluster, topic: str, tmp_path: Path, tell: Tell) -> Iterator[Stage]:
    known = [client for client in CLIENTS if command_of(client) is not None]
    if os.environ.get("TIDELOG_REQUIRE_CLIENTS"):
        assert known == list(CLIENTS), "see .ci/install-clients"
    cluster.create(topic, PARTITIONS)
    groups = [Churn(client, cluster.bootstrap, topic, tmp_path) for client in known]
    try:
        made = Stage(cluster, groups, Writer(cluster.bootstrap, topic), tell)
        for _ in range(MEMBERS):
            made.each(Churn.join, "a member joins")
        made.settle()
        yield made
    finally:
        for group in groups:
            group.close()


def test_nothing_is_skipped_and_no_commit_goes_back_whatever_members_and_coordinators_do(
    stage: Stage, seed: int, rounds: int
) -> None:
    stage.each(Churn.join, "a member joins")
    stage.each(Churn.crash, "a member is killed")
    stage.each(Churn.slow_down, "a member is slow")
    stage.lose_coordinator(stage.groups[0], BrokerProcess.kill)
    stage.cluster.heal()
    stage.settle()
    stage.each(Churn.pause, "a member stops")
    stage.lose_coordinator(stage.groups[0], BrokerProcess.stop)
    stage.each(Churn.leave, "another leaves")
    stage.each(Churn.join, "a member joins")
    stage.cluster.heal()
    stage.settle()
    draw = Random(seed)
    for _ in range(1, rounds):
        stage.play(draw)
    stage.lose_coordinator(stage.groups[1], BrokerProcess.pause)
    stage.each(Churn.resume, "the one that stopped goes on")
    stage.cluster.heal()
    stage.settle()
    stage.end()
