"""Who may tell a broker anything: X16, X17, V20."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from support.agreement import assert_agreed
from support.members import Cluster, Member
from tidelog.base.control import (
    ControlRequest,
    LeaderAndIsrRequest,
    ReplicaStatesRequest,
    StopPartition,
    StopReplicaRequest,
    StopTopic,
    TopicState,
    UpdateMetadataRequest,
)
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.fencing import REMOVED_MAX, Fencing
from tidelog.cluster.image import PartitionInfo, TopicInfo
from tidelog.cluster.messages import partition_state
from tidelog.cluster.requests import NewTopic, Reassignment

Make = Callable[[int, int], ControlRequest]


def leader_and_isr(epoch: int, broker_epoch: int) -> ControlRequest:
    return LeaderAndIsrRequest(
        controller_id=9,
        controller_epoch=epoch,
        broker_epoch=broker_epoch,
        is_full=True,
        unreadable=(),
    )


def stop_replica(epoch: int, broker_epoch: int) -> ControlRequest:
    return StopReplicaRequest(controller_id=9, controller_epoch=epoch, broker_epoch=broker_epoch)


def update_metadata(epoch: int, broker_epoch: int) -> ControlRequest:
    return UpdateMetadataRequest(
        controller_id=9,
        controller_epoch=epoch,
        broker_epoch=broker_epoch,
        is_full=True,
        deleted_topic_ids=(),
        unreadable=(),
    )


def replica_states(epoch: int, broker_epoch: int) -> ControlRequest:
    return ReplicaStatesRequest(controller_id=9, controller_epoch=epoch, broker_epoch=broker_epoch)


def ask(member: Member, request: ControlRequest) -> Any:
    answers: list[Any] = []
    member.metadata.handle(request, answers.append)
    member.loop.run_until(lambda: bool(answers))
    return answers[0]


def move(controller: Member, *replicas: int) -> None:
    wanted = [Reassignment(topic="t", partition=0, replicas=replicas)]
    assert controller.ask(partial(controller.metadata.alter_reassignments, wanted)) == [None]


@pytest.mark.parametrize("make", [leader_and_isr, stop_replica, update_metadata, replica_states])
def test_an_older_controller_and_another_incarnation_are_refused(make: Make) -> None:
    """X16, X17."""
    cluster = Cluster()
    cluster.started(0).die()
    member = cluster.started(1)
    cluster.loop.run_for(40_000)
    assert member.metadata.controller_epoch == 2
    member.create(NewTopic(name="t"))
    (topic,) = member.metadata.image.topics.values()
    epoch = member.metadata.broker_epoch
    acted_on = len(member.host.requests)
    assert ask(member, make(1, epoch)).error_code == ErrorCode.stale_controller_epoch
    assert ask(member, make(2, epoch - 1)).error_code == ErrorCode.stale_broker_epoch
    assert ask(member, make(2, epoch + 1)).error_code == ErrorCode.stale_broker_epoch
    assert len(member.host.requests) == acted_on
    assert member.metadata.image.topics == {"t": topic}
    assert member.metadata.image.controller_id == 1


def test_a_broker_that_starts_knows_of_controllers_before_its_time() -> None:
    """A zombie's full request would delete what it does not know: it must not come first."""
    cluster = Cluster()
    cluster.started(0).die()
    cluster.loop.run_for(40_000)
    cluster.started(1)
    member = cluster.member(2)
    cluster.exchange.cut.add(frozenset((1, 2)))
    answers: list[Exception | None] = []
    member.begin(answers.append)
    assert cluster.loop.run_until(lambda: member.metadata.broker_epoch != -1)
    response = ask(member, leader_and_isr(1, member.metadata.broker_epoch))
    assert response.error_code == ErrorCode.stale_controller_epoch


def test_what_a_controller_says_to_a_broker_that_still_registers_is_heard() -> None:
    """It may see the registration before the broker knows its own epoch."""
    cluster = Cluster()
    cluster.started(0)
    member = cluster.member(1)
    member.coordination.faults.delay_ms_max = 40
    before = len(cluster.exchange.log)
    assert member.start() is None
    told = [request for _, to, request in cluster.exchange.log[before:] if to == 1]
    assert [type(request).__name__ for request in told] == [
        "UpdateMetadataRequest",
        "LeaderAndIsrRequest",
    ]


def test_a_full_request_that_arrives_late_undoes_nothing() -> None:
    cluster = Cluster()
    first, member = cluster.started(0), cluster.started(1)
    late = [request for _, to, request in cluster.exchange.log if to == 1]
    (topic,) = first.create(NewTopic(name="t", replication_factor=2))
    assert isinstance(topic, TopicInfo)
    assert_agreed(cluster, [first, member])
    for request in late:
        assert ask(member, request).error_code == ErrorCode.none
    assert "t" in member.metadata.image.topics
    assert (topic.topic_id, 0) in member.host.disk.replicas


