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
TRIES_MAX = 4
RETENTION = {"retention.ms": str(HOUR_S * 1000), "segment.bytes": "8192"}
LOOKS_S = 0.8 * int(QUICK["replica.lag.time.max.ms"]) / 1000
"""In which lags, and the age of segments too, are looked at."""


@pytest.fixture
def clocks(machines: dict[int, Machine]) -> Iterator[dict[int, Machine]]:
    yield machines
    for machine in machines.values():
        machine.set_clock(0)


def what_would_change(stage: Stage) -> tuple[object, ...]:
    """If somebody's session ended, or anybody lagged or was elected."""
    tree = stage.cluster.tree
    found = [tree.state(stage.topic, index) for index in tree.replicas(stage.topic)]
    states = [(state["leader"], state["leader_epoch"], state["isr"]) for state in found]
    sessions = [tree.get(f"/brokers/ids/{broker_id}") for broker_id in stage.cluster.brokers]
    return states, stage.states.count, sessions, tree.controller_epoch()


def leap(stage: Stage, clocks: dict[int, Machine]) -> bool:
    """One broker's clock, then that of all, forth and back; whether it was noticed."""
    stage.cluster.wait_in_sync(stage.topic)
    leader, before = stage.leader.broker_id, what_would_change(stage)
    for hours, leaping in ((2, [leader]), (-2, [leader]), (2, [1, 2, 3]), (-2, [1, 2, 3])):
        at = now()
        for broker_id in leaping:
            clocks[broker_id].set_clock(hours * HOUR_S)
        time.sleep(LOOKS_S)
        stage.paused(f"F13 {len(leaping)} of 3 wall clocks at {hours:+} h", at, seconds_max=1)
    after = what_would_change(stage)
    for machine in clocks.values():
        machine.set_clock(0)
    return before != after


def test_wall_clocks_that_leap_are_noticed_by_nobody(
    make_stage: Callable[..., Stage], clocks: dict[int, Machine]
) -> None:
    """What is written is kept for an hour. A machine that is too busy may cost somebody his session
    just then, but not each time."""
    stage = make_stage(configs=RETENTION)
    assert any(not leap(stage, clocks) for _ in range(TRIES_MAX))
    stage.check()
