"""Settings that bound what a broker takes, holds and gives, and what it does beside its loop."""

import struct
from collections.abc import Callable
from typing import Any

import pytest

from support.brokers import SimNode, one_batch
from support.sim_cluster import SimCluster
from tidelog.records.batch import walk


def test_a_frame_longer_than_socket_request_max_bytes_ends_its_connection() -> None:
    """B1: before anything of it is kept."""
    node = SimNode(socket_request_max_bytes=50_000, socket_request_other_max_bytes=50_000)
    client, other = node.client(), node.client()
    client.create("events")
    assert client.produce("events", one_batch("x" * 40_000)).error_code.name == "none"
    client.send_bytes(struct.pack(">i", 50_001))
    node.loop.run_for(100)
    assert client.closed_why is not None
    other.send_bytes(struct.pack(">i", 50_000))
    node.loop.run_for(100)
    assert other.closed_why is None


@pytest.mark.parametrize(("limit", "held"), [(1_000_000, 11), (100_000_000, 60)])
def test_unanswered_requests_are_held_up_to_queued_max_request_bytes(limit: int, held: int) -> None:
    """B3: whoever is owed an answer then waits unread."""
    cluster = SimCluster(
        2,
        queued_max_request_bytes=limit,
        socket_request_max_bytes=1_000_000,
        socket_request_other_max_bytes=1_000_000,
        message_max_bytes=900_000,
        default_replication_factor=2,
    )
    cluster.create("events", replicas=[[1, 2]])
    cluster.cut(1, 2)
    clients = [cluster.client(1) for _ in range(3)]
    for client in clients:
        for _ in range(20):
            client.send_produce("events", one_batch("x" * 100_000), acks=-1)
    cluster.run_for(1_000)
    appended = cluster.held(1, "events").log.log_end_offset
    assert held <= appended <= held + len(clients)


def test_an_answer_is_no_larger_than_fetch_max_bytes_of_the_broker() -> None:
    """The client would take more; at least one batch comes whatever its size."""
    node = SimNode(fetch_max_bytes=250_000)
    client = node.client()
    client.create("events")
    for _ in range(5):
        client.produce("events", one_batch("x" * 100_000))
    taken = client.fetch("events", 0, max_bytes=50 << 20).records
    assert 100_000 < len(taken) <= 250_000


class Lanes:
    """What of one kind was given to threads."""

    def __init__(self, node: SimNode, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []
        offload = node.loop.offload

        def noted(lane: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
            if lane.startswith(kind):
                self.seen.append(lane)
            offload(lane, work, done)

        monkeypatch.setattr(node.loop, "offload", noted)

    def take(self) -> list[str]:
        seen, self.seen = self.seen, []
        return seen


def test_a_large_append_waits_for_the_disk_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = SimNode(message_max_bytes=10_000_000)
    client = node.client()
    client.create("events")
    lanes = Lanes(node, "write", monkeypatch)
    client.produce("events", one_batch("x" * 1_000))
    assert lanes.take() == []
    client.produce("events", one_batch("x" * 3_000_000))
    assert lanes.take() != []
    assert node.broker.partitions.find("events", 0).log.log_end_offset == 2


def test_cold_pages_are_read_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    node = SimNode(log_segment_bytes=1 << 20)
    client = node.client()
    client.create("events")
    for _ in range(30):
        client.produce("events", one_batch("x" * 100_000))
    node.disk.cold_share = 0.0
    lanes = Lanes(node, "warm", monkeypatch)
    assert len(list(walk(client.fetch("events", 0, max_bytes=1 << 20).records))) > 5
    assert lanes.take() == []
    node.disk.cold_share = 1.0
    assert len(list(walk(client.fetch("events", 0, max_bytes=1 << 20).records))) > 5
    assert lanes.take() != []
