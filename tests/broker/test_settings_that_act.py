"""Settings do what they say, in a file and changed while the broker runs (O2)."""

import socket
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from support import brokers
from support.brokers import INCREMENTAL_ALTER_CONFIGS, METADATA, SimClient, SimNode
from support.servers import PEER, TidelogServer
from support.sim_cluster import SimCluster
from support.wire_client import wait_until
from support.witness import plain_socket
from tidelog.base.ports import Job
from tidelog.records.reference import Record, encode_batch
from tidelog.world.sim.workers import SimWorkers

SET = 0
ALL_BROKERS = ""


def change(client: SimClient, name: str, value: str) -> None:
    """For all brokers."""
    config = {"name": name, "config_operation": SET, "value": value}
    resource = {"resource_type": 4, "resource_name": ALL_BROKERS, "configs": [config]}
    answer = client.ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    assert answer.responses[0].error_code.name == "none", answer.responses[0].error_message


def open_of(clients: list[SimClient]) -> int:
    return sum(client.closed_why is None for client in clients)


def ask(client: SimClient) -> None:
    client.send(METADATA, 12, topics=[], include_topic_authorized_operations=False)


def test_a_listener_may_have_fewer_connections_than_the_broker() -> None:
    node = SimNode(listener_name_plaintext_max_connections=3)
    clients = [node.client() for _ in range(20)]
    node.loop.run_for(100)
    assert open_of(clients) == 3
    clients[0].link.close()
    node.loop.run_for(100)
    node.client().create("events")


@pytest.mark.parametrize("scope", ["", "listener_name_plaintext_"])
def test_connections_beyond_the_rate_take_turns(scope: str) -> None:
    """What a second allows is served at once, the rest later, and much more is refused."""
    settings: dict[str, Any] = {f"{scope}max_connection_creation_rate": 2}
    node = SimNode(**settings)
    clients = [node.client() for _ in range(30)]
    for client in clients[:2]:
        ask(client)
    node.loop.run_for(100)
    assert [len(client.answers) for client in clients[:2]] == [1, 1]
    kept = [client for client in clients[2:] if client.closed_why is None]
    assert 15 <= len(kept) <= 22
    for client in kept:
        ask(client)
    node.loop.run_for(1_500)
    assert 1 <= sum(len(client.answers) for client in kept) <= 4
    node.loop.run_for(12_000)
    assert all(len(client.answers) == 1 for client in kept)


def test_the_rate_changes_while_the_broker_runs() -> None:
    node = SimNode()
    change(node.client(), "max.connection.creation.rate", "1")
    clients = [node.client() for _ in range(20)]
    node.loop.run_for(100)
    assert open_of(clients) < 20


def test_a_batch_is_stored_at_the_level_of_its_topic() -> None:
    draws = Random(1)
    text = b" ".join(b"w%d" % draws.randrange(500) for _ in range(20_000))
    batch = bytes(encode_batch([Record(offset=0, timestamp=0, key=b"k", value=text)]))
    node = SimNode(compression_zstd_level=1)
    client = node.client()
    client.create("light", compression_type="zstd")
    client.create("hard", compression_type="zstd", compression_zstd_level=19)
    sizes = {}
    for topic in ("light", "hard"):
        assert client.produce(topic, batch).error_code.name == "none"
        sizes[topic] = node.broker.partitions.find(topic, 0).log.segments.size
    assert sizes["hard"] < 0.9 * sizes["light"]
    change(client, "compression.zstd.level", "19")
    client.produce("light", batch)
    size = node.broker.partitions.find("light", 0).log.segments.size
    assert size == sizes["light"] + sizes["hard"]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much memory each compaction was given."""
    given: list[int] = []

    class Noting(SimWorkers):
        def start(self, task: str, argument: Mapping[str, Any]) -> Job:
            given.append(argument["map_bytes"])
            return super().start(task, argument)

    monkeypatch.setattr(brokers, "SimWorkers", Noting)
    return given


def fill_compacted(node: SimNode) -> None:
    client = node.client()
    client.create("keys", cleanup_policy="compact", segment_bytes=500, min_cleanable_dirty_ratio=0)
    partition = node.broker.partitions.find("keys", 0)
    for _ in range(9):
        batch = encode_batch([Record(offset=0, timestamp=0, key=b"k", value=b"v" * 200)])
        partition.append(batch, node.clock.now_ms())


def test_the_memory_of_compaction_changes_while_the_broker_runs(given: list[int]) -> None:
    node = SimNode(log_cleaner_backoff_ms=1_000)
    change(node.client(), "log.cleaner.dedupe.buffer.size", "2000000")
    fill_compacted(node)
    assert node.loop.run_until(lambda: bool(given))
    assert set(given) == {2_000_000}


@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_broker_may_be_told_to_compact_nothing(given: list[int], is_enabled: bool) -> None:
    node = SimNode(log_cleaner_backoff_ms=1_000, log_cleaner_enable=is_enabled)
    fill_compacted(node)
    node.loop.run_for(20_000)
    assert bool(given) == is_enabled


@pytest.mark.parametrize(("is_enabled", "leader"), [(True, 2), (False, 1)])
def test_a_broker_that_stops_hands_over_first_or_just_goes(is_enabled: bool, leader: int) -> None:
    """`controlled.shutdown.enable`: without it others lead once it is found to be gone."""
    cluster = SimCluster(controlled_shutdown_enable=is_enabled)
    cluster.create("events", replicas=[[1, 2, 3]])
    leaders: list[int] = []
    cluster.broker(1).stop(lambda: leaders.append(cluster.leader("events")))
    cluster.wait(lambda: bool(leaders), "it has stopped")
    assert leaders == [leader]
    cluster.wait(lambda: cluster.leader("events") == 2, "another leads")


@pytest.mark.skipif(PEER != "", reason="looks into tidelog's own log")
def test_limits_are_for_names_of_hosts_too_and_what_has_no_effect_is_told(tmp_path: Path) -> None:
    server = TidelogServer(
        tmp_path,
        {
            "max.connections.per.ip": "2",
            "max.connections.per.ip.overrides": "localhost:15, no-such-host.invalid:9",
            "num.io.threads": "16",
        },
    )
    server.start()
    try:
        # Names are looked up beside the loop, which takes as long as it takes.
        assert wait_until(lambda: kept(server, 20) == 15)
        unknown = "unknown host=no-such-host.invalid"
        assert wait_until(lambda: unknown in server.output.read_text())
        said = server.output.read_text()
        assert "ignored setting=num.io.threads value=16 why=one event" in said
        server.stop()
    finally:
        server.close()


def kept(server: TidelogServer, count: int) -> int:
    """How many of so many connections are not closed at once."""
    with ExitStack() as links:
        opened = [links.enter_context(plain_socket(server.address)) for _ in range(count)]
        return sum(map(is_open, opened))


def is_open(link: socket.socket) -> bool:
    link.settimeout(0.1)
    try:
        return link.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False
