"""Failover as it comes out of the box, and with a thousand partitions.

A cluster of its own with default settings: sessions of 18 s, which nobody waits for when a process
dies. E1: what is asked of a controller that dies is done by the next one. E4: leaders go back to
where they are preferred by themselves.
"""

import time
from collections.abc import Callable, Iterator
from threading import Thread

import pytest

from support.cluster_processes import SAFE, Cluster, new_zookeeper, wait_until
from support.cluster_stage import Stage
from support.workload import now
from tidelog.base.errors import KafkaError
from tidelog.client.client import Client
from tidelog.client.topics import NewTopic, create_topics, delete_topics

TOPICS, PARTITIONS_EACH = 10, 100
KILLS, KILLS_MAX = 3, 9
SESSION_S = 18
FAILOVER_S = 1.0
SHORTLY_S = 0.5
BALANCED_EVERY_S = 4

Tell = Callable[[str], None]


@pytest.fixture(scope="module")
def defaults(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("defaults")
    zookeeper = new_zookeeper(folder / "zookeeper")
    often = {"leader.imbalance.check.interval.seconds": str(BALANCED_EVERY_S)}
    made = Cluster(folder / "cluster", zookeeper, SAFE | often)
    try:
        made.start()
        yield made
    finally:
        made.close()
        zookeeper.kill()


def test_nobody_waits_for_the_session_of_a_leader_that_died(defaults: Cluster, tell: Tell) -> None:
    """E2: with a guard that does nothing each would take a session, on any machine."""
    stage = Stage(defaults, "failover", tell)
    stage.begin()
    taken: list[float] = []
    while len(taken) < KILLS or (min(taken) >= 2 * FAILOVER_S and len(taken) < KILLS_MAX):
        leader = stage.leader
        leader.kill()
        what = "kill -9 leader, default settings"
        taken.append(stage.back(what, now(), seconds_max=FAILOVER_S))
        assert taken[-1] < SESSION_S / 2, "nobody waits for the session to end"
        leader.start()
        defaults.wait_in_sync(stage.topic)
    assert min(taken) < 2 * FAILOVER_S, "the best of them is near what is told, also if busy"
    stage.check()


def test_a_leader_that_was_paused_shortly_keeps_leading(defaults: Cluster, tell: Tell) -> None:
    stage = Stage(defaults, "paused", tell)
    stage.begin()
    leader, epoch = stage.leader, stage.epoch
    at = now()
    leader.pause()
    time.sleep(SHORTLY_S)
    leader.resume()
    stage.back("F4 SIGSTOP leader for a small part of its session", at, seconds_max=2)
    assert (stage.leader, stage.epoch) == (leader, epoch)
    stage.check()


def test_a_preferred_replica_leads_again_by_itself(defaults: Cluster, tell: Tell) -> None:
    """E4: some time after it was restarted."""
    defaults.create("balanced")
    (preferred, *_) = defaults.tree.replicas("balanced")[0]
    defaults.brokers[preferred].stop()
    assert defaults.leader_id("balanced") != preferred
    defaults.brokers[preferred].start()
    seconds = wait_until(
        lambda: defaults.tree.leader("balanced") == preferred,
        "it leads again",
        seconds_max=BALANCED_EVERY_S + 60,
    )
    tell(f"E4 the preferred replica leads again {seconds:.1f} s after its start")


def test_a_controller_with_a_thousand_partitions_is_replaced(defaults: Cluster, tell: Tell) -> None:
    """E1: and everything happens that is asked for meanwhile."""
    began = now()
    names = [f"many-{number}" for number in range(TOPICS)]
    defaults.create_all([NewTopic(name=n, partition_count=PARTITIONS_EACH) for n in names])
    tell(f"{TOPICS * PARTITIONS_EACH} partitions created in {(now() - began) / 1e9:.2f} s")
    for name in names:
        defaults.wait_in_sync(name)
    stage = Stage(defaults, "beside-many", tell)
    stage.begin()
    controller = defaults.controller()
    late = NewTopic(name="late", partition_count=5, replication_factor=2)
    asked = [
        Thread(target=insist, args=(defaults, lambda c: create_topics(c, [late]))),
        Thread(target=insist, args=(defaults, lambda c: delete_topics(c, [names[0]]))),
    ]
    for one in asked:
        one.start()
    controller.kill()
    at = now()
    stage.back("kill -9 controller, 1,000 partitions", at, seconds_max=4)
    for one in asked:
        one.join()
    wait_until(lambda: defaults.tree.replicas("late"), "the topic was created")
    wait_until(lambda: not defaults.tree.replicas(names[0]), "the topic was deleted")
    wait_until(lambda: all_are_led(defaults, names[1:], controller.broker_id), "all are led")
    tell(f"all partitions are led by the living after {(now() - at) / 1e9:.2f} s")
    controller.start()
    for name in names[1:]:
        defaults.wait_in_sync(name)
    stage.check()


def insist(cluster: Cluster, ask: Callable[[Client], dict[str, KafkaError | None]]) -> None:
    """Asks until it is done: by this request, or by one whose answer was lost."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            with Client(cluster.bootstrap, timeout_ms=5000) as client:
                (error,) = ask(client).values()
        except (OSError, KafkaError):
            time.sleep(0.1)
            continue
        if error is None or error.code.name in (
            "topic_already_exists",
            "unknown_topic_or_partition",
        ):
            return
        time.sleep(0.1)


def all_are_led(cluster: Cluster, names: list[str], except_by: int) -> bool:
    with Client(cluster.bootstrap) as client:
        topics = client.cluster(names).topics
    leaders = {part.leader for topic in topics.values() for part in topic.partitions}
    return len(topics) == len(names) and not leaders & {-1, except_by}
