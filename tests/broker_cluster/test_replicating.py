"""Replication between whole brokers: what is written, when it counts, and who reads what."""

import pytest

from support.brokers import FETCH, one_batch
from support.cluster_calls import (
    ask_offset,
    assert_alike,
    elect,
    end_of_epoch,
    list_offset,
    log_values,
    read,
    records_of,
    try_write,
    write,
)
from support.sim_cluster import SimCluster


@pytest.fixture
def cluster() -> SimCluster:
    made = SimCluster()
    made.create("events", replicas=[[1, 2, 3]])
    return made


def test_only_the_leader_is_written_to_and_read_from(cluster: SimCluster) -> None:
    """R1."""
    for follower in (2, 3):
        client = cluster.client(follower)
        assert try_write(client, "events", "lost") == "not_leader_or_follower"
        assert client.fetch("events", 0).error_code.name == "not_leader_or_follower"
    assert write(cluster, "events", "a") == 0
    assert read(cluster, "events") == ["a"]


def test_a_broker_without_a_replica_sends_clients_to_the_leader() -> None:
    """R1: it knows that the partition is elsewhere, which is not to say that there is none."""
    cluster = SimCluster(4)
    cluster.create("events", replicas=[[1, 2, 3]])
    client = cluster.client(4)
    assert try_write(client, "events", "lost") == "not_leader_or_follower"
    assert client.fetch("events", 0).error_code.name == "not_leader_or_follower"
    assert ask_offset(client, "events").error_code.name == "not_leader_or_follower"
    assert end_of_epoch(client, "events", 0).error_code.name == "not_leader_or_follower"
    assert try_write(client, "missing", "lost") == "unknown_topic_or_partition"
    assert client.fetch("missing", 0).error_code.name == "unknown_topic_or_partition"


def test_a_record_needs_two_rounds_to_commit(cluster: SimCluster) -> None:
    """R2: the second fetch lifts the leader's high watermark, its answer the followers'."""
    client = cluster.client(1)
    client.send_produce("events", one_batch("a"), acks=1)
    client.wait()
    replicas = [cluster.held(broker_id, "events") for broker_id in (1, 2, 3)]
    assert replicas[0].log.log_end_offset == 1
    cluster.wait(lambda: all(held.log.log_end_offset == 1 for held in replicas), "all have it")
    assert [held.high_watermark for held in replicas[1:]] == [0, 0]
    cluster.wait(lambda: replicas[0].high_watermark == 1, "the leader knows that all have it")
    assert [held.high_watermark for held in replicas[1:]] == [0, 0]
    waited_ms = cluster.clock.monotonic_ms()
    cluster.wait(lambda: all(held.high_watermark == 1 for held in replicas), "all know it")
    assert cluster.clock.monotonic_ms() - waited_ms < 600, "the next answer says so, empty or not"


def test_the_high_watermark_is_the_smallest_log_end_in_sync(cluster: SimCluster) -> None:
    """R2, I5: a leader at 15 whose followers are at 3 and 4."""
    write(cluster, "events", "0", "1", "2")
    cluster.wait_caught_up("events")
    cluster.cut(1, 3, one_way=True)
    client = cluster.client(1)
    client.produce("events", one_batch("3"), acks=1)
    cluster.wait(lambda: cluster.held(2, "events").log.log_end_offset == 4, "one is at 4")
    cluster.run_for(50)
    cluster.cut(1, 2, one_way=True)
    client.produce("events", one_batch(*map(str, range(4, 15))), acks=1)
    cluster.run_for(500)
    ends = [cluster.held(broker_id, "events").log.log_end_offset for broker_id in (1, 2, 3)]
    assert ends == [15, 4, 3]
    assert cluster.held(1, "events").high_watermark == 3
    cluster.network.mend()
    cluster.wait_caught_up("events")
    assert cluster.held(1, "events").high_watermark == 15


def ends_known(cluster: SimCluster) -> dict[int, dict[int, int]]:
    """Of the logs of others, to each broker."""
    return {
        broker_id: {
            member: remote.log_end_offset
            for member, remote in cluster.held(broker_id, "events").replica.remotes.items()
        }
        for broker_id in (1, 2, 3)
    }


def test_only_the_leader_knows_where_the_logs_of_others_end(cluster: SimCluster) -> None:
    """R4: who led until now knows it no more."""
    write(cluster, "events", "a", "b")
    cluster.wait_caught_up("events")
    assert ends_known(cluster) == {1: {2: 2, 3: 2}, 2: {}, 3: {}}
    cluster.stop(1)
    assert cluster.wait_led("events") == 2
    cluster.start(1)
    cluster.wait_caught_up("events")
    assert ends_known(cluster) == {1: {}, 2: {1: 2, 3: 2}, 3: {}}
    assert elect(cluster, "events") == "none"
    cluster.wait_led("events", by=1)
    again = {1: {2: 2, 3: 2}, 2: {}, 3: {}}
    cluster.wait(lambda: ends_known(cluster) == again, "both have fetched from it")


def test_a_parked_fetch_is_woken_by_an_append(cluster: SimCluster) -> None:
    """R3: followers and consumers alike."""
    cluster.run_for(3_000)
    client = cluster.client(1)
    client.send_fetch([("events", 0, 0)], max_wait=20_000)
    cluster.run_for(100)
    before_ms = cluster.clock.monotonic_ms()
    write(cluster, "events", "a")
    found = client.wait().responses[0].partitions[0]
    assert [record.value for record in records_of(found.records)] == [b"a"]
    assert cluster.clock.monotonic_ms() - before_ms < 100


