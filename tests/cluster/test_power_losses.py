"""Machines that lose power: what was not synced is gone, or torn (F11, X18-X21).

With min ISR 2 one machine may lose what it had not synced, again and again, and no record that was
acknowledged is lost. When all lose it at once the cluster comes back all the same, with replicas
that agree (D10). The long form is

    pytest tests/cluster/test_power_losses.py --rounds 20 --timeout 0
"""

from collections.abc import Iterator
from random import Random

import pytest

from support.cluster_processes import BrokerProcess, Cluster
from support.cluster_stage import Stage
from support.power_loss import Machine
from support.workload import Workload, now


@pytest.fixture
def draws(seed: int) -> Random:
    return Random(seed)


@pytest.fixture
def losing(cluster: Cluster, machines: dict[int, Machine]) -> Iterator[dict[int, Machine]]:
    """Machines that lose what is not synced from now on."""
    for broker_id in cluster.brokers:
        machines[broker_id].note_syncs()
    yield machines
    for machine in machines.values():
        machine.forget_syncs()


def lose_power(broker: BrokerProcess, machine: Machine, draws: Random) -> int:
    broker.kill_machine()
    return machine.lose_power(draws)


def test_nothing_is_lost_when_one_machine_at_a_time_loses_power(
    losing: dict[int, Machine], stage: Stage, draws: Random, rounds: int
) -> None:
    """X18: it is in the ISR again before the next one goes down. X20, X21, D10: when all die, and
    one of them by a power loss, whoever has the longest log leads, not who comes back first."""
    lost, brokers = 0, stage.cluster.brokers
    for _ in range(rounds):
        broker, at = brokers[draws.choice(sorted(brokers))], now()
        lost += lose_power(broker, losing[broker.broker_id], draws)
        broker.start()
        stage.back(f"F11 power loss of {broker.name}, started again", at, seconds_max=8)
        stage.cluster.wait_in_sync(stage.topic)

        leader, at = stage.leader, now()
        kill_all_at_once(stage.cluster)
        lost += losing[leader.broker_id].lose_power(draws)
        leader.start()
        stage.cluster.heal()
        stage.back(f"F11 all killed, and power loss of {leader.name}", at, seconds_max=20)
        stage.cluster.wait_in_sync(stage.topic)
    assert lost > 0, "something was not synced"
    stage.check()


def kill_all_at_once(cluster: Cluster) -> None:
    for broker in cluster.brokers.values():
        broker.pause()
    for broker in cluster.brokers.values():
        broker.kill()


def test_a_cluster_comes_back_when_all_lose_power_at_once(
    losing: dict[int, Machine], stage: Stage, draws: Random
) -> None:
    """D10: more than min ISR - 1 have lost something, so the last records may be gone; what is
    there is the same everywhere."""
    stage.workload.abandon()
    brokers = stage.cluster.brokers
    lost = [lose_power(brokers[broker_id], losing[broker_id], draws) for broker_id in losing]
    assert any(lost), "something was not synced"
    at = now()
    stage.cluster.heal()
    stage.workload = Workload(stage.cluster.bootstrap, stage.topic, len(stage.workload.keys))
    stage.workload.start()
    stage.back("F11 power loss of all", at, seconds_max=20)
    stage.cluster.wait_in_sync(stage.topic)
    stage.workload.settle()
    assert not stage.workload.errors, stage.workload.errors[:5]
    assert not stage.states.wrong(), stage.states.wrong()
    stage.check_replicas()
    stage.is_checked = True
