"""kafka-python produces and reads with `assign`: A1, R1, R3, R4 as one node can show them. It
speaks the newest version of each API that it shares with the broker."""

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from clients.conftest import MakeTopic, missing
from clients.samples import (
    BIG,
    CODECS,
    KEY_OR_VALUE,
    KEYS,
    TIME,
    Sample,
    as_sample,
    stored_batches,
    stored_codecs,
)
from support.servers import Server
from tidelog.records.murmur2 import partition_for

with warnings.catch_warnings():
    # It reads its schemas with a function that Python is about to drop.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.codec import has_lz4, has_snappy, has_zstd
    from kafka.errors import (
        MessageSizeTooLargeError,
        OffsetOutOfRangeError,
    )

COUNT = 500
# It has no headers without a value.
RECORDS = [
    replace(record, headers=tuple(pair for pair in record.headers if pair[1] is not None))
    for record in KEY_OR_VALUE
]
SECONDS_MAX = 60
# 2.1 is the oldest whose protocol is served.
older_releases = pytest.mark.parametrize("release", ["2.1", "2.3", "2.5", "2.8", "3.4", "3.9"])


def api_version(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def send(
    bootstrap: str, topic: str, records: Iterable[Sample], **settings: Any
) -> list[tuple[int, int]]:
    """The partition and offset of each record."""
    with producing(bootstrap, **settings) as producer:
        futures = [
            producer.send(
                topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                timestamp_ms=TIME + 60_000 * index,
            )
            for index, record in enumerate(records)
        ]
        sent = [future.get(SECONDS_MAX) for future in futures]
    return [(found.partition, found.offset) for found in sent]


@contextmanager
def producing(bootstrap: str, **settings: Any) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(bootstrap_servers=bootstrap, **settings)
    try:
        yield producer
    finally:
        producer.close(5)


@contextmanager
def reading(bootstrap: str, **settings: Any) -> Iterator[KafkaConsumer]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, **settings)
    try:
        yield consumer
    finally:
        consumer.close()


