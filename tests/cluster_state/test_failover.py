"""Whatever happens to controllers and messages, in the end all agree, and what was answered is
there: E1, V9, V20, H4."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from support.agreement import assert_agreed, controllers, topics_in_tree
from support.hostile_story import Story
from support.members import Cluster, Member
from tidelog.base.errors import KafkaError
from tidelog.cluster.image import TopicInfo
from tidelog.cluster.requests import NewTopic, Reassignment

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


@pytest.mark.parametrize("seed", range(25))
def test_after_any_faults_all_agree_again(seed: int) -> None:
    """H4, H5, V9, V10, V20: and what was answered is there, what was begun is finished."""
    story = Story(seed)
    for _ in range(40):
        story.step()
    story.heal()
    assert_agreed(story.cluster, story.members, 120_000)
    story.catch_up()
    assert_agreed(story.cluster, story.members, 120_000)
    tree = topics_in_tree(story.cluster)
    assert story.made - story.deleted <= tree.keys()
    assert story.cluster.paths("/admin/delete_topics") == ["/admin/delete_topics"]
    for name, topic in tree.items():
        config = story.cluster.json(f"/config/topics/{name}")["config"]
        assert all(m.metadata.image.topics[name].config == config for m in story.members)
        assert config.get("retention.ms") == story.altered.get(name, config.get("retention.ms"))
        for partition in topic.partitions:
            assert partition.leader != -1
            assert set(partition.isr) == set(partition.replicas)
            assert not partition.adding_replicas
            assert not partition.removing_replicas


def test_the_same_seed_tells_the_same_story_under_any_hash_seed() -> None:
    """V21."""
    code = (
        "import logging; logging.disable(50)\n"
        "from support.hostile_story import Story\n"
        "story, written = Story(3), []\n"
        "story.cluster.ensemble.on_write = written.append\n"
        "for _ in range(15): story.step()\n"
        "print(story.cluster.loop.clock.monotonic_ms(), written, story.cluster.exchange.log)\n"
    )
    folder = str(Path(__file__).parents[1])
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": folder},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(runs[0]) > 10_000


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
