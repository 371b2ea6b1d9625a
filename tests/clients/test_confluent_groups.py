"""Groups of confluent-kafka: shared work, members that come, go and die, committed offsets, static
members, cooperative rebalances (A5, V15)."""

import subprocess
import sys
import time

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from clients.grouping import (
    SESSION_MS,
    Reader,
    is_shared,
    new_topic,
    numbered,
    produce,
    readers,
    run_until,
)
from support.servers import Server

PARTITIONS = 10
_DYING_MEMBER = """
import sys, time
from confluent_kafka import Consumer
bootstrap, group, topic = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "session.timeout.ms": 1500,
                     "heartbeat.interval.ms": 300})
consumer.subscribe([topic], on_assign=lambda _, given: print(len(given), flush=True))
while True:
    consumer.poll(0.1)
"""


@pytest.fixture(scope="module")
def bootstrap(group_broker: Server) -> str:
    return group_broker.address


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
@pytest.mark.parametrize("count", [2, 5])
def test_members_share_the_partitions_and_read_everything(
    bootstrap: str, count: int, strategy: str
) -> None:
    topic, values = new_topic(bootstrap, PARTITIONS, 1000)
    settings = {"partition_assignment_strategy": strategy}
    with readers(bootstrap, f"share-{strategy}-{count}", topic, count, **settings) as members:
        run_until(members, lambda: is_shared(members, PARTITIONS))
        run_until(members, lambda: {v for m in members for v in m.values} == set(values))


def test_one_that_comes_takes_its_share_and_leaves_it_when_it_goes(bootstrap: str) -> None:
    topic, _ = new_topic(bootstrap, PARTITIONS, 10)
    with readers(bootstrap, "come-and-go", topic, 2) as members:
        run_until(members, lambda: is_shared(members, PARTITIONS))
        third = Reader(bootstrap, "come-and-go", topic)
        run_until([*members, third], lambda: is_shared([*members, third], PARTITIONS))
        third.consumer.close()
        run_until(members, lambda: is_shared(members, PARTITIONS))


def test_one_that_dies_is_missed_and_its_partitions_are_read_by_others(bootstrap: str) -> None:
    topic, _ = new_topic(bootstrap, PARTITIONS, 10)
    with readers(bootstrap, "dying", topic, 1) as members:
        run_until(members, lambda: is_shared(members, PARTITIONS))
        command = [sys.executable, "-c", _DYING_MEMBER, bootstrap, "dying", topic]
        dying = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            run_until(members, lambda: members[0].partitions != list(range(PARTITIONS)))
            run_until(members, lambda: len(members[0].partitions) == PARTITIONS // 2)
        finally:
            dying.kill()
            dying.communicate()
        died = time.monotonic()
        run_until(members, lambda: is_shared(members, PARTITIONS))
        assert time.monotonic() - died < SESSION_MS / 1000, "its own session is shorter"


def test_a_group_goes_on_where_it_was(bootstrap: str) -> None:
    topic, _ = new_topic(bootstrap, 4, 0)
    with readers(bootstrap, "go-on", topic, 2) as members:
        run_until(members, lambda: is_shared(members, 4))
        produce(bootstrap, topic, numbered(400), 4)
        run_until(members, lambda: sum(len(m.values) for m in members) == 400)
        for member in members:
            member.commit()
    more = [b"more %d" % number for number in range(100)]
    produce(bootstrap, topic, more, 4)
    with readers(bootstrap, "go-on", topic, 3) as members:
        run_until(members, lambda: {v for m in members for v in m.values} >= set(more))
        assert {v for m in members for v in m.values} == set(more)


def test_automatic_commits_are_kept_too(bootstrap: str) -> None:
    topic, _ = new_topic(bootstrap, 2, 50)
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 100}
    with readers(bootstrap, "automatic", topic, 1, **settings) as members:
        run_until(members, lambda: len(members[0].values) == 50)
    with readers(bootstrap, "automatic", topic, 1) as members:
        run_until(members, lambda: is_shared(members, 2))
        named = [TopicPartition(topic, index) for index in range(2)]
        assert [p.offset for p in members[0].consumer.committed(named, 60)] == [25, 25]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_group_survives_a_restart_of_its_broker(own_group_broker: Server, how: str) -> None:
    """Members go on in the same generation if the broker is back before they are missed."""
    bootstrap = own_group_broker.address
    topic, _ = new_topic(bootstrap, 4, 0)
    with readers(bootstrap, "surviving", topic, 2) as members:
        run_until(members, lambda: is_shared(members, 4))
        produce(bootstrap, topic, numbered(100), 4)
        run_until(members, lambda: sum(len(m.values) for m in members) == 100)
        for member in members:
            member.commit()
        changes = [list(member.changes) for member in members]
        getattr(own_group_broker, how)()
        own_group_broker.start()
        produce(bootstrap, topic, [b"after"] * 40, 4)
        run_until(members, lambda: sum(len(m.values) for m in members) == 140)
        for member in members:
            member.commit()
        assert [member.changes for member in members] == changes, "there was no rebalance"


