"""Links that are cut, one way or both, slow, and reset, between brokers and to ZooKeeper (F5-F8).

A broker that others cannot reach but ZooKeeper can is still a leader: what it leads waits for the
link, or goes on with those in sync that it reaches. One that ZooKeeper cannot reach is replaced.
"""

import time
from collections.abc import Callable

import pytest

from support.cluster_processes import QUICK, ZOOKEEPER, Cluster, wait_until
from support.cluster_stage import Stage
from support.link_proxy import Rule
from support.workload import now

SESSION_S = int(QUICK["zookeeper.session.timeout.ms"]) / 1000
LAG_S = int(QUICK["replica.lag.time.max.ms"]) / 1000
TICKS_S = 0.5
CLIENT_S = 4.0
"""A client that waits for an answer which never comes notices after 3 s."""


def test_all_that_brokers_say_goes_over_the_links(cluster: Cluster) -> None:
    """Otherwise the cuts below would cut nothing."""
    between = {(str(a), str(b)) for a in cluster.brokers for b in cluster.brokers if a != b}
    to_zookeeper = {(str(a), ZOOKEEPER) for a in cluster.brokers}

    def are_connected() -> bool:
        connected = cluster.links.connected()
        return to_zookeeper <= connected <= between | to_zookeeper and bool(connected & between)

    wait_until(are_connected, "all are connected over links that can be cut")


@pytest.mark.parametrize("way", ["both ways", "to the follower", "to the leader"])
def test_a_leader_and_a_follower_that_are_cut_off_from_each_other(stage: Stage, way: str) -> None:
    """I3, F6: the follower leaves the ISR, the other one stays; both return."""
    leader, follower = stage.leader, stage.follower
    links = stage.cluster.links
    if way != "to the leader":
        links.cut_one_way(leader.name, follower.name)
    if way != "to the follower":
        links.cut_one_way(follower.name, leader.name)
    stage.back(f"F6 a follower is cut off from its leader, {way}", now(), LAG_S + 2)
    wait_until(
        lambda: follower.broker_id not in stage.cluster.tree.isr(stage.topic), "it left the ISR"
    )
    at = now()
    links.heal()
    seconds = stage.cluster.wait_in_sync(stage.topic)
    stage.tell(f"F5 healed: all in sync after {seconds:.2f} s")
    stage.paused("F6 healed", at, seconds_max=2)
    stage.check()


def test_two_followers_that_are_cut_off_from_each_other(stage: Stage) -> None:
    """Each of them leads other partitions, so both leave an ISR."""
    leader = stage.leader.broker_id
    one, other = (broker for broker in sorted(stage.cluster.brokers) if broker != leader)
    stage.cluster.links.cut(str(one), [str(other)])
    stage.back("F6 two of three cannot see each other", now(), LAG_S + 2)
    stage.check()


def test_a_leader_that_no_other_broker_can_reach_acknowledges_nothing(stage: Stage) -> None:
    """A2: it is alive for ZooKeeper, so it leads on, alone in its ISR, which is too small."""
    leader = stage.leader
    cluster = stage.cluster
    cluster.links.cut(leader.name, cluster.names_except(leader.broker_id))
    wait_until(lambda: len(cluster.tree.isr(stage.topic)) == 1, "it is alone in the ISR")
    at = now()
    time.sleep(1)
    assert stage.workload.acknowledged(at, (stage.topic, 0)) is None
    at = now()
    cluster.links.heal()
    stage.back("F5 a leader cut off from all brokers, healed", at, seconds_max=CLIENT_S + 4)
    stage.check()


@pytest.mark.parametrize(
    ("who", "chosen"),
    [
        ("a leader", lambda stage: stage.leader),
        ("the controller", lambda stage: stage.cluster.controller()),
    ],
    ids=["leader", "controller"],
)
def test_a_broker_cut_off_from_zookeeper_alone_is_replaced(
    stage: Stage, who: str, chosen: Callable[[Stage], object]
) -> None:
    """X22: its session ends. It is told by the others, or finds out when it is back."""
    broker = chosen(stage)
    name = getattr(broker, "name", "")
    stage.cluster.links.cut(name, [ZOOKEEPER])
    wait_until(lambda: int(name) not in stage.cluster.tree.registered(), "its session is over")
    stage.back(f"F5 {who} is cut off from ZooKeeper, its session over", now(), CLIENT_S + 2)
    at = now()
    stage.cluster.links.heal()
    wait_until(lambda: int(name) in stage.cluster.tree.registered(), "it is registered again")
    stage.paused(f"F5 {who} sees ZooKeeper again", at, seconds_max=2)
    stage.check()


@pytest.mark.parametrize("way", ["it does not hear", "it is not heard by"])
def test_a_leader_and_zookeeper_that_are_cut_off_one_way(stage: Stage, way: str) -> None:
    """X22, F6: a session needs both ways, so it ends; what half gets through does no harm."""
    leader, cluster = stage.leader, stage.cluster
    ends = [leader.name, ZOOKEEPER] if way == "it is not heard by" else [ZOOKEEPER, leader.name]
    cluster.links.cut_one_way(*ends)
    wait_until(lambda: leader.broker_id not in cluster.tree.registered(), "its session is over")
    stage.back(f"F6 a leader and ZooKeeper, whom {way}, session over", now(), CLIENT_S + 2)
    cluster.links.heal()
    wait_until(lambda: leader.broker_id in cluster.tree.registered(), "it is registered again")
    stage.check()


def test_a_leader_that_nothing_reaches_but_its_clients_is_a_harmless_zombie(stage: Stage) -> None:
    """X15, F5: it goes on being asked by clients that do not know better."""
    leader, cluster = stage.leader, stage.cluster
    cluster.links.cut(leader.name, [*cluster.names_except(leader.broker_id), ZOOKEEPER])
    wait_until(lambda: stage.cluster.tree.leader(stage.topic) != leader.broker_id, "replaced")
    stage.back("F5 a leader is cut off from everything, its session over", now(), CLIENT_S + 2)
    at = now()
    cluster.links.heal()
    wait_until(lambda: leader.broker_id in cluster.tree.registered(), "it is registered again")
    stage.paused("F5 it is back", at, seconds_max=2)
    stage.check()


def test_slow_links_slow_things_down_and_no_more(stage: Stage) -> None:
    """F7: 100 ms and 3 Mbit/s on every link between brokers."""
    at = now()
    for source in stage.cluster.brokers:
        for target in stage.cluster.brokers:
            slow = Rule(delay_s=0.1, bytes_per_s=3_000_000 // 8)
            stage.cluster.links.rule(str(source), str(target), slow)
    time.sleep(2)
    stage.paused("F7 100 ms and 3 Mbit/s between all brokers", at, seconds_max=2)
    stage.check()


def test_connections_that_are_reset_are_made_again(stage: Stage) -> None:
    """F7: at moments that know nothing of frames."""
    at, count, rounds = now(), 0, 0
    while rounds < 15 or (count <= 10 and rounds < 300):
        for one, other in (("1", "2"), ("2", "3"), ("3", "1")):
            count += stage.cluster.links.reset(one, other)
        time.sleep(0.1)
        rounds += 1
    stage.paused(f"F7 {count} connections between brokers reset", at, seconds_max=4)
    assert count > 10
    stage.check()