def test_brokers_that_were_there_before_do_not_come_back_by_a_late_request() -> None:
    """Nor do addresses: who follows a leader at an old one would never reach it."""
    cluster = Cluster()
    cluster.started(0)
    member, other = cluster.started(1), cluster.started(2)
    late = [request for _, to, request in cluster.exchange.log if to == 1]
    assert len([request for request in late if isinstance(request, UpdateMetadataRequest)]) > 1
    cluster.kill(other)
    cluster.started(3)
    again = cluster.started(2)
    epoch = again.metadata.broker_epoch
    assert cluster.loop.run_until(lambda: sorted(member.metadata.image.brokers) == [0, 1, 2, 3])
    brokers = member.metadata.image.brokers
    for request in late:
        assert ask(member, request).error_code == ErrorCode.none
    assert member.metadata.image.brokers == brokers
    assert brokers[2].epoch == epoch


def test_a_topic_that_was_deleted_does_not_come_back_by_a_late_request() -> None:
    cluster = Cluster()
    first, member = cluster.started(0), cluster.started(1)
    first.create(NewTopic(name="t", replication_factor=2))
    late = [request for _, to, request in cluster.exchange.log if to == 1]
    first.delete("t")
    assert cluster.loop.run_until(lambda: not member.metadata.image.topics)
    for request in late:
        ask(member, request)
    assert member.metadata.image.topics == {}
    assert member.host.disk.replicas == {}


def test_a_replica_that_was_moved_away_does_not_come_back_by_a_late_request() -> None:
    """V9: it would be empty, and might lead in the epoch in which it did before."""
    cluster = Cluster()
    first, member = cluster.started(0), cluster.started(1)
    (topic,) = first.create(NewTopic(name="t", assignment={0: [1, 0]}))
    assert isinstance(topic, TopicInfo)
    assert_agreed(cluster, [first, member])
    late = [request for _, to, request in cluster.exchange.log if to == 1]
    move(first, 0)
    assert cluster.loop.run_until(lambda: not member.host.disk.replicas)
    for request in late:
        ask(member, request)
    assert member.host.disk.replicas == {}
    move(first, 0, 1)
    assert cluster.loop.run_until(lambda: (topic.topic_id, 0) in member.host.disk.replicas)


def stop_in(epoch: int) -> StopReplicaRequest:
    stop = StopPartition(index=0, leader_epoch=epoch, delete=True)
    topic = StopTopic(name="t", topic_id=bytes(16), partitions=(stop,))
    return StopReplicaRequest(controller_id=9, controller_epoch=1, broker_epoch=1, topics=(topic,))


@pytest.mark.parametrize("last", [8, -1])
def test_a_late_stop_does_not_let_in_what_a_later_one_has_shut_out(last: int) -> None:
    """X17: removed in epoch 5, back in 7, and removed again or with its topic."""
    fencing = Fencing()
    fencing.note_removed(stop_in(last))
    fencing.note_removed(stop_in(5))
    info = PartitionInfo(replicas=(1,), isr=(1,), leader=1, leader_epoch=7, state_version=7)
    topic = TopicState(name="t", topic_id=bytes(16), partitions=(partition_state(0, info),))
    late = LeaderAndIsrRequest(
        controller_id=9,
        controller_epoch=1,
        broker_epoch=1,
        is_full=False,
        topics=(topic,),
        unreadable=(),
    )
    assert fencing.without_removed(late).topics == ()


def test_only_so_many_removed_replicas_are_remembered() -> None:
    fencing = Fencing()
    fencing.registered(1)
    for number in range(REMOVED_MAX + 1):
        stop = StopPartition(index=number, leader_epoch=7, delete=True)
        topic = StopTopic(name="t", topic_id=bytes(16), partitions=(stop,))
        fencing.note_removed(
            StopReplicaRequest(controller_id=9, controller_epoch=1, broker_epoch=1, topics=(topic,))
        )
    assert len(fencing._removed) == REMOVED_MAX
    assert (bytes(16), REMOVED_MAX) in fencing._removed


def test_a_controller_that_lost_its_session_unnoticed_changes_nothing() -> None:
    """X16: it wakes up with a request at hand and another in its office."""
    cluster = Cluster()
    members = [cluster.started(number) for number in range(3)]
    (topic,) = members[0].create(NewTopic(name="t", replication_factor=3))
    assert isinstance(topic, TopicInfo)
    members[0].coordination.lose_connection(away_ms=30_000)
    assert cluster.loop.run_until(lambda: any(m.is_controller for m in members[1:]))
    assert members[0].metadata.controller_epoch == 1, "it does not know yet"
    (error,) = members[0].delete("t")
    assert isinstance(error, KafkaError)
    assert cluster.exists("/brokers/topics/t")
    assert_agreed(cluster, members)
    assert members[0].host.resigned == 1


def test_a_zombie_controller_is_refused_by_brokers_and_finds_out() -> None:
    """X16: a broker that it tells something knows of a later controller."""
    cluster = Cluster()
    members = [cluster.started(number) for number in range(3)]
    zombie = members[0].metadata.controller
    assert zombie is not None
    cluster.put("/controller_epoch", b"7")
    members[1].metadata._obeying.fencing.saw_controller(7)
    zombie._dispatch.brokers_changed(zombie.realm.image.brokers)
    assert cluster.loop.run_until(lambda: members[0].metadata.controller is not zombie, 5000)
    assert zombie.realm.is_over
