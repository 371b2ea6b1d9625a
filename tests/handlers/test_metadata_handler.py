"""Metadata (T6): brokers by listener, topics by name and id, topics made on the way."""

from typing import Any
from uuid import UUID

import pytest

from support.admin_node import AdminNode, versions
from tidelog.base.errors import ErrorCode
from tidelog.cluster.image import BrokerInfo, PartitionInfo, TopicInfo

METADATA = 3
NEWEST = versions(METADATA)[-1]
AUTHORIZED_CLUSTER = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
AUTHORIZED_TOPIC = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
NOT_ASKED = -(1 << 31)


def ask(node: AdminNode, version: int, topics: Any, create: bool = False, **more: Any) -> Any:
    usual = {
        "allow_auto_topic_creation": create,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    return node.ask(METADATA, version, topics=topics, **(usual | more))


def named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "topic_id": bytes(16)} for name in names]


def identified(*ids: bytes) -> list[dict[str, Any]]:
    return [{"name": None, "topic_id": topic_id} for topic_id in ids]


@pytest.mark.parametrize("version", versions(METADATA))
def test_every_version_shows_the_broker_and_the_topic(version: int) -> None:
    node = AdminNode()
    topic = node.create("orders", partitions=2)
    answer = ask(node, version, named("orders"))
    (broker,) = answer.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "tide.example", 9092)
    (shown,) = answer.topics
    assert (shown.error_code, shown.name) == (ErrorCode.none, "orders")
    assert [partition.partition_index for partition in shown.partitions] == [0, 1]
    for partition in shown.partitions:
        assert partition.error_code is ErrorCode.none
        assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (
            1,
            (1,),
            (1,),
        )
    if version >= 1:
        assert (broker.rack, answer.controller_id, shown.is_internal) == ("here", 1, False)
    if version >= 2:
        assert answer.cluster_id == node.cluster_id
    if version >= 5:
        assert shown.partitions[0].offline_replicas == ()
    if version >= 7:
        assert shown.partitions[0].leader_epoch == topic.partitions[0].leader_epoch
    if version >= 10:
        assert shown.topic_id == UUID(bytes=topic.topic_id)
    if version >= 13:
        assert answer.error_code is ErrorCode.none


@pytest.mark.parametrize("version", versions(METADATA))
def test_all_topics_are_shown_if_none_is_named(version: int) -> None:
    node = AdminNode()
    for name in ("tides", "orders"):
        node.create(name)
    answer = ask(node, version, [] if version == 0 else None)
    assert [topic.name for topic in answer.topics] == ["orders", "tides"]


@pytest.mark.parametrize("version", versions(METADATA)[1:])
def test_an_empty_list_asks_for_the_brokers_only(version: int) -> None:
    node = AdminNode()
    node.create("orders")
    answer = ask(node, version, [])
    assert (len(answer.brokers), answer.topics) == (1, ())


def test_the_address_is_that_of_the_listener_asked_through() -> None:
    node = AdminNode()
    (broker,) = ask(node, NEWEST, [], listener="INTERNAL").brokers
    assert (broker.host, broker.port) == ("10.0.0.1", 9094)


@pytest.mark.parametrize("version", versions(METADATA)[12:])
def test_a_topic_is_found_by_its_id(version: int) -> None:
    node = AdminNode()
    topic = node.create("orders")
    known, unknown = ask(node, version, identified(topic.topic_id, bytes([9] * 16))).topics
    assert (known.error_code, known.name) == (ErrorCode.none, "orders")
    assert (unknown.error_code, unknown.name) == (ErrorCode.unknown_topic_id, None)
    assert unknown.topic_id == UUID(bytes=bytes([9] * 16))


@pytest.mark.parametrize("version", [10, 11])
def test_ids_are_refused_in_versions_that_have_them_but_not_yet_in_use(version: int) -> None:
    node = AdminNode()
    topic = node.create("orders")
    asked = [{"name": "orders", "topic_id": topic.topic_id}, {"name": None, "topic_id": bytes(16)}]
    answer = ask(node, version, asked)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.invalid_request] * 2
    assert [topic.name for topic in answer.topics] == ["orders", ""]


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_without_name_and_id_is_refused(version: int) -> None:
    asked = [{"name": None, "topic_id": bytes(16)}]
    (topic,) = ask(AdminNode(), version, asked).topics
    assert (topic.error_code, topic.name) == (ErrorCode.invalid_request, "")


@pytest.mark.parametrize("version", versions(METADATA))
def test_a_topic_is_made_on_the_way_and_answered_with_its_partitions(version: int) -> None:
    node = AdminNode(num_partitions="3")
    (topic,) = ask(node, version, named("orders"), create=True).topics
    assert (topic.error_code, len(topic.partitions)) == (ErrorCode.none, 3)
    assert [partition.leader_id for partition in topic.partitions] == [1, 1, 1]
    assert node.partition("orders", 2).log.log_end_offset == 0


def test_a_topic_is_not_made_if_the_client_does_not_want_it() -> None:
    node = AdminNode()
    (topic,) = ask(node, NEWEST, named("orders"), create=False).topics
    assert (topic.error_code, topic.topic_id) == (ErrorCode.unknown_topic_or_partition, None)
    assert node.metadata.image.topics == {}


def test_a_topic_is_not_made_if_the_settings_forbid_it() -> None:
    node = AdminNode(auto_create_topics_enable="false")
    (topic,) = ask(node, NEWEST, named("orders"), create=True).topics
    assert topic.error_code is ErrorCode.unknown_topic_or_partition


