"""Processes that die, stop and come back, with three replicas, min ISR 2 and acks=all (F1-F4, F14).

After each: every acknowledged record is there once and in order, nobody saw a record that later
vanished, all replicas are byte-identical, the ISR is full, no offset was used twice. How long
until there was service again is printed, and bounded. The long form is

    pytest tests/cluster/test_process_faults.py -k zookeeper --rounds 20 --timeout 0

in which ZooKeeper is gone for a minute.
"""

import json
import time

from support.cluster_processes import QUICK, wait_until
from support.cluster_stage import Stage
from support.replica_files import check_epochs
from support.workload import now
from tidelog.client.client import Client
from tidelog.client.topics import NewTopic, create_topics, delete_topics
from tidelog.world.real.guard import close_session
from tidelog.world.real.past_session import FILE as NOTED_SESSION
from tidelog.world.real.zookeeper_server import split_address

SESSION_S = int(QUICK["zookeeper.session.timeout.ms"]) / 1000
TICKS_S = 0.5
LAG_S = int(QUICK["replica.lag.time.max.ms"]) / 1000


def test_a_killed_leader_is_replaced_at_once(stage: Stage) -> None:
    """E2: its partitions move without waiting for the session to end."""
    leader, epoch = stage.leader, stage.epoch
    leader.kill()
    stage.back("F1 kill -9 leader", now(), seconds_max=1.5)
    assert stage.leader is not leader
    assert stage.epoch > epoch
    stage.check()


def test_a_killed_follower_holds_nobody_up_for_long(stage: Stage) -> None:
    stage.follower.kill()
    stage.back("F1 kill -9 follower", now(), seconds_max=LAG_S + 1)
    stage.check()


def test_a_killed_controller_is_replaced(stage: Stage) -> None:
    """E1: the next one has a higher epoch; partitions that it led move too."""
    controller, epoch = stage.cluster.controller(), stage.cluster.tree.controller_epoch()
    controller.kill()
    at = now()
    wait_until(
        lambda: stage.cluster.tree.controller() not in (-1, controller.broker_id),
        "another is controller",
    )
    stage.back("F1 kill -9 controller", at, seconds_max=2.5)
    assert stage.cluster.tree.controller_epoch() > epoch
    stage.check()


def test_what_is_asked_of_a_controller_that_has_just_died_is_done_by_the_next(stage: Stage) -> None:
    """E1: who asks finds out by himself whom to ask."""
    controller, wanted = stage.cluster.controller(), f"{stage.topic}-next"
    new = NewTopic(name=wanted, replication_factor=2)
    others = [other for other in stage.cluster.brokers.values() if other is not controller]
    with Client(others[0].address) as client:
        assert client.cluster([]).controller_id == controller.broker_id
        controller.kill()
        assert create_topics(client, [new]) == {wanted: None}
        assert delete_topics(client, [wanted]) == {wanted: None}
    stage.check()


def test_all_brokers_killed_at_once_come_back_with_everything(stage: Stage) -> None:
    """E5, D10: nobody leads until enough of the ISR is back."""
    for broker in stage.cluster.brokers.values():
        broker.kill()
    at = now()
    stage.cluster.heal()
    stage.back("F1 kill -9 of all brokers, started again", at, seconds_max=15)
    stage.check()


def test_a_dead_machine_is_replaced_when_its_session_ends(stage: Stage) -> None:
    """The guard dies with the broker, so the session has to time out."""
    leader = stage.leader
    leader.kill_machine()
    stage.back("F1 death of the leader's machine", now(), seconds_max=SESSION_S + TICKS_S + 1)
    stage.check()


def test_a_leader_that_was_paused_for_long_acknowledges_nothing_as_a_zombie(stage: Stage) -> None:
    """X15: when it wakes, another leads; it finds out, and follows."""
    leader = stage.leader
    leader.pause()
    stage.back("F3 SIGSTOP leader beyond its session", now(), SESSION_S + TICKS_S + 5)
    assert stage.leader is not leader
    at = now()
    leader.resume()
    time.sleep(1)
    stage.paused("F3 SIGCONT of the old leader", at, seconds_max=1.5)
    stage.check()


