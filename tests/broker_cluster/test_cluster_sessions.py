"""Sessions, incarnations and who may ask what, between whole brokers (X15-X22, B9, D9)."""

from typing import Any

import pytest

from support.brokers import API_VERSIONS, CREATE_TOPICS, one_batch
from support.cluster_calls import assert_alike, describe, log_values, read, try_write, write
from support.sim_cluster import SimCluster
from tidelog.base import control
from tidelog.log.steps import Steps


@pytest.fixture
def cluster() -> SimCluster:
    made = SimCluster()
    made.create("events", replicas=[[1, 2, 3]])
    return made


def epoch_of(cluster: SimCluster, broker_id: int) -> int:
    return cluster.ensemble.tree.get(f"/brokers/ids/{broker_id}").stat.created_zxid


# -- X22


@pytest.mark.parametrize("expired", [1, 2, 3])
def test_a_broker_whose_session_expired_comes_back_as_another_incarnation(expired: int) -> None:
    """X22, D9: leader, follower and controller alike; nothing acknowledged is lost."""
    cluster = SimCluster(seed=expired)
    cluster.create("events", replicas=[[1, 2, 3]])
    write(cluster, "events", "a")
    before = epoch_of(cluster, expired)
    leader_epoch = cluster.state("events")["leader_epoch"]
    cluster.session(expired).expire()
    cluster.run_for(50)
    cluster.wait(
        lambda: cluster.ensemble.tree.exists(f"/brokers/ids/{expired}") is not None, "it is back"
    )
    assert epoch_of(cluster, expired) > before
    cluster.wait_caught_up("events")
    assert cluster.state("events")["leader_epoch"] > leader_epoch
    assert cluster.state("events")["broker_epochs"][str(expired)] == epoch_of(cluster, expired)
    write(cluster, "events", "b")
    assert read(cluster, "events") == ["a", "b"]


def test_a_lost_connection_is_not_a_lost_session(cluster: SimCluster) -> None:
    """X22: everybody goes on serving meanwhile, and nothing moves."""
    epoch = cluster.state("events")["leader_epoch"]
    for broker_id in (1, 2, 3):
        cluster.session(broker_id).lose_connection(away_ms=2_000)
    assert try_write(cluster.client(1), "events", "a") == "none"
    cluster.run_for(5_000)
    assert try_write(cluster.client(1), "events", "b") == "none"
    assert cluster.state("events")["leader_epoch"] == epoch
    assert cluster.isr("events") == [1, 2, 3]


def test_everybody_loses_the_coordinator_for_longer_than_a_session(cluster: SimCluster) -> None:
    """X22: as when ZooKeeper is away; afterwards all is as before."""
    write(cluster, "events", "a")
    for broker_id in (1, 2, 3):
        cluster.session(broker_id).lose_connection(away_ms=8_000)
    cluster.run_for(10_000)
    cluster.wait_caught_up("events")
    write(cluster, "events", "b")
    assert read(cluster, "events") == ["a", "b"]
    assert_alike(cluster, "events")


def test_a_producer_that_waits_is_told_when_the_leaders_session_expires(
    cluster: SimCluster,
) -> None:
    """X22, A1."""
    cluster.cut(1, 3, one_way=True)
    client = cluster.client(1)
    client.send_produce("events", one_batch("a"))
    cluster.run_for(100)
    cluster.session(1).expire()
    row = client.wait().responses[0].partition_responses[0]
    assert row.error_code.name == "not_leader_or_follower"


# -- X18, X19, X21, D9


def test_a_leader_that_was_controller_and_lost_power_does_not_lead_on_in_its_epoch() -> None:
    """X18: it is back before the next controller looks."""
    cluster = SimCluster()
    first = cluster.controller
    second, third = (broker_id for broker_id in (1, 2, 3) if broker_id != first)
    cluster.create("events", replicas=[[first, second, third]])
    write(cluster, "events", "a")
    cluster.wait_caught_up("events")
    for session in (cluster.session(second), cluster.session(third)):
        session.lose_connection(away_ms=5_000)
    cluster.lose_power(first)
    cluster.begin(first)
    cluster.wait_started(first)
    cluster.wait_caught_up("events")
    state = cluster.state("events")
    assert state["leader_epoch"] > 0
    assert read(cluster, "events") == ["a"], "what only its page cache had is with the others"
    assert log_values(cluster, first, "events") == ["a"]
    assert_alike(cluster, "events")


