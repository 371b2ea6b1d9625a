"""What a controller is asked to do: move replicas, move leaders, delete: T3, T6, E4."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest

from support.agreement import assert_agreed, topics_in_tree
from support.members import Cluster, Member
from tidelog.base.coordination import CoordinationError, Operation, SetData, Trouble
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicIdPartition
from tidelog.cluster import paths
from tidelog.cluster.image import PartitionInfo, TopicInfo
from tidelog.cluster.isr_change import expanded
from tidelog.cluster.isr_writes import IsrWriter, Wrote
from tidelog.cluster.reading import TopicRead, read_topic_part
from tidelog.cluster.reassignment import started
from tidelog.cluster.requests import ElectionKind, NewTopic, Reassignment
from tidelog.cluster.topic_nodes import changed_state, topic_data, written
from tidelog.world.sim.coordination import CoordinationFaults


def cluster_of(count: int, replicas: list[int], **settings: str) -> tuple[Cluster, list[Member]]:
    cluster = Cluster()
    members = [cluster.started(number, **settings) for number in range(count)]
    (topic,) = members[0].create(NewTopic(name="t", assignment={0: replicas}))
    assert isinstance(topic, TopicInfo)
    return cluster, members


def partition(cluster: Cluster) -> PartitionInfo:
    return topics_in_tree(cluster)["t"].partitions[0]


def reassign(member: Member, replicas: Sequence[int] | None) -> KafkaError | None:
    target = None if replicas is None else tuple(replicas)
    wanted = [Reassignment(topic="t", partition=0, replicas=target)]
    results: list[list[KafkaError | None]] = []
    member.metadata.alter_reassignments(wanted, results.append)
    assert member.loop.run_until(lambda: bool(results))
    return results[0][0]


def elect(
    member: Member, kind: ElectionKind, names: list[tuple[str, int]] | None
) -> dict[tuple[str, int], ErrorCode | None]:
    results: list[dict[tuple[str, int], KafkaError | None]] = []
    member.metadata.elect_leaders(kind, names, results.append)
    assert member.loop.run_until(lambda: bool(results))
    return {n: None if error is None else error.code for n, error in results[0].items()}


def catch_up(cluster: Cluster, members: list[Member], follower: int) -> None:
    """The leader takes a follower into the ISR, and announces it."""
    before = partition(cluster)
    outcomes: list[object] = []
    leader = members[before.leader]
    after = expanded(before, follower, members[follower].metadata.broker_epoch, 1)
    name = TopicIdPartition(topics_in_tree(cluster)["t"].topic_id, "t", 0)
    IsrWriter(leader.coordination).write(name, before, after, outcomes.append)
    assert cluster.loop.run_until(lambda: bool(outcomes))
    assert isinstance(outcomes[0], Wrote), outcomes
    leader.metadata.isr_changed("t", 0)


def test_replicas_move_when_the_new_ones_have_caught_up() -> None:
    """T3: from brokers 0 and 1 to 2 and 3."""
    cluster, members = cluster_of(4, [0, 1])
    topic_id = topics_in_tree(cluster)["t"].topic_id
    assert reassign(members[0], [2, 3]) is None
    assert_agreed(cluster, members)
    found = partition(cluster)
    assert (set(found.replicas), set(found.adding_replicas)) == ({0, 1, 2, 3}, {2, 3})
    (shown,) = members[0].metadata.list_reassignments(None)
    assert (set(shown.adding), set(shown.removing)) == ({2, 3}, {0, 1})
    assert members[0].metadata.list_reassignments({"t": [1]}) == []
    assert set(members[2].host.states) == {(topic_id, 0)}
    for follower in (2, 3):
        catch_up(cluster, members, follower)
    assert cluster.loop.run_until(lambda: partition(cluster).replicas == (2, 3))
    assert_agreed(cluster, members)
    found = partition(cluster)
    assert (found.leader, set(found.isr), found.adding_replicas) == (2, {2, 3}, ())
    assert members[0].host.disk.replicas == members[1].host.disk.replicas == {}
    assert members[0].metadata.list_reassignments(None) == []


def test_a_topic_that_is_read_while_its_replicas_move_is_of_before_or_of_after() -> None:
    """Its node and its states are written together, and read one after the other. Whoever leads
    takes a state that it knows for no news, so it must not be told with the replicas of before."""
    cluster, members = cluster_of(4, [0, 1])
    moved = started(partition(cluster), [2, 3], controller_epoch=1)
    assert moved is not None
    topic = replace(topics_in_tree(cluster)["t"], partitions=(moved,))
    move: list[Operation] = [
        SetData(path=paths.topic("t"), data=topic_data(topic), version=topic.version),
        *changed_state("t", 0, moved),
    ]

    def on_read(path: str) -> None:
        if path == paths.topic("t"):
            del cluster.ensemble.on_read
            cluster.ensemble.write(members[1].coordination.session_id, move)

    cluster.ensemble.on_read = on_read
    found: list[TopicRead] = []
    read_topic_part(members[0].coordination, "t", [0], found.append)
    assert cluster.loop.run_until(lambda: bool(found))
    (read,) = found
    assert isinstance(read, TopicInfo)
    assert read.partitions == (written(moved),)
    assert read.version == topic.version + 1


def test_a_reassignment_outlives_its_controller() -> None:
    cluster, members = cluster_of(4, [1, 2])
    assert reassign(members[0], [2, 3]) is None
    cluster.kill(members[0])
    assert cluster.loop.run_until(lambda: any(m.is_controller for m in members[1:]))
    catch_up(cluster, members, 3)
    assert cluster.loop.run_until(lambda: partition(cluster).replicas == (2, 3))
    assert_agreed(cluster, members[1:])
    assert cluster.disks[1].replicas == {}


def test_a_reassignment_can_be_cancelled() -> None:
    """T3."""
    cluster, members = cluster_of(3, [0, 1])
    error = reassign(members[0], None)
    assert error is not None
    assert error.code is ErrorCode.no_reassignment_in_progress
    assert reassign(members[0], [1, 2]) is None
    assert_agreed(cluster, members)
    assert reassign(members[0], None) is None
    assert cluster.loop.run_until(lambda: set(partition(cluster).replicas) == {0, 1})
    assert_agreed(cluster, members)
    assert members[2].host.disk.replicas == {}


def test_a_leader_that_has_restarted_does_not_lead_by_a_reassignment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D9, X18: whatever it has lost meanwhile, it would lead without that. The wish has its turn
    just when the controller hears that the leader is another process."""
    cluster, members = cluster_of(4, [1, 2])
    members[0].coordination.faults = CoordinationFaults(delay_ms_max=60)
    controller = members[0].metadata.controller
    assert controller is not None
    held_by = controller.wishes.held_by
    results: list[list[KafkaError | None]] = []
    written: list[tuple[int, int]] = []

    def wish_and_look(changed: Collection[int]) -> list[tuple[str, int]]:
        wanted = [Reassignment(topic="t", partition=0, replicas=(2, 3))]
        controller.wishes.alter_reassignments(wanted, results.append)
        return list(held_by(changed))

    def is_done() -> bool:
        found = partition(cluster)
        if (found.leader_epoch, found.leader) not in written:
            written.append((found.leader_epoch, found.leader))
        return bool(results) and found.leader == 2

    monkeypatch.setattr(controller.wishes, "held_by", wish_and_look)
    cluster.kill(members[1])
    cluster.member(1).begin(lambda _: None)
    assert cluster.loop.run_until(is_done)
    assert results == [[None]]
    assert [leader for _, leader in written] == [1, 2, 2][: len(written)]


