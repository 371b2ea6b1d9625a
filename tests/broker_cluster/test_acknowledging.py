"""What producers are told by whole brokers, whatever becomes of those (A1-A3)."""

import pytest

from support.brokers import one_batch
from support.cluster_calls import (
    TOPIC,
    alter,
    assert_alike,
    log_values,
    new_producer,
    numbered,
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


# -- A1


def test_acks_1_is_answered_by_the_leader_alone_and_may_be_lost(cluster: SimCluster) -> None:
    """A1, X3."""
    write(cluster, "events", "kept")
    cluster.wait_caught_up("events")
    cluster.isolate(1)
    assert try_write(cluster.client(1), "events", "lost", acks=1) == "none"
    cluster.kill(1)
    cluster.wait_led("events", by=2)
    cluster.network.mend()
    assert read(cluster, "events") == ["kept"]
    cluster.start(1)
    cluster.wait_caught_up("events")
    assert log_values(cluster, 1, "events") == ["kept"]


def test_acks_0_is_not_answered(cluster: SimCluster) -> None:
    """A1."""
    client = cluster.client(1)
    client.send_produce("events", one_batch("a"), acks=0)
    cluster.wait_caught_up("events")
    cluster.wait(lambda: read(cluster, "events") == ["a"], "it is there")
    assert not client.frames


@pytest.mark.parametrize("seed", range(4))
def test_acks_all_is_never_lost_with_its_leader(seed: int) -> None:
    """A1, R5: at whatever moment it dies, what was acknowledged is there."""
    cluster = SimCluster(seed=seed)
    cluster.create("events", replicas=[[1, 2, 3]])
    client = cluster.client(1)
    for number in range(40):
        client.send_produce("events", one_batch(f"v{number}"))
    cluster.run_for(3 + 2 * seed)
    acknowledged = [a.responses[0].partition_responses[0].base_offset for a in client.answers]
    cluster.kill(1)
    cluster.wait_led("events")
    values = read(cluster, "events")
    assert values[: len(acknowledged)] == [f"v{number}" for number in range(len(acknowledged))]
    assert acknowledged == list(range(len(acknowledged)))


def test_a_producer_is_told_an_error_if_the_leader_goes_before_the_commit(
    cluster: SimCluster,
) -> None:
    """A1: here it goes because another one is to lead."""
    controller = cluster.controller
    leader, other = (broker_id for broker_id in (1, 2, 3) if broker_id != controller)
    cluster.create("news", replicas=[[leader, other, controller]])
    cluster.cut(leader, other, one_way=True)
    client = cluster.client(leader)
    client.send_produce("news", one_batch("a"))
    cluster.run_for(100)
    assert not client.answers
    stopped: list[bool] = []
    cluster.process(leader).broker.stop(lambda: stopped.append(True))
    answer = client.wait().responses[0].partition_responses[0]
    assert answer.error_code.name == "not_leader_or_follower"
    cluster.network.mend()
    cluster.wait(lambda: bool(stopped), "it stops")


def test_a_connection_ends_without_an_answer_if_the_leader_dies(cluster: SimCluster) -> None:
    """A1."""
    cluster.cut(1, 3, one_way=True)
    client = cluster.client(1)
    client.send_produce("events", one_batch("a"))
    cluster.run_for(100)
    cluster.kill(1)
    cluster.run_for(100)
    assert not client.answers
    assert client.closed_why is not None


def test_a_producer_is_told_when_its_patience_is_over(cluster: SimCluster) -> None:
    """A1: the record may be committed all the same."""
    cluster.cut(1, 3, one_way=True)
    client = cluster.client(1)
    began_ms = cluster.clock.monotonic_ms()
    assert try_write(client, "events", "a") == "request_timed_out"
    assert 1_000 <= cluster.clock.monotonic_ms() - began_ms < 1_100
    cluster.network.mend()
    cluster.wait_caught_up("events")
    assert read(cluster, "events") == ["a"]


# -- A2


def test_too_small_a_set_takes_nothing_with_acks_all_and_is_read_on(cluster: SimCluster) -> None:
    """A2, X4: before the append."""
    write(cluster, "events", "a")
    cluster.wait_caught_up("events")
    cluster.kill(2)
    cluster.kill(3)
    cluster.wait_isr("events", 1)
    client = cluster.client(1)
    assert try_write(client, "events", "b") == "not_enough_replicas"
    assert cluster.held(1, "events").log.log_end_offset == 1
    assert read(cluster, "events") == ["a"]
    assert try_write(client, "events", "c", acks=1) == "none"
    cluster.run_for(1_000)
    assert read(cluster, "events") == ["a"], "nothing is committed below the minimum (D8)"
    cluster.start(2)
    cluster.wait_isr("events", 1, 2)
    assert try_write(client, "events", "d") == "none"
    assert read(cluster, "events") == ["a", "c", "d"]


def test_a_set_that_shrinks_after_the_append_is_told_as_such(cluster: SimCluster) -> None:
    """A2, X4: the record may stay."""
    write(cluster, "events", "a")
    cluster.wait_caught_up("events")
    cluster.isolate(1)
    client = cluster.client(1)
    partition = {"index": 0, "records": one_batch("b")}
    client.send(
        0,
        9,
        transactional_id=None,
        acks=-1,
        timeout=60_000,
        topic_data=[{"name": "events", "partition_data": [partition]}],
    )
    answer = client.wait().responses[0].partition_responses[0]
    assert answer.error_code.name == "not_enough_replicas_after_append"
    assert cluster.held(1, "events").high_watermark == 1


def test_who_waits_when_the_minimum_is_raised_above_the_set_is_told_at_once(
    cluster: SimCluster,
) -> None:
    """A2: nothing is committed from then on, whoever catches up."""
    write(cluster, "events", "a")
    cluster.kill(3)
    cluster.wait_isr("events", 1, 2)
    cluster.wait_led("events", by=1)
    cluster.cut(1, 2)
    client = cluster.client(1)
    client.send_produce("events", one_batch("b"))
    cluster.run_for(100)
    assert alter(cluster.client(1), TOPIC, "events", min_insync_replicas="3") == "none"
    cluster.network.mend()
    cluster.run_for(100)
    (answer,) = client.answers
    row = answer.responses[0].partition_responses[0]
    assert row.error_code.name == "not_enough_replicas_after_append"


def test_the_minimum_is_no_larger_than_the_replication_factor(cluster: SimCluster) -> None:
    """A2: min(min.insync.replicas, RF)."""
    cluster.create("single", replicas=[[2]], min_insync_replicas=3)
    assert write(cluster, "single", "a") == 0
    cluster.create("pair", replicas=[[2, 3]], min_insync_replicas=3)
    assert write(cluster, "pair", "a") == 0
    cluster.kill(3)
    cluster.wait_isr("pair", 2)
    assert try_write(cluster.client(2), "pair", "b") == "not_enough_replicas"
    assert write(cluster, "single", "b") == 1


def test_a_minimum_that_is_lowered_lets_writes_through(cluster: SimCluster) -> None:
    """A2, D8: what waited is committed."""
    cluster.kill(2)
    cluster.kill(3)
    cluster.wait_isr("events", 1)
    client = cluster.client(1)
    assert try_write(client, "events", "a") == "not_enough_replicas"
    assert try_write(client, "events", "b", acks=1) == "none"
    assert alter(client, TOPIC, "events", min_insync_replicas="1") == "none"
    cluster.wait(lambda: try_write(client, "events", "c") == "none", "writes are taken")
    assert "b" in read(cluster, "events")


# -- A3


def test_a_retry_after_a_leader_change_is_answered_with_the_first_offset(
    cluster: SimCluster,
) -> None:
    """A3, X28: followers know the producer's last batches too."""
    producer = new_producer(cluster.client(1))
    batches = [numbered(producer, sequence, f"v{sequence}") for sequence in range(8)]
    client = cluster.client(1)
    assert [client.produce("events", batch).base_offset for batch in batches] == list(range(8))
    cluster.kill(1)
    leader = cluster.wait_led("events")
    client = cluster.client(leader)
    for offset in range(3, 8):
        row = client.produce("events", batches[offset])
        assert (row.error_code.name, row.base_offset) == ("none", offset), "one of the last five"
    assert client.produce("events", numbered(producer, 8, "v8")).base_offset == 8
    gap = client.produce("events", numbered(producer, 12, "v12"))
    assert gap.error_code.name == "out_of_order_sequence_number"
    assert read(cluster, "events") == [f"v{number}" for number in range(9)]


def test_a_retry_of_what_was_appended_and_not_committed_is_acknowledged_once_it_is(
    cluster: SimCluster,
) -> None:
    """A3, A1: the duplicate is acknowledged only with a commit."""
    producer = new_producer(cluster.client(1))
    batch = numbered(producer, 0, "a")
    cluster.cut(1, 3, one_way=True)
    client = cluster.client(1)
    assert client.produce("events", batch).error_code.name == "request_timed_out"
    assert client.produce("events", batch).error_code.name == "request_timed_out"
    assert cluster.held(1, "events").log.log_end_offset == 1
    cluster.network.mend()
    row = client.produce("events", batch)
    assert (row.error_code.name, row.base_offset) == ("none", 0)
    assert cluster.held(3, "events").log.log_end_offset == 1


@pytest.mark.parametrize("how", ["kill", "lose_power", "stop"])
def test_what_is_known_of_producers_survives_restarts_of_everybody(how: str) -> None:
    """A3, S9: snapshots, recovery, replication."""
    cluster = SimCluster()
    cluster.create("events", replicas=[[1, 2, 3]])
    producer = new_producer(cluster.client(1))
    sequence = 0
    for broker_id in (1, 2, 3, 1):
        batch = numbered(producer, sequence, f"v{sequence}")
        leader = cluster.wait_led("events")
        assert cluster.client(leader).produce("events", batch).base_offset == sequence
        getattr(cluster, how)(broker_id)
        leader = cluster.wait_led("events")
        row = cluster.client(leader).produce("events", batch)
        assert (row.error_code.name, row.base_offset) == ("none", sequence)
        cluster.start(broker_id)
        cluster.wait_caught_up("events")
        sequence += 1
    assert read(cluster, "events") == [f"v{number}" for number in range(sequence)]
    assert_alike(cluster, "events")


def test_a_truncated_batch_of_a_producer_is_forgotten(cluster: SimCluster) -> None:
    """A3, X28: state is rolled back with the log."""
    producer = new_producer(cluster.client(1))
    first = numbered(producer, 0, "a")
    assert cluster.client(1).produce("events", first).base_offset == 0
    cluster.wait_caught_up("events")
    cluster.isolate(1)
    lost = numbered(producer, 1, "lost")
    assert cluster.client(1).produce("events", lost, acks=1).base_offset == 1
    cluster.kill(1)
    cluster.wait_led("events", by=2)
    cluster.network.mend()
    write(cluster, "events", "other")
    cluster.start(1)
    cluster.wait_caught_up("events")
    for broker_id in (2, 3):
        cluster.kill(broker_id)
        cluster.wait_led("events")
        cluster.start(broker_id)
        cluster.wait_caught_up("events")
        if cluster.leader("events") == 1:
            break
    leader = cluster.wait_led("events")
    row = cluster.client(leader).produce("events", lost)
    assert (row.error_code.name, row.base_offset) == ("none", 2), "it is new to every replica"
    assert read(cluster, "events") == ["a", "other", "lost"]


def test_producer_ids_are_given_out_in_blocks_and_never_twice(cluster: SimCluster) -> None:
    """A3: whichever broker is asked, and after restarts."""
    given = [new_producer(cluster.client(broker_id)) for broker_id in (1, 2, 3) for _ in range(3)]
    assert len({number // 1000 for number in given}) == 3, "each broker has a block of its own"
    block = cluster.node("/latest_producer_id_block")
    assert int(block["block_end"]) - int(block["block_start"]) == 999
    cluster.kill(2)
    cluster.start(2)
    given += [new_producer(cluster.client(2)) for _ in range(3)]
    assert len(set(given)) == len(given)


# -- S7


@pytest.mark.parametrize("size", [2, 600_000], ids=["small", "a segment each"])
def test_what_is_flushed_is_on_all_disks_before_it_is_acknowledged(size: int) -> None:
    """S7, A1: a replica counts when it says that it has a record, and where `flush.messages` asks
    for that, it has what no loss of power takes from it."""
    cluster = SimCluster()
    cluster.create("events", replicas=[[1, 2, 3]], flush_messages=1, segment_bytes=1 << 20)
    values = [f"{number}" * size for number in range(5)]
    for value in values:
        write(cluster, "events", value)
    for broker_id in (1, 2, 3):
        cluster.lose_power(broker_id)
    for broker_id in (2, 3):
        cluster.begin(broker_id)
    for broker_id in (2, 3):
        cluster.wait_started(broker_id)
    assert read(cluster, "events") == values
