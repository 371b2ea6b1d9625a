"""confluent-kafka (a librdkafka of today) produces: A1, R1, R5, S7 as one node can show them."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from clients.confluent import consumer, read, samples, send, take
from clients.conftest import MakeTopic
from clients.samples import BIG, CODECS, KEYS, SAMPLES, TIME, Sample, stored_batches, stored_codecs
from support.servers import Server
from tidelog.records.murmur2 import partition_for


def producer(bootstrap: str, **settings: Any) -> Producer:
    """Lingers until it is flushed: a batch that was sent early may be too small to compress."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 1_000, **named})


def refusal(bootstrap: str, topic: str, record: Sample, **settings: Any) -> int:
    """The code with which a record is refused."""
    with pytest.raises(KafkaException) as raised:
        send(producer(bootstrap, **settings), topic, [record])
    code: int = raised.value.args[0].code()
    return code


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_records_come_back_and_are_stored_as_compressed(
    broker: Server, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic()
    writer = producer(broker.address, compression_type=codec, linger_ms=60_000)
    # Records of a topic it does not know yet it takes over one by one, and while it is flushed
    # sends what it has: a first batch that is too small to be compressed.
    writer.list_topics(topic)
    reports = send(writer, topic, SAMPLES)
    assert reports == [(0, offset) for offset in range(len(SAMPLES))]
    assert stored_codecs(broker.log_dir, topic) == {CODECS[codec]}
    messages = read(broker.address, topic, len(SAMPLES))
    assert samples(messages) == SAMPLES
    assert [message.offset() for message in messages] == list(range(len(SAMPLES)))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_confluent_producer_is_answered_as_its_acks_ask(
    bootstrap: str, make_topic: MakeTopic, acks: str
) -> None:
    """A1: with acks=0 there is no answer, hence no offset, but the records are there."""
    topic = make_topic()
    reports = send(producer(bootstrap, acks=acks), topic, SAMPLES)
    if acks != "0":
        assert reports == [(0, offset) for offset in range(len(SAMPLES))]
    assert samples(read(bootstrap, topic, len(SAMPLES))) == SAMPLES


def test_confluent_idempotent_producer_writes_in_order_under_one_producer_id(
    broker: Server, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    records = [Sample(key=None, value=b"%d" % n) for n in range(2_000)]
    writer = producer(broker.address, enable_idempotence=True, batch_num_messages=50, linger_ms=5)
    assert send(writer, topic, records) == [(0, offset) for offset in range(2_000)]
    batches = stored_batches(broker.log_dir, topic)
    assert len(batches) >= 40
    assert {batch.producer_id for batch in batches} != {-1}
    assert len({batch.producer_id for batch in batches}) == 1
    assert [batch.base_sequence for batch in batches] == [batch.base_offset for batch in batches]
    assert samples(read(broker.address, topic, 2_000)) == records


def test_confluent_idempotent_producers_get_different_producer_ids(
    broker: Server, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    for _ in range(3):
        send(producer(broker.address, enable_idempotence=True), topic, SAMPLES[:2])
    assert len({batch.producer_id for batch in stored_batches(broker.log_dir, topic)}) == 3


def test_confluent_keys_go_to_the_partition_java_would_choose(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=7)
    writer = producer(bootstrap, partitioner="murmur2_random")
    reports = send(writer, topic, [Sample(key=key, value=b"") for key in KEYS])
    assert [partition for partition, _ in reports] == [partition_for(key, 7) for key in KEYS]


def test_confluent_record_of_ten_megabytes_is_taken_where_the_topic_allows_it(
    bootstrap: str, big_topic: str
) -> None:
    record = Sample(key=b"big", value=b"x" * BIG)
    send(producer(bootstrap, message_max_bytes=2 * BIG), big_topic, [record])
    assert samples(read(bootstrap, big_topic, 1)) == [record]


@pytest.mark.parametrize("size", [1_100_000, BIG])
def test_confluent_record_larger_than_the_topic_allows_is_refused(
    bootstrap: str, make_topic: MakeTopic, size: int
) -> None:
    record = Sample(key=None, value=b"x" * size)
    code = refusal(bootstrap, make_topic(), record, message_max_bytes=2 * BIG)
    assert code == KafkaError.MSG_SIZE_TOO_LARGE


def test_confluent_record_without_key_is_refused_by_a_compacted_topic(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(config={"cleanup.policy": "compact"})
    assert refusal(bootstrap, topic, Sample(key=None, value=b"")) == KafkaError.INVALID_RECORD
    assert send(producer(bootstrap), topic, [Sample(key=b"k", value=b"")]) == [(0, 0)]


def test_confluent_producer_is_told_which_records_a_compacted_topic_refused(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(config={"cleanup.policy": "compact"})
    writer = producer(bootstrap, linger_ms=60_000)
    writer.list_topics(topic)
    told: dict[bytes, int] = {}
    for n in range(6):
        writer.produce(
            topic,
            key=None if n in (1, 4) else b"k",
            value=b"%d" % n,
            on_delivery=lambda error, message: told.update({message.value(): error.code()}),
        )
    assert writer.flush(60) == 0
    of_others = KafkaError._INVALID_DIFFERENT_RECORD
    assert told == {
        b"%d" % n: KafkaError.INVALID_RECORD if n in (1, 4) else of_others for n in range(6)
    }


def test_confluent_timestamps_are_those_the_producer_gave(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    send(producer(bootstrap), topic, SAMPLES, timestamp=TIME)
    times = {message.timestamp() for message in read(bootstrap, topic, len(SAMPLES))}
    assert times == {(TIMESTAMP_CREATE_TIME, TIME)}


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_timestamps_are_the_brokers_where_the_topic_says_so(
    bootstrap: str, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic(config={"message.timestamp.type": "LogAppendTime"})
    before = time.time_ns() // 1_000_000
    send(producer(bootstrap, compression_type=codec), topic, SAMPLES, timestamp=TIME)
    messages = read(bootstrap, topic, len(SAMPLES))
    assert samples(messages) == SAMPLES
    for kind, at in (message.timestamp() for message in messages):
        assert kind == TIMESTAMP_LOG_APPEND_TIME
        assert before <= at <= time.time_ns() // 1_000_000


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_records_are_stored_in_the_codec_of_the_topic(
    broker: Server, make_topic: MakeTopic, codec: str
) -> None:
    setting = "uncompressed" if codec == "none" else codec
    topic = make_topic(config={"compression.type": setting})
    writer = producer(broker.address, compression_type="gzip" if codec != "gzip" else "lz4")
    send(writer, topic, SAMPLES)
    assert stored_codecs(broker.log_dir, topic) == {CODECS[codec]}
    assert samples(read(broker.address, topic, len(SAMPLES))) == SAMPLES


def test_confluent_producer_makes_the_topic_it_writes_to(
    bootstrap: str, admin: AdminClient, unused_name: Callable[[], str]
) -> None:
    """T6: auto-creation, with the number of partitions the broker is set to."""
    topic = unused_name()
    assert send(producer(bootstrap), topic, SAMPLES)[0] == (0, 0)
    assert samples(read(bootstrap, topic, len(SAMPLES))) == SAMPLES
    assert len(admin.list_topics(timeout=60).topics[topic].partitions) == 1


@pytest.mark.parametrize("name", ["with space", "slash/ed", "x" * 250, "..", "žluť"])
def test_confluent_producer_is_refused_an_invalid_topic_name(bootstrap: str, name: str) -> None:
    record = Sample(key=None, value=b"")
    code = refusal(bootstrap, name, record, message_timeout_ms=60_000)
    assert code == KafkaError.TOPIC_EXCEPTION


def test_confluent_producer_is_refused_a_partition_that_does_not_exist(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2)
    with pytest.raises(KafkaException) as raised:
        send(producer(bootstrap), topic, SAMPLES[:1], partition=2)
    assert raised.value.args[0].code() == KafkaError._UNKNOWN_PARTITION


def test_confluent_producer_writes_to_many_topics_at_once(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topics = [make_topic(partitions=3) for _ in range(20)]
    writer = producer(bootstrap)
    for n in range(600):
        writer.produce(topics[n % 20], value=b"%d" % n, partition=n // 20 % 3)
    assert writer.flush(60) == 0
    with consumer(bootstrap) as reader:
        reader.assign([TopicPartition(name, n, 0) for name in topics for n in range(3)])
        found = {(message.topic(), int(message.value())) for message in take(reader, 600)}
    assert found == {(topics[n % 20], n) for n in range(600)}
