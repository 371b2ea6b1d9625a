"""A broker dies between any two of its writes: the next start finds all of it done, or none."""

from collections.abc import Callable

import pytest

from support.members import Cluster, Member
from tidelog.cluster.requests import NewTopic

PARTITIONS = 120
"""Several parts of a hundred operations each."""


def interrupt_everywhere(
    prepare: Callable[[Member], object],
    act: Callable[[Member], object],
    check: Callable[[Cluster, Member], None],
) -> int:
    """Repeats an action with a death after each of its writes; tells after how many it ended
    without one."""
    for writes in range(1, 100):
        cluster = Cluster(seed=writes)
        member = cluster.started()
        prepare(member)
        cluster.kill_after(member, writes)
        act(member)
        has_died = member.is_dead
        if not has_died:
            member.die()
        cluster.forget_the_dead()
        again = cluster.started()
        cluster.loop.run_for(1000)
        check(cluster, again)
        if not has_died:
            return writes - 1
    raise AssertionError("it never ends")


def assert_whole(cluster: Cluster, member: Member, name: str, count: int) -> None:
    """A topic's nodes are all there, and the image shows them."""
    topic = member.metadata.image.topics[name]
    assert len(topic.partitions) == count
    assert len(cluster.json(f"/brokers/topics/{name}")["partitions"]) == count
    states = [p for p in cluster.paths(f"/brokers/topics/{name}") if p.endswith("/state")]
    assert len(states) == count
    assert all(partition.leader == 0 for partition in topic.partitions)
    for number, partition in enumerate(topic.partitions):
        stat = cluster.ensemble.tree.get(f"/brokers/topics/{name}/partitions/{number}/state").stat
        assert partition.state_version == stat.version


def assert_gone(cluster: Cluster, member: Member, name: str) -> None:
    assert name not in member.metadata.image.topics
    assert name not in member.metadata.image.deleting
    assert not [path for path in cluster.paths() if name in path.split("/")]


def test_a_creation_that_was_interrupted_is_finished_or_never_began() -> None:
    def check(cluster: Cluster, member: Member) -> None:
        assert_whole(cluster, member, "t", PARTITIONS)
        assert cluster.json("/config/topics/t")["config"] == {"retention.ms": "5"}

    new = NewTopic(name="t", partition_count=PARTITIONS, configs={"retention.ms": "5"})
    writes = interrupt_everywhere(lambda _: None, lambda member: member.create(new), check)
    assert writes >= 3


def test_a_small_topic_is_made_in_one_write() -> None:
    new = NewTopic(name="t", partition_count=47)
    writes = interrupt_everywhere(
        lambda _: None,
        lambda member: member.create(new),
        lambda cluster, member: assert_whole(cluster, member, "t", 47),
    )
    assert writes == 1


def test_a_growth_that_was_interrupted_is_finished() -> None:
    writes = interrupt_everywhere(
        lambda member: member.create(NewTopic(name="t", partition_count=2)),
        lambda member: member.grow("t", PARTITIONS),
        lambda cluster, member: assert_whole(cluster, member, "t", PARTITIONS),
    )
    assert writes >= 3


def test_a_deletion_that_was_interrupted_is_finished() -> None:
    """T6."""
    writes = interrupt_everywhere(
        lambda member: member.create(NewTopic(name="t", partition_count=PARTITIONS)),
        lambda member: member.delete("t"),
        lambda cluster, member: assert_gone(cluster, member, "t"),
    )
    assert writes >= 4


def test_a_start_that_was_interrupted_anywhere_is_made_good_by_the_next() -> None:
    """Registration, election, new leader epochs, and a deletion that was marked."""
    for writes in range(1, 100):
        cluster = Cluster(seed=writes)
        first = cluster.started()
        first.create(NewTopic(name="t", partition_count=PARTITIONS), NewTopic(name="u"))
        first.die()
        cluster.forget_the_dead()
        cluster.put("/admin/delete_topics/u", b"")
        second = cluster.member()
        cluster.kill_after(second, writes)
        second.start()
        if not second.is_dead:
            assert writes >= 5
            return
        cluster.forget_the_dead()
        third = cluster.started()
        cluster.loop.run_for(1000)
        assert_whole(cluster, third, "t", PARTITIONS)
        assert_gone(cluster, third, "u")
        epochs = {
            partition.leader_epoch for partition in third.metadata.image.topics["t"].partitions
        }
        assert epochs <= {1, 2}
    raise AssertionError("it never ends")


@pytest.mark.parametrize("seed", range(30))
def test_what_was_answered_is_there_after_a_death_at_any_time(seed: int) -> None:
    """Requests one upon the other, a death somewhere, and a restart."""
    cluster = Cluster(seed)
    member = cluster.started()
    cluster.kill_after(member, 3 + seed)
    known: dict[str, int] = {}
    for number in range(12):
        name = f"t{number}"
        if member.create(NewTopic(name=name, partition_count=60)):
            known[name] = 60
        if number % 3 == 0 and member.grow(name, 80):
            known[name] = 80
        if number % 4 == 3 and member.delete(f"t{number - 1}"):
            del known[f"t{number - 1}"]
        if member.is_dead:
            break
    last = f"t{number}"
    cluster.forget_the_dead()
    again = cluster.started()
    for name, count in known.items():
        if name not in (last, f"t{number - 1}"):
            assert_whole(cluster, again, name, count)
        elif name in again.metadata.image.topics:
            assert_whole(cluster, again, name, len(again.metadata.image.topics[name].partitions))
    assert again.metadata.image.unreadable == {}
