"""Topics of a whole cluster: where replicas lie, how they move, how topics end on every broker."""

import json

import pytest

from support.brokers import METADATA, SimClient, one_batch
from support.cluster_calls import (
    BROKER,
    TOPIC,
    alter,
    assert_alike,
    delete_topic,
    describe,
    grow,
    moving,
    read,
    reassign,
    try_write,
    write,
)
from support.sim_cluster import SimCluster
from support.transactional import FIND_COORDINATOR
from tidelog.handlers import creating
from tidelog.handlers.creating import TIMEOUT_MS

GONE_MS = 70_000
"""Until what is deleted is off the disk: `log.segment.delete.delay.ms` and a little more."""


def placed(cluster: SimCluster, topic: str) -> list[list[int]]:
    found = cluster.node(f"/brokers/topics/{topic}")["partitions"]
    return [found[str(index)] for index in range(len(found))]


def folders(cluster: SimCluster, broker_id: int) -> list[str]:
    names = cluster.machines[broker_id].disk.list("/data")
    return [name for name in names if "-" in name and not name.endswith("checkpoint")]


# -- T1, T2: where replicas lie


def test_a_topic_has_as_many_replicas_as_asked_for_on_different_brokers() -> None:
    """T1."""
    cluster = SimCluster(3)
    cluster.create("events", 4)
    assert all(sorted(replicas) == [1, 2, 3] for replicas in placed(cluster, "events"))
    for broker_id in (1, 2, 3):
        assert folders(cluster, broker_id) == [f"events-{index}" for index in range(4)]


def test_more_replicas_than_brokers_alive_make_no_topic() -> None:
    """T1."""
    cluster = SimCluster(3)
    cluster.kill(3)
    cluster.run_for(100)
    answer = cluster.ask_create("events", factor=3)
    assert answer.error_code.name == "invalid_replication_factor"
    assert cluster.ensemble.tree.exists("/brokers/topics/events") is None
    assert cluster.ask_create("events", factor=2).error_code.name == "none"


def test_replicas_and_leaders_are_spread_evenly() -> None:
    """T2."""
    cluster = SimCluster(4)
    cluster.create("events", 12)
    replicas = placed(cluster, "events")
    firsts = [row[0] for row in replicas]
    assert sorted(firsts) == sorted([1, 2, 3, 4] * 3)
    held = [broker_id for row in replicas for broker_id in row]
    assert all(held.count(broker_id) == 9 for broker_id in (1, 2, 3, 4))
    for at in range(8):
        assert (firsts[at + 1] - firsts[at]) % 4 == 1, "the next broker leads the next partition"
    leaders = [cluster.leader("events", index) for index in range(12)]
    assert leaders == firsts


def test_replicas_span_the_racks() -> None:
    """T2."""
    cluster = SimCluster(0)
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
    for broker_id, rack in racks.items():
        cluster.add(broker_id, broker_rack=rack)
    cluster.create("events", 10)
    for replicas in placed(cluster, "events"):
        assert {racks[broker_id] for broker_id in replicas} == {"a", "b", "c"}


# -- T3: assignment, growth, reassignment


def test_an_assignment_can_be_given_and_partitions_added() -> None:
    """T3."""
    cluster = SimCluster(4)
    cluster.create("events", replicas=[[3, 1], [4, 2]])
    assert placed(cluster, "events") == [[3, 1], [4, 2]]
    assert [cluster.leader("events", index) for index in (0, 1)] == [3, 4]
    assert grow(cluster, "events", 5) == "none"
    for index in range(5):
        cluster.wait_isr("events", index=index)
        assert write(cluster, "events", f"p{index}", index=index) == 0
        assert read(cluster, "events", index) == [f"p{index}"]
    assert all(len(set(replicas)) == 2 for replicas in placed(cluster, "events"))


