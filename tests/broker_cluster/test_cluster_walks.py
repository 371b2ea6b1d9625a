"""Random walks of a whole cluster: what was acknowledged is there, and replicas are alike.

More of them with TIDELOG_CLUSTER_WALKS=1000, from another first seed with
TIDELOG_CLUSTER_WALKS_FROM=5000.
"""

import os

import pytest

from support.cluster_walk import Walk
from tidelog.replication.replica import Replica

WALKS = int(os.environ.get("TIDELOG_CLUSTER_WALKS", "20"))
FIRST = int(os.environ.get("TIDELOG_CLUSTER_WALKS_FROM", "0"))
MOVES = 50
FAULTS = ("kill", "lose_power", "stop", "cut", "cut_one_way", "lose_connection", "expire")


@pytest.mark.parametrize("seed", range(FIRST, FIRST + WALKS))
def test_nothing_that_was_acknowledged_is_lost_whatever_happens(seed: int) -> None:
    """R5, V1, V2, V8, V13, H2, H3, H5."""
    walk = Walk(seed)
    walk.run(MOVES)
    assert sum(map(len, walk.acknowledged)) > 20
    assert sum(walk.counts.get(name, 0) for name in FAULTS) >= 3


def test_a_walk_is_the_same_from_the_same_seed() -> None:
    """V21."""
    walks = [Walk(7), Walk(7)]
    for walk in walks:
        walk.run(15)
    first, second = walks
    assert first.moves == second.moves
    assert first.acknowledged == second.acknowledged
    assert first.seen == second.seen
    assert first.cluster.clock.monotonic_ms() == second.cluster.clock.monotonic_ms()


def commits_at_once(self: Replica, _remote: object) -> int:
    return self.log.log_end_offset


def never_diverges(_self: Replica, _offset: int, _last_epoch: int) -> None:
    return None


MUTANTS = {"reached": commits_at_once, "divergence": never_diverges}


@pytest.mark.parametrize("rule", MUTANTS)
def test_walks_notice_a_rule_that_is_missing(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that cannot fail is worth nothing."""
    monkeypatch.setattr(Replica, rule, MUTANTS[rule])
    for seed in range(15):
        try:
            Walk(seed).run(MOVES)
        except AssertionError:
            return
    pytest.fail(f"15 walks without {rule} were all good")
