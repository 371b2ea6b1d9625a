"""Followers of whom a leader has to look something up on its disk first: what it had found at their
other positions by then is not forgotten (D1, S3)."""

from typing import Any

import pytest

from support.brokers import FETCH, SimClient
from support.cluster_calls import write
from support.sim_cluster import SimCluster

BEFORE = 5


@pytest.fixture
def cluster() -> SimCluster:
    """The first broker is gone. The second leads in a new epoch, and knows nothing of its closed
    segments by heart."""
    made = SimCluster(2, log_segment_bytes=1 << 20)
    made.create("events", replicas=[[1, 2], [1, 2]])
    for number in range(BEFORE):
        for index in (0, 1):
            write(made, "events", f"{number}" + "x" * 400_000, index=index)
    made.kill(1)
    for index in (0, 1):
        made.wait_led("events", index, by=2)
        write(made, "events", "new", "new", "new", acks=1, index=index)
        for segment in made.held(2, "events", index).log.segments.all:
            segment.offset_index.blocks.clear()
    made.machines[2].disk.cold_share = 1.0
    return made


def ask_as_follower(
    client: SimClient, positions: list[tuple[int, int, int]], **values: Any
) -> tuple[int, dict[int, Any]]:
    """Fetches index, offset and the epoch before it of each; the session, and what is found by
    index."""
    partitions = [
        {
            "partition": index,
            "fetch_offset": offset,
            "last_fetched_epoch": epoch,
            "current_leader_epoch": -1,
            "log_start_offset": 0,
            "partition_max_bytes": 1 << 20,
        }
        for index, offset, epoch in positions
    ]
    given = {"replica_id": 1, "max_wait": 0, "min_bytes": 1, "session_epoch": -1}
    topics = [{"topic": "events", "partitions": partitions}]
    client.send(FETCH, 12, topics=topics, forgotten_topics_data=[], **(given | values))
    answer = client.wait()
    return answer.session_id, {r.partition_index: r for r in answer.responses[0].partitions}


def test_a_log_that_diverges_is_told_beside_a_cold_one(cluster: SimCluster) -> None:
    """Otherwise the follower would be given records to put behind those that nobody else has."""
    epoch = cluster.held(2, "events").log.epochs.entries[0][0]
    _, found = ask_as_follower(
        cluster.broker_client(2), [(0, BEFORE + 2, epoch), (1, 0, -1)], max_bytes=1 << 22
    )
    assert found[1].records
    assert found[0].diverging_epoch.end_offset == BEFORE
    assert not found[0].records


def test_a_log_start_that_has_moved_is_told_beside_a_cold_one(cluster: SimCluster) -> None:
    """Whoever deletes records waits for it, and the position may not change for long."""
    held, client = cluster.held(2, "events"), cluster.broker_client(2)
    at_end = (0, held.log.log_end_offset, held.log.epochs.latest)
    session_id, _ = ask_as_follower(client, [at_end], session_epoch=0)
    assert session_id > 0
    held.delete_records(3)
    _, found = ask_as_follower(
        client, [(1, 0, -1)], session_id=session_id, session_epoch=1, max_bytes=1 << 22
    )
    assert found[1].records
    assert found[0].log_start_offset == 3
