"""A replica that a loss of power has left without the id of its topic (X30 v)."""

import pytest

from support.cluster_calls import assert_alike, delete_topic, log_values, read, write
from support.sim_cluster import SimCluster

ID_FILE = "/data/events-0/partition.metadata"


def without_its_id(**settings: int) -> tuple[SimCluster, int, list[int]]:
    """A follower has lost power shortly after the topic was made. Nothing of it was flushed by
    then: the system has written the records, and not yet the id. Also, who the replicas are."""
    cluster = SimCluster(**settings)
    controller = cluster.controller
    hurt, other = (broker_id for broker_id in (1, 2, 3) if broker_id != controller)
    cluster.create("events", replicas=[[controller, other, hurt]])
    for value in ("a", "b", "c"):
        write(cluster, "events", value)
    cluster.wait_caught_up("events")
    cluster.lose_power(hurt, "none")
    cluster.machines[hurt].disk.open(ID_FILE, "write").truncate(0)
    return cluster, hurt, [controller, other, hurt]


def test_records_of_a_deleted_topic_are_not_taken_for_those_of_another_of_its_name() -> None:
    """V1, V2: offsets and epochs of both are alike. Nobody has noticed yet that it is away."""
    cluster, hurt, replicas = without_its_id()
    assert delete_topic(cluster, "events") == "none"
    assert cluster.ask_create("events", replicas=[replicas]).error_code.name == "none"
    cluster.run_for(10_000)
    values = ["x", "y", "z"]
    for value in values:
        write(cluster, "events", value)
    cluster.start(hurt)
    cluster.wait_caught_up("events")
    assert log_values(cluster, hurt, "events") == values
    assert_alike(cluster, "events")


def test_records_of_a_deleted_topic_are_not_kept_where_no_member_has_them() -> None:
    """V1, V2: nobody leads the other topic of their name when they are found, and this replica
    was never one of those that had all of that."""
    cluster, hurt, replicas = without_its_id(replica_lag_time_max_ms=2_000)
    assert delete_topic(cluster, "events") == "none"
    assert cluster.ask_create("events", replicas=[replicas]).error_code.name == "none"
    values = ["x", "y", "z"]
    for value in values:
        write(cluster, "events", value, acks=1)
    cluster.wait_isr("events", *replicas[:2])
    leader = cluster.held(cluster.leader("events"), "events")
    cluster.wait(lambda: leader.high_watermark == len(values), "they are committed")
    assert cluster.state("events")["leader_epoch"] == 0, (
        "it was missed before its session had ended"
    )
    for broker_id in replicas[:2]:
        cluster.kill(broker_id)
    cluster.start(hurt)
    for broker_id in replicas[:2]:
        cluster.start(broker_id)
    cluster.wait_caught_up("events")
    assert log_values(cluster, hurt, "events") == values
    assert_alike(cluster, "events")


def test_a_replica_that_others_need_is_kept_although_its_id_is_lost() -> None:
    """D10: nobody leads, and what it has may be all there is."""
    cluster, hurt, replicas = without_its_id()
    for broker_id in replicas[:2]:
        cluster.lose_power(broker_id)
    cluster.begin(hurt)
    cluster.begin(replicas[1])
    for broker_id in (hurt, replicas[1]):
        cluster.wait_started(broker_id)
    assert read(cluster, "events") == ["a", "b", "c"]


def test_a_replica_that_was_kept_is_not_taken_for_another_topics_later() -> None:
    """V1, V2: that it has lost its id is not to be seen after the next start."""
    cluster, hurt, replicas = without_its_id()
    for broker_id in replicas[:2]:
        cluster.lose_power(broker_id)
    for broker_id in replicas:
        cluster.begin(broker_id)
    for broker_id in replicas:
        cluster.wait_started(broker_id)
    assert read(cluster, "events") == ["a", "b", "c"]
    cluster.kill(hurt, guard=False)
    assert delete_topic(cluster, "events") == "none"
    assert cluster.ask_create("events", replicas=[replicas]).error_code.name == "none"
    cluster.run_for(10_000)
    values = ["x", "y", "z"]
    for value in values:
        write(cluster, "events", value)
    cluster.start(hurt)
    cluster.wait_caught_up("events")
    assert log_values(cluster, hurt, "events") == values
    assert_alike(cluster, "events")


@pytest.mark.parametrize("is_killed", [True, False])
def test_that_an_id_is_lost_is_known_also_to_a_later_start(is_killed: bool) -> None:
    """V1, V2: the first one ended before a controller had told it anything."""
    cluster, hurt, replicas = without_its_id()
    assert delete_topic(cluster, "events") == "none"
    assert cluster.ask_create("events", replicas=[replicas]).error_code.name == "none"
    cluster.run_for(10_000)
    values = ["x", "y", "z"]
    for value in values:
        write(cluster, "events", value)
    cluster.isolate(hurt)
    cluster.begin(hurt)
    cluster.run_for(2_000)
    (log_dir,) = cluster.broker(hurt).logs.dirs
    assert [log.log_end_offset for log in log_dir.logs.values()] == [3], "of the topic before"
    if is_killed:
        cluster.kill(hurt, guard=False)
    else:
        cluster.stop(hurt)
    cluster.network.mend()
    cluster.start(hurt)
    cluster.wait_caught_up("events")
    assert log_values(cluster, hurt, "events") == values
    assert_alike(cluster, "events")
