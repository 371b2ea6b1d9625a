"""T5: which partitions each filter of `topics describe` shows, and how they look."""

import json

import pytest

from tidelog.cli.printing import Format
from tidelog.cli.topic_view import Filters, show_topics, view_topic
from tidelog.client.cluster import NO_LEADER, Partition, Topic
from tidelog.client.configs import Config

ALIVE = (0, 1)


def partition(index: int, leader: int, replicas: str, isr: str) -> Partition:
    return Partition(
        index=index,
        leader=leader,
        leader_epoch=4,
        replicas=tuple(map(int, replicas)),
        isr=tuple(map(int, isr)),
        offline_replicas=(),
    )


HEALTHY = partition(0, 0, "01", "01")
BEHIND = partition(1, 1, "120", "10")
ALONE = partition(2, 0, "02", "0")
LEADERLESS = partition(3, NO_LEADER, "20", "2")
DEAD_LEADER = partition(4, 2, "201", "201")
SINGLE = partition(5, 0, "0", "0")
TOPIC = Topic(
    name="t",
    topic_id="i" * 22,
    is_internal=False,
    partitions=(HEALTHY, BEHIND, ALONE, LEADERLESS, DEAD_LEADER, SINGLE),
)


def config(name: str, value: str, source: str) -> Config:
    return Config(
        name=name,
        value=value,
        source=source,
        is_sensitive=False,
        is_read_only=False,
        synonyms=(),
    )


CONFIGS = [
    config("min.insync.replicas", "2", "DYNAMIC_TOPIC_CONFIG"),
    config("retention.ms", "5", "STATIC_BROKER_CONFIG"),
    config("segment.ms", "7", "DEFAULT_CONFIG"),
]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (Filters(), [0, 1, 2, 3, 4, 5]),
        (Filters(under_replicated=True), [1, 2, 3]),
        (Filters(unavailable=True), [3, 4]),
        (Filters(under_min_isr=True), [2, 3]),
        (Filters(at_min_isr=True), [0, 1, 5]),
        (Filters(under_min_isr=True, unavailable=True), [2, 3, 4]),
    ],
)
def test_filters_show_exactly_the_partitions_they_name(
    filters: Filters, expected: list[int]
) -> None:
    """A2: a minimum above the number of replicas counts as that number, as for partition 5."""
    shown = view_topic(TOPIC, CONFIGS, filters, ALIVE).partitions
    assert [partition.index for partition in shown] == expected


def show(capsys: pytest.CaptureFixture[str], filters: Filters, how: Format) -> str:
    show_topics([view_topic(TOPIC, CONFIGS, filters, ALIVE)], filters, how)
    return capsys.readouterr().out


def test_the_layout_is_that_of_kafka(capsys: pytest.CaptureFixture[str]) -> None:
    lines = show(capsys, Filters(), Format.text).splitlines()
    assert lines[0] == (
        f"Topic: t\tTopicId: {'i' * 22}\tPartitionCount: 6\tReplicationFactor: 2\t"
        "Configs: min.insync.replicas=2,retention.ms=5"
    )
    assert lines[2] == "\tTopic: t\tPartition: 1\tLeader: 1\tReplicas: 1,2,0\tIsr: 1,0"
    assert lines[4] == "\tTopic: t\tPartition: 3\tLeader: none\tReplicas: 2,0\tIsr: 2"


def test_filters_leave_out_the_line_of_the_topic(capsys: pytest.CaptureFixture[str]) -> None:
    shown = show(capsys, Filters(unavailable=True), Format.text)
    assert [line.split("\t")[2] for line in shown.splitlines()] == ["Partition: 3", "Partition: 4"]


def test_overrides_leave_out_the_partitions(capsys: pytest.CaptureFixture[str]) -> None:
    only = Filters(only_overrides=True)
    assert len(show(capsys, only, Format.text).splitlines()) == 1
    assert show(capsys, only, Format.table).splitlines() == [
        "TOPIC  CONFIG               VALUE",
        "t      min.insync.replicas  2",
        "t      retention.ms         5",
    ]


def test_a_table_has_a_line_for_each_partition(capsys: pytest.CaptureFixture[str]) -> None:
    lines = show(capsys, Filters(under_min_isr=True), Format.table).splitlines()
    assert lines == [
        "TOPIC  PARTITION  LEADER  REPLICAS  ISR",
        "t      2          0       0,2       0",
        "t      3          none    2,0       2",
    ]


def test_json_says_no_leader_with_null(capsys: pytest.CaptureFixture[str]) -> None:
    (topic,) = json.loads(show(capsys, Filters(unavailable=True), Format.json))
    assert [partition["leader"] for partition in topic["partitions"]] == [None, 2]
    assert topic["configs"] == {"min.insync.replicas": "2", "retention.ms": "5"}
