"""Transactions of aiokafka: all or nothing, with the offsets of what was consumed (A4)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerFenced

from clients.grouping import SECONDS_MAX, new_topic
from clients.test_confluent_transactions import read, wait_for
from support.servers import Server


@pytest.fixture(scope="module")
def bootstrap(group_broker: Server) -> str:
    return group_broker.address


@asynccontextmanager
async def transactional(bootstrap: str, name: str) -> AsyncIterator[AIOKafkaProducer]:
    made = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


def test_committed_transactions_are_read_and_aborted_ones_never(bootstrap: str) -> None:
    topic, _ = new_topic(bootstrap, 2, 0)

    async def write() -> None:
        async with transactional(bootstrap, topic) as producer:
            for number in range(4):
                await producer.begin_transaction()
                for index in range(10):
                    await producer.send_and_wait(topic, f"{number}-{index}".encode(), partition=0)
                if number % 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()

    asyncio.run(write())
    expected = sorted(f"{number}-{index}" for number in (0, 2) for index in range(10))
    wait_for(lambda: read(bootstrap, topic) == expected)


def test_a_zombie_is_shut_out(bootstrap: str) -> None:
    topic, _ = new_topic(bootstrap, 2, 0)

    async def write() -> None:
        async with transactional(bootstrap, topic) as zombie:
            await zombie.begin_transaction()
            await zombie.send_and_wait(topic, b"lost", partition=0)
            async with transactional(bootstrap, topic) as other:
                async with other.transaction():
                    await other.send_and_wait(topic, b"kept", partition=0)
                with pytest.raises(ProducerFenced):
                    await zombie.commit_transaction()

    asyncio.run(write())
    wait_for(lambda: read(bootstrap, topic) == ["kept"])


def test_offsets_are_part_of_the_transaction(bootstrap: str) -> None:
    source, values = new_topic(bootstrap, 1, 50)
    target, _ = new_topic(bootstrap, 1, 0)
    place = TopicPartition(source, 0)
    group = f"carry-{source}"

    async def carry(*, is_kept: bool) -> None:
        reader = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await reader.start()
        reader.assign([place])
        async with transactional(bootstrap, group) as producer, asyncio.timeout(SECONDS_MAX):
            records = await reader.getmany(place, timeout_ms=5000, max_records=25)
            await producer.begin_transaction()
            for record in records[place]:
                await producer.send(target, record.value, partition=0)
            after = records[place][-1].offset + 1
            await producer.send_offsets_to_transaction({place: after}, group)
            await (producer.commit_transaction() if is_kept else producer.abort_transaction())
        await reader.stop()

    for is_kept in (True, False, True):
        asyncio.run(carry(is_kept=is_kept))
    wait_for(lambda: read(bootstrap, target, 1) == sorted(value.decode() for value in values))
