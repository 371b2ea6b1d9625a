"""A broker enters the cluster: base nodes, ids, registration, controller, what it finds: T4, D9."""

from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from support.control_peers import Exchange
from support.coordinated import RealZooKeeper
from support.members import Cluster
from support.ports import free_ports
from support.recording_host import Disk, RecordingHost
from support.zookeepers import new_connect
from tidelog.base.errors import BadValue
from tidelog.base.settings import Settings
from tidelog.cluster.image import BrokerInfo, TopicInfo
from tidelog.cluster.metadata import Metadata
from tidelog.cluster.registration import Failure, Preparation, Prepared
from tidelog.cluster.requests import NewTopic
from tidelog.cluster.surroundings import Surroundings
from tidelog.cluster.znodes import (
    Assignment,
    State,
    encode_broker,
    encode_state,
    encode_topic,
    id_bytes,
)
from tidelog.world.real.clock import RealClock
from tidelog.world.real.entropy import RealEntropy
from tidelog.world.sim.coordination import CoordinationFaults
from tidelog.world.sim.loop import SimLoop

KAFKA_PATHS = [
    "/admin",
    "/admin/delete_topics",
    "/brokers",
    "/brokers/ids",
    "/brokers/ids/0",
    "/brokers/seqid",
    "/brokers/topics",
    "/cluster",
    "/cluster/id",
    "/config",
    "/config/brokers",
    "/config/changes",
    "/config/clients",
    "/config/ips",
    "/config/topics",
    "/config/users",
    "/consumers",
    "/controller",
    "/controller_epoch",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
]


def test_a_first_start_makes_the_nodes_that_kafka_makes() -> None:
    cluster = Cluster()
    cluster.started()
    assert cluster.paths()[1:] == KAFKA_PATHS


def test_base_nodes_that_are_missing_are_made_and_the_others_left_alone() -> None:
    """As in the tree of an older Kafka, which has only some of them."""
    cluster = Cluster()
    first = cluster.started()
    before = cluster.ensemble.tree.get("/config/users").stat
    for path in ("/consumers", "/config/ips", "/admin/delete_topics", "/admin"):
        cluster.delete(path)
    second = cluster.started(1)
    assert cluster.paths()[1:] == sorted([*KAFKA_PATHS, "/brokers/ids/1"])
    assert cluster.ensemble.tree.get("/config/users").stat == before
    assert second.metadata.cluster_id == first.metadata.cluster_id


def test_a_start_does_not_need_to_read_the_root() -> None:
    """There may be others below it, and an administrator who lets nobody look. Real ZooKeeper."""
    connect = new_connect()
    place = RealZooKeeper(connect)
    try:
        first = prepared(place)
        host, _, root = connect.partition("/")
        client = KazooClient(host)
        client.start()
        client.set_acls(f"/{root}", [make_digest_acl("somebody", "else", all=True)])
        client.stop()
        client.close()
        assert prepared(place) == first
    finally:
        place.release()


def prepared(place: RealZooKeeper) -> Prepared:
    found: list[Prepared | Failure] = []
    Preparation(place.coordination, RealEntropy(), 1, 1000).start(None, found.append)
    place.wait(lambda: bool(found))
    assert isinstance(found[0], Prepared), found
    return found[0]


def test_a_broker_registers_with_an_ephemeral_node_whose_zxid_is_its_epoch() -> None:
    """T4."""
    cluster = Cluster()
    member = cluster.started(7)
    stat = cluster.ensemble.tree.get("/brokers/ids/7").stat
    assert stat.ephemeral_owner == member.coordination.session_id
    assert member.metadata.broker_epoch == stat.created_zxid
    assert member.metadata.image.brokers == {7: member.metadata.broker}
    assert cluster.json("/brokers/ids/7")["endpoints"] == ["PLAINTEXT://host:9099"]


def test_every_incarnation_has_a_larger_epoch() -> None:
    cluster = Cluster()
    first = cluster.started()
    first.die()
    cluster.forget_the_dead()
    assert cluster.started().metadata.broker_epoch > first.metadata.broker_epoch


