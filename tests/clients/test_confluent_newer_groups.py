"""Groups of the newer protocol with `confluent-kafka` (`group.protocol=consumer`): A5, V15."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from support.servers import PEER, Server, new_server

PARTITIONS = 6
QUICK = {
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "30000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
}
SHORT_SESSIONS = {"group.consumer.session.timeout.ms": "1500"}
"""Only for members that are killed: another might be missed because the machine is busy."""
STRATEGY = "cooperative-sticky" if PEER == "" else "range"
"""Kafka lets no group turn over whose leader tells members more than partitions, as librdkafka's
cooperative assignor does although it means nothing to them."""
MEMBER = Path(__file__).with_name("newer_member.py")


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    """With settings of the test's own, if it has any."""
    made = new_server(tmp_path / "own", QUICK | getattr(request, "param", {}))
    try:
        made.start()
        yield made
    finally:
        made.close()


class Worker:
    """A member, and what it got: (partition, offset)."""

    def __init__(self, server: Server, name: str, topic: str = "t", **settings: Any) -> None:
        self.got: list[tuple[int, int]] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": server.address,
                "group.id": "g",
                "group.protocol": "consumer",
                "client.id": name,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 100,
                "log_level": 0,
                **settings,
            }
        )
        self.consumer.subscribe([topic])

    def work(self) -> None:
        message = self.consumer.poll(0.02)
        while message is not None:
            if message.error() is None:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                self.got.append((partition, offset))
            message = self.consumer.poll(0)

    @property
    def partitions(self) -> list[int]:
        return sorted(found.partition for found in self.consumer.assignment())

    def close(self) -> None:
        self.consumer.close()


def work_until(is_so: Callable[[], bool], *workers: Worker, seconds_max: float = 60) -> None:
    deadline = time.monotonic() + seconds_max
    while not is_so():
        assert time.monotonic() < deadline, [worker.partitions for worker in workers]
        for worker in workers:
            worker.work()


def are_shared(*workers: Worker) -> Callable[[], bool]:
    """Whether they have everything, each its share, none two of them."""

    def shared() -> bool:
        found = sorted(p for worker in workers for p in worker.partitions)
        sizes = [len(worker.partitions) for worker in workers]
        return found == list(range(PARTITIONS)) and max(sizes) - min(sizes) <= 1

    return shared


def make_topic(server: Server, name: str = "t") -> AdminClient:
    admin = AdminClient({"bootstrap.servers": server.address})
    (made,) = admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values()
    made.result(60)
    return admin


def first_worker(server: Server, count: int, **settings: Any) -> Worker:
    """A member that has read all there is before others come. A rebalance during its very first
    look-up of where a partition begins makes librdkafka (2.16 as well) look twice: an answer that
    is outdated starts its timer again beside the query that is under way, and what it then finds
    takes it back to the beginning of a partition that it has had all the time."""
    worker = Worker(server, "a", **settings)
    work_until(lambda: len(worker.got) >= count, worker)
    return worker