def test_a_partition_moves_to_other_brokers_while_it_is_written() -> None:
    """T3: the new replica is outside the ISR until it has caught up, then the old one leaves."""
    cluster = SimCluster(4)
    cluster.create("events", replicas=[[1, 2, 3]])
    for number in range(20):
        write(cluster, "events", f"v{number}")
    assert reassign(cluster, "events", [4, 2, 3]) == "none"
    outside = 0
    for number in range(20, 40):
        write(cluster, "events", f"v{number}")
        is_under_way = bool(moving(cluster))
        outside += is_under_way and 4 not in cluster.isr("events")
        if not is_under_way:
            break
    cluster.wait(lambda: not moving(cluster), "it is moved")
    assert cluster.replicas("events") == [4, 2, 3]
    cluster.wait_caught_up("events")
    assert cluster.wait_led("events") in (2, 3, 4)
    assert read(cluster, "events")[:20] == [f"v{number}" for number in range(20)]
    assert_alike(cluster, "events")
    cluster.run_for(GONE_MS)
    assert cluster.replica(1, "events") is None
    assert folders(cluster, 1) == []


def test_the_replication_factor_is_raised_and_lowered_by_reassignment() -> None:
    """T3."""
    cluster = SimCluster(3)
    cluster.create("events", replicas=[[1]])
    write(cluster, "events", "a", "b")
    assert reassign(cluster, "events", [1, 2, 3]) == "none"
    cluster.wait(lambda: not moving(cluster), "it is moved")
    cluster.wait_caught_up("events")
    assert_alike(cluster, "events")
    assert reassign(cluster, "events", [3]) == "none"
    cluster.wait(lambda: not moving(cluster), "it is moved")
    cluster.wait_isr("events", 3)
    assert read(cluster, "events") == ["a", "b"]
    assert write(cluster, "events", "c") == 2


def big_topic() -> tuple[SimCluster, SimClient]:
    """1 MB in 20 batches, of which one at a time is fetched."""
    cluster = SimCluster(3, replica_fetch_max_bytes=60_000)
    cluster.create("events", replicas=[[1, 2]])
    client = cluster.client(1)
    for number in range(20):
        client.send_produce("events", one_batch(f"{number}-" + "x" * 50_000))
    client.wait()
    return cluster, client


def throttled(cluster: SimCluster, client: SimClient, rate: str | None = "100000") -> None:
    """100 KB a second, for 1 MB. Each broker takes its own settings only."""
    for broker_id in (1, 2, 3):
        rates = {
            "leader_replication_throttled_rate": rate,
            "follower_replication_throttled_rate": rate,
        }
        own = cluster.client(broker_id)
        assert alter(own, BROKER, str(broker_id), **rates) == "none"
    replicas = {
        "leader_replication_throttled_replicas": "*",
        "follower_replication_throttled_replicas": "*",
    }
    assert alter(client, TOPIC, "events", **replicas) == "none"
    cluster.run_for(500)


def test_a_move_is_throttled_and_its_progress_is_shown() -> None:
    """T3: those in sync are never held back."""
    cluster, client = big_topic()
    throttled(cluster, client)
    began_ms = cluster.clock.monotonic_ms()
    assert reassign(cluster, "events", [3, 2]) == "none"
    cluster.run_for(2_000)
    assert moving(cluster) == {("events", 0): ((3, 2, 1), (3,), (1,))}
    came = cluster.held(3, "events").log.log_end_offset
    assert 1 < came < 15
    written_ms = cluster.clock.monotonic_ms()
    assert try_write(client, "events", "y" * 50_000) == "none"
    assert cluster.clock.monotonic_ms() - written_ms < 200, "who is in sync goes on at once"
    cluster.wait(lambda: not moving(cluster), "it is moved")
    assert 6_000 < cluster.clock.monotonic_ms() - began_ms < 25_000
    cluster.wait_caught_up("events")
    assert_alike(cluster, "events")


def test_a_new_replica_is_held_no_more_once_its_leader_waits_for_it() -> None:
    """T3: its leader is the first to know that it is in sync, and tells the others later."""
    cluster, client = big_topic()
    rate = {"leader_replication_throttled_rate": "100000"}
    assert alter(cluster.client(1), BROKER, "1", **rate) == "none"
    replicas = {"leader_replication_throttled_replicas": "*"}
    assert alter(client, TOPIC, "events", **replicas) == "none"
    cluster.run_for(500)
    assert reassign(cluster, "events", [1, 2, 3]) == "none"
    leader = cluster.held(1, "events").replica
    cluster.wait(lambda: 3 in leader.isr.maximal, "it is waited for")
    known = cluster.broker(1).metadata.image.topics["events"].partitions[0]
    assert 3 not in known.isr
    written_ms = cluster.clock.monotonic_ms()
    for _ in range(5):
        assert try_write(client, "events", "y" * 50_000) == "none"
    assert cluster.clock.monotonic_ms() - written_ms < 1_000
    assert known is cluster.broker(1).metadata.image.topics["events"].partitions[0]