def test_an_id_that_another_live_broker_has_is_refused_with_who_has_it() -> None:
    cluster = Cluster()
    cluster.started(3)
    error = cluster.member(3).start()
    assert isinstance(error, BadValue)
    assert "broker.id=3" in str(error)
    assert "host:9095" in str(error)


def test_a_registration_of_a_past_session_of_the_same_process_is_deleted() -> None:
    """X22 (ii): after a quick reconnect the old node may still be there."""
    cluster = Cluster()
    member = cluster.started(3)
    epoch, session_id = member.metadata.broker_epoch, member.coordination.session_id
    member.coordination.expire()
    cluster.put("/brokers/ids/3", b"{}", session_id)
    assert cluster.loop.run_until(lambda: member.metadata.broker_epoch > epoch)
    stat = cluster.ensemble.tree.get("/brokers/ids/3").stat
    assert stat.ephemeral_owner == member.coordination.session_id != session_id
    assert cluster.loop.clock.monotonic_ms() < 5000


def test_a_registration_of_a_stranger_is_waited_for_and_then_replaced() -> None:
    """X22 (ii), F15: it is a predecessor's that died without a word."""
    cluster = Cluster()
    cluster.started(3).die()
    member = cluster.member(3)
    assert member.start() is None
    stat = cluster.ensemble.tree.get("/brokers/ids/3").stat
    assert stat.ephemeral_owner == member.coordination.session_id


def test_the_cluster_id_is_drawn_once() -> None:
    cluster = Cluster()
    member = cluster.started()
    assert len(id_bytes(member.metadata.cluster_id)) == 16
    assert cluster.json("/cluster/id") == {"version": "1", "id": member.metadata.cluster_id}
    assert cluster.started(1).metadata.cluster_id == member.metadata.cluster_id


def test_log_dirs_of_another_cluster_are_refused_before_the_broker_shows_itself() -> None:
    cluster = Cluster()
    cluster.started(0)
    error = cluster.member(1).start(expected_cluster_id="another")
    assert isinstance(error, BadValue)
    assert "another" in str(error)
    assert not cluster.exists("/brokers/ids/1")


def test_log_dirs_that_know_a_cluster_do_not_join_an_empty_coordinator() -> None:
    """Every topic in them would look deleted."""
    cluster = Cluster()
    refused = cluster.member(0).start(expected_cluster_id="AAAAAAAAQACAAAAAAAAAAA")
    assert isinstance(refused, BadValue)
    assert "AAAAAAAAQACAAAAAAAAAAA" in str(refused)


def test_brokers_without_a_number_get_different_ones_above_the_reserved() -> None:
    cluster = Cluster()
    first, second = cluster.started(-1), cluster.started(-1)
    assert (first.metadata.broker_id, second.metadata.broker_id) == (1001, 1002)
    assert cluster.exists("/brokers/ids/1002")


def test_the_first_broker_is_controller_and_the_second_knows_it() -> None:
    cluster = Cluster()
    first, second = cluster.started(0), cluster.started(1)
    assert cluster.json("/controller") == {
        "version": 2,
        "brokerid": 0,
        "timestamp": str(cluster.json("/controller")["timestamp"]),
        "kraftControllerEpoch": -1,
    }
    assert cluster.data("/controller_epoch") == b"1"
    assert first.metadata.controller_epoch == 1
    assert second.metadata.controller_epoch is None
    assert second.metadata.image.controller_id == 0
    (error,) = second.create(NewTopic(name="t"))
    assert "NOT_CONTROLLER" in str(error)


def test_the_next_controller_has_a_higher_epoch() -> None:
    cluster = Cluster()
    cluster.started(0).die()
    cluster.forget_the_dead()
    assert cluster.started(1).metadata.controller_epoch == 2
    assert cluster.data("/controller_epoch") == b"2"