def test_who_was_deposed_grants_nothing_even_if_it_would_write_nothing() -> None:
    """D11: its image may be old."""
    cluster, members = cluster_of(3, [0, 1])
    assert reassign(members[0], [0, 1]) is None
    members[1].coordination.write([SetData(path="/controller_epoch", data=b"9")], lambda _: None)
    cluster.loop.run_for(100)
    error = reassign(members[0], [0, 1])
    assert error is not None
    assert error.code is ErrorCode.not_controller


@pytest.mark.parametrize(
    ("topic", "number", "replicas", "code"),
    [
        ("t", 0, (0, 9), ErrorCode.invalid_replica_assignment),
        ("t", 0, (1, 1), ErrorCode.invalid_replica_assignment),
        ("t", 0, (), ErrorCode.invalid_replica_assignment),
        ("t", 1, (0,), ErrorCode.unknown_topic_or_partition),
        ("u", 0, (0,), ErrorCode.unknown_topic_or_partition),
    ],
)
def test_a_reassignment_that_cannot_be_is_refused(
    topic: str, number: int, replicas: tuple[int, ...], code: ErrorCode
) -> None:
    cluster, members = cluster_of(3, [0, 1])
    before = cluster.data("/brokers/topics/t")
    wanted = [Reassignment(topic=topic, partition=number, replicas=replicas)]
    results: list[list[KafkaError | None]] = []
    members[0].metadata.alter_reassignments(wanted, results.append)
    assert cluster.loop.run_until(lambda: bool(results))
    assert isinstance(results[0][0], KafkaError)
    assert results[0][0].code is code
    assert cluster.data("/brokers/topics/t") == before