def test_a_static_member_starts_again_without_a_rebalance(bootstrap: str) -> None:
    topic, _ = new_topic(bootstrap, 4, 0)
    stays = Reader(bootstrap, "static", topic, group_instance_id="stays")
    leaves = Reader(bootstrap, "static", topic, group_instance_id="leaves")
    try:
        run_until([stays, leaves], lambda: is_shared([stays, leaves], 4))
        produce(bootstrap, topic, numbered(40), 4)
        run_until([stays, leaves], lambda: len(stays.values) + len(leaves.values) == 40)
        leaves.commit()
        had, changes = leaves.partitions, list(stays.changes)
        leaves.consumer.close()
        leaves = Reader(bootstrap, "static", topic, group_instance_id="leaves")
        run_until([stays, leaves], lambda: bool(leaves.partitions))
        assert leaves.partitions == had
        produce(bootstrap, topic, [b"again"] * 40, 4)
        run_until([stays, leaves], lambda: len(leaves.values) >= 20)
        assert leaves.values == [b"again"] * 20
        assert stays.changes == changes
    finally:
        stays.consumer.close()
        leaves.consumer.close()


def test_two_that_claim_to_be_the_same_static_member_are_told_apart(bootstrap: str) -> None:
    topic, _ = new_topic(bootstrap, 2, 2)
    with readers(bootstrap, "twins", topic, 1, group_instance_id="twin") as (first,):
        run_until([first], lambda: is_shared([first], 2))
        with readers(bootstrap, "twins", topic, 1, group_instance_id="twin") as (second,):
            with pytest.raises(KafkaException, match="Static consumer fenced"):
                run_until([first], lambda: False)
            run_until([second], lambda: is_shared([second], 2))


def test_a_cooperative_rebalance_takes_only_what_moves(bootstrap: str) -> None:
    topic, _ = new_topic(bootstrap, 6, 6)
    settings = {"partition_assignment_strategy": "cooperative-sticky"}
    with readers(bootstrap, "cooperative", topic, 2, **settings) as members:
        run_until(members, lambda: is_shared(members, 6))
        before = [set(member.partitions) for member in members]
        third = Reader(bootstrap, "cooperative", topic, **settings)
        try:
            everyone = [*members, third]
            run_until(everyone, lambda: is_shared(everyone, 6))
            for member, had in zip(members, before, strict=True):
                assert set(member.partitions) < had
                taken = [gone for what, gone in member.changes if what == "taken" and gone]
                assert sum(len(gone) for gone in taken) <= 4
            assert not any(what == "lost" for member in everyone for what, _ in member.changes)
        finally:
            third.consumer.close()


def test_a_member_of_an_older_generation_cannot_commit(bootstrap: str) -> None:
    """V15: one that was away too long finds that others have its partitions."""
    topic, _ = new_topic(bootstrap, 2, 20)
    slow = Reader(bootstrap, "fenced", topic, session_timeout_ms=1000, max_poll_interval_ms=1500)
    quick = Reader(bootstrap, "fenced", topic)
    try:
        run_until([slow, quick], lambda: is_shared([slow, quick], 2))
        run_until([slow, quick], lambda: len(slow.values) >= 10)
        run_until([quick], lambda: is_shared([quick], 2))
        read = [TopicPartition(topic, index, 10) for index in range(2)]
        quick.consumer.commit(offsets=read, asynchronous=False)
        named = [TopicPartition(topic, index, 3) for index in range(2)]
        with pytest.raises(KafkaException):
            slow.consumer.commit(offsets=named, asynchronous=False)
        found = quick.consumer.committed(named, 60)
        assert [partition.offset for partition in found] == [10, 10]
    finally:
        slow.consumer.close()
        quick.consumer.close()


def test_groups_are_listed_described_changed_and_deleted(bootstrap: str) -> None:
    topic, _ = new_topic(bootstrap, 2, 0)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with readers(bootstrap, "admin", topic, 2) as members:
        run_until(members, lambda: is_shared(members, 2))
        produce(bootstrap, topic, numbered(20), 2)
        run_until(members, lambda: sum(len(m.values) for m in members) == 20)
        for member in members:
            member.commit()
        listed = {group.group_id: group for group in admin.list_consumer_groups().result(60).valid}
        assert listed["admin"].state == ConsumerGroupState.STABLE
        shown = admin.describe_consumer_groups(["admin"])["admin"].result(60)
        assert shown.partition_assignor == "range"
        owned = [[p.partition for p in m.assignment.topic_partitions] for m in shown.members]
        assert sorted(owned) == [[0], [1]]
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups(["admin"])["admin"].result(60)
    changed = [TopicPartition(topic, 0, 4)]
    wanted = ConsumerGroupTopicPartitions("admin", changed)
    admin.alter_consumer_group_offsets([wanted])["admin"].result(60)
    every = ConsumerGroupTopicPartitions("admin")
    found = admin.list_consumer_group_offsets([every])["admin"].result(60).topic_partitions
    assert {p.partition: p.offset for p in found} == {0: 4, 1: 10}
    admin.delete_consumer_groups(["admin"])["admin"].result(60)
    listed = {group.group_id: group for group in admin.list_consumer_groups().result(60).valid}
    assert "admin" not in listed
