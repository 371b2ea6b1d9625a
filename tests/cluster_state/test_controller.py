"""One broker governs the others: election, failover, death and return of brokers: E1, E2, E3."""

import pytest

from support.agreement import assert_agreed, controllers, topics_in_tree
from support.members import Cluster, Member
from tidelog.base.control import LeaderAndIsrRequest, StopReplicaRequest
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.image import PartitionInfo, TopicInfo
from tidelog.cluster.requests import NewTopic
from tidelog.cluster.writing import OPERATIONS_MAX

MANY = 300
REQUESTS_MAX = 4


def cluster_of(count: int, seed: int = 0, **settings: str) -> tuple[Cluster, list[Member]]:
    cluster = Cluster(seed)
    return cluster, [cluster.started(number, **settings) for number in range(count)]


def partition_of(cluster: Cluster, topic: str = "t", index: int = 0) -> PartitionInfo:
    return topics_in_tree(cluster)[topic].partitions[index]


def create(member: Member, replicas: list[int], name: str = "t", **configs: str) -> TopicInfo:
    named: dict[str, str | None] = {k.replace("_", "."): v for k, v in configs.items()}
    (topic,) = member.create(NewTopic(name=name, assignment={0: replicas}, configs=named))
    assert isinstance(topic, TopicInfo), topic
    return topic


def test_every_broker_knows_the_controller_and_all_brokers() -> None:
    """E1."""
    cluster, members = cluster_of(3)
    assert_agreed(cluster, members)
    assert [member.is_controller for member in members] == [True, False, False]


def test_a_new_topic_is_known_to_all_and_led_when_it_is_answered() -> None:
    cluster, members = cluster_of(3)
    topic = create(members[0], [1, 2, 0])
    assert members[0].metadata.image.topics["t"].partitions == topic.partitions
    assert members[1].host.led == {(topic.topic_id, 0)}
    assert_agreed(cluster, members)


def test_when_the_controller_dies_another_takes_over_and_its_partitions_move() -> None:
    """E1, E2."""
    cluster, members = cluster_of(3)
    create(members[0], [0, 1, 2])
    members[0].die()
    assert_agreed(cluster, members)
    partition = partition_of(cluster)
    assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1, 2), 1)
    assert controllers(members)[0].metadata.controller_epoch == 2
    assert partition.controller_epoch == 2


def test_a_broker_that_returns_is_told_everything_at_once_and_leads_nothing() -> None:
    cluster, members = cluster_of(3)
    topic = create(members[0], [1, 0, 2])
    members[1].die()
    cluster.forget_the_dead()
    again = cluster.started(1)
    (request,) = [r for r in again.host.requests if isinstance(r, LeaderAndIsrRequest)]
    assert request.is_full
    assert request.topics[0].topic_id == topic.topic_id
    assert request.topics[0].partitions[0].leader == 0
    assert_agreed(cluster, [members[0], members[2], again])
    assert partition_of(cluster).isr == (0, 2)


def test_what_changes_at_once_is_told_in_few_requests_and_written_in_few_parts() -> None:
    """E2: a broker dies that led a third of many partitions and followed in the others."""
    cluster, members = cluster_of(3)
    orders = [(0, 1, 2), (1, 2, 0), (2, 0, 1)]
    assignment = {index: orders[index % 3] for index in range(MANY)}
    (topic,) = members[0].create(NewTopic(name="t", assignment=assignment))
    assert isinstance(topic, TopicInfo), topic
    for member in members:
        member.host.requests.clear()
    written: list[int] = []
    cluster.ensemble.on_attempt = lambda operations: written.append(len(operations))
    members[2].die()
    assert_agreed(cluster, members)
    assert sum(written) >= MANY
    assert max(written) <= OPERATIONS_MAX
    assert len(written) <= 2 * MANY / OPERATIONS_MAX
    led_now = [part.leader for part in topics_in_tree(cluster)["t"].partitions]
    assert led_now.count(0) == 2 * led_now.count(1) == MANY * 2 // 3
    for member in members[:2]:
        asked = [r for r in member.host.requests if isinstance(r, LeaderAndIsrRequest)]
        told = [state.index for r in asked for one in r.topics for state in one.partitions]
        assert sorted(set(told)) == list(range(MANY))
        assert len(asked) <= REQUESTS_MAX, [len(one.topics[0].partitions) for one in asked]


