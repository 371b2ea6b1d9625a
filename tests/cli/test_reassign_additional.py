"""`tidelog reassign execute --additional --throttle`: what moves already stays as slow (T3)."""

from typing import Any

import pytest

from support.command_line import run
from support.servers import Server
from tidelog.base.ids import TopicPartition
from tidelog.cli import reassign
from tidelog.client.client import Client
from tidelog.client.cluster import Cluster, Partition, Topic
from tidelog.client.configs import Resource
from tidelog.client.reassignments import Ongoing


def partition(index: int, *replicas: int) -> Partition:
    return Partition(
        index=index, leader=1, leader_epoch=0, replicas=replicas, isr=(1,), offline_replicas=()
    )


def test_more_moves_of_a_topic_do_not_set_free_those_under_way(
    shared_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic(
        name="t",
        topic_id="x",
        is_internal=False,
        partitions=(partition(0, 2, 1), partition(1, 1)),
    )
    cluster = Cluster(cluster_id="c", controller_id=1, brokers={}, topics={"t": topic}, refused={})
    under_way = {TopicPartition("t", 0): Ongoing(replicas=(2, 1), adding=(2,), removing=(1,))}
    changed: list[Any] = []
    monkeypatch.setattr(Client, "cluster", lambda *_, **__: cluster)
    monkeypatch.setattr(reassign, "list_reassignments", lambda *_: under_way)
    monkeypatch.setattr(reassign, "alter_reassignments", lambda _, plan: dict.fromkeys(plan))
    monkeypatch.setattr(reassign, "apply_throttle", lambda _, changes: changed.append(changes))
    wanted = ("execute", "t:1", "--replicas", "3", "--additional", "--throttle", "1000")
    status, _, errors = run("reassign", *wanted, "--bootstrap-server", shared_server.address)
    assert (status, errors) == (0, "")
    assert changed[0][Resource("topic", "t")] == {
        "leader.replication.throttled.replicas": "0:1,1:1",
        "follower.replication.throttled.replicas": "0:2,1:3",
    }
