"""Who leads when brokers of a whole cluster come and go, and who is in charge of that."""

import pytest

from support.brokers import one_batch
from support.cluster_calls import (
    TOPIC,
    alter,
    describe,
    elect,
    log_values,
    read,
    try_write,
    write,
)
from support.sim_cluster import SimCluster


@pytest.fixture
def cluster() -> SimCluster:
    made = SimCluster()
    made.create("events", replicas=[[1, 2, 3]])
    return made


def controller_epoch(cluster: SimCluster) -> int:
    return int(cluster.ensemble.tree.get("/controller_epoch").data)


# -- E1: the controller


def test_another_controller_takes_over_with_the_next_epoch(cluster: SimCluster) -> None:
    """E1."""
    for _ in range(3):
        before, epoch = cluster.controller, controller_epoch(cluster)
        node = cluster.ensemble.tree.get("/controller")
        assert node.stat.ephemeral_owner == cluster.session(before).session_id
        cluster.kill(before)
        cluster.run_for(100)
        assert cluster.controller != before
        assert controller_epoch(cluster) == epoch + 1
        cluster.start(before)
        for broker_id in (1, 2, 3):
            shown = describe(cluster.client(broker_id)).controller_id
            assert shown == cluster.controller
        cluster.wait_isr("events")


@pytest.mark.parametrize("wait_ms", [0, 1, 2, 3, 5, 8, 12])
def test_a_topic_asked_for_when_the_controller_dies_is_whole_or_not_there(wait_ms: int) -> None:
    """E1: what was under way is finished by the next one."""
    cluster = SimCluster(seed=wait_ms)
    controller = cluster.controller
    client = cluster.client(controller)
    wanted = {"num_partitions": 6, "replication_factor": 2, "assignments": [], "configs": []}
    topic = {"name": "events", **wanted}
    client.send(19, 7, topics=[topic], timeout=10_000, validate_only=False)
    cluster.run_for(wait_ms)
    cluster.kill(controller)
    cluster.run_for(2_000)
    cluster.start(controller)
    cluster.run_for(2_000)
    tree = cluster.ensemble.tree
    if tree.exists("/brokers/topics/events") is None:
        topics = describe(cluster.client(controller)).topics
        assert not topics
        return
    for index in range(6):
        cluster.wait_isr("events", index=index)
        assert write(cluster, "events", "a", index=index) == 0


def test_a_broker_that_dies_with_the_controller_is_noticed(cluster: SimCluster) -> None:
    """E1, E2."""
    cluster.create("others", replicas=[[2, 3, 1], [3, 1, 2]])
    controller = cluster.controller
    other = next(broker_id for broker_id in (1, 2, 3) if broker_id != controller)
    cluster.kill(other)
    cluster.kill(controller)
    cluster.run_for(1_000)
    (last,) = cluster.alive
    for topic, index in (("events", 0), ("others", 0), ("others", 1)):
        assert cluster.state(topic, index)["leader"] == last
        assert cluster.isr(topic, index) == [last]
    cluster.start(other)
    cluster.start(controller)
    cluster.wait_caught_up("events")


# -- E2: who leads next


@pytest.mark.parametrize("order", [[1, 2, 3], [1, 3, 2], [2, 3, 1]])
def test_the_first_live_member_in_the_replicas_order_leads(order: list[int]) -> None:
    """E2: within moments of the end of its process."""
    cluster = SimCluster()
    cluster.create("events", replicas=[order])
    write(cluster, "events", "a")
    began_ms = cluster.clock.monotonic_ms()
    cluster.kill(order[0])
    cluster.wait_led("events", by=order[1])
    assert cluster.clock.monotonic_ms() - began_ms < 200
    assert cluster.state("events")["leader_epoch"] == 1
    cluster.kill(order[1])
    cluster.wait_led("events", by=order[2])
    assert cluster.state("events")["leader_epoch"] == 2
    assert cluster.isr("events") == [order[2]]


def test_who_is_not_in_sync_does_not_lead(cluster: SimCluster) -> None:
    """E2."""
    cluster.cut(1, 2)
    cluster.client(1).produce("events", one_batch("a"), acks=1)
    cluster.wait_isr("events", 1, 3)
    cluster.kill(1)
    cluster.wait(lambda: cluster.leader("events") == 3, "the third leads")


def test_after_the_death_of_a_machine_the_session_runs_out_first(cluster: SimCluster) -> None:
    """E2: there is no guard that could close it."""
    write(cluster, "events", "a")
    began_ms = cluster.clock.monotonic_ms()
    cluster.lose_power(1)
    cluster.wait_led("events", by=2)
    waited_ms = cluster.clock.monotonic_ms() - began_ms
    assert cluster.session_timeout_ms <= waited_ms < cluster.session_timeout_ms + 1_000
    assert read(cluster, "events") == ["a"]


def test_a_clean_stop_moves_leadership_away_before_it_closes(cluster: SimCluster) -> None:
    """E2: at no time is there a leader who does not serve."""
    write(cluster, "events", "a")
    cluster.wait_caught_up("events")
    client = cluster.client(1)
    stopped: list[bool] = []
    cluster.process(1).broker.stop(lambda: stopped.append(True))
    cluster.wait(lambda: cluster.leader("events") == 2, "the second leads")
    assert not stopped
    cluster.wait(lambda: cluster.leads(2, "events"), "and knows it")
    assert try_write(cluster.client(2), "events", "b") == "none"
    cluster.wait(lambda: bool(stopped), "it stops")
    assert client.closed_why is not None