def test_a_restart_gives_every_partition_it_leads_a_new_leader_epoch() -> None:
    """D9: a process that restarted may have lost what it had not fsynced."""
    cluster = Cluster()
    member = cluster.started()
    member.create(NewTopic(name="t", partition_count=250))
    member.die()
    cluster.forget_the_dead()
    again = cluster.started()
    partitions = again.metadata.image.topics["t"].partitions
    assert {partition.leader_epoch for partition in partitions} == {1}
    for number in (0, 249):
        state = cluster.json(f"/brokers/topics/t/partitions/{number}/state")
        assert (state["leader_epoch"], state["controller_epoch"]) == (1, 2)
    (grown,) = again.grow("t", 251)
    assert isinstance(grown, TopicInfo)
    assert grown.partitions[250].leader_epoch == 0


def test_the_versions_in_the_image_are_those_of_the_nodes_after_a_restart() -> None:
    cluster = Cluster()
    member = cluster.started()
    member.create(NewTopic(name="t"))
    for _ in range(3):
        member.die()
        cluster.forget_the_dead()
        member = cluster.started()
    (partition,) = member.metadata.image.topics["t"].partitions
    stat = cluster.ensemble.tree.get("/brokers/topics/t/partitions/0/state").stat
    assert partition.state_version == stat.version == 3


def test_a_partition_whose_leader_is_gone_is_led_by_one_in_sync() -> None:
    cluster = Cluster()
    cluster.register_others(2)
    _put_topic(cluster, replicas=[1, 0, 2], leader=1, isr=[1, 2])
    partition = cluster.started().metadata.image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2,), 6)
    state = cluster.json("/brokers/topics/t/partitions/0/state")
    assert (state["leader"], state["isr"]) == (2, [2])


def test_a_partition_without_any_replica_in_sync_is_led_by_nobody() -> None:
    cluster = Cluster()
    _put_topic(cluster, replicas=[1, 0], leader=1, isr=[1])
    partition = cluster.started().metadata.image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.leader_epoch) == (-1, (1,), 6)


def test_a_partition_that_another_live_broker_leads_is_left_alone() -> None:
    cluster = Cluster()
    cluster.register_others(1)
    epoch = cluster.ensemble.tree.get("/brokers/ids/1").stat.created_zxid
    _put_topic(cluster, replicas=[1, 0], leader=1, isr=[1], epochs={1: epoch})
    partition = cluster.started().metadata.image.topics["t"].partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.state_version) == (1, 5, 0)


def test_a_partition_whose_leader_restarted_unseen_is_led_by_one_that_did_not() -> None:
    """X18: the controller that starts never saw the leader's earlier registration end."""
    cluster = Cluster()
    cluster.register_others(1, 2)
    epoch = cluster.ensemble.tree.get("/brokers/ids/2").stat.created_zxid
    _put_topic(cluster, replicas=[1, 2], leader=1, isr=[1, 2], epochs={1: 1, 2: epoch})
    partition = cluster.started().metadata.image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2,), 6)


def test_a_state_that_kafka_wrote_is_recovered_before_it_is_led() -> None:
    """D10: without recorded epochs nobody knows who has restarted."""
    cluster = Cluster()
    cluster.register_others(1)
    _put_topic(cluster, replicas=[1, 0], leader=1, isr=[1, 0])
    partition = cluster.started().metadata.image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.leader_epoch) == (-1, (1, 0), 6)


def _put_topic(
    cluster: Cluster,
    *,
    replicas: list[int],
    leader: int,
    isr: list[int],
    epochs: dict[int, int] | None = None,
) -> None:
    topic = encode_topic(b"t" * 16, [Assignment(replicas=tuple(replicas))])
    state = State(
        leader=leader,
        leader_epoch=5,
        isr=tuple(isr),
        controller_epoch=3,
        broker_epochs=epochs or {},
    )
    cluster.put("/brokers/topics/t", topic)
    cluster.put("/brokers/topics/t/partitions/0/state", encode_state(state))


@pytest.mark.parametrize("below", ["", "/partitions", "/partitions/1"])
def test_states_that_were_not_made_are_made_at_start(below: str) -> None:
    cluster = Cluster()
    node = (
        b'{"version":3,"topic_id":"AAAAAAAAQACAAAAAAAAAAA",'
        b'"partitions":{"0":[5,0],"1":[0],"2":[5]}}'
    )
    cluster.put("/brokers/topics/t", node)
    cluster.put(f"/brokers/topics/t{below}", b"" if below else node)
    member = cluster.started()
    first, second, third = member.metadata.image.topics["t"].partitions
    assert (first.leader, first.isr, first.leader_epoch) == (0, (0,), 0)
    assert (second.leader, second.state_version) == (0, 0)
    assert (third.leader, third.state_version) == (-1, -1)
    assert cluster.json("/brokers/topics/t/partitions/1/state")["leader"] == 0
    assert not cluster.exists("/brokers/topics/t/partitions/2/state")