@pytest.mark.parametrize("how", ["kill", "lose_power"])
def test_a_restart_within_the_session_timeout_is_a_new_incarnation(how: str) -> None:
    """D9, X17: even if nobody noticed that it was away."""
    cluster = SimCluster()
    cluster.create("events", replicas=[[1, 2, 3]])
    write(cluster, "events", "a")
    cluster.wait_caught_up("events")
    before = epoch_of(cluster, 1)
    if how == "kill":
        cluster.kill(1, guard=False)
    else:
        cluster.lose_power(1)
    cluster.start(1)
    assert epoch_of(cluster, 1) != before
    cluster.wait_caught_up("events")
    assert cluster.state("events")["leader_epoch"] >= 1
    assert read(cluster, "events") == ["a"]


def test_a_follower_that_lost_power_counts_only_when_it_has_everything_again() -> None:
    """X19: what it had before is not what it has."""
    cluster = SimCluster()
    cluster.create("events", replicas=[[1, 2, 3]])
    for number in range(10):
        write(cluster, "events", str(number))
    cluster.wait_caught_up("events")
    cluster.lose_power(3)
    cluster.begin(3)
    lengths: set[int] = set()

    def is_back() -> bool:
        held = cluster.replica(3, "events")
        state = cluster.state("events")
        registered = cluster.ensemble.tree.exists("/brokers/ids/3")
        current = registered is not None and state["broker_epochs"].get("3") == (
            registered.created_zxid
        )
        if held is not None and 3 in state["isr"] and current:
            running = cluster.broker(3).metadata.broker_epoch
            if running == state["broker_epochs"]["3"]:
                lengths.add(held.log.log_end_offset)
                return True
        return False

    cluster.wait(is_back, "it is in the set")
    assert lengths == {10}


def test_the_last_replica_standing_does_not_lead_alone_after_a_power_loss() -> None:
    """X20: the members that fell out while it was too small a set still have everything."""
    cluster = SimCluster()
    controller = cluster.controller
    last, other = (broker_id for broker_id in (1, 2, 3) if broker_id != controller)
    cluster.create("events", replicas=[[last, other, controller]])
    write(cluster, "events", "a")
    cluster.wait_caught_up("events")
    cluster.isolate(last)
    cluster.client(last).produce("events", one_batch("uncommitted"), acks=1)
    cluster.wait_isr("events", last)
    assert sorted(cluster.state("events")["elr"]) == sorted([other, controller])
    cluster.lose_power(last)
    cluster.network.mend()
    cluster.run_for(10_000)
    cluster.start(last)
    cluster.wait_caught_up("events")
    assert read(cluster, "events")[:1] == ["a"]
    assert_alike(cluster, "events")


# -- X17, E1: old requests


def stop_request(cluster: SimCluster, broker_epoch: int, controller_epoch: int) -> dict[str, Any]:
    topic_id = cluster.held(2, "events").topic_id
    stop = {"index": 0, "leader_epoch": 1 << 20, "delete": True}
    return {
        "controller_id": 1,
        "controller_epoch": controller_epoch,
        "broker_epoch": broker_epoch,
        "topics": [{"name": "events", "topic_id": topic_id, "partitions": [stop]}],
    }


def test_requests_meant_for_an_earlier_incarnation_are_refused(cluster: SimCluster) -> None:
    """X17."""
    write(cluster, "events", "a")
    old = epoch_of(cluster, 2)
    cluster.stop(2)
    cluster.start(2)
    controller_epoch = int(cluster.ensemble.tree.get("/controller_epoch").data)
    client = cluster.broker_client(2)
    answer = client.ask(5, 4, **stop_request(cluster, old, controller_epoch))
    assert answer.error_code == 77, "STALE_BROKER_EPOCH"
    assert cluster.replica(2, "events") is not None
    cluster.wait_caught_up("events")