@pytest.mark.parametrize("stopped", [1, 2, 3])
def test_every_broker_can_be_restarted_without_losing_a_write(stopped: int) -> None:
    """E2, X17: a rolling restart, the controller among them."""
    cluster = SimCluster()
    cluster.create("events", replicas=[[1, 2, 3]])
    write(cluster, "events", "a")
    began_ms = cluster.clock.monotonic_ms()
    cluster.stop(stopped)
    assert cluster.clock.monotonic_ms() - began_ms < 1_500
    write(cluster, "events", "b")
    cluster.start(stopped)
    cluster.wait_caught_up("events")
    assert read(cluster, "events") == ["a", "b"]


# -- E3, E5: nobody is left


def only_one_has_it(cluster: SimCluster, min_isr: int = 1) -> None:
    """`b` is committed by the first broker alone, which then dies with its disk unharmed."""
    cluster.create("rare", replicas=[[1, 2]], min_insync_replicas=min_isr)
    write(cluster, "rare", "a")
    cluster.wait_caught_up("rare")
    cluster.kill(2)
    cluster.wait_isr("rare", 1)
    write(cluster, "rare", "b")
    cluster.kill(1)
    cluster.run_for(200)


def test_without_a_member_of_the_set_the_partition_waits(cluster: SimCluster) -> None:
    """E3, E5: `unclean.leader.election.enable` is false."""
    only_one_has_it(cluster)
    assert cluster.leader("rare") == -1
    cluster.start(2)
    cluster.run_for(20_000)
    assert cluster.leader("rare") == -1
    row = describe(cluster.client(2), "rare").topics[0].partitions[0]
    assert (row.error_code.name, row.leader_id) == ("leader_not_available", -1)
    assert try_write(cluster.client(2), "rare", "x") == "not_leader_or_follower"
    cluster.start(1)
    cluster.wait_caught_up("rare")
    assert read(cluster, "rare") == ["a", "b"]


def test_unclean_election_leads_at_once_and_loses_what_only_the_others_had(
    cluster: SimCluster,
) -> None:
    """E3, E5: settable for a topic while it waits."""
    only_one_has_it(cluster)
    cluster.start(2)
    cluster.run_for(2_000)
    assert cluster.leader("rare") == -1
    name = "unclean_leader_election_enable"
    assert alter(cluster.client(2), TOPIC, "rare", **{name: "true"}) == "none"
    cluster.wait_led("rare", by=2)
    assert cluster.isr("rare") == [2]
    assert read(cluster, "rare") == ["a"]
    write(cluster, "rare", "c")
    cluster.start(1)
    cluster.wait_caught_up("rare")
    assert read(cluster, "rare") == ["a", "c"], "what only the dead one had is gone everywhere"


def test_an_unclean_election_can_be_asked_for(cluster: SimCluster) -> None:
    """E3."""
    only_one_has_it(cluster)
    cluster.start(2)
    cluster.run_for(2_000)
    assert elect(cluster, "rare", unclean=True) == "none"
    cluster.wait_led("rare", by=2)
    assert read(cluster, "rare") == ["a"]


def test_after_the_death_of_all_the_one_that_has_most_leads(cluster: SimCluster) -> None:
    """E5, X21, D10: not the one that comes first."""
    write(cluster, "events", "a")
    cluster.wait_caught_up("events")
    write(cluster, "events", "b")
    cluster.wait(lambda: log_values(cluster, 3, "events") == ["a", "b"], "all have it")
    for broker_id in (1, 3):
        cluster.kill(broker_id)
    cluster.lose_power(2)
    cluster.run_for(10_000)
    cluster.start(2)
    cluster.run_for(5_000)
    assert cluster.leader("events") == -1, "one that may have lost something is not enough"
    cluster.start(3)
    cluster.wait_led("events", by=3)
    cluster.start(1)
    cluster.wait_caught_up("events")
    assert read(cluster, "events") == ["a", "b"]


# -- E4: preferred leaders


def test_the_preferred_replica_leads_again_on_request(cluster: SimCluster) -> None:
    """E4."""
    cluster.kill(1)
    cluster.wait_led("events", by=2)
    assert elect(cluster, "events") == "preferred_leader_not_available"
    cluster.start(1)
    cluster.wait_isr("events")
    assert cluster.leader("events") == 2
    assert elect(cluster, "events") == "none"
    cluster.wait_led("events", by=1)
    assert elect(cluster, "events") == "election_not_needed"


def test_the_preferred_replica_leads_again_by_itself() -> None:
    """E4: `auto.leader.rebalance.enable`."""
    cluster = SimCluster(
        auto_leader_rebalance_enable=True, leader_imbalance_check_interval_seconds=30
    )
    cluster.create("events", replicas=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    cluster.kill(1)
    cluster.wait_led("events", by=2)
    cluster.start(1)
    cluster.wait_isr("events")
    assert cluster.leader("events") == 2
    cluster.run_for(32_000)
    cluster.wait_led("events", by=1)
