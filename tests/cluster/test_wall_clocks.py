"""Wall clocks that leap by hours while the monotonic clocks of the machines go on (F13).

It is noticed by nobody: no session ends, nobody lags or is elected, and records are not taken for
old all at once.
"""

import time
from collections.abc import Callable, Iterator

import pytest

from support.cluster_processes import QUICK
from support.cluster_stage import Stage
from support.power_loss import Machine
from support.workload import now

HOUR_S = 3600
RETENTION = {"retention.ms": str(HOUR_S * 1000), "segment.bytes": "8192"}
LOOKS_S = 0.8 * int(QUICK["replica.lag.time.max.ms"]) / 1000
"""In which lags, and the age of segments too, are looked at."""


@pytest.fixture
def clocks(machines: dict[int, Machine]) -> Iterator[dict[int, Machine]]:
    yield machines
    for machine in machines.values():
        machine.set_clock(0)


def states(stage: Stage) -> list[tuple[int, int, list[int]]]:
    indexes = stage.cluster.tree.replicas(stage.topic)
    found = [stage.cluster.tree.state(stage.topic, index) for index in indexes]
    return [(state["leader"], state["leader_epoch"], state["isr"]) for state in found]


def test_wall_clocks_that_leap_are_noticed_by_nobody(
    make_stage: Callable[..., Stage], clocks: dict[int, Machine]
) -> None:
    """One broker's, then that of all, forth and back. What is written is kept for an hour."""
    stage = make_stage(configs=RETENTION)
    leader, before, seen = stage.leader.broker_id, states(stage), stage.states.count
    controller_epoch = stage.cluster.tree.controller_epoch()
    for hours, leaping in ((2, [leader]), (-2, [leader]), (2, [1, 2, 3]), (-2, [1, 2, 3])):
        at = now()
        for broker_id in leaping:
            clocks[broker_id].set_clock(hours * HOUR_S)
        time.sleep(LOOKS_S)
        stage.paused(f"F13 {len(leaping)} of 3 wall clocks at {hours:+} h", at, seconds_max=1)
    assert stage.cluster.tree.registered() == [1, 2, 3]
    assert (states(stage), stage.states.count) == (before, seen)
    assert stage.cluster.tree.controller_epoch() == controller_epoch
    for machine in clocks.values():
        machine.set_clock(0)
    stage.check()
    assert (states(stage), stage.states.count) == (before, seen)
