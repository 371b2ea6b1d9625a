"""Leader epochs between whole brokers: what a returning replica drops, and what it keeps."""

from dataclasses import replace

import pytest

from support.brokers import one_batch
from support.cluster_calls import (
    ask_offset,
    assert_alike,
    elect,
    end_of_epoch,
    log_values,
    read,
    send_delete_records,
    try_write,
    write,
)
from support.sim_cluster import SimCluster
from tidelog.base.control import (
    LeaderAndIsrRequest,
    StopPartition,
    StopReplicaRequest,
    StopTopic,
    TopicState,
)
from tidelog.broker import Broker
from tidelog.cluster.messages import partition_state
from tidelog.log.checkpoints import parse_epochs
from tidelog.partition import Partition


def others(cluster: SimCluster, *taken: int) -> list[int]:
    return [broker_id for broker_id in cluster.machines if broker_id not in taken]


def test_each_leader_change_raises_the_epoch_and_batches_carry_it() -> None:
    """L1: and a leader that wrote nothing leaves no entry behind (D7)."""
    cluster = SimCluster()
    cluster.create("events", replicas=[[1, 2, 3]])
    write(cluster, "events", "a")
    cluster.wait_caught_up("events")
    cluster.stop(1)
    epochs = [cluster.state("events")["leader_epoch"]]
    write(cluster, "events", "b")
    cluster.start(1)
    cluster.wait_caught_up("events")
    cluster.stop(2)
    cluster.wait_led("events")
    cluster.start(2)
    cluster.wait_caught_up("events")
    leader = cluster.leader("events")
    cluster.stop(leader)
    epochs.append(cluster.state("events")["leader_epoch"])
    write(cluster, "events", "c")
    cluster.start(leader)
    cluster.wait_caught_up("events")
    expected = ((0, 0), (epochs[0], 1), (epochs[1], 2))
    for broker_id in (1, 2, 3):
        log = cluster.held(broker_id, "events").log
        assert [log.epochs.at(offset) for offset in range(3)] == [e for e, _ in expected]
        assert tuple(log.epochs.entries) == expected
    cluster.stop(3)
    file = cluster.machines[3].disk.open("/data/events-0/leader-epoch-checkpoint", "read")
    data = file.pread(1 << 20, 0)
    assert tuple(parse_epochs("checkpoint", data)) == expected
    assert 0 < epochs[0] < epochs[1]


def test_the_end_of_an_epoch_is_told_to_who_asks() -> None:
    """L2: the largest known epoch not above the one asked for, and its end."""
    cluster = SimCluster()
    cluster.create("events", replicas=[[1, 2, 3]])
    write(cluster, "events", "a", "b", "c")
    cluster.wait_caught_up("events")
    cluster.kill(1)
    leader = cluster.wait_led("events")
    epoch = cluster.state("events")["leader_epoch"]
    client = cluster.client(leader)
    write(cluster, "events", "d")
    found = [end_of_epoch(client, "events", asked) for asked in (0, epoch, epoch + 1)]
    ends = [(row.leader_epoch, row.end_offset) for row in found]
    assert ends == [(0, 3), (epoch, 4), (-1, -1)], "nothing is known of one that is to come"


def test_requests_of_another_epoch_are_refused() -> None:
    """L6: ListOffsets, OffsetsForLeaderEpoch and Fetch."""
    cluster = SimCluster()
    cluster.create("events", replicas=[[1, 2, 3]])
    cluster.kill(1)
    leader = cluster.wait_led("events")
    client = cluster.client(leader)
    epoch = cluster.state("events")["leader_epoch"]
    for asked, name in (
        (epoch - 1, "fenced_leader_epoch"),
        (epoch, "none"),
        (epoch + 1, "unknown_leader_epoch"),
    ):
        assert ask_offset(client, "events", -2, epoch=asked).error_code.name == name
        assert end_of_epoch(client, "events", 0, asked).error_code.name == name
        wanted = {
            "partition": 0,
            "fetch_offset": 0,
            "partition_max_bytes": 1000,
            "current_leader_epoch": asked,
        }
        client.send_fetch([], topics=[{"topic": "events", "partitions": [wanted]}])
        assert client.wait().responses[0].partitions[0].error_code.name == name


@pytest.mark.parametrize("seed", range(3))
def test_a_follower_that_restarts_before_its_leader_dies_keeps_what_was_committed(
    seed: int,
) -> None:
    """L3, X1: it comes back with an older high watermark, and does not cut its log there."""
    cluster = SimCluster(2, seed, min_insync_replicas=1)
    cluster.create("events", replicas=[[2, 1]])
    write(cluster, "events", "m1")
    cluster.wait_caught_up("events")
    write(cluster, "events", "m2")
    assert cluster.held(1, "events").high_watermark == 1
    cluster.kill(1)
    cluster.start(1)
    cluster.wait_isr("events")
    cluster.kill(2)
    cluster.wait_led("events", by=1)
    assert read(cluster, "events") == ["m1", "m2"]
    cluster.start(2)
    cluster.wait_caught_up("events")
    assert_alike(cluster, "events")


