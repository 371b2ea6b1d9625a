"""Faults drawn at random, two at a time, over and over: what nobody thought of testing.

A short form runs with the other tests. The long form is a matter of patience:

    pytest tests/cluster/test_random_faults.py --rounds 50 --seed 7 --timeout 0

Each round has a topic and clients of its own, and prints which faults it had; the same seed draws
the same ones, though real processes do not repeat themselves.
"""

import time
from collections.abc import Callable, Iterator
from random import Random

import pytest

from support.cluster_processes import ZOOKEEPER, BrokerProcess, Cluster
from support.cluster_stage import Stage
from support.link_proxy import Rule
from support.workload import now

Tell = Callable[[str], None]
Fault = Callable[["Nemesis"], str]

PAIRS_IN_A_ROUND = 2
LASTS_S = (0.5, 3.5)
BACK_WITHIN_S = 25.0


class Nemesis:
    """Does one thing at a time; `Cluster.heal` undoes all of them."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self.cluster = cluster
        self.random = random

    def strike(self) -> str:
        return self.random.choice(FAULTS)(self)

    def broker(self) -> BrokerProcess:
        return self.random.choice(list(self.cluster.brokers.values()))

    def pair(self) -> tuple[str, str]:
        one, other = self.random.sample([*map(str, self.cluster.brokers), ZOOKEEPER], 2)
        return one, other


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
)


def test_nothing_is_lost_by_faults_that_overlap(
    request: pytest.FixtureRequest, cluster: Cluster, topic_names: Iterator[str], tell: Tell
) -> None:
    seed = request.config.getoption("--seed", default=1)
    rounds = request.config.getoption("--rounds", default=1)
    is_well = False
    try:
        for number in range(rounds):
            random = Random(f"{seed} {number}")
            stage = Stage(cluster, next(topic_names), tell)
            stage.begin()
            for _ in range(PAIRS_IN_A_ROUND):
                two_faults(stage, Nemesis(cluster, random), f"seed {seed} round {number + 1}")
            stage.check()
        is_well = True
    finally:
        if not is_well:
            stage.workload.abandon()
            cluster.start_anew()


def two_faults(stage: Stage, nemesis: Nemesis, what: str) -> None:
    first = nemesis.strike()
    time.sleep(nemesis.random.uniform(0, 1))
    second = nemesis.strike()
    time.sleep(nemesis.random.uniform(*LASTS_S))
    at = now()
    stage.cluster.heal()
    stage.back(f"{what}: {first}, {second}, healed", at, BACK_WITHIN_S)
