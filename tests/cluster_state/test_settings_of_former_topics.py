"""Settings of a topic that was deleted are not those of the next one of its name: T6."""

import pytest

from support.members import Cluster, Member
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.requests import NewTopic

PATH = "/config/topics/t"


def with_slow_member(**configs: str) -> tuple[Cluster, Member, Member]:
    """The controller, and a broker that is far from the coordinator. Both know a topic."""
    cluster = Cluster()
    first, member = cluster.started(0), cluster.started(1)
    named: dict[str, str | None] = {k.replace("_", "."): v for k, v in configs.items()}
    first.create(NewTopic(name="t", configs=named))
    assert cluster.loop.run_until(lambda: "t" in member.metadata.image.topics)
    member.coordination.faults.delay_ms_max = 300
    return cluster, first, member


def make_again_when_read(cluster: Cluster, first: Member, member: Member) -> list[str]:
    """Before the slow broker has the answer, the topic is deleted and made again."""
    reads: list[str] = []

    def read(path: str) -> None:
        if path == PATH and not reads:
            reads.append(path)
            member.coordination.faults.delay_ms_max = 5_000
            first.metadata.delete_topics(["t"], deleted)

    def deleted(_results: object) -> None:
        first.metadata.create_topics([NewTopic(name="t")], False, lambda _: None)

    cluster.ensemble.on_read = read
    return reads


def test_settings_that_are_read_late_are_not_put_on_the_next_topic() -> None:
    """A broker reads what was announced of the one, and is told of the other before it has the
    answer."""
    cluster, first, member = with_slow_member()
    former = member.metadata.image.topics["t"].topic_id
    assert first.alter("topic", "t", {"retention.ms": ("set", "1000")}) == [None]
    cluster.loop.run_for(20)
    reads = make_again_when_read(cluster, first, member)
    cluster.loop.run_for(60_000)
    assert reads
    topic = member.metadata.image.topics["t"]
    assert topic.topic_id != former
    assert topic.config == {}


@pytest.mark.parametrize("is_told", [True, False])
def test_a_change_made_from_a_former_topics_settings_is_not_written(is_told: bool) -> None:
    """The versions of nodes begin anew with every topic of that name."""
    cluster, first, member = with_slow_member(retention_ms="1000")
    if not is_told:
        cluster.exchange.cut.add(frozenset((0, 1)))
    reads = make_again_when_read(cluster, first, member)
    (result,) = member.alter("topic", "t", {"segment.ms": ("set", "7000")})
    assert reads
    written = cluster.json(PATH)["config"]
    if is_told:
        assert result is None
        assert written == {"segment.ms": "7000"}
    else:
        assert isinstance(result, KafkaError)
        assert result.code is ErrorCode.unknown_topic_or_partition
        assert written == {}
