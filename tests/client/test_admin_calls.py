"""The client against a real server: metadata, topics, settings, offsets (T1, T3, T6, O2)."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from support.servers import Server
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.client.client import Client
from tidelog.client.configs import Config, Resource, alter_configs, describe_configs
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
from tidelog.client.topics import (
    MorePartitions,
    NewTopic,
    create_partitions,
    create_topics,
    delete_topics,
)


@pytest.fixture
def client(shared_server: Server) -> Iterator[Client]:
    with Client(shared_server.address) as connected:
        yield connected


def made(client: Client, name: str, partition_count: int = 1) -> str:
    new = NewTopic(name=name, partition_count=partition_count)
    assert create_topics(client, [new]) == {name: None}
    return name


def settings_of(client: Client, resource: Resource) -> dict[str, Config]:
    found = describe_configs(client, [resource])[resource]
    assert not isinstance(found, KafkaError), found
    return {config.name: config for config in found}


def test_the_cluster_is_seen_with_its_brokers_and_topics(
    client: Client, shared_server: Server
) -> None:
    name = made(client, "seen", partition_count=2)
    cluster = client.cluster()
    assert str(cluster.brokers[cluster.controller_id].address) == shared_server.address
    assert list(cluster.topics) == sorted(cluster.topics)
    topic = cluster.topic(name)
    assert [(p.index, p.leader, p.replicas, p.isr) for p in topic.partitions] == [
        (0, 0, (0,), (0,)),
        (1, 0, (0,), (0,)),
    ]
    assert topic.topic_id is not None
    assert len(topic.topic_id) == 22
    assert topic.replication_factor == 1


def test_asking_for_a_topic_makes_it_only_if_that_is_wanted(client: Client) -> None:
    """T6: auto-creation is the caller's choice."""
    with pytest.raises(KafkaError, match="there is no topic asked-for"):
        client.cluster(["asked-for"]).topic("asked-for")
    assert client.cluster(["asked-for"], create_topics=True).topic("asked-for").partitions


def test_a_topic_can_be_made_with_brokers_named_and_settings(client: Client) -> None:
    """T3: an explicit assignment."""
    new = NewTopic(name="assigned", assignment=[[0], [0], [0]], configs={"retention.ms": "5000"})
    assert create_topics(client, [new]) == {"assigned": None}
    assert len(client.cluster(["assigned"]).topic("assigned").partitions) == 3
    found = settings_of(client, Resource("topic", "assigned"))["retention.ms"]
    assert (found.value, found.source, found.is_default) == ("5000", "DYNAMIC_TOPIC_CONFIG", False)
    assert [synonym.source for synonym in found.synonyms][-1] == "DEFAULT_CONFIG"


def test_each_topic_has_an_outcome_of_its_own(client: Client) -> None:
    made(client, "twice")
    outcomes = create_topics(
        client,
        [
            NewTopic(name="twice"),
            NewTopic(name="bad/name"),
            NewTopic(name="fine"),
            NewTopic(name="thrice", replication_factor=3),
        ],
    )
    codes = {name: error and error.code for name, error in outcomes.items()}
    assert codes == {
        "twice": ErrorCode.topic_already_exists,
        "bad/name": ErrorCode.invalid_topic_exception,
        "fine": None,
        "thrice": ErrorCode.invalid_replication_factor,
    }
    deleted = delete_topics(client, ["twice", "never-was"])
    assert deleted["twice"] is None
    unknown = deleted["never-was"]
    assert unknown is not None
    assert unknown.code is ErrorCode.unknown_topic_or_partition
    assert "twice" not in client.cluster().topics


def test_what_is_only_validated_is_not_made(client: Client) -> None:
    assert create_topics(client, [NewTopic(name="maybe")], validate_only=True) == {"maybe": None}
    assert "maybe" not in client.cluster().topics


def test_a_topic_gets_more_partitions_and_never_fewer(client: Client) -> None:
    """T3: partitions can be added later."""
    made(client, "grows", partition_count=1)
    grown = MorePartitions(name="grows", partition_count=3, assignment=[[0], [0]])
    assert create_partitions(client, [grown]) == {"grows": None}
    assert len(client.cluster(["grows"]).topic("grows").partitions) == 3
    refused = create_partitions(client, [MorePartitions(name="grows", partition_count=2)])["grows"]
    assert refused is not None
    assert refused.code is ErrorCode.invalid_partitions


def test_settings_are_changed_one_by_one_and_taken_back(client: Client) -> None:
    """O2: a bad value is refused by name, and then nothing of that resource is changed."""
    resource = Resource("topic", made(client, "tuned"))
    assert alter_configs(client, {resource: {"retention.ms": "1", "segment.ms": "7"}}) == {
        resource: None
    }
    refused = alter_configs(client, {resource: {"retention.ms": "2", "segment.ms": "x"}})[resource]
    assert refused is not None
    assert refused.code is ErrorCode.invalid_config
    assert "segment.ms" in refused.message
    assert alter_configs(client, {resource: {"segment.ms": None}}) == {resource: None}
    found = settings_of(client, resource)
    assert (found["retention.ms"].value, found["segment.ms"].is_default) == ("1", True)


def test_settings_of_brokers_are_asked_of_the_broker_itself(client: Client) -> None:
    own, shared = Resource("broker", "0"), Resource("broker", "")
    assert settings_of(client, own)["broker.id"].value == "0"
    assert alter_configs(client, {shared: {"log.cleaner.backoff.ms": "14000"}}) == {shared: None}
    assert settings_of(client, shared)["log.cleaner.backoff.ms"].value == "14000"
    alter_configs(client, {shared: {"log.cleaner.backoff.ms": None}})
    with pytest.raises(KafkaError, match="there is no broker 7 in the cluster"):
        describe_configs(client, [Resource("broker", "7")])
    with pytest.raises(KafkaError, match="must be a broker's number"):
        describe_configs(client, [Resource("broker", "first")])


def test_offsets_are_found_for_the_ends_and_for_times(
    client: Client, shared_server: Server
) -> None:
    name = made(client, "placed", partition_count=2)
    producer = Producer({"bootstrap.servers": shared_server.address})
    for timestamp in (1000, 2000, 3000):
        producer.produce(name, b"x", partition=1, timestamp=timestamp)
    assert producer.flush(60) == 0
    assert list_offsets(client, name, {0: LATEST, 1: LATEST}) == {0: 0, 1: 3}
    assert list_offsets(client, name, {1: LATEST}, committed_only=True) == {1: 3}
    assert list_offsets(client, name, {0: EARLIEST, 1: EARLIEST}) == {0: 0, 1: 0}
    assert list_offsets(client, name, {0: 1500, 1: 1500}) == {0: -1, 1: 1}
    with pytest.raises(KafkaError, match="placed has no partition 2"):
        list_offsets(client, name, {2: LATEST})
    with pytest.raises(KafkaError, match="there is no topic unplaced"):
        list_offsets(client, "unplaced", {0: LATEST})
