"""Whatever happens to controllers and messages, in the end all agree, and what was answered is
there: E1, V9, V20, H4."""

from functools import partial

import pytest

from support.agreement import assert_agreed, controllers, topics_in_tree
from support.members import Cluster, Member
from tidelog.base.errors import KafkaError
from tidelog.cluster.image import TopicInfo
from tidelog.cluster.requests import NewTopic, Reassignment
from tidelog.world.sim.coordination import CoordinationFaults

PARTITIONS = 60


def work(members: list[Member], answered: dict[str, object]) -> None:
    """Asks for one of everything, without waiting for any answer."""
    metadata = members[0].metadata
    new = [NewTopic(name=f"new{n}", partition_count=PARTITIONS) for n in range(2)]
    metadata.create_topics(new, False, partial(answered.__setitem__, "create"))
    metadata.create_partitions([("old", 90, None)], False, partial(answered.__setitem__, "grow"))
    metadata.delete_topics(["gone"], partial(answered.__setitem__, "delete"))
    moved = [Reassignment(topic="moved", partition=0, replicas=(1, 2))]
    metadata.alter_reassignments(moved, partial(answered.__setitem__, "move"))


def succeeded(answered: dict[str, object], what: str) -> bool:
    results = answered.get(what)
    return isinstance(results, list) and not any(isinstance(r, KafkaError) for r in results)


@pytest.mark.parametrize("writes", range(1, 22))
def test_a_controller_that_dies_in_the_middle_of_everything(writes: int) -> None:
    """After each of its writes; the next one finishes what was begun."""
    cluster = Cluster(seed=writes)
    members = [cluster.started(number) for number in range(3)]
    for name in ("old", "gone"):
        members[0].create(NewTopic(name=name, partition_count=PARTITIONS, replication_factor=2))
    members[0].create(NewTopic(name="moved", assignment={0: [0, 1]}))
    assert_agreed(cluster, members)
    answered: dict[str, object] = {}
    cluster.kill_after(members[0], writes)
    work(members, answered)
    cluster.loop.run_until(lambda: members[0].is_dead, 10_000)
    if not members[0].is_dead:
        cluster.kill(members[0])
    cluster.forget_the_dead()
    assert_agreed(cluster, members)
    tree = topics_in_tree(cluster)
    if succeeded(answered, "create"):
        assert {"new0", "new1"} <= tree.keys()
    if succeeded(answered, "grow"):
        assert len(tree["old"].partitions) == 90
    if succeeded(answered, "delete"):
        assert "gone" not in tree
    if succeeded(answered, "move"):
        assert 2 in tree["moved"].partitions[0].replicas
    again = cluster.started(0)
    assert_agreed(cluster, [*members[1:], again])


class Epochs:
    """V9: no leader epoch and no version of a state ever falls, and one epoch has one leader."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen: dict[tuple[bytes, int], tuple[int, int, int]] = {}

    def look(self) -> None:
        for topic in topics_in_tree(self._cluster).values():
            for number, partition in enumerate(topic.partitions):
                now = (partition.leader_epoch, partition.state_version, partition.leader)
                was = self._seen.get((topic.topic_id, number), now)
                assert now[:2] >= was[:2]
                assert now[0] > was[0] or now[2] == was[2], "one epoch, one leader"
                self._seen[topic.topic_id, number] = now


@pytest.mark.parametrize("seed", range(40))
def test_after_any_faults_all_agree_again(seed: int) -> None:
    """H4: lost connections, expired sessions, lost and late messages, deaths and returns."""
    cluster = Cluster(seed)
    draws = cluster.loop.choices.stream("story")
    members = [cluster.started(number) for number in range(4)]
    for number in range(3):
        new = NewTopic(name=f"t{number}", partition_count=3, replication_factor=3)
        members[0].create(new)
    epochs = Epochs(cluster)
    made: set[str] = set()
    answers: list[list[TopicInfo | KafkaError]] = []
    for step in range(25):
        _fault(cluster, members, draws.randint(0, 9))
        for member in controllers(members)[:1]:
            new = NewTopic(name=f"n{step}", partition_count=2, replication_factor=1)
            member.metadata.create_topics([new], False, answers.append)
        cluster.loop.run_for(draws.randint(1, 4000))
        epochs.look()
        made |= {t.name for found in answers for t in found if isinstance(t, TopicInfo)}
    cluster.exchange.faults.lost = cluster.exchange.faults.late = 0.0
    cluster.exchange.cut.clear()
    for number, member in enumerate(members):
        member.coordination.faults = CoordinationFaults()
        if member.is_dead:
            members[number] = cluster.started(number)
    assert_agreed(cluster, members, 120_000)
    epochs.look()
    assert made <= topics_in_tree(cluster).keys()
    assert all(p.leader != -1 for t in topics_in_tree(cluster).values() for p in t.partitions)


def _fault(cluster: Cluster, members: list[Member], kind: int) -> None:
    draws = cluster.loop.choices.stream("faults")
    number = draws.randrange(len(members))
    member, other = members[number], members[draws.randrange(len(members))]
    alive = [m for m in members if not m.is_dead]
    if kind == 0 and len(alive) > 2 and not member.is_dead:
        cluster.kill(member)
    elif kind == 1 and len(alive) > 2 and not member.is_dead:
        member.die()
    elif kind in (2, 3) and member.is_dead:
        members[number] = cluster.member(number)
        members[number].begin(lambda _error: None)
    elif kind == 4 and not member.is_dead:
        member.coordination.expire()
    elif kind == 5 and not member.is_dead:
        member.coordination.lose_connection(away_ms=draws.choice((10, 1000, 25_000)))
    elif kind == 6:
        ids = frozenset((member.metadata.broker_id, other.metadata.broker_id))
        cluster.exchange.cut ^= {ids}
    elif kind == 7:
        cluster.exchange.faults.lost = draws.choice((0.0, 0.1, 0.4))
        cluster.exchange.faults.late = draws.choice((0.0, 0.1, 0.4))
    elif kind == 8:
        member.coordination.faults = CoordinationFaults(lost_before=0.02, lost_after=0.02)


def test_a_failover_with_a_thousand_partitions() -> None:
    """A controller failover with 1,000 partitions finishes, and what is asked for happens."""
    cluster = Cluster()
    members = [cluster.started(number) for number in range(3)]
    members[0].create(NewTopic(name="many", partition_count=1000, replication_factor=3))
    cluster.kill(members[0])
    assert cluster.loop.run_until(lambda: bool(controllers(members[1:])))
    (topic,) = controllers(members[1:])[0].create(NewTopic(name="t", replication_factor=2))
    assert isinstance(topic, TopicInfo)
    assert_agreed(cluster, members, 2000)
    assert all(0 not in p.isr for p in topics_in_tree(cluster)["many"].partitions)
