"""Making, growing and deleting topics through `Metadata`: spec rows T1, T3, T4 and T6."""

import pytest

from support.members import Cluster
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import CONSUMER_OFFSETS, TRANSACTION_STATE
from tidelog.cluster.image import NO_TOPIC_ID, TopicInfo
from tidelog.cluster.requests import Change, NewTopic
from tidelog.cluster.topics import PARTITIONS_PER_REQUEST_MAX
from tidelog.cluster.znodes import id_text


def refused(results: list[TopicInfo | KafkaError]) -> tuple[ErrorCode, str]:
    (error,) = results
    assert isinstance(error, KafkaError), error
    return error.code, error.message


def made(results: list[TopicInfo | KafkaError]) -> TopicInfo:
    (topic,) = results
    assert isinstance(topic, TopicInfo), topic
    return topic


def test_a_new_topic_is_in_the_tree_in_the_image_and_told_of() -> None:
    """T4, T6."""
    cluster = Cluster()
    member = cluster.started()
    topic = made(member.create(NewTopic(name="t", partition_count=2, configs={"segment.ms": "7"})))
    assert cluster.json("/brokers/topics/t") == {
        "version": 3,
        "topic_id": id_text(topic.topic_id),
        "partitions": {"0": [0], "1": [0]},
        "adding_replicas": {},
        "removing_replicas": {},
    }
    assert cluster.json("/config/topics/t") == {"version": 1, "config": {"segment.ms": "7"}}
    assert cluster.json("/brokers/topics/t/partitions/1/state") == {
        "controller_epoch": 1,
        "leader": 0,
        "version": 1,
        "leader_epoch": 0,
        "isr": [0],
        "broker_epochs": {"0": member.metadata.broker_epoch},
        "elr": [],
    }
    assert member.metadata.image.topics == {"t": topic}
    assert member.metadata.image.topic_names == {topic.topic_id: "t"}
    assert member.changes == [Change(created=(topic,))]


def test_counts_of_minus_one_are_the_settings_of_the_broker() -> None:
    cluster = Cluster()
    cluster.register_others(1, 2)
    member = cluster.started(num_partitions="5", default_replication_factor="3")
    topic = made(member.create(NewTopic(name="t")))
    assert len(topic.partitions) == 5
    assert topic.replication_factor == 3


def test_topics_of_one_request_are_told_of_at_once() -> None:
    member = Cluster().started()
    results = member.create(NewTopic(name="a"), NewTopic(name="b"), NewTopic(name="c/d"))
    assert [isinstance(result, TopicInfo) for result in results] == [True, True, False]
    (change,) = member.changes
    assert [topic.name for topic in change.created] == ["a", "b"]


