"""Brokers that are killed while they compact: R6, with three replicas, min ISR 2 and acks=all.

Each replica is compacted by its own broker. After the kills, all hold the last value of every key
that was acknowledged, and nothing but what was acknowledged under the same offsets.
"""

from collections.abc import Callable, Iterator

import pytest

from support.cluster_processes import Cluster
from support.compacting import Updates, first_to_clean, unfinished

Tell = Callable[[str], None]

KILLS = 2
CLEANS_WITHIN_S = 60


@pytest.fixture
def updates(cluster: Cluster, topic: str) -> Iterator[Updates]:
    made = Updates(cluster, topic)
    yield made
    made.stop()


def test_replicas_killed_while_they_are_compacted_agree(
    cluster: Cluster, topic: str, updates: Updates, tell: Tell
) -> None:
    """R6, F1."""
    interrupted = 0
    for _ in range(KILLS):
        broker = first_to_clean(cluster, topic, CLEANS_WITHIN_S)
        assert broker is not None, f"nobody compacts {topic}"
        broker.kill()
        interrupted += bool(unfinished(broker, topic))
        broker.start()
        cluster.wait_in_sync(topic)
    end = updates.check()
    tell(f"R6 {interrupted} of {KILLS} kills while compacting; {end} records, all replicas agree")
