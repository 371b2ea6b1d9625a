"""A crash at every single change of the disk, in the middle of what a broker does to its topics.

A short scenario is run to its n-th change of the disk, where the process dies, or the machine
and what was not synced with it. The broker that comes after must start, know of every topic that
was answered, and have every record that was acknowledged (after a power loss, if it was
flushed)."""

from collections.abc import Callable
from typing import Any

import pytest

from support.brokers import DELETE_TOPICS, SimClient, SimNode, one_batch
from support.histories import CREATE_PARTITIONS, DELETE_RECORDS, records_of
from tidelog.world.sim.disk import Crashed

STEP = {"kill": 2, "power": 3}
"""Every so many changes, from a different one on for each scenario, to keep this short."""


class Promises:
    """What a scenario was told."""

    def __init__(self) -> None:
        self.topics: dict[str, int] = {"before": 2}
        self.gone: set[str] = set()
        self.records: dict[tuple[str, int], dict[int, str]] = {}
        self.starts: dict[tuple[str, int], int] = {}


def produce(client: SimClient, promises: Promises, topic: str, value: str, index: int = 0) -> None:
    answer = client.produce(topic, one_batch(value), index=index)
    if answer.error_code.name == "none":
        promises.records.setdefault((topic, index), {})[answer.base_offset] = value


def creating(node: SimNode, client: SimClient, promises: Promises) -> None:
    client.create("new", partitions=2, flush_messages=1)
    promises.topics["new"] = 2
    for number in range(4):
        produce(client, promises, "new", f"n{number}", number % 2)
    node.loop.run_for(2_000)


def deleting(node: SimNode, client: SimClient, promises: Promises) -> None:
    del promises.topics["before"]
    promises.records.clear()
    answer = client.ask(DELETE_TOPICS, 5, topic_names=["before"], timeout=60_000)
    assert answer.responses[0].error_code.name == "none"
    promises.gone.add("before")
    node.loop.run_for(50)
    promises.gone.clear()
    client.create("before", partitions=1, flush_messages=1)
    promises.topics["before"] = 1
    produce(client, promises, "before", "again")
    node.loop.run_for(400_000)


def growing(node: SimNode, client: SimClient, promises: Promises) -> None:
    new = {"name": "before", "count": 4, "assignments": None}
    answer = client.ask(CREATE_PARTITIONS, 3, topics=[new], timeout=60_000, validate_only=False)
    assert answer.results[0].error_code.name == "none"
    promises.topics["before"] = 4
    produce(client, promises, "before", "grown", 3)
    node.loop.run_for(2_000)


def ageing(node: SimNode, client: SimClient, promises: Promises) -> None:
    for number in range(6):
        produce(client, promises, "before", f"{number}" + "x" * 400_000)
    node.loop.run_for(70_000)
    asked: list[dict[str, Any]] = [{"partition_index": 0, "offset": 5}]
    answer = client.ask(
        DELETE_RECORDS, 2, topics=[{"name": "before", "partitions": asked}], timeout=60_000
    )
    assert answer.topics[0].partitions[0].error_code.name == "none"
    promises.starts["before", 0] = 5
    node.loop.run_for(70_000)
    produce(client, promises, "before", "last")
    node.loop.run_for(400_000)


def stopping(node: SimNode, client: SimClient, promises: Promises) -> None:
    produce(client, promises, "before", "last", 1)
    node.stop()


Scenario = Callable[[SimNode, SimClient, Promises], None]


def prepared() -> tuple[SimNode, Promises]:
    node, promises = (
        SimNode(log_segment_bytes=1 << 20, log_retention_check_interval_ms=30_000),
        Promises(),
    )
    client = node.client()
    client.create("before", partitions=2, flush_messages=1)
    for number in range(6):
        produce(client, promises, "before", f"b{number}", number % 2)
    return node, promises


@pytest.mark.parametrize("how", ["kill", "power"])
@pytest.mark.parametrize("scenario", [creating, deleting, growing, ageing, stopping])
def test_a_crash_at_any_change_of_the_disk_breaks_no_promise(scenario: Scenario, how: str) -> None:
    """S9, T6, S5."""
    number, crashed = len(scenario.__name__) % STEP[how], True
    while crashed:
        crashed = run_until_crash(scenario, how, number)
        number += STEP[how]
    assert number > 5, "there are changes to crash at"


def run_until_crash(scenario: Scenario, how: str, number: int) -> bool:
    """Whether it came to a crash: the scenario may end before."""
    node, promises = prepared()
    node.disk.crash_at(number, ("before", "middle", "after")[number % 3])
    crashed = False
    try:
        scenario(node, node.client(), promises)
    except Crashed:
        crashed = True
    node.disk.crash_at(None)
    if how == "kill":
        node.kill()
    else:
        node.lose_power(("all", "some")[number % 2])
    node.start()
    check(node, promises, f"{scenario.__name__} {how} {number}")
    return crashed


def check(node: SimNode, promises: Promises, where: str) -> None:
    image = node.broker.metadata.image
    for topic, count in promises.topics.items():
        assert topic in image.topics, f"{where}: {topic} is there"
        assert len(image.topics[topic].partitions) >= count, where
    for topic in promises.gone:
        assert topic not in image.topics, f"{where}: {topic} is gone"
    for topic in image.topics:
        for index in range(len(image.topics[topic].partitions)):
            check_partition(node, promises, (topic, index), where)


def check_partition(node: SimNode, promises: Promises, key: tuple[str, int], where: str) -> None:
    partition = node.broker.partitions.find(*key)
    start, end = partition.log.log_start_offset, partition.high_watermark
    assert start >= promises.starts.get(key, 0), where
    found: dict[int, str] = {}
    client = node.client()
    at = start
    while at < end:
        client.send_fetch([(key[0], key[1], at)])
        row = client.wait().responses[0].partitions[0]
        assert row.error_code.name == "none", f"{where}: {row.error_code}"
        found |= dict(records_of(row.records))
        at = max(found) + 1
    for offset, value in promises.records.get(key, {}).items():
        if offset >= start:
            assert found.get(offset) == value, f"{where}: {key} {offset} {value[:20]}"
    assert client.produce(key[0], one_batch("after"), index=key[1]).error_code.name == "none"