def test_a_controller_that_was_paused_for_long_is_not_obeyed(stage: Stage) -> None:
    """X16, E1."""
    controller, epoch = stage.cluster.controller(), stage.cluster.tree.controller_epoch()
    controller.pause()
    stage.back("F3 SIGSTOP controller beyond its session", now(), SESSION_S + TICKS_S + 5)
    wait_until(
        lambda: stage.cluster.tree.controller() not in (-1, controller.broker_id),
        "another is controller",
    )
    controller.resume()
    stage.check()
    assert stage.cluster.tree.controller_epoch() > epoch


def test_a_follower_that_was_paused_leaves_the_isr_and_returns(stage: Stage) -> None:
    """I3, H9: high watermarks go on without it."""
    follower = stage.follower
    follower.pause()
    stage.back("F8 SIGSTOP follower", now(), seconds_max=max(LAG_S, SESSION_S) + TICKS_S + 5)
    wait_until(
        lambda: follower.broker_id not in stage.cluster.tree.isr(stage.topic), "it left the ISR"
    )
    follower.resume()
    stage.check()


def test_zookeeper_may_be_gone_for_a_while(stage: Stage, rounds: int) -> None:
    """F14: who leads goes on leading; what needs ZooKeeper waits for it."""
    at, gone_s = now(), rounds * (SESSION_S + 1)
    stage.cluster.zookeeper.kill()
    time.sleep(gone_s)
    stage.paused(f"F14 ZooKeeper is gone for {gone_s:.0f} s", at, seconds_max=1)
    at = now()
    stage.cluster.start_zookeeper()
    wait_until(lambda: stage.cluster.tree.registered() == [1, 2, 3], "all are registered")
    stage.paused("F14 ZooKeeper is back", at, seconds_max=SESSION_S + 3)
    stage.leader.kill()
    stage.back("F14 kill -9 leader after ZooKeeper came back", now(), seconds_max=2)
    stage.check()


def test_a_leader_that_dies_while_zookeeper_is_gone_is_replaced_later(stage: Stage) -> None:
    stage.cluster.zookeeper.kill()
    stage.leader_known_before.kill()
    at = now()
    stage.cluster.start_zookeeper()
    stage.back("F14 ZooKeeper and the leader killed, ZooKeeper back", at, seconds_max=15)
    stage.check()


def test_a_leader_whose_session_somebody_ends_begins_another(stage: Stage) -> None:
    """F14, X22: it lives, and others lead what it led; it registers anew and follows."""
    leader, cluster = stage.leader, stage.cluster
    noted = json.loads((leader.log_dir / NOTED_SESSION).read_text(encoding="utf-8"))
    unsigned, password = int(noted["session_id"], 16), bytes.fromhex(noted["password"])
    before, epoch = cluster.tree.broker_epoch(leader.broker_id), stage.epoch
    servers = [split_address(cluster.zookeeper.address)]
    assert close_session(servers, unsigned - (unsigned >> 63 << 64), password, within_s=60)
    at = now()
    wait_until(
        lambda: cluster.tree.broker_epoch(leader.broker_id) not in (-1, before),
        "it is registered anew",
    )
    # Until the controller has seen it the old leader may go on: nobody else leads.
    wait_until(lambda: stage.epoch > epoch, "that is another epoch")
    stage.back("F14 somebody ends the session of a leader", at, seconds_max=4)
    stage.check()


def test_rolling_restarts_are_hardly_noticed(stage: Stage) -> None:
    """F2, E2: a broker that stops hands over first; ISR members return one after the other. What
    it leaves says the same of leader epochs as its log does (V6)."""
    for round_number in (1, 2):
        for broker in stage.cluster.brokers.values():
            at = now()
            broker.stop()
            for topic, partition in stage.workload.keys:
                assert check_epochs(broker.log_dir, topic, partition) == []
            broker.start()
            stage.cluster.wait_in_sync(stage.topic)
            what = f"F2 rolling restart {round_number}, broker {broker.broker_id}"
            stage.paused(what, at, seconds_max=1)
    stage.check()