def take(consumer: KafkaConsumer, count: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        batches = consumer.poll(500, max_records=count - len(found))
        found += [record for records in batches.values() for record in records]
    return found


def read(bootstrap: str, topic: str, count: int, **settings: Any) -> list[Any]:
    with reading(bootstrap, auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return take(consumer, count)


def samples(records: Iterable[Any]) -> list[Sample]:
    return [as_sample(record.key, record.value, record.headers) for record in records]


def numbers(count: int = COUNT) -> list[Sample]:
    return [Sample(key=None, value=b"%d" % n) for n in range(count)]


@pytest.fixture
def numbered(bootstrap: str, make_topic: MakeTopic) -> TopicPartition:
    """A partition with COUNT records in many batches, a minute apart."""
    topic = make_topic()
    send(bootstrap, topic, numbers(), batch_size=400)
    return TopicPartition(topic, 0)


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_records_come_back_and_are_stored_as_compressed(
    broker: Server, make_topic: MakeTopic, codec: str
) -> None:
    if not {"snappy": has_snappy, "lz4": has_lz4, "zstd": has_zstd}.get(codec, lambda: True)():
        missing(f"kafka-python finds no package for {codec}")
    topic = make_topic()
    compression = None if codec == "none" else codec
    reports = send(broker.address, topic, RECORDS, compression_type=compression, linger_ms=600)
    assert reports == [(0, offset) for offset in range(len(RECORDS))]
    assert stored_codecs(broker.log_dir, topic) == {CODECS[codec]}
    found = read(broker.address, topic, len(RECORDS))
    assert samples(found) == RECORDS
    assert [record.timestamp for record in found] == [
        TIME + 60_000 * n for n in range(len(RECORDS))
    ]


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_kafka_python_producer_is_answered_as_its_acks_ask(
    bootstrap: str, make_topic: MakeTopic, acks: Any
) -> None:
    """A1"""
    topic = make_topic()
    settings = {"acks": acks, "enable_idempotence": False}
    reports = send(bootstrap, topic, numbers(50), **settings)
    if acks != 0:
        assert reports == [(0, offset) for offset in range(50)]
    assert samples(read(bootstrap, topic, 50)) == numbers(50)


def test_kafka_python_idempotent_producer_writes_in_order_under_one_producer_id(
    broker: Server, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    send(broker.address, topic, numbers(), enable_idempotence=True, batch_size=400)
    batches = stored_batches(broker.log_dir, topic)
    assert len(batches) > 5
    assert len({batch.producer_id for batch in batches}) == 1
    assert batches[0].producer_id >= 0
    assert [batch.base_sequence for batch in batches] == [batch.base_offset for batch in batches]
    assert samples(read(broker.address, topic, COUNT)) == numbers()


def test_kafka_python_keys_go_to_the_partition_java_would_choose(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=7)
    reports = send(bootstrap, topic, [Sample(key=key, value=b"") for key in KEYS])
    assert [partition for partition, _ in reports] == [partition_for(key, 7) for key in KEYS]


def test_kafka_python_record_of_ten_megabytes_is_taken_where_the_topic_allows_it(
    bootstrap: str, big_topic: str
) -> None:
    record = Sample(key=b"big", value=b"x" * BIG)
    send(bootstrap, big_topic, [record], max_request_size=2 * BIG)
    assert samples(read(bootstrap, big_topic, 1)) == [record]


def test_kafka_python_record_larger_than_the_topic_allows_is_refused(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    record = Sample(key=None, value=b"x" * 1_100_000)
    with pytest.raises(MessageSizeTooLargeError):
        send(bootstrap, make_topic(), [record], max_request_size=2 * BIG)


def test_kafka_python_producer_makes_the_topic_it_writes_to(
    bootstrap: str, unused_name: Callable[[], str]
) -> None:
    """T6"""
    topic = unused_name()
    send(bootstrap, topic, numbers(10))
    assert samples(read(bootstrap, topic, 10)) == numbers(10)


def test_kafka_python_consumer_reads_across_many_batches_with_tiny_fetches(
    bootstrap: str, numbered: TopicPartition
) -> None:
    sizes = {"fetch_max_bytes": 1_000, "max_partition_fetch_bytes": 300}
    records = read(bootstrap, numbered.topic, COUNT, **sizes)
    assert [int(record.value) for record in records] == list(range(COUNT))
    assert [record.offset for record in records] == list(range(COUNT))


def test_kafka_python_consumer_reads_several_partitions_each_in_order(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=5)
    send(bootstrap, topic, [Sample(key=b"%d" % (n % 9), value=b"%d" % n) for n in range(COUNT)])
    with reading(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, n) for n in range(5)])
        records = take(consumer, COUNT)
    for key in range(9):
        values = [int(record.value) for record in records if record.key == b"%d" % key]
        assert values == list(range(key, COUNT, 9))


def test_kafka_python_consumer_seeks_and_knows_where_it_is(
    bootstrap: str, numbered: TopicPartition
) -> None:
    with reading(bootstrap) as consumer:
        consumer.assign([numbered])
        assert consumer.beginning_offsets([numbered]) == {numbered: 0}
        assert consumer.end_offsets([numbered]) == {numbered: COUNT}
        consumer.seek_to_beginning(numbered)
        assert take(consumer, 1)[0].offset == 0
        for offset in (400, 3, 250):
            consumer.seek(numbered, offset)
            assert take(consumer, 1)[0].offset == offset
            assert consumer.position(numbered) == offset + 1
        assert consumer.highwater(numbered) == COUNT
        consumer.seek_to_end(numbered)
        assert consumer.position(numbered) == COUNT


@pytest.mark.parametrize(
    ("at", "offset"), [(0, 0), (TIME, 0), (TIME + 1, 1), (TIME + 60_000 * COUNT, None)]
)
def test_kafka_python_consumer_finds_offsets_by_time(
    bootstrap: str, numbered: TopicPartition, at: int, offset: int | None
) -> None:
    with reading(bootstrap) as consumer:
        found = consumer.offsets_for_times({numbered: at})[numbered]
    assert (found and found.offset) == offset
    if offset is not None:
        assert found.timestamp == TIME + 60_000 * offset


def test_kafka_python_consumer_lists_topics_and_partitions(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=3)
    with reading(bootstrap) as consumer:
        assert topic in consumer.topics()
        assert consumer.partitions_for_topic(topic) == {0, 1, 2}


def test_kafka_python_fetch_waits_for_the_bytes_it_asks_for(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    """R3"""
    topic = make_topic()
    send(bootstrap, topic, numbers(1))
    started_at = time.monotonic()
    read(bootstrap, topic, 1, fetch_min_bytes=50_000, fetch_max_wait_ms=2_000)
    assert time.monotonic() - started_at > 1.9


def test_kafka_python_consumer_is_told_that_an_offset_is_out_of_range(
    bootstrap: str, numbered: TopicPartition
) -> None:
    with reading(bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([numbered])
        consumer.seek(numbered, COUNT + 1)
        with pytest.raises(OffsetOutOfRangeError):
            take(consumer, 1)


def test_kafka_python_consumer_at_the_end_sees_only_what_comes_after(
    bootstrap: str, numbered: TopicPartition
) -> None:
    with reading(bootstrap, auto_offset_reset="latest") as consumer:
        consumer.assign([numbered])
        assert consumer.position(numbered) == COUNT
        send(bootstrap, numbered.topic, numbers(1))
        assert take(consumer, 1)[0].offset == COUNT


@older_releases
def test_kafka_python_speaks_the_protocol_of_an_older_release(
    bootstrap: str, make_topic: MakeTopic, release: str
) -> None:
    """It sends what a broker of that release would understand."""
    partition = TopicPartition(make_topic(), 0)
    version = api_version(release)
    settings = {"api_version": version, "compression_type": "gzip"}
    assert send(bootstrap, partition.topic, RECORDS, **settings)[-1] == (0, len(RECORDS) - 1)
    with reading(bootstrap, api_version=version, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        assert samples(take(consumer, len(RECORDS))) == RECORDS
        assert consumer.end_offsets([partition]) == {partition: len(RECORDS)}
        found = consumer.offsets_for_times({partition: TIME + 60_001})[partition]
        assert (found.offset, found.timestamp) == (2, TIME + 120_000)