def test_a_fetch_that_finds_nothing_ends_with_its_time(cluster: SimCluster) -> None:
    """R3."""
    client = cluster.client(1)
    before_ms = cluster.clock.monotonic_ms()
    assert not client.fetch("events", 0, max_wait=700).records
    assert 700 <= cluster.clock.monotonic_ms() - before_ms < 800


def test_consumers_read_up_to_the_high_watermark_and_followers_past_it(
    cluster: SimCluster,
) -> None:
    """R4, R5: between the high watermark and the end there are no records for a consumer."""
    write(cluster, "events", "a")
    cluster.wait_caught_up("events")
    cluster.cut(1, 3, one_way=True)
    client = cluster.client(1)
    client.produce("events", one_batch("b"), acks=1)
    cluster.wait(lambda: log_values(cluster, 2, "events") == ["a", "b"], "a follower has it")
    found = client.fetch("events", 1)
    assert (found.error_code.name, found.high_watermark, found.records or b"") == ("none", 1, b"")
    assert read(cluster, "events") == ["a"]
    assert list_offset(client, "events") == 1


def test_acks_all_is_answered_when_everybody_in_sync_has_it(cluster: SimCluster) -> None:
    """R5, A1."""
    cluster.cut(1, 3, one_way=True)
    client = cluster.client(1)
    client.send_produce("events", one_batch("a"))
    cluster.run_for(800)
    assert not client.answers
    assert cluster.held(1, "events").log.log_end_offset == 1
    assert cluster.held(2, "events").log.log_end_offset == 1
    cluster.network.mend()
    row = client.wait().responses[0].partition_responses[0]
    assert (row.error_code.name, row.base_offset) == ("none", 0)
    assert cluster.held(3, "events").log.log_end_offset == 1


def test_what_a_consumer_has_seen_is_there_under_every_later_leader(cluster: SimCluster) -> None:
    """R5, V8."""
    seen: list[str] = []
    for number in range(6):
        write(cluster, "events", f"v{number}")
        seen = read(cluster, "events")
        leader = cluster.leader("events")
        cluster.kill(leader)
        assert cluster.wait_led("events") != leader
        assert read(cluster, "events") == seen
        cluster.start(leader)
        cluster.wait_caught_up("events")
    assert seen == [f"v{number}" for number in range(6)]
    assert_alike(cluster, "events")


def test_replicas_are_alike_byte_for_byte_with_batches_of_every_size() -> None:
    """R6: large batches are written beside the loop, on both sides."""
    cluster = SimCluster(seed=3, log_segment_bytes=1_048_576, replica_fetch_max_bytes=300_000)
    cluster.create("events", max_message_bytes=10_000_000)
    client = cluster.client(cluster.leader("events"))
    sizes = [10, 200_000, 30, 900_000, 5, 5, 500_000, 1, 700_000]
    for size in sizes:
        client.send_produce("events", one_batch("x" * size))
    client.wait()
    assert [a.responses[0].partition_responses[0].base_offset for a in client.answers] == [
        *range(len(sizes))
    ]
    cluster.wait_caught_up("events")
    assert len(assert_alike(cluster, "events")) > sum(sizes)


def test_a_client_that_passes_for_a_follower_is_refused(cluster: SimCluster) -> None:
    """B9, CVE-2018-1288: nothing it says moves the high watermark."""
    cluster.cut(1, 2)
    cluster.cut(1, 3)
    client = cluster.client(1)
    client.produce("events", one_batch("a"), acks=1)
    client.send_fetch([("events", 0, 1)], replica_id=2)
    answer = client.wait()
    assert answer.error_code.name == "cluster_authorization_failed"
    assert not answer.responses
    assert cluster.held(1, "events").high_watermark == 0


def test_a_consumer_reads_on_while_the_topic_is_written(cluster: SimCluster) -> None:
    """R3: a fetch session, woken for every batch, gets everything once and in order."""
    reader = cluster.client(1)
    reader.send_fetch([("events", 0, 0)], session_epoch=0, session_id=0, max_wait=500)
    got: list[str] = []
    offset, epoch, session_id = 0, 1, 0
    for number in range(30):
        write(cluster, "events", f"v{number}")
        answer = reader.wait()
        session_id = answer.session_id or session_id
        for row in [row for topic in answer.responses for row in topic.partitions]:
            for record in records_of(row.records):
                assert record.offset == offset
                offset += 1
                got.append((record.value or b"").decode())
        moved = [{"topic": "events", "partitions": [_position(offset)]}]
        reader.send(
            FETCH,
            12,
            replica_id=-1,
            max_wait=500,
            min_bytes=1,
            session_id=session_id,
            session_epoch=epoch,
            topics=moved,
            forgotten_topics_data=[],
        )
        epoch += 1
    answer = reader.wait()
    for row in [row for topic in answer.responses for row in topic.partitions]:
        got += [(record.value or b"").decode() for record in records_of(row.records)]
    assert got == [f"v{number}" for number in range(30)]


def _position(offset: int) -> dict[str, int]:
    return {
        "partition": 0,
        "fetch_offset": offset,
        "partition_max_bytes": 1 << 20,
        "current_leader_epoch": -1,
    }
