"""Metadata on the embedded tree with its journal on a simulated disk: a single node's whole life.

What was answered survives the death of the machine at any time; a disk that fails is answered
as such, and the broker goes on showing what it knew.
"""

import errno

from support.control_peers import Exchange
from support.recording_host import RecordingHost
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.settings import Settings
from tidelog.cluster.image import BrokerInfo, TopicInfo
from tidelog.cluster.metadata import Metadata
from tidelog.cluster.requests import NewTopic
from tidelog.cluster.surroundings import Surroundings
from tidelog.world.real.embedded import open_embedded
from tidelog.world.real.snapshotting import Place
from tidelog.world.sim.disk import SimDisk
from tidelog.world.sim.entropy import SimEntropy
from tidelog.world.sim.faults import Crashed
from tidelog.world.sim.loop import SimLoop


class Node:
    """One process on a disk."""

    def __init__(self, disk: SimDisk, seed: int = 0) -> None:
        self.loop = SimLoop(seed=seed)
        disk.make_folder("/data")
        disk.sync_folder("/")
        place = Place(disk=disk, loop=self.loop, clock=self.loop.clock, folder="/data/coordination")
        exchange = Exchange(self.loop)
        around = Surroundings(
            coordination=open_embedded(place),
            clock=self.loop.clock,
            entropy=SimEntropy(seed),
            loop=self.loop,
            peers=exchange.peers(lambda: 0, lambda: True),
            host=RecordingHost(),
        )
        broker = BrokerInfo(broker_id=0, endpoints={"PLAINTEXT": ("host", 9092)})
        self.metadata = Metadata(around, Settings.of({}), broker)
        exchange.reachable[0] = self.metadata.handle
        answers: list[Exception | None] = []

        def prepared(error: Exception | None) -> None:
            assert error is None
            self.metadata.join(answers.append)

        self.metadata.prepare(prepared)
        assert self.loop.run_until(lambda: bool(answers))
        assert answers == [None]

    def create(self, name: str, partitions: int) -> list[TopicInfo | KafkaError]:
        results: list[list[TopicInfo | KafkaError]] = []
        new = NewTopic(name=name, partition_count=partitions, configs={"segment.ms": "7"})
        self.metadata.create_topics([new], False, results.append)
        assert self.loop.run_until(lambda: bool(results))
        return results[0]

    def delete(self, name: str) -> list[TopicInfo | KafkaError]:
        results: list[list[TopicInfo | KafkaError]] = []
        self.metadata.delete_topics([name], results.append)
        assert self.loop.run_until(lambda: bool(results))
        return results[0]


def test_everything_survives_the_death_of_the_machine() -> None:
    disk = SimDisk()
    node = Node(disk)
    (topic,) = node.create("t", 150)
    node.create("u", 1)
    node.delete("u")
    assert isinstance(topic, TopicInfo)
    disk.machine_dies("all")
    again = Node(disk, seed=1).metadata
    assert again.cluster_id == node.metadata.cluster_id
    assert again.broker_epoch > node.metadata.broker_epoch
    assert again.controller_epoch == 2
    found = again.image.topics
    assert list(found) == ["t"]
    assert (found["t"].topic_id, found["t"].config) == (topic.topic_id, {"segment.ms": "7"})
    assert {partition.leader_epoch for partition in found["t"].partitions} == {1}


def test_the_death_of_the_machine_between_any_two_changes_of_the_disk() -> None:
    """All that was answered is there, and everything that is there is whole."""
    for number in range(200):
        disk = SimDisk(seed=number)
        node = Node(disk)
        answered: dict[str, bool] = {}
        disk.crash_at(number)
        try:
            for name in ("a", "b"):
                node.create(name, 120)
                answered[name] = True
            node.delete("a")
            answered["a"] = False
        except Crashed:
            disk.machine_dies()
        else:
            assert number > 10
            return
        again = Node(disk, seed=1).metadata.image
        assert answered.get("b", False) <= ("b" in again.topics)
        if answered.get("a") and "b" not in answered:
            assert "a" in again.topics
        assert not again.deleting
        assert not again.unreadable
        for topic in again.topics.values():
            assert [partition.leader for partition in topic.partitions] == [0] * 120
    raise AssertionError("it never ends")


def test_a_disk_that_fails_is_answered_and_what_was_known_stays() -> None:
    disk = SimDisk()
    node = Node(disk)
    node.create("t", 1)
    disk.fail(errno.EIO, operations={"sync"})
    for results in (node.create("u", 1), node.create("v", 1), node.delete("t")):
        (error,) = results
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.kafka_storage_error
    assert list(node.metadata.image.topics) == ["t"]