def test_requests_of_an_earlier_controller_are_refused(cluster: SimCluster) -> None:
    """E1, X16."""
    write(cluster, "events", "a")
    epoch = int(cluster.ensemble.tree.get("/controller_epoch").data)
    controller = cluster.controller
    cluster.kill(controller)
    cluster.run_for(200)
    cluster.start(controller)
    cluster.wait_caught_up("events")
    client = cluster.broker_client(2)
    answer = client.ask(5, 4, **stop_request(cluster, epoch_of(cluster, 2), epoch))
    assert answer.error_code == 11, "STALE_CONTROLLER_EPOCH"
    assert cluster.replica(2, "events") is not None


# -- B9


@pytest.mark.parametrize("api_key", sorted(control.VERSIONS))
def test_what_brokers_ask_one_another_is_not_taken_from_clients(
    cluster: SimCluster, api_key: int
) -> None:
    """B9: neither advertised nor served; the connection ends."""
    client = cluster.client(2)
    advertised = client.ask(API_VERSIONS, 0).api_keys
    assert api_key not in {row.api_key for row in advertised}
    header = api_key.to_bytes(2, "big") + control.VERSIONS[api_key].to_bytes(2, "big")
    frame = header + bytes(200)
    client.send_bytes(len(frame).to_bytes(4, "big") + frame)
    cluster.run_for(100)
    assert client.closed_why is not None
    assert cluster.held(2, "events").replica.leader_id == 1


def test_clients_are_not_told_of_the_listener_between_brokers(cluster: SimCluster) -> None:
    """B9."""
    shown = {(row.node_id, row.host, row.port) for row in describe(cluster.client(1)).brokers}
    assert shown == {(number, f"machine-{number}", 9092) for number in (1, 2, 3)}


# -- stopping


@pytest.mark.parametrize("broker_id", [1, 2, 3])
def test_a_broker_stops_although_the_coordinator_is_away_for_good(
    cluster: SimCluster, broker_id: int
) -> None:
    """The controller too, which cannot have anything led elsewhere then, nor answer who asked for
    a topic. What was acknowledged is durable, and the log dir says so."""
    write(cluster, "events", "a")
    for each in (1, 2, 3):
        cluster.session(each).lose_connection(away_ms=3_600_000)
    wanted = {"name": "late", "num_partitions": 1, "replication_factor": 3}
    topics = [{**wanted, "assignments": [], "configs": []}]
    cluster.client(broker_id).send(
        CREATE_TOPICS, 7, topics=topics, timeout=60_000, validate_only=False
    )
    cluster.run_for(100)
    began_ms = cluster.clock.monotonic_ms()
    ended: list[bool] = []
    cluster.process(broker_id).broker.stop(lambda: ended.append(True))
    assert cluster.loop.run_until(lambda: bool(ended), 120_000)
    assert cluster.clock.monotonic_ms() - began_ms < 6_000
    assert cluster.machines[broker_id].disk.stat("/data/.kafka_cleanshutdown") is not None


def test_a_stop_goes_on_in_order_when_the_coordinator_is_back_in_time(cluster: SimCluster) -> None:
    """E2: others lead before it has gone."""
    for each in (1, 2, 3):
        cluster.session(each).lose_connection(away_ms=1_500)
    ended: list[bool] = []
    cluster.process(1).broker.stop(lambda: ended.append(True))
    cluster.wait(lambda: cluster.state("events")["leader"] == 2, "another leads")
    assert not ended
    assert cluster.loop.run_until(lambda: bool(ended), 120_000)


def without_an_end() -> Steps:
    while True:
        yield lambda: None


def test_a_broker_whose_disk_does_not_come_to_an_end_stops_being_a_member(
    cluster: SimCluster,
) -> None:
    """Its process may wait for that disk for ever, and must not stay controller meanwhile."""
    first = cluster.controller
    broker = cluster.broker(first)
    broker._disk_work.run("a flush", broker.logs.dirs[0], without_an_end())
    ended: list[bool] = []
    broker.stop(lambda: ended.append(True))
    assert cluster.loop.run_until(lambda: bool(ended), 120_000)
    tree = cluster.ensemble.tree
    cluster.wait(lambda: tree.exists(f"/brokers/ids/{first}") is None, "it is not registered")
    assert cluster.controller != first
    assert cluster.machines[first].disk.stat("/data/.kafka_cleanshutdown") is None
