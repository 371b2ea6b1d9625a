"""Requests leave nothing behind that only a garbage collector would find: while a broker is
busy none runs, and a full one takes as long as a thousand requests. Ten thousand are made here."""

import gc
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from support.brokers import METADATA, SimClient, SimNode, one_batch

EACH = 100


@contextmanager
def counted_garbage() -> Iterator[Counter[str]]:
    """What of ours the collector finds afterwards, by type."""
    found: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found.update(type(thing).__qualname__ for thing in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def no_session(client: SimClient, topic: str) -> None:
    assert client.fetch(topic, 0).records


def parked_in_vain(client: SimClient, topic: str) -> None:
    end = client.produce(topic, one_batch("a")).base_offset + 1
    assert not client.fetch(topic, end, max_wait=50).records


def refused_batches(client: SimClient, topic: str) -> None:
    assert client.produce(topic, b"x" * 100).error_code.name == "corrupt_message"
    assert client.produce("none", one_batch("a")).error_code.name != "none"


def produced(client: SimClient, topic: str) -> None:
    assert client.produce(topic, one_batch("a")).error_code.name == "none"


def produced_slowly(client: SimClient, topic: str) -> None:
    assert client.produce(topic, one_batch("x" * 300_000)).error_code.name == "none"


def in_a_session(client: SimClient, topic: str) -> None:
    client.send_fetch([(topic, 0, 0)], session_epoch=0)
    answer = client.wait()
    for epoch in range(1, 4):
        client.send_fetch(
            [(topic, 0, epoch)], session_id=answer.session_id, session_epoch=epoch, max_wait=5
        )
        client.wait()
    client.send_fetch([], session_id=answer.session_id, session_epoch=-1)
    client.wait()


def metadata(client: SimClient, topic: str) -> None:
    client.ask(
        METADATA,
        12,
        topics=[{"name": topic, "topic_id": None}],
        include_topic_authorized_operations=False,
    )


Work = Callable[[SimClient, str], None]
ROUNDS: Mapping[Work, int] = {
    no_session: 1_700,
    parked_in_vain: 850,
    refused_batches: 850,
    produced: 1_700,
    produced_slowly: 100,
    in_a_session: 340,
    metadata: 1_700,
}
"""How often each is done."""


@pytest.mark.parametrize("work", ROUNDS)
def test_requests_leave_no_garbage(work: Work) -> None:
    """`engine.md`, The loop."""
    node = SimNode()
    client = node.client()
    client.create("events")
    for _ in range(3):
        client.produce("events", one_batch("a", "b"))
    work(client, "events")
    before = answered(node)
    with counted_garbage() as found:
        for _ in range(ROUNDS[work]):
            work(client, "events")
    # Some have nothing to do with requests: other threads of this process leave garbage too.
    assert sum(found.values()) < ROUNDS[work] / 2, found.most_common(10)
    requests = (answered(node) - before) // ROUNDS[work]
    assert requests == REQUESTS_OF_A_ROUND.get(work, 1)


def answered(node: SimNode) -> int:
    return sum(times.count for times in node.broker.counters.times.values())


REQUESTS_OF_A_ROUND: Mapping[Work, int] = {
    parked_in_vain: 2,
    refused_batches: 2,
    in_a_session: 5,
}


def test_ten_thousand_requests_are_made_here() -> None:
    made = sum(count * REQUESTS_OF_A_ROUND.get(work, 1) for work, count in ROUNDS.items())
    assert made >= 10_000


def test_a_connection_leaves_no_garbage() -> None:
    node = SimNode()
    node.client().create("events")

    def come_and_go(data: bytes) -> None:
        client = node.client()
        client.send_fetch([("events", 0, 0)], max_wait=60_000)
        client.send_bytes(data)
        node.loop.run_for(50)
        client.link.close()
        node.loop.run_for(50)

    come_and_go(b"")
    with counted_garbage() as found:
        for _ in range(EACH):
            come_and_go(b"")
            come_and_go(struct.pack(">i", -5))
            come_and_go(struct.pack(">i", 8) + b"12345678")
    print(found)
    ours = {name: count for name, count in found.items() if not name.startswith("Sim")}
    assert ours.get("ClientConnection", 0) == 0, found.most_common(12)
    assert ours.get("Fetching", 0) == 0, found.most_common(12)