def diverged(cluster: SimCluster) -> None:
    """The first has m2, which the second lost with its page cache; both are down."""
    cluster.create("events", replicas=[[1, 2]])
    write(cluster, "events", "m1")
    cluster.wait_caught_up("events")
    cluster.run_for(120_000)
    log = cluster.held(2, "events").log
    log.flush(cluster.clock.now_ms())
    write(cluster, "events", "m2")
    cluster.kill(1)
    cluster.lose_power(2)
    cluster.run_for(10_000)


def test_a_replica_drops_what_the_new_leader_never_had() -> None:
    """L4, X2: with `first-isr` the one that lost m2 may lead."""
    cluster = SimCluster(2, min_insync_replicas=1, leader_recovery_strategy="first-isr")
    diverged(cluster)
    cluster.start(2)
    cluster.wait_led("events", by=2)
    assert log_values(cluster, 2, "events") == ["m1"]
    write(cluster, "events", "m3")
    cluster.start(1)
    cluster.wait_caught_up("events")
    assert log_values(cluster, 1, "events") == ["m1", "m3"]
    assert_alike(cluster, "events")


def test_under_the_strict_strategy_the_one_that_has_it_leads() -> None:
    """L4, X21: m2 is kept."""
    cluster = SimCluster(2, min_insync_replicas=2)
    diverged(cluster)
    cluster.start(2)
    cluster.run_for(5_000)
    assert cluster.leader("events") == -1
    cluster.start(1)
    cluster.wait_caught_up("events")
    assert log_values(cluster, 2, "events") == ["m1", "m2"]
    assert read(cluster, "events") == ["m1", "m2"]


def test_an_old_leader_drops_what_was_not_replicated_and_copies_the_rest() -> None:
    """L5: three brokers; m2 and m3 were only on the first."""
    cluster = SimCluster()
    cluster.create("events", replicas=[[1, 2, 3]])
    write(cluster, "events", "m1")
    cluster.wait_caught_up("events")
    cluster.isolate(1)
    client = cluster.client(1)
    for value in ("m2", "m3"):
        assert client.produce("events", one_batch(value), acks=1).error_code.name == "none"
    cluster.kill(1)
    cluster.wait_led("events", by=2)
    cluster.network.mend()
    assert write(cluster, "events", "m4") == 1
    assert write(cluster, "events", "m5") == 2
    cluster.start(1)
    cluster.wait_caught_up("events")
    assert log_values(cluster, 1, "events") == ["m1", "m4", "m5"]
    assert cluster.isr("events") == [1, 2, 3]
    assert_alike(cluster, "events")


def test_a_log_that_left_the_leaders_in_an_epoch_it_does_not_know_is_mended() -> None:
    """X5, L2: each led alone for a while, with records of its own."""
    cluster = SimCluster(4, unclean_leader_election_enable="true", min_insync_replicas=1)
    cluster.create("events", replicas=[[1, 2, 3]])
    write(cluster, "events", "m1")
    cluster.wait_caught_up("events")
    for lonely, values in ((2, ["m2", "m3"]), (1, ["m4"]), (3, ["m5", "m6", "m7"])):
        for other in cluster.alive:
            if other not in (lonely, 4):
                cluster.kill(other)
        if lonely not in cluster.alive:
            cluster.start(lonely)
        cluster.wait_led("events", by=lonely)
        write(cluster, "events", *values)
    cluster.kill(3)
    cluster.start(2)
    cluster.wait_led("events", by=2)
    write(cluster, "events", "m8")
    cluster.start(3)
    cluster.start(1)
    cluster.wait_caught_up("events")
    assert read(cluster, "events") == ["m1", "m2", "m3", "m8"]
    assert_alike(cluster, "events")


def test_a_deposed_leader_that_does_not_know_it_acknowledges_nothing() -> None:
    """X15: it is cut off from brokers and coordinator, and clients still reach it."""
    cluster = SimCluster()
    second = cluster.controller
    first, third = others(cluster, second)
    cluster.create("events", replicas=[[first, second, third]])
    write(cluster, "events", "a")
    cluster.wait_caught_up("events")
    cluster.isolate(first)
    cluster.session(first).lose_connection(away_ms=30_000)
    client = cluster.client(first)
    client.send_produce("events", one_batch("zombie"))
    cluster.wait(lambda: cluster.held(second, "events").is_led, "another one leads")
    assert try_write(cluster.client(second), "events", "b") == "none"
    answer = client.wait().responses[0].partition_responses[0]
    assert answer.error_code.name in ("request_timed_out", "not_enough_replicas_after_append")
    assert try_write(client, "events", "more") != "none"
    assert client.fetch("events", 1).records in (None, b""), "and it shows nothing new"
    state = cluster.ensemble.tree.get("/brokers/topics/events/partitions/0/state")
    cluster.run_for(10_000)
    after = cluster.ensemble.tree.get("/brokers/topics/events/partitions/0/state")
    assert first not in cluster.isr("events")
    assert after.stat.version >= state.stat.version
    cluster.network.mend()
    cluster.wait_caught_up("events")
    assert read(cluster, "events") == ["a", "b"]
    assert_alike(cluster, "events")