@pytest.mark.parametrize(
    ("new", "code", "words"),
    [
        (NewTopic(name=""), ErrorCode.invalid_topic_exception, "empty"),
        (NewTopic(name=".."), ErrorCode.invalid_topic_exception, "'..'"),
        (NewTopic(name="a" * 250), ErrorCode.invalid_topic_exception, "249"),
        (NewTopic(name="a/b"), ErrorCode.invalid_topic_exception, "letters"),
        (NewTopic(name="../b"), ErrorCode.invalid_topic_exception, "letters"),
        (NewTopic(name="é"), ErrorCode.invalid_topic_exception, "letters"),
        (NewTopic(name="__cluster_metadata"), ErrorCode.invalid_topic_exception, "kept"),
        (NewTopic(name="my.topic"), ErrorCode.invalid_topic_exception, "my_topic"),
        (NewTopic(name="my_topic"), ErrorCode.topic_already_exists, "my_topic"),
        (NewTopic(name="t", partition_count=0), ErrorCode.invalid_partitions, "0"),
        (NewTopic(name="t", partition_count=-2), ErrorCode.invalid_partitions, "-2"),
        (NewTopic(name="t", partition_count=2**31 - 1), ErrorCode.policy_violation, "10000"),
        (NewTopic(name="t", replication_factor=0), ErrorCode.invalid_replication_factor, "0"),
        (NewTopic(name="t", replication_factor=4), ErrorCode.invalid_replication_factor, "3"),
        (
            NewTopic(name="t", partition_count=1, assignment={0: [0]}),
            ErrorCode.invalid_request,
            "both",
        ),
        (NewTopic(name="t", assignment={}), ErrorCode.invalid_replica_assignment, "from 0"),
        (NewTopic(name="t", assignment={1: [0]}), ErrorCode.invalid_replica_assignment, "from 0"),
        (NewTopic(name="t", assignment={0: []}), ErrorCode.invalid_replica_assignment, "once"),
        (NewTopic(name="t", assignment={0: [1, 1]}), ErrorCode.invalid_replica_assignment, "once"),
        (NewTopic(name="t", assignment={0: [9]}), ErrorCode.invalid_replica_assignment, "broker 9"),
        (
            NewTopic(name="t", assignment={0: [0], 1: [0, 1]}),
            ErrorCode.invalid_replica_assignment,
            "1 replicas",
        ),
        (NewTopic(name="t", configs={"no.such": "1"}), ErrorCode.invalid_config, "no.such"),
        (
            NewTopic(name="t", configs={"retention.ms": "soon"}),
            ErrorCode.invalid_config,
            "retention.ms=soon",
        ),
        (NewTopic(name="t", configs={"retention.ms": None}), ErrorCode.invalid_config, "no value"),
        (
            NewTopic(name="t", configs={"log.retention.ms": "5"}),
            ErrorCode.invalid_config,
            "retention.ms",
        ),
    ],
)
def test_what_is_wrong_with_a_new_topic_is_said_and_nothing_is_made(
    new: NewTopic, code: ErrorCode, words: str
) -> None:
    """T1, T6."""
    cluster = Cluster()
    cluster.register_others(1, 2)
    member = cluster.started()
    made(member.create(NewTopic(name="my_topic")))
    before = cluster.paths()
    found, message = refused(member.create(new))
    assert (found, words in message) == (code, True), message
    assert cluster.paths() == before
    assert list(member.metadata.image.topics) == ["my_topic"]


def test_names_that_differ_only_in_dots_collide_within_one_request_too() -> None:
    first, second = Cluster().started().create(NewTopic(name="a.b"), NewTopic(name="a_b"))
    assert isinstance(first, TopicInfo)
    assert isinstance(second, KafkaError)
    assert second.code is ErrorCode.invalid_topic_exception


def test_a_topic_that_stands_twice_in_a_request_is_not_made_at_all() -> None:
    member = Cluster().started()
    results = member.create(NewTopic(name="t"), NewTopic(name="u"), NewTopic(name="t"))
    codes = [getattr(result, "code", None) for result in results]
    assert codes == [ErrorCode.invalid_request, None, ErrorCode.invalid_request]
    assert list(member.metadata.image.topics) == ["u"]


def test_validating_only_makes_nothing_and_gives_no_id() -> None:
    cluster = Cluster()
    member = cluster.started()
    before = cluster.paths()
    topic = made(member.create(NewTopic(name="t", partition_count=3), validate_only=True))
    assert (topic.topic_id, len(topic.partitions)) == (NO_TOPIC_ID, 3)
    assert cluster.paths() == before
    assert member.changes == []


def test_one_request_cannot_make_more_partitions_than_the_limit() -> None:
    member = Cluster().started()
    half = PARTITIONS_PER_REQUEST_MAX // 2
    names = ("a", "b", "c")
    results = member.create(
        *(NewTopic(name=name, partition_count=half) for name in names), validate_only=True
    )
    assert [getattr(r, "code", None) for r in results] == [None, None, ErrorCode.policy_violation]


def test_an_assignment_is_taken_as_it_is_given() -> None:
    """T3."""
    cluster = Cluster()
    cluster.register_others(1, 2)
    topic = made(cluster.started().create(NewTopic(name="t", assignment={1: [2, 0], 0: [1, 2]})))
    assert [partition.replicas for partition in topic.partitions] == [(1, 2), (2, 0)]
    assert [partition.leader for partition in topic.partitions] == [1, 2]
    assert cluster.json("/brokers/topics/t/partitions/0/state")["isr"] == [1, 2]


def test_settings_left_over_from_another_topic_of_that_name_do_not_come_back() -> None:
    cluster = Cluster()
    member = cluster.started()
    cluster.put("/config/topics/t", b'{"version":1,"config":{"retention.ms":"1"}}')
    made(member.create(NewTopic(name="t", configs={"segment.ms": "9"})))
    assert cluster.json("/config/topics/t")["config"] == {"segment.ms": "9"}


