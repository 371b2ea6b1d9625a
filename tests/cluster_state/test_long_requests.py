"""Requests of many topics are done in groups: others come in between, and nothing else differs from
one that is done in one go (T1, T3, T6)."""

from collections.abc import Callable, Sequence

from support.members import Cluster, Member
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.groups import ITEMS_MAX, Groups
from tidelog.cluster.image import TopicInfo
from tidelog.cluster.metadata import ConfigChange, NewTopic
from tidelog.cluster.requests import Reassignment
from tidelog.cluster.standing import Results
from tidelog.cluster.topics import PARTITIONS_PER_REQUEST_MAX

MANY = 2 * ITEMS_MAX + 10


def new_topics(count: int = MANY) -> list[NewTopic]:
    return [NewTopic(name=f"t{number}") for number in range(count)]


def codes(results: list[TopicInfo | KafkaError]) -> list[ErrorCode | None]:
    return [result.code if isinstance(result, KafkaError) else None for result in results]


def test_groups_follow_one_another_each_in_a_turn_of_its_own() -> None:
    groups: list[list[int]] = []
    waiting: list[Callable[[], None]] = []
    answers: list[list[int | KafkaError]] = []

    def work(group: Sequence[int], answer: Results[int]) -> None:
        groups.append(list(group))
        answer([-number for number in group])

    Groups(range(MANY), work, answers.append).run(waiting.append)
    assert [len(group) for group in groups] == [ITEMS_MAX]
    assert not answers
    while waiting:
        waiting.pop()()
    assert [len(group) for group in groups] == [ITEMS_MAX, ITEMS_MAX, 10]
    assert answers == [[-number for number in range(MANY)]]


def test_a_request_of_nothing_is_answered_with_nothing() -> None:
    assert Cluster().started().create() == []
    assert Cluster().started().delete() == []


def test_many_topics_come_grow_change_and_go() -> None:
    member = Cluster().started()
    made = member.create(*new_topics())
    names = [f"t{number}" for number in range(MANY)]
    assert [topic.name for topic in made if isinstance(topic, TopicInfo)] == names
    grown: list[list[TopicInfo | KafkaError]] = []
    member.metadata.create_partitions([(name, 2, None) for name in names], False, grown.append)
    assert member.loop.run_until(lambda: bool(grown))
    assert codes(grown[0]) == [None] * MANY
    changes = [
        ConfigChange(kind="topic", name=name, changes={"retention.ms": ("set", "5")}, replace=False)
        for name in names
    ]
    assert member.alter_all(changes) == [None] * MANY
    topics = member.metadata.image.topics
    assert {(len(topic.partitions), topic.config["retention.ms"]) for topic in topics.values()} == {
        (2, "5")
    }
    assert codes(member.delete(*names)) == [None] * MANY
    assert topics == {}


def test_what_is_asked_for_behind_a_long_request_happens_after_it() -> None:
    cluster = Cluster()
    metadata = cluster.started().metadata
    results: list[list[TopicInfo | KafkaError]] = []
    metadata.create_topics(new_topics(), False, results.append)
    metadata.delete_topics([f"t{MANY - 1}"], results.append)
    assert cluster.loop.run_until(lambda: len(results) == 2)
    assert codes(results[0]) == [None] * MANY
    assert codes(results[1]) == [None]


def test_the_partitions_of_a_request_are_counted_over_all_its_groups() -> None:
    each = PARTITIONS_PER_REQUEST_MAX // ITEMS_MAX
    wanted = [NewTopic(name=f"t{n}", partition_count=each) for n in range(ITEMS_MAX + 1)]
    results = codes(Cluster().started().create(*wanted, validate_only=True))
    assert results == [None] * ITEMS_MAX + [ErrorCode.policy_violation]


def test_names_collide_across_groups_too() -> None:
    wanted = [NewTopic(name="a.b"), *new_topics(), NewTopic(name="a_b")]
    results = codes(Cluster().started().create(*wanted, validate_only=True))
    assert results == [None] * (MANY + 1) + [ErrorCode.invalid_topic_exception]


def test_who_is_no_longer_controller_does_not_go_on() -> None:
    """Every topic is answered, and the rest is another controller's to do."""
    cluster = Cluster()
    first, second = cluster.started(0), cluster.started(1)
    results: list[list[TopicInfo | KafkaError]] = []
    first.metadata.create_topics(new_topics(), False, results.append)
    assert cluster.loop.run_until(lambda: "t0" in second.metadata.image.topics)
    cluster.ensemble.end_session(first.coordination.session_id)
    assert cluster.loop.run_until(lambda: bool(results))
    (found,) = results
    assert len(found) == MANY
    assert codes(found)[:ITEMS_MAX].count(None) > 0
    assert codes(found)[-1] is ErrorCode.not_controller


def moves_and_elections(member: Member) -> None:
    wanted = [Reassignment(topic=f"t{n}", partition=0, replicas=(1,)) for n in range(MANY)]
    answered: list[object] = []
    member.metadata.alter_reassignments(wanted, answered.append)
    names = [(f"t{n}", 0) for n in range(MANY)]
    member.metadata.elect_leaders("preferred", names, answered.append)
    assert member.loop.run_until(lambda: len(answered) == 2)
    assert answered[0] == [None] * MANY
    assert isinstance(answered[1], dict)
    assert list(answered[1]) == names


def test_many_replicas_are_moved_and_many_leaders_elected() -> None:
    cluster = Cluster()
    first, _ = cluster.started(0), cluster.started(1)
    topics = [NewTopic(name=f"t{n}", assignment={0: [0]}) for n in range(MANY)]
    assert codes(first.create(*topics)) == [None] * MANY
    moves_and_elections(first)
