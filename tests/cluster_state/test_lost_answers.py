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
    other = cluster.started(1)
    deleting = set(other.metadata.image.deleting)
    known, found = member.metadata.image.topics, other.metadata.image.topics
    assert set(known) - deleting == set(found) - deleting
    for name in set(found) - deleting:
        assert known[name].topic_id == found[name].topic_id
        assert len(known[name].partitions) == len(found[name].partitions)
        assert known[name].version == found[name].version


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


def test_a_broker_whose_session_expired_can_no_longer_change_anything() -> None:
    cluster = Cluster()
    member = cluster.started()
    member.create(NewTopic(name="t"))
    member.coordination.expire()
    cluster.loop.run_for(1000)
    other = cluster.started(1)
    assert other.metadata.controller_epoch == 2
    (error,) = member.create(NewTopic(name="u"))
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.not_controller
    assert not cluster.exists("/brokers/topics/u")
