"""What the page for monitoring says of a cluster in which brokers come and go (O3)."""

from support.brokers import one_batch
from support.sim_cluster import SimCluster
from tidelog.metrics import lines

FIRST = ("under_replicated_partitions", "offline_partitions", "under_min_isr_partitions")


def seen_by(cluster: SimCluster, broker_id: int, *names: str) -> list[float]:
    text = "".join(lines(cluster.broker(broker_id)))
    rows = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return [float(rows[f"tidelog_{name}"]) for name in names]


def changes_by(cluster: SimCluster, broker_id: int) -> list[float]:
    return seen_by(cluster, broker_id, "isr_shrinks_total", "isr_expands_total")


def wait_for(cluster: SimCluster, *wanted: float) -> None:
    """The first numbers that one looks at: copies missing, nobody leads, too few in sync."""
    cluster.wait(lambda: seen_by(cluster, 1, *FIRST) == list(wanted), f"{FIRST} are {wanted}")


def test_missing_copies_and_missing_leaders_are_counted() -> None:
    cluster = SimCluster(default_replication_factor=3, min_insync_replicas=2)
    cluster.create("events", replicas=[[1, 2, 3], [2, 3, 1]])
    cluster.create("alone", replicas=[[3]])
    wait_for(cluster, 0, 0, 0)
    cluster.kill(3)
    wait_for(cluster, 2, 1, 0)
    cluster.kill(2)
    wait_for(cluster, 2, 1, 2)
    leading = ("active_controller", "partitions_led")
    cluster.wait(lambda: seen_by(cluster, 1, *leading) == [1, 2], "broker 1 leads what is left")
    cluster.start(2)
    cluster.start(3)
    wait_for(cluster, 0, 0, 0)


def test_changes_of_in_sync_sets_are_counted_by_who_made_them() -> None:
    cluster = SimCluster()
    cluster.create("events", replicas=[[1, 2, 3]])
    assert changes_by(cluster, 1) == [0, 0]
    cluster.cut(3, 1)
    cluster.client(1).produce("events", one_batch("b"), acks=1)
    cluster.wait_isr("events", 1, 2)
    assert changes_by(cluster, 1) == [1, 0]
    cluster.network.mend()
    cluster.wait_isr("events", 1, 2, 3)
    assert changes_by(cluster, 1) == [1, 1]
    assert changes_by(cluster, 2) == [0, 0]