def test_a_throttle_that_is_taken_away_lets_a_move_finish_at_once() -> None:
    """T3."""
    cluster, client = big_topic()
    throttled(cluster, client)
    assert reassign(cluster, "events", [3, 2]) == "none"
    cluster.run_for(1_500)
    assert moving(cluster)
    throttled(cluster, client, rate=None)
    replica = cluster.held(3, "events")
    cluster.wait(lambda: replica.log.log_end_offset == 20, "it has everything", 500)
    cluster.wait(lambda: not moving(cluster), "it is moved", 10_000)


@pytest.mark.parametrize("rate", ["0", "10"])
@pytest.mark.parametrize("side", ["leader", "follower"])
def test_replicas_that_are_throttled_no_more_go_on_at_once_whatever_the_rate_is(
    side: str, rate: str
) -> None:
    """T3: at ten bytes a second one batch is paid for after more than an hour."""
    cluster, client = big_topic()
    for broker_id in (1, 2, 3):
        rates = {f"{side}_replication_throttled_rate": rate}
        assert alter(cluster.client(broker_id), BROKER, str(broker_id), **rates) == "none"
    replicas = f"{side}_replication_throttled_replicas"
    assert alter(client, TOPIC, "events", **{replicas: "*"}) == "none"
    cluster.run_for(500)
    assert reassign(cluster, "events", [3, 2]) == "none"
    cluster.run_for(3_000)
    replica = cluster.held(3, "events")
    assert replica.log.log_end_offset < 20
    assert alter(client, TOPIC, "events", **{replicas: None}) == "none"
    cluster.wait(lambda: replica.log.log_end_offset == 20, "it has everything", 2_000)
    cluster.wait(lambda: not moving(cluster), "it is moved", 10_000)


def test_a_move_can_be_taken_back() -> None:
    """T3."""
    cluster, client = big_topic()
    throttled(cluster, client)
    assert reassign(cluster, "events", [3, 2]) == "none"
    cluster.run_for(1_000)
    assert cluster.replica(3, "events") is not None
    assert reassign(cluster, "events", None) == "none"
    cluster.wait(lambda: not moving(cluster), "it is back")
    assert sorted(cluster.replicas("events")) == [1, 2]
    cluster.run_for(GONE_MS)
    assert cluster.replica(3, "events") is None
    assert folders(cluster, 3) == []
    assert reassign(cluster, "events", None) == "no_reassignment_in_progress"
    assert try_write(client, "events", "z") == "none"


def test_a_move_goes_on_under_another_controller() -> None:
    """T3, E1."""
    cluster = SimCluster(4)
    cluster.create("events", replicas=[[1, 2, 3]])
    write(cluster, "events", *map(str, range(50)))
    for target in (1, 2, 3):
        cluster.cut(target, 4)
    assert reassign(cluster, "events", [4, 2, 3]) == "none"
    controller = cluster.controller
    cluster.kill(controller)
    cluster.network.mend()
    cluster.wait(lambda: cluster.controller != controller, "another one is in office")
    cluster.start(controller)
    cluster.wait(lambda: not moving(cluster), "it is moved")
    assert cluster.replicas("events") == [4, 2, 3]
    cluster.wait_caught_up("events")
    assert len(read(cluster, "events")) == 50


# -- T4, T5: what stands in the tree and is shown