def test_asking_for_all_topics_makes_none() -> None:
    node = AdminNode()
    assert ask(node, NEWEST, None, create=True).topics == ()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "tide log", "x" * 250, "ä"])
@pytest.mark.parametrize("create", [True, False])
def test_a_name_that_no_topic_can_have_is_told_so(name: str, create: bool) -> None:
    node = AdminNode()
    (topic,) = ask(node, NEWEST, named(name), create=create).topics
    assert (topic.error_code, topic.name) == (ErrorCode.invalid_topic_exception, name)


def test_good_and_bad_names_of_one_request_are_told_apart() -> None:
    node = AdminNode()
    node.create("known")
    answer = ask(node, NEWEST, named("known", "bad name", "new"), create=True)
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        "known": ErrorCode.none,
        "bad name": ErrorCode.invalid_topic_exception,
        "new": ErrorCode.none,
    }


def test_a_topic_that_cannot_be_made_says_why() -> None:
    node = AdminNode(default_replication_factor="3")
    (topic,) = ask(node, NEWEST, named("orders"), create=True).topics
    assert topic.error_code is ErrorCode.invalid_replication_factor


def test_a_topic_named_twice_is_answered_once() -> None:
    node = AdminNode()
    answer = ask(node, NEWEST, named("orders", "orders"), create=True)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("orders", ErrorCode.none)
    ]


def test_two_clients_that_make_the_same_topic_both_get_it() -> None:
    node = AdminNode()
    values: dict[str, Any] = {
        "topics": named("orders"),
        "allow_auto_topic_creation": True,
        "include_topic_authorized_operations": False,
    }
    first = node.begin(METADATA, NEWEST, "PLAINTEXT", **values)
    second = node.ask(METADATA, NEWEST, **values)
    assert [topic.error_code for topic in second.topics] == [ErrorCode.none]
    assert node.loop.run_until(lambda: bool(first.sent))
    assert len(node.metadata.image.topics) == 1


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_internal_topics_are_not_made_by_asking_for_them(name: str) -> None:
    node = AdminNode()
    (topic,) = ask(node, NEWEST, named(name), create=True).topics
    assert (topic.error_code, topic.is_internal) == (ErrorCode.unknown_topic_or_partition, True)


def test_internal_topics_are_marked() -> None:
    node = AdminNode()
    node.create("__consumer_offsets")
    (topic,) = ask(node, NEWEST, None).topics
    assert topic.is_internal


@pytest.mark.parametrize("version", [8, 9, 10])
def test_operations_are_told_if_asked_for(version: int) -> None:
    node = AdminNode()
    node.create("orders")
    asked = ask(
        node,
        version,
        named("orders", "missing"),
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    assert asked.cluster_authorized_operations == AUTHORIZED_CLUSTER
    for topic in asked.topics:
        assert topic.topic_authorized_operations == AUTHORIZED_TOPIC
    silent = ask(node, version, named("orders"))
    assert silent.cluster_authorized_operations == NOT_ASKED
    assert silent.topics[0].topic_authorized_operations == NOT_ASKED


def with_partition(leader: int, replicas: tuple[int, ...] = (1, 2)) -> AdminNode:
    """A node that knows of a topic with replicas elsewhere, and of a broker 3 without the
    listener that clients use."""
    node = AdminNode()
    image = node.metadata.image
    image.brokers[3] = BrokerInfo(broker_id=3, endpoints={"INTERNAL": ("10.0.0.3", 9094)})
    partition = PartitionInfo(
        replicas=replicas, isr=replicas, leader=leader, leader_epoch=5, state_version=0
    )
    image.put_topic(TopicInfo(name="orders", topic_id=bytes([7] * 16), partitions=(partition,)))
    return node


def test_a_partition_without_leader_says_so() -> None:
    node = with_partition(leader=-1)
    (topic,) = ask(node, NEWEST, named("orders")).topics
    (partition,) = topic.partitions
    assert topic.error_code is ErrorCode.none
    assert (partition.error_code, partition.leader_id) == (ErrorCode.leader_not_available, -1)
    assert (partition.leader_epoch, partition.offline_replicas) == (5, (2,))


def test_a_leader_that_is_gone_is_no_leader() -> None:
    (topic,) = ask(with_partition(leader=2), NEWEST, named("orders")).topics
    assert topic.partitions[0].error_code is ErrorCode.leader_not_available
    assert topic.partitions[0].leader_id == -1


@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.leader_not_available), (6, ErrorCode.listener_not_found)]
)
def test_a_leader_without_the_listener_cannot_be_reached(version: int, code: ErrorCode) -> None:
    node = with_partition(leader=3, replicas=(3, 1))
    answer = ask(node, version, named("orders"))
    assert [broker.node_id for broker in answer.brokers] == [1]
    (partition,) = answer.topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (code, -1)
    assert partition.offline_replicas == (3,)


def test_version_0_leaves_out_replicas_that_are_gone_and_says_so() -> None:
    (topic,) = ask(with_partition(leader=1), 0, named("orders")).topics
    (partition,) = topic.partitions
    assert partition.error_code is ErrorCode.replica_not_available
    assert (partition.replica_nodes, partition.isr_nodes) == ((1,), (1,))
    (shown,) = ask(with_partition(leader=1), 1, named("orders")).topics
    assert shown.partitions[0].error_code is ErrorCode.none
    assert shown.partitions[0].replica_nodes == (1, 2)
