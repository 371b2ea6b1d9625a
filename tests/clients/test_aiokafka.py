"""aiokafka produces and reads with `assign`: A1, R1, R3, R4 as one node can show them. It speaks
older versions of most APIs than librdkafka does."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
)

from clients.conftest import MakeTopic
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

COUNT = 500
SECONDS_MAX = 60


def run(steps: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(steps, SECONDS_MAX))


@asynccontextmanager
async def started(client: Any) -> AsyncIterator[Any]:
    """Stopped even where its start fails, so that nothing is left open."""
    try:
        await client.start()
        yield client
    finally:
        await client.stop()


async def send(
    bootstrap: str, topic: str, records: Iterable[Sample], **settings: Any
) -> list[tuple[int, int]]:
    """The partition and offset of each record."""
    async with started(AIOKafkaProducer(bootstrap_servers=bootstrap, **settings)) as producer:
        futures = [
            await producer.send(
                topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                timestamp_ms=TIME + 60_000 * index,
            )
            for index, record in enumerate(records)
        ]
        sent = await asyncio.gather(*futures)
    return [(found.partition, found.offset) if found else (-1, -1) for found in sent]


async def take(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    return [await consumer.getone() for _ in range(count)]


async def read(bootstrap: str, topic: str, count: int, **settings: Any) -> list[Any]:
    client = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest", **settings
    )
    async with started(client) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return await take(consumer, count)


def samples(records: Iterable[Any]) -> list[Sample]:
    return [as_sample(record.key, record.value, record.headers) for record in records]


def numbers(count: int = COUNT) -> list[Sample]:
    return [Sample(key=None, value=b"%d" % n) for n in range(count)]


@pytest.fixture
def numbered(bootstrap: str, make_topic: MakeTopic) -> TopicPartition:
    """A partition with COUNT records in many batches, a minute apart."""
    topic = make_topic()
    run(send(bootstrap, topic, numbers(), max_batch_size=400))
    return TopicPartition(topic, 0)


def reading(bootstrap: str, **settings: Any) -> Any:
    return started(AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, **settings))


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_records_come_back_and_are_stored_as_compressed(
    broker: Server, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic()
    compression = None if codec == "none" else codec
    sending = send(broker.address, topic, KEY_OR_VALUE, compression_type=compression, linger_ms=600)
    assert run(sending) == [(0, offset) for offset in range(len(KEY_OR_VALUE))]
    assert stored_codecs(broker.log_dir, topic) == {CODECS[codec]}
    found = run(read(broker.address, topic, len(KEY_OR_VALUE)))
    assert samples(found) == KEY_OR_VALUE
    assert [record.timestamp for record in found] == [
        TIME + 60_000 * n for n in range(len(KEY_OR_VALUE))
    ]


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_aiokafka_producer_is_answered_as_its_acks_ask(
    bootstrap: str, make_topic: MakeTopic, acks: Any
) -> None:
    """A1"""
    topic = make_topic()
    reports = run(send(bootstrap, topic, numbers(50), acks=acks))
    if acks != 0:
        assert reports == [(0, offset) for offset in range(50)]
    assert samples(run(read(bootstrap, topic, 50))) == numbers(50)


def test_aiokafka_idempotent_producer_writes_in_order_under_one_producer_id(
    broker: Server, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    run(send(broker.address, topic, numbers(), enable_idempotence=True, max_batch_size=400))
    batches = stored_batches(broker.log_dir, topic)
    assert len(batches) > 5
    assert len({batch.producer_id for batch in batches}) == 1
    assert batches[0].producer_id >= 0
    assert [batch.base_sequence for batch in batches] == [batch.base_offset for batch in batches]
    assert samples(run(read(broker.address, topic, COUNT))) == numbers()


def test_aiokafka_keys_go_to_the_partition_java_would_choose(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=7)
    reports = run(send(bootstrap, topic, [Sample(key=key, value=b"") for key in KEYS]))
    assert [partition for partition, _ in reports] == [partition_for(key, 7) for key in KEYS]


def test_aiokafka_record_of_ten_megabytes_is_taken_where_the_topic_allows_it(
    bootstrap: str, big_topic: str
) -> None:
    record = Sample(key=b"big", value=b"x" * BIG)
    run(send(bootstrap, big_topic, [record], max_request_size=2 * BIG))
    assert samples(run(read(bootstrap, big_topic, 1))) == [record]


def test_aiokafka_record_larger_than_the_topic_allows_is_refused(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    record = Sample(key=None, value=b"x" * 1_100_000)
    with pytest.raises(MessageSizeTooLargeError):
        run(send(bootstrap, make_topic(), [record], max_request_size=2 * BIG))


def test_aiokafka_producer_makes_the_topic_it_writes_to(bootstrap: str, unused_name: Any) -> None:
    """T6"""
    topic = unused_name()
    run(send(bootstrap, topic, numbers(10)))
    assert samples(run(read(bootstrap, topic, 10))) == numbers(10)


def test_aiokafka_producer_is_refused_an_invalid_topic_name(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It asks again and again, logs what it was told, and gives up after its timeout."""
    with pytest.raises(KafkaError):
        run(send(bootstrap, "slash/ed", numbers(1), request_timeout_ms=2_000))
    assert "'slash/ed' is not a valid topic name" in caplog.messages


