"""A producer that sends again what was not answered, while brokers are restarted and leaders change
(A3, V13).

Five requests are under way at any time. No record is there twice, none is out of its turn, none is
lost. Fifty thousand of them are written with the other tests. The long form goes on with faults
drawn from the seed, fifty thousand records in each round, and with this a million:

    pytest tests/cluster/test_retry_faults.py --rounds 20 --timeout 0
"""

from collections.abc import Callable
from random import Random

from support.cluster_processes import ZOOKEEPER, BrokerProcess, Cluster, wait_until
from support.numbering import Numbering

Tell = Callable[[str], None]
Fault = Callable[[Cluster, BrokerProcess], None]

PARTITIONS = 4
RECORDS_IN_A_ROUND = 50_000


def stop(_: Cluster, broker: BrokerProcess) -> None:
    """It hands over first."""
    broker.stop()


def kill(_: Cluster, broker: BrokerProcess) -> None:
    broker.kill()


def pause(_: Cluster, broker: BrokerProcess) -> None:
    """It wakes with requests that it has not read yet."""
    broker.pause()


def cut_off(cluster: Cluster, broker: BrokerProcess) -> None:
    """What it was sent it has appended, and nobody else has."""
    cluster.links.cut(broker.name, [*cluster.names_except(broker.broker_id), ZOOKEEPER])


EACH: tuple[Fault, ...] = (kill, stop, cut_off)
ALL: tuple[Fault, ...] = (kill, kill, stop, cut_off, pause)


def test_records_that_are_sent_again_are_there_once_and_in_order(
    cluster: Cluster, topic: str, tell: Tell, seed: int, rounds: int
) -> None:
    random = Random(seed)
    faults = [*EACH, *random.choices(ALL, k=(rounds - 1) * len(EACH))]
    cluster.create(topic, PARTITIONS)
    numbering = Numbering(cluster.bootstrap, topic, PARTITIONS)
    numbering.start()
    share = rounds * RECORDS_IN_A_ROUND // (len(faults) + 1)
    try:
        for number, fault in enumerate(faults, 1):
            numbering.allow((number + 1) * share)
            numbering.wait_until_acknowledged(number * share - share // 2)
            partition = random.randrange(PARTITIONS)
            seconds = change_leader(cluster, fault, (topic, partition))
            what = f"seed {seed}, {number} of {len(faults)}: {fault.__name__}"
            tell(f"{what}: {numbering.acknowledged} records, another led after {seconds:.1f} s")
        numbering.allow(rounds * RECORDS_IN_A_ROUND)
        numbering.wait_until_acknowledged(rounds * RECORDS_IN_A_ROUND)
    finally:
        numbering.stop()
    numbering.check()
    tell(f"{numbering.acknowledged} records are there once and in order")


def change_leader(cluster: Cluster, fault: Fault, key: tuple[str, int]) -> float:
    """Returns when all are in sync again; how long it took until another one led."""
    before = cluster.leader(*key)
    fault(cluster, before)
    seconds = wait_until(
        lambda: cluster.tree.leader(*key) not in (-1, before.broker_id), "another leads"
    )
    cluster.heal()
    cluster.wait_in_sync(key[0])
    return seconds