def test_the_state_node_has_kafkas_keys_and_ours() -> None:
    """T4."""
    cluster = SimCluster(3)
    cluster.create("events", replicas=[[2, 1, 3]])
    epochs = {
        broker_id: cluster.ensemble.tree.get(f"/brokers/ids/{broker_id}").stat.created_zxid
        for broker_id in (1, 2, 3)
    }
    data = cluster.ensemble.tree.get("/brokers/topics/events/partitions/0/state").data
    keys = ["controller_epoch", "leader", "version", "leader_epoch", "isr", "broker_epochs", "elr"]
    assert list(json.loads(data)) == keys
    state = cluster.state("events")
    assert (state["version"], state["leader"], state["leader_epoch"]) == (1, 2, 0)
    assert state["broker_epochs"] == {str(broker_id): epoch for broker_id, epoch in epochs.items()}
    assert state["elr"] == []
    cluster.kill(1)
    cluster.wait_isr("events", 2, 3)
    cluster.cut(2, 3)
    cluster.client(2).produce("events", one_batch("a"), acks=1)
    cluster.wait_isr("events", 2)
    state = cluster.state("events")
    assert state["elr"] == [3], "who fell out of too small a set may still lead"
    assert state["broker_epochs"] == {"2": epochs[2], "3": epochs[3]}


def test_brokers_are_registered_as_long_as_they_live() -> None:
    """T4."""
    cluster = SimCluster(3)
    node = cluster.ensemble.tree.get("/brokers/ids/2")
    assert node.stat.ephemeral_owner == cluster.session(2).session_id
    assert json.loads(node.data)["endpoints"][0] == "PLAINTEXT://machine-2:9092"
    cluster.kill(2)
    cluster.run_for(50)
    assert cluster.ensemble.tree.exists("/brokers/ids/2") is None


def test_every_broker_shows_leader_replicas_and_isr() -> None:
    """T5."""
    cluster = SimCluster(3)
    cluster.create("events", replicas=[[1, 2, 3]])
    cluster.kill(3)
    cluster.wait_isr("events", 1, 2)
    cluster.run_for(100)
    for broker_id in (1, 2):
        row = describe(cluster.client(broker_id), "events").topics[0].partitions[0]
        assert (row.leader_id, row.replica_nodes) == (1, (1, 2, 3))
        assert sorted(row.isr_nodes) == [1, 2]
        assert row.offline_replicas == (3,)


# -- T6: the end of a topic, and topics that make themselves


def test_a_deleted_topic_is_gone_from_every_broker() -> None:
    """T6."""
    cluster = SimCluster(3)
    cluster.create("events", 2)
    write(cluster, "events", "a")
    assert delete_topic(cluster, "events") == "none"
    cluster.run_for(GONE_MS)
    for broker_id in (1, 2, 3):
        assert cluster.replica(broker_id, "events") is None
        assert folders(cluster, broker_id) == []
        topics = describe(cluster.client(broker_id)).topics
        assert [topic.name for topic in topics] == []
    for path in ("/brokers/topics/events", "/admin/delete_topics/events"):
        assert cluster.ensemble.tree.exists(path) is None


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_was_deleted_while_a_broker_was_down_is_gone_there_too(again: bool) -> None:
    """T6: also if there is another one of that name by now."""
    cluster = SimCluster(3)
    cluster.create("events", replicas=[[1, 2, 3]])
    cluster.create("kept", replicas=[[3, 2, 1]])
    write(cluster, "events", "old")
    write(cluster, "kept", "a")
    cluster.wait_caught_up("kept")
    cluster.kill(3)
    cluster.run_for(100)
    assert delete_topic(cluster, "events") == "none"
    if again:
        cluster.wait(
            lambda: cluster.ensemble.tree.exists("/brokers/topics/events") is None, "it is gone"
        )
        assert cluster.ask_create("events", factor=2).error_code.name == "none"
        write(cluster, "events", "new")
        assert reassign(cluster, "events", [1, 2, 3]) == "invalid_replica_assignment"
    cluster.start(3)
    cluster.run_for(GONE_MS)
    if again:
        assert reassign(cluster, "events", [3, 1, 2]) == "none"
        cluster.wait(lambda: not moving(cluster), "it is moved")
        cluster.wait_caught_up("events")
        assert read(cluster, "events") == ["new"]
        assert_alike(cluster, "events")
    else:
        assert folders(cluster, 3) == ["kept-0"]
    cluster.wait_caught_up("kept")
    assert read(cluster, "kept") == ["a"]


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_a_topic_makes_itself_whichever_broker_is_asked(asked: int) -> None:
    """T6: only the controller can make it; the others ask it to."""
    cluster = SimCluster(3, num_partitions=2)
    client = cluster.client(asked)
    topic = describe(client, "fresh", create=True).topics[0]
    assert topic.error_code.name in ("none", "leader_not_available")
    cluster.wait(
        lambda: describe(client, "fresh").topics[0].error_code.name == "none", "it is made"
    )
    cluster.wait_isr("fresh")
    assert all(len(replicas) == 3 for replicas in placed(cluster, "fresh"))
    assert len(placed(cluster, "fresh")) == 2
    assert write(cluster, "fresh", "a") == 0


