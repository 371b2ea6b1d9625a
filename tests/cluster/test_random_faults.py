"""Faults drawn at random, two at a time, over and over: what nobody thought of testing.

A short form runs with the other tests. The long form is a matter of patience:

    pytest tests/cluster/test_random_faults.py --rounds 50 --timeout 0

Each round has topics and clients of its own, one of them compacted all the time, and prints which
faults it had. The long form draws them from a new seed each time, which is printed; `--seed 7`
draws the same ones again, though real processes do not repeat themselves.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from random import Random

from support.cluster_processes import ZOOKEEPER, BrokerProcess, Cluster, wait_until
from support.cluster_stage import Stage
from support.compacting import Updates, first_to_clean
from support.link_proxy import Rule
from support.workload import now
from tidelog.base.errors import KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.client.client import Client
from tidelog.client.reassignments import alter_reassignments

Tell = Callable[[str], None]
Fault = Callable[["Nemesis"], str]

PAIRS_IN_A_ROUND = 2
LASTS_S = (0.5, 3.5)
BACK_WITHIN_S = 25.0
ASKS_FOR_MS = 1500
CLEANS_WITHIN_S = 2.0
UPDATES_EVERY_S = 0.1
REPLICAS = (2, 3)


class Nemesis:
    """Does one thing at a time; `Cluster.heal` undoes all of them, but where replicas are."""

    def __init__(self, stage: Stage, updates: Updates, random: Random) -> None:
        self.cluster = stage.cluster
        self.updates = updates
        self.random = random
        self.partitions = [TopicPartition(*key) for key in stage.workload.keys]
        self.partitions.append(TopicPartition(updates.topic, 0))

    def strike(self) -> str:
        return self.random.choice(FAULTS)(self)

    def broker(self) -> BrokerProcess:
        return self.random.choice(list(self.cluster.brokers.values()))

    def pair(self) -> tuple[str, str]:
        one, other = self.random.sample([*map(str, self.cluster.brokers), ZOOKEEPER], 2)
        return one, other

    def ask(self, partition: TopicPartition, target: list[int] | None) -> str:
        """The controller, where there is one: nobody may be there to do it, or to say that it is
        done."""
        outcome: Exception | None
        try:
            with Client(self.cluster.bootstrap, timeout_ms=ASKS_FOR_MS) as client:
                outcome = alter_reassignments(client, {partition: target})[partition]
        except (OSError, KafkaError) as error:
            outcome = error
        return "" if outcome is None else f" ({outcome})"


def kill(nemesis: Nemesis) -> str:
    broker = nemesis.broker()
    if broker.is_running:
        broker.kill()
    return f"kill -9 {broker.name}"


def kill_machine(nemesis: Nemesis) -> str:
    broker = nemesis.broker()
    if broker.is_running:
        broker.kill_machine()
    return f"machine of {broker.name} dies"


def kill_all(nemesis: Nemesis) -> str:
    for broker in nemesis.cluster.brokers.values():
        if broker.is_running:
            broker.kill()
    return "kill -9 all"


def bounce(nemesis: Nemesis) -> str:
    """Without a word to anybody, as quickly as it can."""
    broker = nemesis.broker()
    if broker.is_running:
        broker.kill()
    broker.launch()
    return f"kill -9 and start {broker.name}"


def pause(nemesis: Nemesis) -> str:
    broker = nemesis.broker()
    if broker.is_running:
        broker.pause()
    return f"SIGSTOP {broker.name}"


def stutter(nemesis: Nemesis) -> str:
    broker = nemesis.broker()
    for _ in range(5):
        if broker.is_running:
            broker.pause()
            time.sleep(nemesis.random.uniform(0.05, 0.4))
            broker.resume()
            time.sleep(0.05)
    return f"SIGSTOP and SIGCONT {broker.name}"


def kill_zookeeper(nemesis: Nemesis) -> str:
    if nemesis.cluster.zookeeper.is_running:
        nemesis.cluster.zookeeper.kill()
    return "kill -9 ZooKeeper"


def bounce_zookeeper(nemesis: Nemesis) -> str:
    nemesis.cluster.start_zookeeper()
    return "kill -9 and start ZooKeeper"


def cut(nemesis: Nemesis) -> str:
    one, other = nemesis.pair()
    nemesis.cluster.links.cut(one, [other])
    return f"cut {one} - {other}"


def cut_one_way(nemesis: Nemesis) -> str:
    one, other = nemesis.pair()
    nemesis.cluster.links.cut_one_way(one, other)
    return f"cut {one} -> {other}"


def isolate(nemesis: Nemesis) -> str:
    broker, cluster = nemesis.broker(), nemesis.cluster
    cluster.links.cut(broker.name, [*cluster.names_except(broker.broker_id), ZOOKEEPER])
    return f"{broker.name} alone"


def slow(nemesis: Nemesis) -> str:
    one, other = nemesis.pair()
    nemesis.cluster.links.rule(one, other, Rule(delay_s=0.2, bytes_per_s=100_000))
    return f"slow {one} -> {other}"


def reset(nemesis: Nemesis) -> str:
    one, other = nemesis.pair()
    nemesis.cluster.links.reset(one, other)
    return f"reset {one} - {other}"


def reassign(nemesis: Nemesis) -> str:
    """Who is to leave and who to come; what was asked for before is not waited for."""
    partition = nemesis.random.choice(nemesis.partitions)
    count = nemesis.random.choice(REPLICAS)
    target = nemesis.random.sample(sorted(nemesis.cluster.brokers), count)
    return f"{partition} moves to {target}{nemesis.ask(partition, target)}"


def take_back(nemesis: Nemesis) -> str:
    """A replica leaves, comes again, and is not to come while it does."""
    partition = nemesis.random.choice(nemesis.partitions)
    everybody = sorted(nemesis.cluster.brokers)
    two = nemesis.random.sample(everybody, 2)
    asked = [nemesis.ask(partition, target) for target in (two, everybody, None)]
    return f"{partition} moves to {two}{asked[0]}, to all{asked[1]}, and not{asked[2]}"


def kill_cleaning(nemesis: Nemesis) -> str:
    """Whoever compacts; if nobody is seen to, anybody."""
    found = first_to_clean(nemesis.cluster, nemesis.updates.topic, CLEANS_WITHIN_S)
    if found is None:
        return kill(nemesis)
    found.kill()
    return f"kill -9 {found.name} while it compacts"


FAULTS: tuple[Fault, ...] = (
    kill,
    kill,
    kill_machine,
    kill_all,
    bounce,
    pause,
    stutter,
    kill_zookeeper,
    bounce_zookeeper,
    cut,
    cut,
    cut_one_way,
    cut_one_way,
    isolate,
    slow,
    reset,
    reassign,
    reassign,
    take_back,
    kill_cleaning,
    kill_cleaning,
)


def test_nothing_is_lost_by_faults_that_overlap(
    cluster: Cluster, topic_names: Iterator[str], tell: Tell, seed: int, rounds: int
) -> None:
    for number in range(rounds):
        what = f"seed {seed} round {number + 1}"
        one_round(cluster, topic_names, tell, (Random(f"{seed} {number}"), what))


def one_round(
    cluster: Cluster, topic_names: Iterator[str], tell: Tell, drawn: tuple[Random, str]
) -> None:
    random, what = drawn
    updates = Updates(cluster, next(topic_names), UPDATES_EVERY_S)
    stage = Stage(cluster, next(topic_names), tell)
    try:
        stage.begin()
        for _ in range(PAIRS_IN_A_ROUND):
            two_faults(stage, Nemesis(stage, updates, random), what)
        for topic in (updates.topic, stage.topic):
            wait_until(partial(is_settled, cluster, topic), f"{topic} is in its place")
        stage.check()
        tell(f"{what}: {updates.check()} updates, all replicas agree")
    finally:
        stage.workload.abandon()
        updates.stop(0)
        if not stage.is_checked:
            cluster.start_anew()


def is_settled(cluster: Cluster, topic: str) -> bool:
    """Whether nothing of it is being moved."""
    found = cluster.tree.get(f"/brokers/topics/{topic}")
    return bool(found) and not (found.get("adding_replicas") or found.get("removing_replicas"))


def two_faults(stage: Stage, nemesis: Nemesis, what: str) -> None:
    first = nemesis.strike()
    time.sleep(nemesis.random.uniform(0, 1))
    second = nemesis.strike()
    time.sleep(nemesis.random.uniform(*LASTS_S))
    at = now()
    stage.cluster.heal()
    stage.back(f"{what}: {first}, {second}, healed", at, BACK_WITHIN_S)