def test_aiokafka_consumer_reads_across_many_batches_with_tiny_fetches(
    bootstrap: str, numbered: TopicPartition
) -> None:
    sizes = {"fetch_max_bytes": 1_000, "max_partition_fetch_bytes": 300}
    records = run(read(bootstrap, numbered.topic, COUNT, **sizes))
    assert [int(record.value) for record in records] == list(range(COUNT))
    assert [record.offset for record in records] == list(range(COUNT))


def test_aiokafka_consumer_reads_several_partitions_each_in_order(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=5)
    keyed = [Sample(key=b"%d" % (n % 9), value=b"%d" % n) for n in range(COUNT)]
    run(send(bootstrap, topic, keyed))

    async def read_all() -> list[Any]:
        async with reading(bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, n) for n in range(5)])
            found: list[Any] = []
            while len(found) < COUNT:
                batches = await consumer.getmany(timeout_ms=1_000)
                found += [record for records in batches.values() for record in records]
            return found

    records = run(read_all())
    for key in range(9):
        values = [int(record.value) for record in records if record.key == b"%d" % key]
        assert values == list(range(key, COUNT, 9))


def test_aiokafka_consumer_seeks_and_knows_where_it_is(
    bootstrap: str, numbered: TopicPartition
) -> None:
    async def steps() -> None:
        async with reading(bootstrap) as consumer:
            consumer.assign([numbered])
            assert await consumer.beginning_offsets([numbered]) == {numbered: 0}
            assert await consumer.end_offsets([numbered]) == {numbered: COUNT}
            await consumer.seek_to_beginning(numbered)
            assert (await consumer.getone()).offset == 0
            for offset in (400, 3, 250):
                consumer.seek(numbered, offset)
                assert (await consumer.getone()).offset == offset
                assert await consumer.position(numbered) == offset + 1
            assert consumer.highwater(numbered) == COUNT
            await consumer.seek_to_end(numbered)
            assert await consumer.position(numbered) == COUNT

    run(steps())


@pytest.mark.parametrize(
    ("at", "offset"), [(0, 0), (TIME, 0), (TIME + 1, 1), (TIME + 60_000 * COUNT, None)]
)
def test_aiokafka_consumer_finds_offsets_by_time(
    bootstrap: str, numbered: TopicPartition, at: int, offset: int | None
) -> None:
    async def steps() -> Any:
        async with reading(bootstrap) as consumer:
            return (await consumer.offsets_for_times({numbered: at}))[numbered]

    found = run(steps())
    assert (found and found.offset) == offset
    if offset is not None:
        assert found.timestamp == TIME + 60_000 * offset


def test_aiokafka_fetch_that_waits_is_woken_by_a_record(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    """R3"""
    topic = make_topic()

    async def steps() -> float:
        async with reading(
            bootstrap, fetch_max_wait_ms=30_000, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            waiting = asyncio.ensure_future(consumer.getone())
            await asyncio.sleep(0.5)
            sent = time.monotonic()
            await send(bootstrap, topic, numbers(1))
            await waiting
            return time.monotonic() - sent

    assert run(steps()) < 20


def test_aiokafka_fetch_waits_for_the_bytes_it_asks_for(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    """R3"""
    topic = make_topic()
    run(send(bootstrap, topic, numbers(1)))
    started_at = time.monotonic()
    run(read(bootstrap, topic, 1, fetch_min_bytes=50_000, fetch_max_wait_ms=2_000))
    assert time.monotonic() - started_at > 1.9


def test_aiokafka_consumer_is_told_that_an_offset_is_out_of_range(
    bootstrap: str, numbered: TopicPartition
) -> None:
    async def steps() -> None:
        async with reading(bootstrap, auto_offset_reset="none") as consumer:
            consumer.assign([numbered])
            consumer.seek(numbered, COUNT + 1)
            await consumer.getone()

    with pytest.raises(OffsetOutOfRangeError):
        run(steps())


def test_aiokafka_consumer_at_the_end_sees_only_what_comes_after(
    bootstrap: str, numbered: TopicPartition
) -> None:
    async def steps() -> Any:
        async with reading(bootstrap, auto_offset_reset="latest") as consumer:
            consumer.assign([numbered])
            assert await consumer.position(numbered) == COUNT
            await send(bootstrap, numbered.topic, numbers(1))
            return await consumer.getone()

    assert run(steps()).offset == COUNT