@pytest.mark.parametrize("seed", range(5))
def test_a_quick_restart_is_a_new_incarnation(seed: int) -> None:
    """D9, X18: the controller finds it registered before it knows that it was gone."""
    cluster, members = cluster_of(3, seed)
    topic = create(members[0], [1, 0, 2])
    again = cluster.member(1)
    prepared: list[Exception | None] = []
    again.metadata.prepare(prepared.append)
    assert cluster.loop.run_until(lambda: prepared == [None])
    members[0].coordination.faults.delay_ms_max = 300
    cluster.kill(members[1])
    cluster.exchange.reachable[1] = again.metadata.handle
    again.metadata.join(lambda _error: None)
    assert cluster.loop.run_until(lambda: again.metadata.broker_epoch != -1)
    assert 1 in members[0].metadata.image.brokers, "nobody has missed it"
    assert_agreed(cluster, [members[0], members[2], again])
    partition = partition_of(cluster)
    assert (partition.leader, partition.isr) == (0, (0, 2))
    told = [
        (state.leader, state.leader_epoch)
        for request in again.host.requests
        if isinstance(request, LeaderAndIsrRequest)
        for found in request.topics
        for state in found.partitions
    ]
    assert (1, topic.partitions[0].leader_epoch) not in told, "it leads no epoch of before"


def test_a_restart_that_no_controller_saw_is_a_new_incarnation() -> None:
    """X18: leader and controller die together, and it is back before another one governs."""
    cluster, members = cluster_of(3)
    create(members[0], [0, 1, 2])
    cluster.kill(members[0])
    again = cluster.member(0)
    answers: list[Exception | None] = []
    again.begin(answers.append)
    assert_agreed(cluster, [*members[1:], again])
    partition = partition_of(cluster)
    assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1, 2), 1)


def test_a_partition_without_replicas_in_sync_waits_and_is_recovered() -> None:
    """E3, D10, X21: the one that is furthest leads, alone in the ISR."""
    cluster, members = cluster_of(4)
    topic = create(members[0], [1, 2, 3], min_insync_replicas="2")
    key = (topic.topic_id, 0)
    for number, end in ((1, 5), (2, 9), (3, 7)):
        cluster.disks[number].replicas[key] = (0, end)
    for member in members[1:]:
        cluster.kill(member)
    assert cluster.loop.run_until(lambda: partition_of(cluster).leader == -1)
    assert set(partition_of(cluster).isr) | set(partition_of(cluster).elr) == {1, 2, 3}
    first = cluster.started(1)
    cluster.loop.run_for(10_000)
    assert partition_of(cluster).leader == -1, "too few are back"
    second = cluster.started(2)
    assert cluster.loop.run_until(lambda: partition_of(cluster).leader != -1, 5000)
    assert_agreed(cluster, [members[0], first, second])
    partition = partition_of(cluster)
    assert (partition.leader, partition.isr) == (2, (2,))
    assert set(partition.elr) >= {1}


def test_a_partition_that_nobody_can_lead_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """E3: each time it goes offline, and by each controller that finds it so."""
    cluster, members = cluster_of(3)
    create(members[0], [2])
    create(members[0], [1, 0], name="led")
    said = "NoReplicaOnlineException: partition=t-0 has no leader: isr=[2] live=[0, 1]"
    for times in (1, 2):
        cluster.kill(members[2])
        assert cluster.loop.run_until(lambda: partition_of(cluster).leader == -1)
        cluster.loop.run_for(10_000)
        assert caplog.text.count(said) == times
        members[2] = cluster.started(2)
        assert cluster.loop.run_until(lambda: partition_of(cluster).leader == 2)
    cluster.kill(members[2])
    cluster.loop.run_for(10_000)
    cluster.kill(members[0])
    assert cluster.loop.run_until(lambda: members[1].is_controller)
    cluster.loop.run_for(10_000)
    assert caplog.text.count("NoReplicaOnlineException") == 4
    assert "partition=led-0" not in caplog.text