def test_many_partitions_of_one_topic_are_reassigned_together() -> None:
    cluster = Cluster()
    members = [cluster.started(number) for number in range(3)]
    assignment = {number: [0] for number in range(250)}
    members[0].create(NewTopic(name="t", assignment=assignment))
    wanted = [Reassignment(topic="t", partition=n, replicas=(0, 1)) for n in range(250)]
    results: list[list[KafkaError | None]] = []
    members[0].metadata.alter_reassignments(wanted, results.append)
    assert cluster.loop.run_until(lambda: bool(results))
    assert results[0] == [None] * 250
    assert_agreed(cluster, members)
    assert all(p.adding_replicas == (1,) for p in topics_in_tree(cluster)["t"].partitions)


def refuse_nodes_above(cluster: Cluster, bytes_max: int) -> list[str]:
    """As the adapter does for ZooKeeper; the paths that were refused."""
    refused: list[str] = []

    def attempt(operations: Sequence[Operation]) -> None:
        for each in operations:
            if isinstance(each, SetData) and len(each.data) > bytes_max:
                refused.append(each.path)
                raise CoordinationError(Trouble.bad_arguments, each.path)

    cluster.ensemble.on_attempt = attempt
    return refused


def test_moves_that_do_not_fit_into_the_node_of_their_topic_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """T3: there are too many at a time, and they hold up nothing else."""
    cluster = Cluster()
    members = [cluster.started(number) for number in range(4)]
    count = 200
    members[0].create(NewTopic(name="t", assignment={n: [0, 1] for n in range(count)}))
    bytes_max = 2 * len(cluster.data("/brokers/topics/t"))
    monkeypatch.setattr("tidelog.cluster.node_room.NODE_BYTES_MAX", bytes_max)
    refused = refuse_nodes_above(cluster, bytes_max)
    wanted = [Reassignment(topic="t", partition=n, replicas=(2, 3)) for n in range(count)]
    results: list[list[KafkaError | None]] = []
    members[0].metadata.alter_reassignments(wanted, results.append)
    assert cluster.loop.run_until(lambda: bool(results))
    errors = [error for error in results[0] if error is not None]
    assert {error.code for error in errors} == {ErrorCode.invalid_replica_assignment}
    moving = topics_in_tree(cluster)["t"].partitions
    assert [bool(one.adding_replicas) for one in moving] == [e is None for e in results[0]]
    assert count / 4 < len(errors) < count
    assert refused == []
    assert isinstance(members[0].create(NewTopic(name="u"))[0], TopicInfo)


def test_a_write_that_cannot_be_asked_for_is_tried_again_after_a_while() -> None:
    cluster, members = cluster_of(4, [0, 1])
    refused = refuse_nodes_above(cluster, 10)
    wanted = [Reassignment(topic="t", partition=0, replicas=(2, 3))]
    results: list[list[KafkaError | None]] = []
    members[0].metadata.alter_reassignments(wanted, results.append)
    cluster.loop.run_for(10_000)
    assert refused == ["/brokers/topics/t"] * 10
    refuse_nodes_above(cluster, 1_000)
    assert cluster.loop.run_until(lambda: bool(results))
    assert results == [[None]]


def test_the_preferred_replica_leads_again_on_request() -> None:
    """E4."""
    cluster, members = cluster_of(3, [1, 0], auto_leader_rebalance_enable="false")
    cluster.kill(members[1])
    assert cluster.loop.run_until(lambda: partition(cluster).leader == 0)
    members[1] = cluster.started(1)
    unavailable = ErrorCode.preferred_leader_not_available
    assert elect(members[0], "preferred", [("t", 0)]) == {("t", 0): unavailable}
    catch_up(cluster, members, 1)
    cluster.loop.run_for(5000)
    assert elect(members[0], "preferred", [("t", 0), ("t", 5)]) == {
        ("t", 0): None,
        ("t", 5): ErrorCode.unknown_topic_or_partition,
    }
    assert partition(cluster).leader == 1
    not_needed = ErrorCode.election_not_needed
    assert elect(members[0], "preferred", [("t", 0)]) == {("t", 0): not_needed}
    assert elect(members[0], "preferred", None) == {}
    assert_agreed(cluster, members)


