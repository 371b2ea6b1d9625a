"""D12: a range that is cut while it is being sent. Either half of the rule keeps it from doing
harm; without both a follower takes what was never the leader's, and all believe it is in sync.
"""

import pytest

from support.brokers import one_batch
from support.cluster_calls import assert_alike, log_values, write
from support.sending_mutants import cut_under_readers, take_any_batch
from support.sim_cluster import SimCluster

RECORDS = 4
LONG = 120_000
"""More than a connection takes at once: most of it lies in the file while the first part waits."""


def cut_what_is_being_sent(seed: int) -> list[str]:
    """The values that a follower has in the end, shortened.

    It was sent records that only the old leader has. Before most of them had left, the old leader
    cut its log and took the new leader's in their place; the follower knows of no new leader."""
    cluster = SimCluster(seed=seed)
    new = cluster.controller
    old, follower = (broker for broker in (1, 2, 3) if broker != new)
    cluster.create("events", replicas=[[old, new, follower]], max_message_bytes=10_000_000)
    write(cluster, "events", "a")
    cluster.wait_caught_up("events")
    leave_a_range_half_sent(cluster, old, new, follower)
    cluster.session(old).expire()
    cluster.wait_led_elsewhere("events", old)
    mend(cluster, old, new)
    mend(cluster, new, old)
    produce(cluster, new, "y")
    held, epoch = cluster.held(old, "events"), cluster.held(new, "events").leader_epoch
    cluster.wait(
        lambda: (held.log.epochs.latest, held.log.log_end_offset) == (epoch, 1 + RECORDS),
        "the old leader has what the new one has",
    )
    mend(cluster, old, follower)
    cluster.run_for(100)
    cluster.network.mend()
    cluster.wait_caught_up("events")
    found = [value[:2] for value in log_values(cluster, follower, "events")]
    assert_alike(cluster, "events")
    return found


def leave_a_range_half_sent(cluster: SimCluster, old: int, new: int, follower: int) -> None:
    """The follower gets a first record, and asks for the others at once."""
    waiters = cluster.held(old, "events").end_waiters
    cluster.wait(lambda: follower in [one.follower for one in waiters], "it has asked")
    cluster.cut(old, new)
    cluster.cut(new, follower)
    cluster.cut(old, follower, one_way=True)
    produce(cluster, old, "x")
    mend(cluster, old, follower)
    log = cluster.held(follower, "events").log
    cluster.wait(lambda: log.log_end_offset == 2, "it has the first record")
    cluster.cut(old, follower, one_way=True)
    cluster.run_for(20)


def produce(cluster: SimCluster, broker_id: int, letter: str) -> None:
    """A short record, and a little later long ones."""
    client = cluster.client(broker_id)
    for number in range(RECORDS):
        value = f"{number}" + letter * (LONG if number else 1)
        client.produce("events", one_batch(value), acks=1)
        cluster.run_for(20)


def mend(cluster: SimCluster, source: int, target: int) -> None:
    names = cluster.machines[source].name, cluster.machines[target].name
    cluster.network.link(*names).mend()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mutant", [None, cut_under_readers, take_any_batch])
def test_a_range_that_is_cut_under_way_does_no_harm(
    seed: int, mutant: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    if callable(mutant):
        mutant(monkeypatch)
    assert cut_what_is_being_sent(seed) == ["a", "0y", "1y", "2y", "3y"]


@pytest.mark.parametrize("seed", range(4))
def test_without_both_halves_of_the_rule_replicas_differ(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V1, as `assert_alike` checks it."""
    cut_under_readers(monkeypatch)
    take_any_batch(monkeypatch)
    with pytest.raises(AssertionError, match="events-0 differs"):
        cut_what_is_being_sent(seed)