def test_a_topic_that_somebody_else_made_meanwhile_exists() -> None:
    cluster = Cluster()
    member = cluster.started()
    cluster.put(
        "/brokers/topics/t",
        b'{"version":3,"topic_id":"AAAAAAAAQACAAAAAAAAAAA","partitions":{"0":[0],"1":[0]}}',
    )
    code, message = refused(member.create(NewTopic(name="t")))
    assert (code, "t" in message) == (ErrorCode.topic_already_exists, True)
    assert len(member.metadata.image.topics["t"].partitions) == 2


def test_a_large_topic_is_made_in_parts_and_whole() -> None:
    cluster = Cluster()
    member = cluster.started()
    topic = made(member.create(NewTopic(name="t", partition_count=500)))
    assert len(topic.partitions) == 500
    assert cluster.json("/brokers/topics/t/partitions/499/state")["leader"] == 0
    assert made(member.delete("t")) == topic
    assert cluster.paths("/brokers/topics") == ["/brokers/topics"]


def test_deleting_removes_the_data_before_the_nodes() -> None:
    """T6: the mark is there and the topic's nodes too when the listener removes the data."""
    cluster = Cluster()
    member = cluster.started()
    topic = made(member.create(NewTopic(name="t", partition_count=2)))
    seen: list[tuple[bool, bool]] = []
    member.metadata.on_change(
        lambda _: seen.append(
            (cluster.exists("/admin/delete_topics/t"), cluster.exists("/brokers/topics/t"))
        )
    )
    assert made(member.delete("t")) == topic
    assert seen == [(True, True)]
    assert member.changes[-1] == Change(deleted=(topic,))
    assert not [path for path in cluster.paths() if path.endswith("/t")]
    assert member.metadata.image.topics == {}
    assert member.metadata.image.topic_names == {}
    assert member.metadata.image.deleting == {}


def test_a_topic_is_deleted_by_its_id() -> None:
    member = Cluster().started()
    topic = made(member.create(NewTopic(name="t")))
    assert made(member.delete(topic.topic_id)) == topic


def test_deleting_what_is_not_there_says_so() -> None:
    member = Cluster().started()
    assert refused(member.delete("t"))[0] is ErrorCode.unknown_topic_or_partition
    assert refused(member.delete(bytes(15) + b"\7"))[0] is ErrorCode.unknown_topic_id


def test_deleting_one_topic_by_name_and_by_id_is_refused() -> None:
    member = Cluster().started()
    topic = made(member.create(NewTopic(name="t")))
    results = member.delete("t", topic.topic_id)
    assert [getattr(r, "code", None) for r in results] == [ErrorCode.invalid_request] * 2
    assert "t" in member.metadata.image.topics


def test_deletion_can_be_disabled() -> None:
    member = Cluster().started(delete_topic_enable="false")
    made(member.create(NewTopic(name="t")))
    assert refused(member.delete("t"))[0] is ErrorCode.topic_deletion_disabled
    assert "t" in member.metadata.image.topics


def test_a_name_can_be_used_again_and_gets_another_id() -> None:
    member = Cluster().started()
    first = made(member.create(NewTopic(name="t")))
    made(member.delete("t"))
    second = made(member.create(NewTopic(name="t")))
    assert first.topic_id != second.topic_id
    assert member.metadata.image.topic_names == {second.topic_id: "t"}


def test_growing_adds_partitions_and_keeps_the_others() -> None:
    """T3."""
    cluster = Cluster()
    member = cluster.started()
    topic = made(member.create(NewTopic(name="t", partition_count=2)))
    grown = made(member.grow("t", 5))
    assert grown.partitions[:2] == topic.partitions
    assert len(grown.partitions) == 5
    assert (grown.topic_id, grown.version) == (topic.topic_id, topic.version + 1)
    told, before = member.changes[-1].grown[0]
    assert (told.partitions, before) == (grown.partitions, 2)
    assert cluster.json("/brokers/topics/t/partitions/4/state")["isr"] == [0]
    assert len(made(member.grow("t", 6)).partitions) == 6


