"""When the connection to the coordinator is lost, nobody knows what was done: it is looked up.

Whatever the answers were, the image is then what stands in the tree, and a broker that starts
anew finds whole topics only.
"""

import pytest

from support.members import Cluster, Member
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.requests import NewTopic
from tidelog.world.sim.coordination import CoordinationFaults


def work(member: Member, number: int) -> list[object]:
    name = f"t{number}"
    return [
        *member.create(NewTopic(name=name, partition_count=80, configs={"segment.ms": "7"})),
        *member.grow(name, 130),
        *member.alter("topic", name, {"retention.ms": ("set", "5")}),
        *(member.delete(name) if number % 2 else []),
    ]


@pytest.mark.parametrize("seed", range(25))
def test_the_image_is_what_stands_in_the_tree(seed: int) -> None:
    cluster = Cluster(seed)
    member = cluster.member()
    assert member.start() is None
    member.coordination.faults = CoordinationFaults(lost_before=0.005, lost_after=0.005)
    results = [result for number in range(6) for result in work(member, number)]
    errors = [result for result in results if isinstance(result, KafkaError)]
    assert {error.code for error in errors} <= {
        ErrorCode.request_timed_out,
        ErrorCode.unknown_topic_or_partition,
    }
    member.coordination.faults = CoordinationFaults()
    cluster.loop.run_for(10_000)
    other = cluster.started(1)
    assert member.metadata.controller is not None
    governed = member.metadata.controller.realm.image
    deleting = set(governed.deleting)
    known, found = member.metadata.image.topics, other.metadata.image.topics
    assert set(known) == set(found) == set(governed.topics)
    standing = cluster.paths("/brokers/topics")
    there = {path.split("/")[3] for path in standing if path.count("/") == 3}
    assert there - deleting == set(found)
    for name, topic in governed.topics.items():
        assert known[name].topic_id == found[name].topic_id == topic.topic_id
        assert known[name].partitions == found[name].partitions == topic.partitions
        assert topic.version == cluster.ensemble.tree.get(f"/brokers/topics/{name}").stat.version
        for number, partition in enumerate(topic.partitions):
            path = f"/brokers/topics/{name}/partitions/{number}/state"
            assert partition.state_version == cluster.ensemble.tree.get(path).stat.version


@pytest.mark.parametrize("seed", range(10))
def test_a_restart_makes_whole_what_lost_answers_left_half_done(seed: int) -> None:
    cluster = Cluster(seed)
    member = cluster.member()
    assert member.start() is None
    member.coordination.faults = CoordinationFaults(lost_before=0.005, lost_after=0.005)
    for number in range(6):
        work(member, number)
    member.die()
    cluster.forget_the_dead()
    image = cluster.started().metadata.image
    assert not image.deleting
    assert not image.unreadable
    assert cluster.paths("/admin/delete_topics") == ["/admin/delete_topics"]
    for topic in image.topics.values():
        assert all(partition.leader == 0 for partition in topic.partitions)
        assert len(topic.partitions) in (80, 130)


def test_a_broker_whose_session_expired_is_no_controller_until_it_is_elected_again() -> None:
    """X22."""
    cluster = Cluster()
    member, other = cluster.started(0), cluster.started(1)
    member.create(NewTopic(name="t"))
    epoch = member.metadata.broker_epoch
    member.coordination.expire()
    assert cluster.loop.run_until(lambda: other.is_controller)
    assert other.metadata.controller_epoch == 2
    (error,) = member.create(NewTopic(name="u"))
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.not_controller
    assert cluster.loop.run_until(lambda: member.metadata.broker_epoch > epoch)
    assert not cluster.exists("/brokers/topics/u")
    assert member.host.resigned == 1


@pytest.mark.parametrize("after_ms", range(8))
def test_an_election_that_is_asked_for_while_the_session_ends_holds_up_nothing(
    after_ms: int,
) -> None:
    """Partitions are read before leaders are elected: who is deposed over it says so, and takes
    the next request."""
    cluster = Cluster()
    member, other = cluster.started(0), cluster.started(1)
    member.create(NewTopic(name="t"))
    answers: list[dict[tuple[str, int], KafkaError | None]] = []
    member.metadata.elect_leaders("preferred", [("t", 0)], answers.append)
    cluster.loop.run_for(after_ms)
    member.coordination.expire()
    assert cluster.loop.run_until(lambda: bool(answers))
    error = answers[0]["t", 0]
    assert error is not None
    assert error.code in (ErrorCode.not_controller, ErrorCode.election_not_needed)
    assert cluster.loop.run_until(lambda: other.is_controller)
    (refused,) = member.create(NewTopic(name="u"))
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.not_controller
