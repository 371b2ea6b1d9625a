"""Records carried from topic to topic in transactions, while whatever they depend on is killed
(A4, V13, V14).

Who reads committed records sees each input's output once, aborted ones never, and waits for a dead
transaction no longer than its timeout. The long form goes on with faults drawn from the seed:

    pytest tests/cluster/test_transaction_faults.py --rounds 20 --timeout 0
"""

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from support.carrying import COMMITTED_ONLY, Carrying, place_of
from support.client_process import ClientProcess
from support.cluster_processes import ZOOKEEPER, BrokerProcess, Cluster, wait_until
from support.cluster_stage import BUSY_SECONDS
from support.history_checker import Poll
from support.plain_clients import acknowledge
from support.workload import Reader
from tidelog.base.ids import TRANSACTION_STATE

Tell = Callable[[str], None]

HANGING_TIMEOUT_MS = 3000
A_FEW_SECONDS = 4.0


class Fault(NamedTuple):
    way: str
    whom: str
    healed: str


WAYS = ("kill -9", "SIGSTOP", "cut off")
BROKERS = ("transaction coordinator", "group coordinator", "leader of the output")
MOMENTS = ("at once", "when another leads", "when more has come through")

EACH = (
    Fault("kill -9", "carrier", "at once"),
    Fault("kill -9", "transaction coordinator", "when another leads"),
    Fault("kill -9", "group coordinator", "when another leads"),
    Fault("kill -9", "leader of the output", "when more has come through"),
    Fault("cut off", "transaction coordinator", "when another leads"),
    Fault("cut off", "leader of the output", "when another leads"),
)


def drawn(random: Random) -> Fault:
    """A carrier that is frozen for as long as others need to take its place wakes as a zombie."""
    whom = random.choice(("carrier", *BROKERS))
    if whom == "carrier":
        return random.choice((EACH[0], Fault("SIGSTOP", whom, "when more has come through")))
    return Fault(random.choice(WAYS), whom, random.choice(MOMENTS))


def strike(carrying: Carrying, fault: Fault) -> None:
    """In the midst of a transaction, and heals at the moment that the fault names."""
    carrier = carrying.carriers[0]
    carrier.wait_for("began")
    if fault.whom == "carrier":
        strike_carrier(carrying, carrier, fault)
    else:
        strike_broker(carrying, fault)


def strike_carrier(carrying: Carrying, carrier: ClientProcess, fault: Fault) -> None:
    if fault.way == "kill -9":
        carrier.kill()
        carrier.start()
    else:
        carrier.pause()
        carrying.wait_for_more()
        carrier.resume()


def strike_broker(carrying: Carrying, fault: Fault) -> None:
    cluster = carrying.cluster
    topic, partition = carrying.place(fault.whom)
    broker = cluster.leader(topic, partition)
    do(cluster, broker, fault.way)
    if fault.healed != "at once":
        wait_until(
            lambda: cluster.tree.leader(topic, partition) not in (-1, broker.broker_id),
            f"another is {fault.whom}",
        )
    if fault.healed == "when more has come through":
        carrying.wait_for_more()
    cluster.heal()


def do(cluster: Cluster, broker: BrokerProcess, way: str) -> None:
    if way == "kill -9":
        broker.kill()
    elif way == "SIGSTOP":
        broker.pause()
    else:
        cluster.links.cut(broker.name, [*cluster.names_except(broker.broker_id), ZOOKEEPER])


def test_each_input_comes_out_once_whatever_dies(
    cluster: Cluster, topic: str, tmp_path: Path, tell: Tell, seed: int, rounds: int
) -> None:
    random = Random(seed)
    more = [drawn(random) for _ in range((rounds - 1) * len(EACH))]
    carrying = Carrying(cluster, topic, tmp_path)
    try:
        carrying.start()
        for number, fault in enumerate([*EACH, *more]):
            strike(carrying, fault)
            seconds = carrying.wait_for_more()
            what = f"{fault.way} {fault.whom}, healed {fault.healed}"
            tell(f"seed {seed}, {number + 1}: {what}: more after {seconds:.1f} s")
            carrying.wait_in_sync()
        tell(f"{carrying.check()} records came through once")
    finally:
        carrying.close()


@pytest.mark.parametrize("is_coordinator_killed", [False, True])
def test_a_dead_transaction_holds_nobody_up_for_longer_than_its_timeout(
    cluster: Cluster, topic: str, tmp_path: Path, tell: Tell, is_coordinator_killed: bool
) -> None:
    """Also where the coordinator that knew of it dies with it."""
    cluster.create(topic)
    way = (cluster.bootstrap, topic, "1", str(HANGING_TIMEOUT_MS))
    hanging = ClientProcess("hanging.py", tmp_path, f"hanging-{topic}", *way)
    hanging.start()
    hanging.wait_until_noted("open")
    began = time.monotonic()
    hanging.kill()
    if is_coordinator_killed:
        cluster.leader(*place_of(cluster, TRANSACTION_STATE, hanging.name)).kill()
    acknowledge(cluster.bootstrap, topic, ["behind it"])
    reader = Reader("committed", cluster.bootstrap, [(topic, 0)], **COMMITTED_ONLY)
    reader.start()
    try:
        wait_until(lambda: reader.positions[topic, 0] > 0, "it goes on", 3 * BUSY_SECONDS)
        seconds = time.monotonic() - began
    finally:
        reader.stop()
    tell(f"held up for {seconds:.1f} s by a transaction of {HANGING_TIMEOUT_MS / 1000:.0f} s")
    assert seconds < HANGING_TIMEOUT_MS / 1000 + A_FEW_SECONDS + BUSY_SECONDS
    polls = [one for one in reader.operations if isinstance(one, Poll)]
    assert [value for poll in polls for _, value in poll.records] == ["behind it"]