@pytest.mark.parametrize(
    ("name", "count", "assignment", "code"),
    [
        ("u", 3, None, ErrorCode.unknown_topic_or_partition),
        ("t", 2, None, ErrorCode.invalid_partitions),
        ("t", 1, None, ErrorCode.invalid_partitions),
        ("t", -1, None, ErrorCode.invalid_partitions),
        ("t", 2**31 - 1, None, ErrorCode.policy_violation),
        ("t", 4, [[0]], ErrorCode.invalid_replica_assignment),
        ("t", 3, [[0, 1]], ErrorCode.invalid_replica_assignment),
        ("t", 3, [[9]], ErrorCode.invalid_replica_assignment),
        ("t", 3, [[]], ErrorCode.invalid_replica_assignment),
        (CONSUMER_OFFSETS, 3, None, ErrorCode.invalid_partitions),
        (CONSUMER_OFFSETS, 3, [[0]], ErrorCode.invalid_partitions),
        (TRANSACTION_STATE, 3, None, ErrorCode.invalid_partitions),
    ],
)
def test_what_is_wrong_with_more_partitions_is_said(
    name: str, count: int, assignment: list[list[int]] | None, code: ErrorCode
) -> None:
    cluster = Cluster()
    cluster.register_others(1)
    member = cluster.started()
    for topic in ("t", CONSUMER_OFFSETS, TRANSACTION_STATE):
        made(member.create(NewTopic(name=topic, partition_count=2, replication_factor=1)))
    before = cluster.paths()
    assert refused(member.grow(name, count, assignment))[0] is code
    assert cluster.paths() == before


def test_a_topic_that_is_being_reassigned_does_not_grow() -> None:
    cluster = Cluster()
    cluster.put(
        "/brokers/topics/t",
        b'{"version":3,"topic_id":"AAAAAAAAQACAAAAAAAAAAA","partitions":{"0":[0,1]},'
        b'"adding_replicas":{"0":[1]},"removing_replicas":{}}',
    )
    assert refused(cluster.started().grow("t", 2))[0] is ErrorCode.reassignment_in_progress


def test_what_is_asked_for_at_once_happens_in_order() -> None:
    cluster = Cluster()
    member = cluster.started()
    results: list[list[TopicInfo | KafkaError]] = []
    metadata = member.metadata
    metadata.create_topics([NewTopic(name="t")], False, results.append)
    metadata.create_topics([NewTopic(name="t")], False, results.append)
    metadata.delete_topics(["t"], results.append)
    metadata.create_partitions([("t", 2, None)], False, results.append)
    metadata.create_topics([NewTopic(name="t", partition_count=3)], False, results.append)
    assert cluster.loop.run_until(lambda: len(results) == 5)
    codes = [getattr(result, "code", None) for (result,) in results]
    unknown = ErrorCode.unknown_topic_or_partition
    assert codes == [None, ErrorCode.topic_already_exists, None, unknown, None]
    assert len(metadata.image.topics["t"].partitions) == 3


def test_a_thousand_requests_that_need_no_write_are_answered() -> None:
    member = Cluster().started()
    results: list[list[TopicInfo | KafkaError]] = []
    for _ in range(1000):
        member.metadata.create_topics([NewTopic(name="t")], True, results.append)
    assert member.loop.run_until(lambda: len(results) == 1000)


def test_an_answer_that_fails_does_not_hold_up_the_next() -> None:
    cluster = Cluster()
    member = cluster.started()

    def fail(_: object) -> None:
        raise RuntimeError("the connection is gone")

    member.metadata.create_topics([NewTopic(name="t")], False, fail)
    with pytest.raises(RuntimeError, match="gone"):
        cluster.loop.run()
    assert made(member.create(NewTopic(name="u"))).name == "u"


def test_a_listener_that_cannot_follow_is_reported_and_holds_up_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    member = Cluster().started()

    def fail(_: Change) -> None:
        raise OSError("the disk is full")

    member.metadata.on_change(fail)
    made(member.create(NewTopic(name="t")))
    made(member.delete("t"))
    assert caplog.text.count("the disk is full") == 2


def test_a_controller_that_was_superseded_changes_nothing() -> None:
    """D11: every write checks the controller epoch."""
    cluster = Cluster()
    member = cluster.started()
    made(member.create(NewTopic(name="t")))
    cluster.put("/controller_epoch", b"2")
    before = cluster.paths()
    assert refused(member.create(NewTopic(name="u")))[0] is ErrorCode.not_controller
    assert cluster.paths() == before
    assert list(member.metadata.image.topics) == ["t"]
    assert cluster.loop.run_until(lambda: member.metadata.controller_epoch == 3)
