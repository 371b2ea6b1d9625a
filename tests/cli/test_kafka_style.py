"""Kafka's flags as words, assignments, targets of settings, and choosing topics."""

from typing import Any

import pytest

from tidelog.base.errors import BadValue, KafkaError
from tidelog.cli.config_target import Flags, Target, parse_config_list, target_of_words
from tidelog.cli.kafka_style import action_first, split_assignments
from tidelog.cli.topic_choice import Choice, choose
from tidelog.cli.topics import parse_assignment
from tidelog.client.cluster import Cluster, Topic

ACTIONS = ("create", "list", "describe")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("--bootstrap-server a:1 --create --topic t", "create --bootstrap-server a:1 --topic t"),
        ("create t -p 3", "create t -p 3"),
        ("-b a:1 list", "list -b a:1"),
        ("--topic list --describe", "describe --topic list"),
        ("describe list", "describe list"),
        ("describe create list", "describe create list"),
        ("--topic create list", "list --topic create"),
        ("-b a:1 --topic create list describe", "list -b a:1 --topic create describe"),
        ("--topic --topic list", "list --topic --topic"),
        ("describe t --create", "describe t --create"),
        ("--help", "--help"),
        ("", ""),
    ],
)
def test_the_action_comes_first_however_it_was_said(given: str, expected: str) -> None:
    assert action_first(given.split(), ACTIONS, ("--topic", "-b")) == expected.split()


def test_assignments_keep_what_follows_the_first_equals_sign() -> None:
    assert split_assignments(["a=b=c", " d = e", "f="], "--set") == {"a": "b=c", "d": " e", "f": ""}
    for bad in ("a", "=b", " =b"):
        with pytest.raises(BadValue, match="must be NAME=VALUE"):
            split_assignments([bad], "--set")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a=1,b=2", {"a": "1", "b": "2"}),
        ("a=[1,2],b=3", {"a": "1,2", "b": "3"}),
        ("a=[],b=[x]", {"a": "", "b": "x"}),
        ("a=1,,", {"a": "1"}),
    ],
)
def test_several_settings_in_one_argument_are_told_apart(
    text: str, expected: dict[str, str]
) -> None:
    assert parse_config_list(text) == expected


def flags(**given: Any) -> Flags:
    absent: dict[str, Any] = dict.fromkeys(("entity_type", "entity_name", "topic", "broker"))
    absent |= {"entity_default": False, "broker_defaults": False}
    return Flags(**{**absent, **given})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"topic": "t"}, Target(kind="topic", name="t")),
        ({"broker": "0"}, Target(kind="broker", name="0")),
        ({"broker_defaults": True}, Target(kind="broker", name="")),
        ({"entity_type": "topics", "entity_name": "t"}, Target(kind="topic", name="t")),
        ({"entity_type": "topics"}, Target(kind="topic", name=None)),
        ({"entity_type": "brokers", "entity_default": True}, Target(kind="broker", name="")),
    ],
)
def test_flags_name_a_topic_or_a_broker(
    given: dict[str, str | bool], expected: Target | None
) -> None:
    assert flags(**given).target() == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topic": "t", "broker": "0"}, "not several"),
        ({"topic": "t", "entity_type": "topics"}, "not several"),
        ({"entity_name": "t"}, "--entity-type is missing"),
        ({"entity_type": "users"}, "--entity-type users: only topics and brokers"),
        ({"entity_type": "topics", "entity_default": True}, "--entity-default is for"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        flags(**given).target()


def test_words_name_a_target_and_leave_the_rest() -> None:
    assert target_of_words(["topic", "t", "a=1"]) == (Target(kind="topic", name="t"), ["a=1"])
    assert target_of_words(["broker", "0"]) == (Target(kind="broker", name="0"), [])
    assert target_of_words(["brokers", "a=1"]) == (Target(kind="broker", name=""), ["a=1"])
    for bad in ([], ["user", "x"]):
        with pytest.raises(BadValue):
            target_of_words(bad)


def cluster(*names: str) -> Cluster:
    topics = {
        name: Topic(name=name, topic_id=f"id-{name}", is_internal=name[0] == "_", partitions=())
        for name in sorted(names)
    }
    return Cluster(cluster_id="c", controller_id=0, brokers={}, topics=topics, refused={})


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (Choice(names=[]), ["__in", "a-b", "a.b", "c"]),
        (Choice(names=[], with_internal=False), ["a-b", "a.b", "c"]),
        (Choice(names=["c", "a.b", "c"]), ["a.b", "c"]),
        (Choice(names=[], expression="a.b"), ["a.b"]),
        (Choice(names=[], expression="a.*"), ["a-b", "a.b"]),
        (Choice(names=[], expression="a.b, c"), ["a.b", "c"]),
        (Choice(names=[], expression="[ac]"), ["c"]),
        (Choice(names=[], topic_id="id-c"), ["c"]),
    ],
)
def test_names_and_expressions_choose_topics(choice: Choice, expected: list[str]) -> None:
    """A name with a dot means itself only, so that deleting it deletes nothing else."""
    found = choose(cluster("a.b", "a-b", "c", "__in"), choice)
    assert [topic.name for topic in found] == expected


@pytest.mark.parametrize(
    "choice",
    [
        Choice(names=["c", "x"]),
        Choice(names=[], expression="x.*"),
        Choice(names=[], expression=""),
        Choice(names=[], expression=" ,"),
        Choice(names=[], topic_id="x"),
    ],
)
def test_a_choice_that_finds_nothing_is_an_error_unless_it_may(choice: Choice) -> None:
    with pytest.raises(KafkaError, match="there is no topic"):
        choose(cluster("c"), choice)
    found = choose(cluster("c"), choice, may_miss=True)
    assert [topic.name for topic in found] == choice.names[:1]


def test_a_bad_expression_is_refused() -> None:
    with pytest.raises(BadValue, match=r"--topic a\(: is no regular expression"):
        choose(cluster("c"), Choice(names=[], expression="a("))


def test_replicas_are_assigned_by_partition() -> None:
    assert parse_assignment("0:1,1:2") == [[0, 1], [1, 2]]
    for bad in ("", "a", "0:", "0,,1"):
        with pytest.raises(BadValue, match="--replica-assignment"):
            parse_assignment(bad)
