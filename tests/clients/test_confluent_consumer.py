"""confluent-kafka (a librdkafka of today) reads with `assign`: R1, R3, R4 as one node can show
them. Groups are in test_confluent_groups.py."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from clients.confluent import consumer, read, samples, send, take
from clients.conftest import MakeTopic
from clients.samples import SAMPLES, TIME, Sample
from clients.settling import settled

COUNT = 1_000


@pytest.fixture
def writer(bootstrap: str) -> Producer:
    """Writes many small batches, and keeps their order where one has to be sent again."""
    settings = {"batch.num.messages": 10, "linger.ms": 5, "max.in.flight": 1}
    return Producer({"bootstrap.servers": bootstrap, **settings})


@pytest.fixture
def numbered(make_topic: MakeTopic, writer: Producer) -> str:
    """A topic with the numbers up to COUNT in its one partition, a minute apart."""
    topic = make_topic()
    for n in range(COUNT):
        writer.produce(topic, value=b"%d" % n, timestamp=TIME + 60_000 * n)
    assert writer.flush(60) == 0
    return topic


def test_confluent_consumer_reads_across_many_batches(bootstrap: str, numbered: str) -> None:
    messages = read(bootstrap, numbered, COUNT)
    assert [int(message.value()) for message in messages] == list(range(COUNT))
    assert [message.offset() for message in messages] == list(range(COUNT))


def test_confluent_consumer_reads_on_with_tiny_fetches(bootstrap: str, numbered: str) -> None:
    messages = read(
        bootstrap,
        numbered,
        COUNT,
        fetch_message_max_bytes=1_000,
        fetch_max_bytes=1_000,
        message_max_bytes=1_000,
    )
    assert [int(message.value()) for message in messages] == list(range(COUNT))


def test_confluent_consumer_gets_a_batch_larger_than_its_fetch(
    bootstrap: str, make_topic: MakeTopic, writer: Producer
) -> None:
    topic = make_topic()
    records = [Sample(key=None, value=bytes([n]) * 300_000) for n in range(5)]
    send(writer, topic, records)
    sizes = dict.fromkeys(("fetch_message_max_bytes", "fetch_max_bytes"), 1000)
    messages = read(bootstrap, topic, 5, message_max_bytes=1_000, **sizes)
    assert samples(messages) == records


@pytest.mark.parametrize(("offset", "first"), [(OFFSET_BEGINNING, 0), (417, 417), (999, 999)])
def test_confluent_consumer_starts_where_it_was_assigned(
    bootstrap: str, numbered: str, offset: int, first: int
) -> None:
    """Also in the middle of a batch."""
    with consumer(bootstrap) as reader:
        reader.assign([TopicPartition(numbered, 0, offset)])
        assert take(reader, 1)[0].offset() == first


def test_confluent_consumer_at_the_end_sees_only_what_comes_after(
    bootstrap: str, numbered: str, writer: Producer
) -> None:
    with consumer(bootstrap, enable_partition_eof=True) as reader:
        reader.assign([TopicPartition(numbered, 0, OFFSET_END)])
        with pytest.raises(KafkaException) as raised:
            take(reader, 1)
        assert raised.value.args[0].code() == KafkaError._PARTITION_EOF
        send(writer, numbered, SAMPLES[:1])
        assert take(reader, 1)[0].offset() == COUNT


def test_confluent_consumer_seeks_back_and_forth(bootstrap: str, numbered: str) -> None:
    with consumer(bootstrap) as reader:
        reader.assign([TopicPartition(numbered, 0, OFFSET_BEGINNING)])
        take(reader, 10)
        for offset in (900, 3, 500):
            reader.seek(TopicPartition(numbered, 0, offset))
            assert [message.offset() for message in take(reader, 3)] == [
                offset,
                offset + 1,
                offset + 2,
            ]
        assert reader.position([TopicPartition(numbered, 0)])[0].offset == 503


@pytest.mark.parametrize(
    ("at", "offset"),
    [
        (0, 0),
        (TIME, 0),
        (TIME + 1, 1),
        (TIME + 60_000 * 417, 417),
        (TIME + 60_000 * 417 - 59_999, 417),
        (TIME + 60_000 * 999, 999),
        (TIME + 60_000 * 999 + 1, OFFSET_END),
    ],
)
def test_confluent_consumer_finds_offsets_by_time(
    bootstrap: str, numbered: str, at: int, offset: int
) -> None:
    with consumer(bootstrap) as reader:
        (found,) = reader.offsets_for_times([TopicPartition(numbered, 0, at)], timeout=60)
        assert found.error is None
        assert found.offset == offset


def test_confluent_consumer_knows_the_watermarks(bootstrap: str, numbered: str) -> None:
    with consumer(bootstrap) as reader:
        assert reader.get_watermark_offsets(TopicPartition(numbered, 0), timeout=60) == (0, COUNT)


def test_confluent_consumer_reads_several_partitions_each_in_order(
    bootstrap: str, make_topic: MakeTopic, writer: Producer
) -> None:
    topic = make_topic(partitions=6)
    for n in range(COUNT):
        writer.produce(topic, value=b"%d" % n, partition=n % 6)
    assert writer.flush(60) == 0
    messages = read(bootstrap, topic, COUNT, partitions=6)
    for partition in range(6):
        values = [int(found.value()) for found in messages if found.partition() == partition]
        assert values == list(range(partition, COUNT, 6))


def test_confluent_consumer_reads_many_topics(
    bootstrap: str, make_topic: MakeTopic, writer: Producer
) -> None:
    topics = [make_topic() for _ in range(25)]
    for n in range(250):
        writer.produce(topics[n % 25], value=b"%d" % n)
    assert writer.flush(60) == 0
    with consumer(bootstrap) as reader:
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in topics])
        assert {int(found.value()) for found in take(reader, 250)} == set(range(250))


def test_confluent_fetch_that_waits_is_woken_by_a_record(
    bootstrap: str, make_topic: MakeTopic, writer: Producer
) -> None:
    """R3"""
    topic = make_topic()
    with consumer(bootstrap, fetch_wait_max_ms=30_000) as reader:
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        assert reader.poll(1) is None, "the fetch is parked by now"
        sent = time.monotonic()
        send(writer, topic, SAMPLES[:1])
        take(reader, 1)
        assert time.monotonic() - sent < 20


def test_confluent_fetch_waits_for_the_bytes_it_asks_for(
    bootstrap: str, make_topic: MakeTopic, writer: Producer
) -> None:
    """R3"""
    topic = make_topic()
    send(writer, topic, SAMPLES[:1])
    with consumer(bootstrap, fetch_min_bytes=1, fetch_wait_max_ms=30_000) as reader:
        reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
        started = time.monotonic()
        reader.assign([TopicPartition(topic, 0, 0)])
        take(reader, 1)
        at_once = time.monotonic() - started
    with consumer(bootstrap, fetch_min_bytes=50_000, fetch_wait_max_ms=2_500) as reader:
        reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
        started = time.monotonic()
        reader.assign([TopicPartition(topic, 0, 0)])
        take(reader, 1)
        waited = time.monotonic() - started
    assert at_once < 20
    assert waited > 2.4


def test_confluent_consumer_is_told_that_an_offset_is_out_of_range(
    bootstrap: str, numbered: str
) -> None:
    with consumer(bootstrap, auto_offset_reset="error") as reader:
        reader.assign([TopicPartition(numbered, 0, COUNT + 1)])
        with pytest.raises(KafkaException) as raised:
            take(reader, 1)
        assert raised.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET


def test_confluent_consumer_resets_an_offset_that_is_out_of_range(
    bootstrap: str, numbered: str
) -> None:
    with consumer(bootstrap, auto_offset_reset="earliest") as reader:
        reader.assign([TopicPartition(numbered, 0, COUNT + 1)])
        assert take(reader, 1)[0].offset() == 0


def test_confluent_consumer_of_an_unknown_topic_is_told_and_does_not_make_it(
    bootstrap: str, admin: AdminClient, unused_name: Callable[[], str]
) -> None:
    topic = unused_name()
    with consumer(bootstrap) as reader:
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        assert reader.poll(0.5) is None
        told = reader.list_topics(topic, timeout=60).topics[topic].error
        assert told.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        with pytest.raises(KafkaException) as raised:
            reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
        assert raised.value.args[0].code() in (
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError._UNKNOWN_PARTITION,
        )
    assert topic not in admin.list_topics(timeout=60).topics


def test_confluent_consumer_may_ask_for_auto_creation(
    bootstrap: str, admin: AdminClient, unused_name: Callable[[], str]
) -> None:
    topic = unused_name()
    with consumer(bootstrap, allow_auto_create_topics=True) as reader:
        reader.list_topics(topic, timeout=60)
        assert settled(lambda: topic in admin.list_topics(timeout=60).topics)


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_confluent_consumer_reads_plain_records_at_each_isolation_level(
    bootstrap: str, numbered: str, level: str
) -> None:
    assert len(read(bootstrap, numbered, COUNT, isolation_level=level)) == COUNT


def test_confluent_clients_that_idle_hear_of_no_error(bootstrap: str, numbered: str) -> None:
    """A consumer with a group id looks for its coordinator, and all of them ask for what a broker
    may offer beside records, before anyone asks them to do anything."""
    errors: list[KafkaError] = []
    settings = {"bootstrap.servers": bootstrap, "error_cb": errors.append}
    producer = Producer(settings)
    with consumer(bootstrap, error_cb=errors.append) as reader:
        reader.assign([TopicPartition(numbered, 0, OFFSET_END)])
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            producer.poll(0)
            assert reader.poll(0.1) is None
    assert errors == []