def test_with_unclean_election_whoever_lives_leads() -> None:
    """E3, E5."""
    cluster, members = cluster_of(3)
    create(members[0], [1, 2], unclean_leader_election_enable="true")
    cluster.kill(members[1])
    assert cluster.loop.run_until(lambda: partition_of(cluster).leader == 2)
    cluster.kill(members[2])
    assert cluster.loop.run_until(lambda: partition_of(cluster).leader == -1)
    again = cluster.started(1)
    assert cluster.loop.run_until(lambda: partition_of(cluster).leader == 1)
    assert_agreed(cluster, [members[0], again])


def test_a_clean_stop_moves_leaders_away_first() -> None:
    """E2."""
    cluster, members = cluster_of(3)
    topic = create(members[0], [1, 0, 2])
    create(members[0], [1], name="alone")
    members[1].stop()
    partition = partition_of(cluster)
    assert (partition.leader, partition.isr, partition.leader_epoch) == (0, (0, 2), 1)
    assert (topic.topic_id, 0) in members[0].host.led
    stops = [r for r in members[1].host.requests if isinstance(r, StopReplicaRequest)]
    assert [p.delete for r in stops for found in r.topics for p in found.partitions] == [False]


def test_the_controller_stops_cleanly_too() -> None:
    cluster, members = cluster_of(3)
    create(members[0], [0, 1, 2])
    members[0].stop()
    assert partition_of(cluster).leader == 1
    assert_agreed(cluster, members)


def test_a_single_node_stops_at_once_although_nobody_else_can_lead() -> None:
    cluster, (member,) = cluster_of(1)
    create(member, [0])
    before_ms = cluster.loop.clock.monotonic_ms()
    member.stop()
    assert cluster.loop.clock.monotonic_ms() - before_ms < 1000


def test_a_failed_log_dir_moves_leaders_away() -> None:
    """V19: found out by a notification, acted on by the answer to LeaderAndIsr."""
    cluster, members = cluster_of(3)
    topic = create(members[0], [1, 0, 2])
    cluster.disks[1].failed.add((topic.topic_id, 0))
    members[1].metadata.log_dir_failed()
    assert cluster.loop.run_until(lambda: partition_of(cluster).leader == 0)
    assert partition_of(cluster).isr == (0, 2)
    cluster.loop.run_for(5000)
    assert cluster.paths("/log_dir_event_notification") == ["/log_dir_event_notification"]


def test_whoever_deletes_the_controller_node_makes_for_another_election() -> None:
    cluster, members = cluster_of(3)
    cluster.delete("/controller")

    def is_second() -> bool:
        return [member.metadata.controller_epoch for member in controllers(members)] == [2]

    assert cluster.loop.run_until(is_second)
    assert_agreed(cluster, members)
    (topic,) = controllers(members)[0].create(NewTopic(name="t", replication_factor=3))
    assert isinstance(topic, TopicInfo)


def test_what_is_asked_of_a_new_controller_waits_until_it_has_read_the_tree() -> None:
    cluster, members = cluster_of(2)
    members[0].create(NewTopic(name="many", partition_count=500, replication_factor=2))
    cluster.kill(members[0])
    assert cluster.loop.run_until(lambda: members[1].metadata.controller is not None)
    assert not members[1].is_controller, "it is still reading"
    (topic,) = members[1].create(NewTopic(name="t"))
    assert isinstance(topic, TopicInfo)


@pytest.mark.parametrize("broker_id", [1, 2])
def test_only_the_controller_makes_topics_and_says_who_it_is(broker_id: int) -> None:
    _, members = cluster_of(3)
    (error,) = members[broker_id].create(NewTopic(name="t"))
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.not_controller
    assert "the broker 0" in error.message
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        members[broker_id].metadata.list_reassignments(None)