def produce(server: Server, count: int, topic: str = "t") -> None:
    producer = Producer({"bootstrap.servers": server.address, "log_level": 0})
    for number in range(count):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def test_v15_members_come_and_go_and_every_record_is_read_once(server: Server) -> None:
    admin = make_topic(server)
    produce(server, 600)
    a, b = first_worker(server, 600), Worker(server, "b")
    work_until(are_shared(a, b), a, b)
    c = Worker(server, "c")
    work_until(are_shared(a, b, c), a, b, c)
    produce(server, 600)
    work_until(lambda: len(a.got + b.got + c.got) >= 1200, a, b, c)
    (described,) = admin.describe_consumer_groups(["g"]).values()
    group = described.result(60)
    assert (group.state, group.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    assert sorted(member.client_id for member in group.members) == ["a", "b", "c"]
    b.close()
    work_until(are_shared(a, c), a, c)
    produce(server, 600)
    work_until(lambda: len(a.got + b.got + c.got) >= 1800, a, c)
    got = sorted(a.got + b.got + c.got)
    assert got == [(p, offset) for p in range(PARTITIONS) for offset in range(300)]
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(60)
    assert [found.group_id for found in listed.valid] == ["g"]
    a.close()
    c.close()


@pytest.mark.parametrize("server", [SHORT_SESSIONS], indirect=True, ids=["short sessions"])
def test_a5_what_a_killed_member_had_goes_to_the_others_and_nothing_is_skipped(
    server: Server,
) -> None:
    make_topic(server)
    produce(server, 600)
    a = Worker(server, "a")
    victim = subprocess.Popen(
        [sys.executable, str(MEMBER), server.address, "t"], stdout=subprocess.PIPE
    )
    try:
        work_until(lambda: len(a.partitions) == 3, a)
    finally:
        victim.kill()
        output, _ = victim.communicate()
    work_until(lambda: len(a.partitions) == PARTITIONS, a)
    produce(server, 60)
    its = [tuple(map(int, line.split())) for line in output.decode().splitlines()]
    expected = {(p, offset) for p in range(PARTITIONS) for offset in range(110)}
    work_until(lambda: {*a.got, *its} >= expected, a)
    a.close()


def test_a5_the_group_goes_on_where_it_was_when_the_broker_is_killed(server: Server) -> None:
    make_topic(server)
    produce(server, 600)
    a, b = first_worker(server, 600), Worker(server, "b")
    work_until(are_shared(a, b), a, b)
    everything = [TopicPartition("t", p) for p in range(PARTITIONS)]
    work_until(lambda: [f.offset for f in a.consumer.committed(everything)] == [100] * 6, a, b)
    server.kill()
    server.start()
    produce(server, 600)
    work_until(lambda: len(a.got + b.got) >= 1200, a, b)
    assert sorted(a.got + b.got) == [
        (p, offset) for p in range(PARTITIONS) for offset in range(200)
    ]
    a.close()
    b.close()
    again = Worker(server, "again")
    committed = again.consumer.committed(everything)
    assert [found.offset for found in committed] == [200] * PARTITIONS
    again.close()


def test_a5_a_static_member_that_starts_again_has_what_it_had(server: Server) -> None:
    make_topic(server)
    a = Worker(server, "a", **{"group.instance.id": "one"})
    b = Worker(server, "b")
    work_until(are_shared(a, b), a, b)
    had, others = a.partitions, b.partitions
    a.close()
    again = Worker(server, "a2", **{"group.instance.id": "one"})
    work_until(lambda: again.partitions == had, again, b)
    assert b.partitions == others, "nothing changed for the other one"
    again.close()
    b.close()


def test_a5_the_broker_finds_the_topics_of_a_regular_expression(server: Server) -> None:
    make_topic(server, "ta")
    make_topic(server, "other")
    a = Worker(server, "a", topic="^t.*")
    work_until(lambda: len(a.partitions) == PARTITIONS, a)
    assert {found.topic for found in a.consumer.assignment()} == {"ta"}
    a.close()


def test_v15_a_classic_group_turns_over_member_by_member_and_back(server: Server) -> None:
    admin = make_topic(server)
    produce(server, 600)
    classic: dict[str, Any] = {
        "group.protocol": "classic",
        "partition.assignment.strategy": STRATEGY,
        "heartbeat.interval.ms": 100,
        "session.timeout.ms": 30_000,
    }
    a, b = first_worker(server, 600, **classic), Worker(server, "b", **classic)
    work_until(are_shared(a, b), a, b)
    new = Worker(server, "new")
    work_until(are_shared(a, b, new), a, b, new)
    produce(server, 600)
    work_until(lambda: len(a.got + b.got + new.got) >= 1200, a, b, new)
    new.close()
    work_until(are_shared(a, b), a, b)
    listed = admin.list_consumer_groups().result(60)
    assert [found.type for found in listed.valid] == [ConsumerGroupType.CLASSIC]
    produce(server, 600)
    work_until(lambda: len(a.got + b.got + new.got) >= 1800, a, b)
    got = sorted(a.got + b.got + new.got)
    assert got == [(p, offset) for p in range(PARTITIONS) for offset in range(300)]
    a.close()
    b.close()