def lose_next_answer(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next write of a state is done, but the connection is lost over it."""
    coordination = member.coordination
    write = coordination.write

    def written(operations: Sequence[Operation], done: Callable[[Any], None]) -> None:
        write(operations, done)
        if any(isinstance(operation, SetData) for operation in operations):
            monkeypatch.undo()
            coordination.lose_connection(done=1)

    monkeypatch.setattr(coordination, "write", written)


@pytest.mark.parametrize("what", ["move", "cancel", "elect"])
def test_what_was_done_is_granted_although_the_answer_was_lost(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """T3, E4: it is no longer needed then, but not because it was not."""
    cluster, members = cluster_of(3, [1, 0], auto_leader_rebalance_enable="false")
    if what == "elect":
        cluster.kill(members[1])
        assert cluster.loop.run_until(lambda: partition(cluster).leader == 0)
        members[1] = cluster.started(1)
        catch_up(cluster, members, 1)
    elif what == "cancel":
        assert reassign(members[0], [1, 2]) is None
    cluster.loop.run_for(10_000)
    before = partition(cluster).leader_epoch
    lose_next_answer(members[0], monkeypatch)
    if what == "elect":
        assert elect(members[0], "preferred", [("t", 0)]) == {("t", 0): None}
    else:
        assert reassign(members[0], [1, 2] if what == "move" else None) is None
    assert partition(cluster).leader_epoch == before + 1
    assert_agreed(cluster, members)


def test_preferred_replicas_lead_again_after_a_while() -> None:
    """E4."""
    cluster, members = cluster_of(3, [1, 0], leader_imbalance_check_interval_seconds="60")
    cluster.kill(members[1])
    assert cluster.loop.run_until(lambda: partition(cluster).leader == 0)
    members[1] = cluster.started(1)
    catch_up(cluster, members, 1)
    cluster.loop.run_for(5000)
    assert partition(cluster).leader == 0
    assert cluster.loop.run_until(lambda: partition(cluster).leader == 1, 61_000)
    assert_agreed(cluster, members)


def test_an_unclean_election_on_request_leads_by_whoever_lives() -> None:
    """E3."""
    cluster, members = cluster_of(3, [1, 2])
    cluster.kill(members[2])
    assert cluster.loop.run_until(lambda: partition(cluster).isr == (1,))
    assert elect(members[0], "unclean", [("t", 0)]) == {("t", 0): ErrorCode.election_not_needed}
    cluster.kill(members[1])
    assert cluster.loop.run_until(lambda: partition(cluster).leader == -1)
    none_alive = ErrorCode.eligible_leaders_not_available
    assert elect(members[0], "unclean", [("t", 0)]) == {("t", 0): none_alive}
    again = cluster.started(2)
    cluster.loop.run_for(5000)
    assert elect(members[0], "unclean", [("t", 0)]) == {("t", 0): None}
    assert (partition(cluster).leader, partition(cluster).isr) == (2, (2,))
    assert_agreed(cluster, [members[0], again])


def test_a_topic_that_was_deleted_while_a_broker_was_down_is_deleted_there_too() -> None:
    """T6."""
    cluster, members = cluster_of(3, [0, 1, 2])
    (kept,) = members[0].create(NewTopic(name="kept", assignment={0: [2]}))
    assert isinstance(kept, TopicInfo)
    assert_agreed(cluster, members)
    cluster.kill(members[2])
    (deleted,) = members[0].delete("t")
    assert isinstance(deleted, TopicInfo)
    assert not cluster.exists("/brokers/topics/t"), "it waits for nobody"
    assert (deleted.topic_id, 0) in cluster.disks[2].replicas
    (again,) = members[0].create(NewTopic(name="t", assignment={0: [0, 1]}))
    assert isinstance(again, TopicInfo)
    returned = cluster.started(2)
    assert set(returned.host.disk.replicas) == {(kept.topic_id, 0)}
    assert_agreed(cluster, [*members[:2], returned])


def test_a_topic_that_is_made_again_at_once_is_another_everywhere() -> None:
    """The replicas of the one that was deleted are stopped before the new one is told of."""
    cluster, members = cluster_of(3, [0, 1, 2])
    for _ in range(5):
        members[0].delete("t")
        members[0].create(NewTopic(name="t", assignment={0: [0, 1, 2]}))
    assert_agreed(cluster, members)
    topic_id = topics_in_tree(cluster)["t"].topic_id
    assert all(set(member.host.disk.replicas) == {(topic_id, 0)} for member in members)


def test_a_topic_with_less_than_its_min_isr_is_looked_at_when_that_changes() -> None:
    """A setting that elections go by acts without an election."""
    cluster, members = cluster_of(3, [1, 2, 0])
    assert members[0].alter("topic", "t", {"min.insync.replicas": ("set", "3")}) == [None]
    cluster.kill(members[1])
    assert cluster.loop.run_until(lambda: partition(cluster).leader == 2)
    assert partition(cluster).elr == (1,)
    assert members[2].alter("topic", "t", {"min.insync.replicas": ("set", "2")}) == [None]
    assert cluster.loop.run_until(lambda: partition(cluster).elr == (), 5000)
