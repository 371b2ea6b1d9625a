"""Getting the controller's office and losing it: X16, D11."""

import pytest

from support.agreement import assert_agreed, topics_in_tree
from support.members import Cluster
from tidelog.base.coordination import Check
from tidelog.cluster.image import TopicInfo
from tidelog.cluster.requests import NewTopic
from tidelog.cluster.state_writing import Outcome, Planned, StateWriter


@pytest.mark.parametrize("seed", range(10))
def test_an_election_whose_answer_was_lost_is_not_held_again(seed: int) -> None:
    """X16: both nodes are read again and compared."""
    cluster = Cluster(seed)
    member = cluster.member(0)
    losses: list[str] = []

    def lose(path: str) -> None:
        if path == "/controller" and not losses:
            losses.append(path)
            cluster.loop.call_soon(member.coordination.lose_connection)

    cluster.ensemble.on_write = lose
    assert member.start() is None
    assert losses
    assert member.metadata.controller_epoch == 1
    assert cluster.data("/controller_epoch") == b"1"


def test_a_deposed_controller_writes_no_state() -> None:
    """D11, V20: its session lives, but its epoch is over; it finds out by the first write."""
    cluster = Cluster()
    members = [cluster.started(number) for number in range(3)]
    (topic,) = members[0].create(NewTopic(name="t", assignment={0: [1, 0, 2]}))
    assert isinstance(topic, TopicInfo)
    cluster.put("/controller_epoch", b"7")
    written: list[int] = []
    cluster.ensemble.on_write = lambda path: (
        written.append(topics_in_tree(cluster)["t"].partitions[0].controller_epoch)
        if path.endswith("/state")
        else None
    )
    cluster.kill(members[1])
    assert_agreed(cluster, members)
    cluster.loop.run_for(5000)
    assert_agreed(cluster, members)
    assert topics_in_tree(cluster)["t"].partitions[0].leader == 0
    assert set(written) == {8}, "only the next controller has written"


def test_states_are_tried_singly_when_one_of_them_is_another_by_now() -> None:
    """D11: one leader that was quicker holds up no other partition."""
    cluster = Cluster()
    members = [cluster.started(number) for number in range(3)]
    members[0].create(NewTopic(name="t", assignment={n: [1, 0, 2] for n in range(120)}))
    path = "/brokers/topics/t/partitions/50/state"
    cluster.put(path, cluster.data(path))
    sizes: list[int] = []
    cluster.ensemble.on_attempt = lambda operations: sizes.append(
        sum(operation.path.endswith("/state") for operation in operations)
    )
    cluster.kill(members[1])
    assert_agreed(cluster, members)
    assert {p.leader for p in topics_in_tree(cluster)["t"].partitions} == {0}
    assert max(sizes) == 99
    assert sizes.count(1) >= 99


def test_a_change_planned_for_a_topic_that_was_made_anew_is_not_tried_again() -> None:
    """Its nodes have the same names and versions: it would be taken for the new one's."""
    cluster = Cluster()
    member = cluster.started()
    member.create(NewTopic(name="t", partition_count=2))
    topic = topics_in_tree(cluster)["t"]
    outcomes: list[Outcome] = []
    version = cluster.ensemble.tree.get("/controller_epoch").stat.version
    fence = Check(path="/controller_epoch", version=version)
    writer = StateWriter(member.coordination, fence, lambda change: change.name != ("t", 0))
    first, second = (
        Planned(name=("t", index), before=partition, after=partition)
        for index, partition in enumerate(topic.partitions)
    )
    cluster.put("/brokers/topics/t/partitions/1/state", b"{}")
    writer.write([first, second], {"t": topic}, outcomes.append)
    assert cluster.loop.run_until(lambda: bool(outcomes))
    assert outcomes[0].done == []
    assert outcomes[0].unsure == [first, second]
    assert cluster.ensemble.tree.get("/brokers/topics/t/partitions/0/state").stat.version == 0