def test_a_topic_of_an_older_kafka_gets_an_id() -> None:
    cluster = Cluster()
    cluster.put("/brokers/topics/t", b'{"version":1,"partitions":{"0":[0]}}')
    member = cluster.started()
    assert member.metadata.controller is not None
    topic = member.metadata.controller.realm.image.topics["t"]
    assert member.metadata.image.topic_names == {topic.topic_id: "t"}
    assert id_bytes(cluster.json("/brokers/topics/t")["topic_id"]) == topic.topic_id
    assert topic.version == cluster.ensemble.tree.get("/brokers/topics/t").stat.version
    assert cluster.json("/brokers/topics/t")["partitions"] == {"0": [0]}


def test_each_topic_of_an_older_kafka_gets_an_id_of_its_own() -> None:
    """Before it has one it is told from the others by its name alone."""
    cluster = Cluster()
    for name in ("t", "u", "v"):
        cluster.put(f"/brokers/topics/{name}", b'{"version":1,"partitions":{"0":[0]}}')
    image = cluster.started().metadata.image
    ids = {name: id_bytes(cluster.json(f"/brokers/topics/{name}")["topic_id"]) for name in "tuv"}
    assert {topic.name: topic.topic_id for topic in image.topics.values()} == ids
    assert image.topic_names == {topic_id: name for name, topic_id in ids.items()}


def test_a_topic_that_kafka_made_gets_the_node_that_tells_it_from_others_of_its_name() -> None:
    """I4, X15: without it the topic's leaders could not change an ISR."""
    cluster = Cluster()
    node = b'{"version":3,"topic_id":"AAAAAAAAQACAAAAAAAAAAA","partitions":{"0":[0]}}'
    cluster.put("/brokers/topics/t", node)
    cluster.started()
    assert cluster.exists("/brokers/topics/t/AAAAAAAAQACAAAAAAAAAAA")


def test_everything_is_there_after_a_restart() -> None:
    cluster = Cluster()
    member = cluster.started()
    member.create(NewTopic(name="t", partition_count=3, configs={"retention.ms": "5"}))
    member.alter("broker", "", {"log.retention.ms": ("set", "7")})
    member.alter("broker", "0", {"log.segment.bytes": ("set", "1000")})
    before = member.metadata.image
    member.die()
    cluster.forget_the_dead()
    again = cluster.started().metadata
    assert again.image.topic_names == before.topic_names
    assert again.image.topics["t"].config == {"retention.ms": "5"}
    assert again.image.default_broker_config == {"log.retention.ms": "7"}
    assert again.settings["log.retention.ms"] == 7
    assert again.settings["log.segment.bytes"] == 1000


def test_a_deletion_that_was_marked_is_finished_at_start() -> None:
    cluster = Cluster()
    member = cluster.started()
    (topic,) = member.create(NewTopic(name="t", partition_count=2))
    assert isinstance(topic, TopicInfo)
    member.die()
    cluster.forget_the_dead()
    cluster.put("/admin/delete_topics/t", b"")
    cluster.put("/admin/delete_topics/unknown", b"")
    again = cluster.started(delete_topic_enable="false")
    (change,) = again.changes
    assert [deleted.topic_id for deleted in change.deleted] == [topic.topic_id]
    assert again.host.disk.replicas == {}
    cluster.loop.run_for(1000)
    assert again.metadata.image.topics == {}
    assert not [path for path in cluster.paths() if path.endswith(("/t", "/unknown"))]


