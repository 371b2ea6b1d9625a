"""Brokers on an ensemble of three ZooKeeper servers, of which one after the other dies (F14).

Whoever leads goes on leading while the ensemble elects a leader of its own, and even while there
are too few of it to do so; as soon as there are two again, brokers that die are replaced.
"""

import socket
from collections.abc import Callable, Iterator

import pytest

from support.cluster_processes import QUICK, SAFE, Cluster, Tree, wait_until
from support.cluster_stage import Stage
from support.workload import now
from support.zookeepers import own_ensemble
from tidelog.world.real.zookeeper_server import ZooKeeperServer, split_address

Members = list[ZooKeeperServer]
ELECTED_SECONDS_MAX = 60


@pytest.fixture
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    with own_ensemble(tmp_path_factory.mktemp("ensemble")) as found:
        yield found


@pytest.fixture
def cluster_on_three(
    tmp_path_factory: pytest.TempPathFactory, members: Members
) -> Iterator[Cluster]:
    """Its brokers reach all of the ensemble, without proxies in between."""
    patient = {"zookeeper.session.timeout.ms": "30000"}
    made = Cluster(tmp_path_factory.mktemp("on-three"), members[0], QUICK | SAFE | patient)
    addresses = ",".join(member.address for member in members)
    connect = f"{addresses}/on-three"
    for broker in made.brokers.values():
        broker.settings["zookeeper.connect"] = connect
    made.tree = Tree(connect)
    try:
        made.start()
        yield made
    finally:
        made.close()


def leads(member: ZooKeeperServer) -> bool:
    try:
        with socket.create_connection(split_address(member.address), timeout=2) as asking:
            asking.sendall(b"srvr")
            return b"Mode: leader" in asking.makefile("rb").read()
    except OSError:
        return False


def kill_leader(members: Members) -> ZooKeeperServer:
    found: Members = []

    def is_led() -> bool:
        found[:] = filter(leads, members)
        return bool(found)

    wait_until(is_led, "one of them leads", ELECTED_SECONDS_MAX)
    found[0].kill()
    return found[0]


def bring_back(member: ZooKeeperServer) -> None:
    member.start()
    member.wait_until_serving(ELECTED_SECONDS_MAX)


def test_service_goes_on_while_members_of_the_ensemble_die(
    cluster_on_three: Cluster, members: Members, tell: Callable[[str], None]
) -> None:
    stage = Stage(cluster_on_three, "ensemble", tell)
    stage.begin()
    epoch, at = stage.epoch, now()
    first = kill_leader(members)
    wait_until(lambda: any(map(leads, members)), "another leads", ELECTED_SECONDS_MAX)
    stage.paused("F14 the leader of three ZooKeepers dies", at, seconds_max=1)
    wait_until(lambda: stage.cluster.tree.registered() == [1, 2, 3], "all are registered")
    assert stage.epoch == epoch

    at = now()
    second = kill_leader(members)
    stage.paused("F14 the leader of two ZooKeepers dies", at, seconds_max=1)

    bring_back(first)
    wait_until(lambda: stage.cluster.tree.registered() == [1, 2, 3], "all are registered")
    stage.leader.kill()
    stage.back("F14 two of three are back, kill -9 leader", now(), seconds_max=5)
    bring_back(second)
    stage.check()