def test_a_controller_without_its_coordinator_does_not_keep_clients_waiting() -> None:
    """T6: who asks it for a topic that is not there is told to come again, as by other brokers,
    and what else he asks for is answered too. The same holds for his coordinator."""
    cluster = SimCluster(3, min_insync_replicas=1)
    controller = cluster.controller
    cluster.create("events", replicas=[[controller]])
    client = cluster.client(controller)
    client.produce("events", one_batch("a"))
    cluster.session(controller).lose_connection(done=0, away_ms=3 * TIMEOUT_MS)
    began_ms = cluster.clock.monotonic_ms()
    asked = {"topics": [{"name": "fresh"}], "allow_auto_topic_creation": True}
    client.send(METADATA, 4, **asked)
    client.send(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["group"])
    client.send_fetch([("events", 0, 0)])
    fetched = client.wait().responses[0].partitions[0]
    assert (fetched.error_code.name, bool(fetched.records)) == ("none", True)
    assert cluster.clock.monotonic_ms() - began_ms < 2 * TIMEOUT_MS
    described, found, _ = client.answers[-3:]
    assert described.topics[0].error_code.name == "leader_not_available"
    assert found.coordinators[0].error_code.name == "coordinator_not_available"

    def again() -> str:
        answer = describe(cluster.client(cluster.controller), "fresh", create=True)
        return str(answer.topics[0].error_code.name)

    cluster.wait(lambda: again() == "none", "it is made in the end")


def test_a_setting_altered_on_one_broker_acts_on_all() -> None:
    """T6, I4: /config/changes tells the others."""
    cluster = SimCluster(3)
    cluster.create("events", 3)
    controller = cluster.controller
    other = next(broker_id for broker_id in (1, 2, 3) if broker_id != controller)
    assert alter(cluster.client(other), TOPIC, "events", max_message_bytes="2000") == "none"
    cluster.run_for(500)
    for index in range(3):
        client = cluster.client(cluster.leader("events", index))
        row = client.produce("events", one_batch("x" * 5_000), index=index)
        assert row.error_code.name == "message_too_large"
    assert alter(cluster.client(other), BROKER, "", log_retention_ms="12345") == "none"
    cluster.run_for(500)
    settings = [cluster.broker(broker_id).settings["log.retention.ms"] for broker_id in (1, 2, 3)]
    assert settings == [12345] * 3


def test_topics_that_are_made_because_they_were_asked_for_are_made_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """T6: by a broker that has to ask the controller; a client that comes again gets the rest."""
    monkeypatch.setattr(creating, "FORWARDED_MAX", 3)
    cluster = SimCluster(3, auto_create_topics_enable=True)
    other = next(broker_id for broker_id in (1, 2, 3) if broker_id != cluster.controller)
    names = [f"made-{number}" for number in range(5)]

    def ask() -> list[str]:
        answer = cluster.client(other).ask(
            METADATA,
            12,
            topics=[{"name": name, "topic_id": bytes(16)} for name in names],
            allow_auto_topic_creation=True,
            include_topic_authorized_operations=False,
        )
        cluster.run_for(1_000)
        return [topic.error_code.name for topic in answer.topics]

    first = ask()
    assert set(first[:3]) <= {"none", "leader_not_available"}
    assert first[3:] == ["leader_not_available"] * 2
    assert ask()[:3] == ["none"] * 3
    assert ask() == ["none"] * 5