@pytest.mark.parametrize("seed", range(20))
def test_a_start_goes_on_when_the_connection_is_back(seed: int) -> None:
    cluster = Cluster(seed)
    member = cluster.member(faults=CoordinationFaults(lost_before=0.01, lost_after=0.01))
    assert member.start() is None
    assert member.metadata.image.brokers == {0: member.metadata.broker}
    assert cluster.paths()[1:] == KAFKA_PATHS


@pytest.mark.parametrize("after_ms", range(0, 60, 4))
def test_a_start_that_loses_its_session_goes_on_in_the_next(after_ms: int) -> None:
    """A machine may be so busy when a broker starts that ZooKeeper does not hear of it in time."""
    cluster = Cluster()
    member = cluster.member()
    answers: list[Exception | None] = []
    member.begin(answers.append)
    cluster.loop.run_for(after_ms)
    member.coordination.expire()
    assert cluster.loop.run_until(lambda: bool(answers))
    assert answers == [None]
    assert cluster.loop.run_until(lambda: member.metadata.image.brokers.keys() == {0})
    assert cluster.paths()[1:] == KAFKA_PATHS


def test_a_start_asks_nothing_between_two_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is refused then, at once."""
    member = Cluster().member()
    asked: list[str] = []
    exists = member.coordination.exists

    def ask(path: str, *rest: Any) -> None:
        asked.append(path)
        exists(path, *rest)

    monkeypatch.setattr(member.coordination, "exists", ask)
    answers: list[Exception | None] = []
    member.begin(answers.append)
    member.coordination.expire()
    member.loop.run_until(lambda: bool(answers))
    assert asked.count(asked[0]) == 3, "once in the first, and before and after making it"


def test_a_start_that_is_broken_off_lets_its_session_end() -> None:
    """Before anybody has answered."""
    place = RealZooKeeper(f"127.0.0.1:{free_ports(1)[0]}")
    around = Surroundings(
        coordination=place.coordination,
        clock=RealClock(),
        entropy=RealEntropy(),
        loop=place.loop,
        peers=Exchange(SimLoop()).peers(lambda: 1, lambda: True),
        host=RecordingHost(Disk()),
    )
    broker = BrokerInfo(broker_id=1, endpoints={"PLAINTEXT": ("host", 9092)})
    metadata = Metadata(around, Settings.of({}), broker)
    answers: list[Exception | None] = []
    metadata.prepare(answers.append)
    place.loop.turn(0.1)
    metadata.close()
    place.release()
    assert answers == []


def test_two_brokers_that_start_at_once_both_start() -> None:
    for seed in range(20):
        cluster = Cluster(seed)
        members = [cluster.member(0), cluster.member(1)]
        answers: list[Exception | None] = []
        for member in members:
            member.begin(answers.append)
        cluster.loop.run_for(10_000)
        assert answers == [None, None]
        controllers = [m for m in members if m.metadata.controller_epoch is not None]
        assert len(controllers) == 1
        ids = {member.metadata.cluster_id for member in members}
        assert len(ids) == 1


def test_a_registration_is_read_back_as_it_was_written() -> None:
    broker = BrokerInfo(
        broker_id=4,
        endpoints={"INTERNAL": ("::1", 9093), "PLAINTEXT": ("h", 1)},
        protocols={"INTERNAL": "SSL", "PLAINTEXT": "PLAINTEXT"},
        rack="r",
    )
    cluster = Cluster()
    cluster.put("/brokers/ids/4", encode_broker(broker, 0))
    found = cluster.started().metadata.image.brokers[4]
    assert (found.endpoints, found.protocols, found.rack) == (
        broker.endpoints,
        broker.protocols,
        "r",
    )
    assert found.epoch == cluster.ensemble.tree.get("/brokers/ids/4").stat.created_zxid


def test_a_registration_is_taken_over_as_soon_as_its_session_is_over() -> None:
    """X22: a broker that restarts in a moment does not wait for a timeout that will not come."""
    cluster = Cluster()
    first = cluster.started(3)
    session_id = first.coordination.session_id
    first.die()
    again = cluster.member(3)
    answers: list[Exception | None] = []
    again.begin(answers.append)
    cluster.loop.run_for(300)
    assert answers == []
    cluster.ensemble.end_session(session_id)
    assert cluster.loop.run_until(lambda: answers == [None], 300)
