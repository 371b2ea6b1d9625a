"""Groups of aiokafka: shared work, members that come and go, committed offsets (A5)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from clients.grouping import SECONDS_MAX, new_topic, numbered, produce
from support.servers import Server


@pytest.fixture(scope="module")
def bootstrap(group_broker: Server) -> str:
    return group_broker.address


@asynccontextmanager
async def member(
    bootstrap: str, group: str, topic: str, **settings: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    settings = {
        "session_timeout_ms": 6000,
        "heartbeat_interval_ms": 300,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        **settings,
    }
    made = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, **settings)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def read_until(
    members: list[AIOKafkaConsumer], holds: Callable[[list[bytes]], bool]
) -> list[bytes]:
    values: list[bytes] = []
    async with asyncio.timeout(SECONDS_MAX):
        while not holds(values):
            for each in members:
                for records in (await each.getmany(timeout_ms=20)).values():
                    values += [record.value for record in records]
    return values


def is_shared(members: list[AIOKafkaConsumer], count: int) -> bool:
    owned = [sorted(found.partition for found in each.assignment()) for each in members]
    return sorted(p for each in owned for p in each) == list(range(count)) and all(owned)


@pytest.mark.parametrize("assignor", [RoundRobinPartitionAssignor, StickyPartitionAssignor])
def test_members_share_partitions_and_go_on_where_they_were(bootstrap: str, assignor: Any) -> None:
    topic, _ = new_topic(bootstrap, 6, 0)
    group, settings = f"aio-{assignor.__name__}", {"partition_assignment_strategy": (assignor,)}

    async def share() -> None:
        async with (
            member(bootstrap, group, topic, **settings) as first,
            member(bootstrap, group, topic, **settings) as second,
        ):
            both = [first, second]
            await read_until(both, lambda _: is_shared(both, 6))
            produce(bootstrap, topic, numbered(300), 6)
            await read_until(both, lambda values: set(values) >= set(numbered(300)))
            await first.commit()
            await second.commit()
        produce(bootstrap, topic, [b"more"] * 6, 6)
        async with member(bootstrap, group, topic, **settings) as third:
            assert await read_until([third], lambda more: len(more) >= 6) == [b"more"] * 6

    asyncio.run(share())


def test_five_members_come_and_go(bootstrap: str) -> None:
    topic, _ = new_topic(bootstrap, 10, 10)

    async def churn() -> None:
        async with member(bootstrap, "aio-churn", topic) as stays:
            others = [member(bootstrap, "aio-churn", topic) for _ in range(4)]
            everyone = [stays, *(await asyncio.gather(*(o.__aenter__() for o in others)))]
            await read_until(everyone, lambda _: is_shared(everyone, 10))
            await asyncio.gather(*(other.__aexit__(None, None, None) for other in others))
            await read_until([stays], lambda _: is_shared([stays], 10))

    asyncio.run(churn())


def test_a_static_member_keeps_its_place(bootstrap: str) -> None:
    topic, _ = new_topic(bootstrap, 2, 2)

    async def restart() -> None:
        static = {"group_instance_id": "aio"}
        async with member(bootstrap, "aio-static", topic, **static) as first:
            await read_until([first], lambda _: is_shared([first], 2))
        async with member(bootstrap, "aio-static", topic, **static) as second:
            await read_until([second], lambda _: is_shared([second], 2))

    asyncio.run(restart())


def test_offsets_are_seen_by_the_admin(bootstrap: str) -> None:
    topic, _ = new_topic(bootstrap, 2, 20)

    async def look() -> None:
        async with member(bootstrap, "aio-admin", topic) as only:
            await read_until([only], lambda values: len(values) == 20)
            await only.commit()
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            found = await admin.list_consumer_group_offsets("aio-admin")
            assert found[TopicPartition(topic, 0)].offset == 10
            assert ("aio-admin", "consumer") in await admin.list_consumer_groups()
        finally:
            await admin.close()

    asyncio.run(look())
