"""Brokers that run find another tree than their own behind the coordinator's address: they keep
out of it, and keep what they have (T6)."""

import pytest

from support.cluster_calls import log_values, read, write
from support.sim_cluster import SimCluster
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.requests import ConfigChange
from tidelog.world.znode_tree import ZnodeTree


@pytest.fixture
def cluster() -> SimCluster:
    made = SimCluster()
    made.create("events", replicas=[[1, 2, 3]])
    write(made, "events", "a")
    return made


def exchange_tree(cluster: SimCluster, tree: ZnodeTree) -> ZnodeTree:
    """All sessions are over, and whoever connects finds that tree; the one of before."""
    for broker_id in cluster.alive:
        cluster.session(broker_id).expire()
    before, cluster.ensemble.tree = cluster.ensemble.tree, tree
    tree.zxid = max(tree.zxid, before.zxid)
    return before


def test_brokers_do_not_join_a_cluster_that_was_begun_in_the_place_of_theirs(
    cluster: SimCluster,
) -> None:
    """Its controller knows none of their topics, and would have them removed."""
    own = exchange_tree(cluster, ZnodeTree())
    cluster.add(4)
    cluster.run_for(20_000)
    assert cluster.ensemble.tree.children("/brokers/ids") == ["4"]
    assert [log_values(cluster, broker_id, "events") for broker_id in (1, 2, 3)] == [["a"]] * 3
    cluster.stop(4)
    exchange_tree(cluster, own)
    cluster.wait_caught_up("events")
    assert read(cluster, "events") == ["a"]


def test_brokers_wait_for_a_tree_that_has_nothing_in_it(cluster: SimCluster) -> None:
    own = exchange_tree(cluster, ZnodeTree())
    cluster.run_for(20_000)
    assert cluster.ensemble.tree.children("/") == []
    exchange_tree(cluster, own)
    cluster.wait_caught_up("events")
    write(cluster, "events", "b")
    assert read(cluster, "events") == ["a", "b"]


def producer_ids(cluster: SimCluster, broker_id: int, count: int) -> list[int | ErrorCode]:
    answers: list[int | KafkaError] = []
    for _ in range(count):
        cluster.broker(broker_id).metadata.next_producer_id(answers.append)
    cluster.wait(lambda: len(answers) == count, "producer ids, or why not")
    return [answer.code if isinstance(answer, KafkaError) else answer for answer in answers]


def test_no_producer_ids_are_taken_from_another_clusters_tree(cluster: SimCluster) -> None:
    """What is sent under an id that another producer has is taken for sent before, and lost."""
    known = producer_ids(cluster, 2, 2)
    own = exchange_tree(cluster, ZnodeTree())
    cluster.add(4)
    cluster.run_for(5_000)
    assert set(producer_ids(cluster, 1, 2)) == {ErrorCode.coordinator_load_in_progress}
    cluster.stop(4)
    exchange_tree(cluster, own)
    cluster.wait_caught_up("events")
    assert not {*known} & {*producer_ids(cluster, 1, 2)}


def alter(
    cluster: SimCluster, broker_id: int, changes: list[ConfigChange]
) -> list[ErrorCode | None]:
    answers: list[list[KafkaError | None]] = []
    cluster.broker(broker_id).metadata.alter_configs(changes, False, answers.append)
    cluster.wait(lambda: bool(answers), "settings, or why not")
    return [None if error is None else error.code for error in answers[0]]


def test_no_settings_are_written_into_another_clusters_tree(cluster: SimCluster) -> None:
    """They would be those of another broker, of all of them, or of another topic of that name."""
    own = exchange_tree(cluster, ZnodeTree())
    cluster.add(4)
    cluster.run_for(5_000)
    changes = [
        ConfigChange(kind="broker", name=name, changes={"log.segment.bytes": ("set", "5000")})
        for name in ("1", "")
    ]
    assert alter(cluster, 1, changes) == [ErrorCode.request_timed_out] * 2
    assert cluster.ensemble.tree.children("/config/brokers") == []
    cluster.stop(4)
    exchange_tree(cluster, own)
    cluster.wait_caught_up("events")
    assert alter(cluster, 1, changes) == [None, None]
