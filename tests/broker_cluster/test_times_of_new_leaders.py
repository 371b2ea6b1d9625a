"""What a new leader says of a time, before it knows again how far readers have seen."""

import pytest

from support.brokers import SimClient
from support.cluster_calls import LATEST, ask_offset, write
from support.sim_cluster import SimCluster
from tidelog.partition import Partition


@pytest.fixture
def cluster() -> SimCluster:
    return SimCluster()


def led_anew(cluster: SimCluster) -> tuple[Partition, SimClient]:
    """A leader with one record, committed by the last, that does not know so; and its client."""
    second = cluster.controller
    first, third = (broker_id for broker_id in (1, 2, 3) if broker_id != second)
    cluster.create("news", replicas=[[first, second, third]])
    write(cluster, "news", "a")
    cluster.wait(lambda: cluster.held(first, "news").high_watermark == 1, "it is committed")
    since = ask_offset(cluster.client(first), "news", 0)
    assert (since.error_code.name, since.offset) == ("none", 0)
    cluster.cut(second, third)
    cluster.kill(first)
    leader = cluster.held(second, "news")
    cluster.wait(lambda: leader.is_led, "the second leads")
    assert (leader.high_watermark, leader.log.log_end_offset) == (0, 1)
    return leader, cluster.client(second)


def test_a_new_leader_says_that_there_is_no_record_since_a_time_when_it_knows(
    cluster: SimCluster,
) -> None:
    """I5: a record that was committed, and that readers have seen, is not denied."""
    leader, client = led_anew(cluster)
    for timestamp in (0, -3):
        found = ask_offset(client, "news", timestamp)
        assert found.error_code.name == "offset_not_available", (timestamp, found)
    assert ask_offset(client, "news", 1 << 60).error_code.name in ("none", "offset_not_available")
    cluster.network.mend()
    cluster.wait(lambda: leader.high_watermark == 1, "it is committed again")
    assert ask_offset(client, "news", 0).offset == 0


def test_older_clients_are_told_in_a_way_they_know_that_a_new_leader_does_not_know_yet(
    cluster: SimCluster,
) -> None:
    """I5, KIP-207: what they do not know they hand to whoever asked for the end."""
    _, client = led_anew(cluster)
    for version in range(1, 12):
        code = "leader_not_available" if version < 5 else "offset_not_available"
        for timestamp in (LATEST, 0):
            found = ask_offset(client, "news", timestamp, version=version)
            assert (found.error_code.name, found.offset) == (code, -1), (version, timestamp)
    assert ask_offset(client, "nowhere", version=1).error_code.name == "unknown_topic_or_partition"
