"""Groups of real members while their coordinator dies, and while members come and go (A5, V15).

Whatever happens, each record is read by somebody, and what was acknowledged as committed never goes
back: whoever has a partition next goes on from there.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from clients.grouping import Reader
from support.cluster_processes import BrokerProcess, Cluster
from tidelog.coordinators import hash_of

OFFSETS = "__consumer_offsets"
PARTITIONS = 6
SECONDS_MAX = 60


class Group:
    """Members that read and commit what a producer goes on writing."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.name = f"group-of-{topic}"
        self.members = [self._new_member() for _ in range(3)]
        self.read: set[bytes] = set()
        self.written: set[bytes] = set()
        self.committed: dict[int, int] = {}
        self._numbers = count()
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})

    def _new_member(self) -> Reader:
        return Reader(self.cluster.bootstrap, self.name, self.topic, session_timeout_ms=6000)

    @property
    def coordinator(self) -> BrokerProcess:
        index = hash_of(self.name) % len(self.cluster.tree.replicas(OFFSETS))
        return self.cluster.leader(OFFSETS, index)

    def join(self) -> None:
        self.members.append(self._new_member())

    def leave(self) -> None:
        self.members.pop(0).consumer.close()

    def run_for(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            self._write()
            self._step()

    def run_out(self) -> None:
        """Writes no more, and reads until all has been read."""
        assert self._producer.flush(SECONDS_MAX) == 0
        ends = time.monotonic() + SECONDS_MAX
        while not self.written <= self.read:
            missing = len(self.written - self.read)
            assert time.monotonic() < ends, f"{missing} of {len(self.written)} were not read"
            self._step()

    def _write(self) -> None:
        for number in (next(self._numbers) for _ in range(20)):
            value = b"%d" % number
            self._producer.produce(
                self.topic,
                value=value,
                partition=number % PARTITIONS,
                on_delivery=self._delivered,
            )
        self._producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.written.add(message.value())

    def _step(self) -> None:
        for member in self.members:
            try:
                member.step()
            except KafkaException as error:
                if error.args[0].fatal():
                    raise
            self.read.update(member.values)
            self._commit(member)

    def _commit(self, member: Reader) -> None:
        """What is refused is somebody else's by now, or there is no coordinator for a while."""
        if not member.values:
            return
        member.values.clear()
        try:
            kept = member.consumer.commit(asynchronous=False)
        except KafkaException:
            return
        for found in kept:
            if found.error is None and found.offset >= 0:
                before = self.committed.get(found.partition, 0)
                assert found.offset >= before, f"{found.partition}: {before} to {found.offset}"
                self.committed[found.partition] = found.offset

    def close(self) -> None:
        for member in self.members:
            member.consumer.close()


@contextmanager
def at_work(cluster: Cluster, topic: str) -> Iterator[Group]:
    cluster.create(topic, PARTITIONS)
    group = Group(cluster, topic)
    try:
        group.run_for(4)
        assert group.committed, "the group is at work"
        yield group
        group.run_out()
        assert len(group.committed) == PARTITIONS
    finally:
        group.close()


@pytest.mark.parametrize("how", ["kill", "stop", "pause"])
def test_nothing_is_skipped_when_the_coordinator_goes(
    cluster: Cluster, topic: str, how: str
) -> None:
    with at_work(cluster, topic) as group:
        getattr(group.coordinator, how)()
        group.run_for(4)
        cluster.heal()
        group.run_for(2)


def test_nothing_is_skipped_when_members_come_and_go_while_brokers_do(
    cluster: Cluster, topic: str
) -> None:
    with at_work(cluster, topic) as group:
        group.join()
        group.run_for(1)
        group.coordinator.kill()
        group.run_for(2)
        group.leave()
        group.join()
        cluster.heal()
        group.run_for(1)
        group.coordinator.kill()
        group.leave()
        group.run_for(2)
        cluster.heal()
        group.run_for(1)