def test_a_follower_counts_only_for_what_it_has_said_it_has() -> None:
    """R2, D3: what was sent to it and never arrived is not committed."""
    cluster = SimCluster()
    cluster.create("events", replicas=[[1, 2, 3]])
    write(cluster, "events", "m1")
    cluster.wait_caught_up("events")
    cluster.cut(1, 2, one_way=True)
    cluster.client(1).produce("events", one_batch("m2"), acks=1)
    cluster.run_for(700)
    leader = cluster.held(1, "events")
    assert leader.high_watermark == 1
    assert leader.replica.remotes[2].log_end_offset == 1
    cluster.network.mend()
    cluster.wait_caught_up("events")
    assert log_values(cluster, 2, "events") == ["m1", "m2"]


# -- X17


@pytest.mark.parametrize("is_stop", [False, True])
def test_what_comes_late_is_late_also_while_the_newest_waits_for_a_write(is_stop: bool) -> None:
    """X10, X17: a large batch is being written, so a new epoch cannot begin yet. What was said
    before it, on a connection that was given up, does not take its place."""
    cluster = SimCluster(message_max_bytes=10_000_000)
    cluster.create("events", replicas=[[1, 2, 3]])
    broker, partition = cluster.broker(1), cluster.held(1, "events")
    cluster.client(1).send_produce("events", one_batch("x" * 6_000_000))
    cluster.wait(lambda: partition.is_busy, "it is being written")
    answers: list[object] = []
    broker.metadata.handle(led_by(2, 5, broker, partition), answers.append)
    late = led_by(3, 4, broker, partition)
    if is_stop:
        late = stopped_in(4, late)
    broker.metadata.handle(late, answers.append)
    assert partition.is_busy, "both came before the write had ended"
    cluster.wait(lambda: len(answers) == 2 and not partition.is_busy, "it is written")
    assert (partition.leader_epoch, partition.replica.leader_id) == (5, 2)
    assert cluster.replica(1, "events") is partition


def led_by(
    leader: int, epoch: int, broker: Broker, partition: Partition
) -> LeaderAndIsrRequest | StopReplicaRequest:
    assert partition.state is not None
    state = replace(partition.state, leader=leader, leader_epoch=epoch)
    topic = TopicState(
        name=partition.topic,
        topic_id=partition.topic_id,
        partitions=(partition_state(partition.index, state),),
    )
    return LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=state.controller_epoch,
        broker_epoch=broker.metadata.broker_epoch,
        is_full=False,
        topics=(topic,),
        unreadable=(),
    )


def stopped_in(epoch: int, beside: LeaderAndIsrRequest | StopReplicaRequest) -> StopReplicaRequest:
    """The removal of the same partition."""
    (topic,) = beside.topics
    stop = StopPartition(index=0, leader_epoch=epoch, delete=True)
    return StopReplicaRequest(
        controller_id=1,
        controller_epoch=beside.controller_epoch,
        broker_epoch=beside.broker_epoch,
        topics=(StopTopic(name=topic.name, topic_id=topic.topic_id, partitions=(stop,)),),
    )


@pytest.mark.parametrize("count", [2, 6])
def test_a_follower_that_has_nothing_but_deletions_gets_all_an_unclean_leader_has(
    count: int,
) -> None:
    """V2: broker 2 began at 10, where all was deleted that broker 3 never had from 6 on."""
    cluster = SimCluster(4, min_insync_replicas=1)
    cluster.create("events", replicas=[[1, 2, 3]])
    write(cluster, "events", *(f"a{number}" for number in range(6)))
    cluster.wait_caught_up("events")
    cluster.kill(2)
    cluster.kill(3)
    cluster.wait_isr("events", 1)
    write(cluster, "events", *(f"b{number}" for number in range(4)))
    client = cluster.client(1)
    send_delete_records(client, "events", -1, 5_000)
    client.wait()
    cluster.start(2)
    cluster.wait_isr("events", 1, 2)
    assert cluster.held(2, "events").replica.fetch_position() == (10, -1, 10)
    cluster.kill(1)
    cluster.kill(2)
    cluster.wait(lambda: cluster.leader("events") == -1, "nobody leads")
    cluster.start(3)
    assert elect(cluster, "events", unclean=True) == "none"
    values = [f"c{number}" for number in range(count)]
    for value in values:
        write(cluster, "events", value)
    cluster.start(2)
    cluster.wait_isr("events", 2, 3)
    cluster.kill(3)
    cluster.wait_led("events", by=2)
    assert read(cluster, "events")[6:] == values
