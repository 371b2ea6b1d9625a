"""Wide Produce requests that wait a moment for the next ones (R5, B3)."""

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import pytest

from support.brokers import API_VERSIONS, PRODUCE, SimClient, SimNode, one_batch
from support.histories import records_of
from support.joining import serving
from tidelog.handlers.connection import ClientConnection
from tidelog.handlers.gathering import PARTITIONS_MIN
from tidelog.handlers.share import IN_FLIGHT_MAX
from tidelog.handlers.together import TOGETHER_MAX
from tidelog.log.partition_log import PartitionLog

GARBAGE: Final = (b"\0\0\0\4\0\0\0\x09", b"\x7f\xff\xff\xff")


def begun(seed: int = 0) -> SimNode:
    """A topic in which every partition has a record."""
    node = SimNode(seed=seed)
    client = node.client()
    client.create("wide", partitions=PARTITIONS_MIN)
    for index in range(PARTITIONS_MIN):
        assert client.produce("wide", one_batch("first"), index=index).base_offset == 0
    return node


def wide(client: SimClient, value: str, acks: int = -1, count: int = PARTITIONS_MIN) -> bytes:
    data = [{"index": index, "records": one_batch(value)} for index in range(count)]
    topics = [{"name": "wide", "partition_data": data}]
    return client.request(
        PRODUCE, 9, transactional_id=None, acks=acks, timeout=1000, topic_data=topics
    )


def versions(client: SimClient) -> bytes:
    return client.request(API_VERSIONS, 4, client_software_name="test", client_software_version="1")


def values(node: SimNode, index: int) -> list[str]:
    client = node.client()
    client.send_fetch([("wide", index, 0)])
    return [value for _, value in records_of(client.wait().responses[0].partitions[0].records)]


def offsets(answer: Any) -> set[int]:
    return {row.base_offset for row in answer.responses[0].partition_responses}


def log_writes(trace: list[Any]) -> int:
    return sum(operation == "pwrite" for operation, path in trace if path.endswith(".log"))


def test_requests_that_come_one_after_the_other_are_written_together() -> None:
    """At least in one of some histories all of them come before the loop is quiet."""
    writes = []
    for seed in range(10):
        with serving("joined"):
            node = begun(seed)
            client = node.client()
            trace = node.disk.trace()
            for number in range(5):
                client.send_bytes(wide(client, str(number)))
            client.wait()
        assert [offsets(answer) for answer in client.answers[-5:]] == [{n} for n in range(1, 6)]
        assert values(node, PARTITIONS_MIN - 1) == ["first", *"01234"]
        writes.append(log_writes(trace))
    assert min(writes) < 3 * PARTITIONS_MIN
    assert max(writes) <= 5 * PARTITIONS_MIN


@pytest.mark.parametrize("acks", [1, -1])
def test_one_that_comes_alone_is_served(acks: int) -> None:
    with serving("joined"):
        node = begun()
        client = node.client()
        client.send_bytes(wide(client, "a", acks))
        assert offsets(client.wait()) == {1}


@pytest.mark.parametrize("seed", range(6))
def test_whatever_comes_behind_it_keeps_its_place(seed: int) -> None:
    """A1."""
    with serving("joined"):
        node = begun(seed)
        client = node.client()
        sent = [
            wide(client, "a"),
            versions(client),
            wide(client, "b", count=1),
            wide(client, "c", acks=0),
            wide(client, "d"),
        ]
        for piece in sent:
            client.send_bytes(piece)
        client.wait()
        assert len(client.answers) == 4
        assert values(node, 0) == ["first", *"abcd"]
        assert values(node, 1) == ["first", *"acd"]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("garbage", GARBAGE)
def test_what_came_before_garbage_is_answered(seed: int, garbage: bytes) -> None:
    with serving("joined"):
        node = begun(seed)
        client = node.client()
        client.send_bytes(wide(client, "a"))
        client.send_bytes(garbage)
        node.loop.run_for(1000)
        assert [offsets(answer) for answer in client.answers] == [{1}]
        assert client.closed_why is not None
        assert values(node, 0) == ["first", "a"]


def has_come(connections: Iterable[ClientConnection], log: PartitionLog) -> bool:
    return log.log_end_offset > 1 or any(bool(one._gathering) for one in connections)


def test_a_broker_that_stops_answers_it() -> None:
    """All that was accepted; in some histories it waits just then."""
    waited = 0
    for seed in range(10):
        with serving("joined"):
            node = begun(seed)
            client = node.client()
            client.send_bytes(wide(client, "a"))
            log = node.broker.partitions.find("wide", 0).log
            connections = node.broker.doors.connections
            assert node.loop.run_until(partial(has_come, connections, log))
            waited += log.log_end_offset == 1
            node.stop()
            node.loop.run_for(100)
        assert [offsets(answer) for answer in client.answers] == [{1}]
    assert waited


@pytest.mark.parametrize("seed", range(6))
def test_of_a_client_that_goes_at_once_all_or_nothing_is_written(seed: int) -> None:
    with serving("joined"):
        node = begun(seed)
        client = node.client()
        client.send_bytes(wide(client, "a"))
        client.link.abort()
        node.loop.run_for(1000)
        ends = {
            node.broker.partitions.find("wide", index).log.log_end_offset
            for index in range(PARTITIONS_MIN)
        }
        assert ends in ({1}, {2})


@pytest.mark.parametrize("seed", range(12))
def test_what_came_before_a_client_has_closed_is_written(seed: int) -> None:
    """A1: with acks=0 a client hears nothing, and closes when it has sent everything."""
    with serving("joined"):
        node = begun(seed)
        client = node.client()
        for value in "ab":
            client.send_bytes(wide(client, value, acks=0))
        client.link.close()
        node.loop.run_for(1000)
        assert values(node, 0) == ["first", *"ab"]
        assert values(node, PARTITIONS_MIN - 1) == ["first", *"ab"]


def test_all_that_came_before_a_client_has_closed_is_written() -> None:
    """A1: also if it is more than what is answered in one go. In some histories it all waits when
    the end comes."""
    count = IN_FLIGHT_MAX + TOGETHER_MAX
    for seed in range(20):
        with serving("joined"):
            node = begun(seed)
            client = node.client()
            client.send_bytes(wide(client, "a", acks=0))
            log = node.broker.partitions.find("wide", 0).log
            assert node.loop.run_until(partial(has_come, node.broker.doors.connections, log))
            rest = [wide(client, str(number), acks=0, count=1) for number in range(count)]
            client.send_bytes(b"".join(rest))
            client.link.close()
            node.loop.run_for(1000)
            assert values(node, 0) == ["first", "a", *map(str, range(count))], f"seed {seed}"


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("begins_wide", [False, True])
def test_all_that_came_before_garbage_is_written(garbage: bytes, begins_wide: bool) -> None:
    """A1: also if it is more than what is answered in one go. The garbage is looked at in turn."""
    count = IN_FLIGHT_MAX + TOGETHER_MAX
    for seed in range(10):
        with serving("joined"):
            node = begun(seed)
            client = node.client()
            if begins_wide:
                client.send_bytes(wide(client, "a", acks=0))
                log = node.broker.partitions.find("wide", 0).log
                assert node.loop.run_until(partial(has_come, node.broker.doors.connections, log))
            rest = [wide(client, str(number), acks=0, count=1) for number in range(count)]
            client.send_bytes(b"".join(rest) + garbage)
            node.loop.run_for(1000)
            first = ["first", "a"] if begins_wide else ["first"]
            assert values(node, 0) == [*first, *map(str, range(count))], f"seed {seed}"
            assert client.closed_why is not None
