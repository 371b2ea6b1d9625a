"""The page for Prometheus, on virtual time: what it counts, and whom it lets in (O3)."""

import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from support.brokers import SimNode, one_batch
from tidelog import metrics
from tidelog.base.ports import Connection, Receiver
from tidelog.broker import Broker
from tidelog.cluster.effective import effective_topic_settings
from tidelog.metrics import (
    CONNECTIONS_MAX,
    IDLE_MS_MAX,
    ROWS_BETWEEN,
    MetricsPage,
    MetricsPages,
    lines,
)

PORT = 9_999
GET = b"GET /metrics HTTP/1.1\r\n\r\n"


class Asking:
    """A connection to the page."""

    def __init__(self, node: SimNode) -> None:
        self._room = bytearray(1 << 16)
        self.seen = b""
        self.is_closed = False
        opened: list[Connection | OSError] = []

        def take(link: Connection | OSError) -> Receiver | None:
            opened.append(link)
            return None if isinstance(link, OSError) else self

        node.network.host("client").connect("node", PORT, take)
        assert node.loop.run_until(lambda: bool(opened))
        assert not isinstance(opened[0], OSError)
        self.link = opened[0]

    def buffer(self) -> memoryview:
        return memoryview(self._room)

    def received(self, size: int) -> None:
        self.seen += self._room[:size]

    def closed(self, _why: str) -> None:
        self.is_closed = True

    @property
    def is_answered(self) -> bool:
        head, found, body = self.seen.partition(b"\r\n\r\n")
        if not found:
            return False
        length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
        return len(body) >= length


def values(node: SimNode) -> dict[str, float]:
    text = "".join(lines(node.broker))
    rows = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in rows}


def with_page(node: SimNode) -> SimNode:
    pages = MetricsPages(node.broker, node.loop, node.clock)
    node.network.host("node").listen("node", PORT, pages.accept)
    return node


def test_requests_and_bytes_are_counted() -> None:
    node = SimNode()
    client = node.client()
    client.create("events")
    client.produce("events", one_batch("x" * 1_000))
    assert client.fetch("events", 0).records
    before = values(node)
    assert before['tidelog_bytes_in_total{topic="events"}'] > 1_000
    assert before['tidelog_bytes_out_total{topic="events"}'] > 1_000
    assert before["tidelog_requests_refused_total"] == 0
    for api_key, version in ((0x7FFF, 0), (3, 999), (0, 2)):
        stranger = node.client()
        head = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\xff\xff"
        stranger.send_bytes(len(head).to_bytes(4, "big") + head)
        node.loop.run_for(100)
    assert values(node)["tidelog_requests_refused_total"] == 3


def test_a_long_page_is_made_while_others_are_served() -> None:
    node = with_page(SimNode())
    client = node.client()
    for number in range(10):
        client.create(f"events-{number}", partitions=100)
    client.create("other")
    asking = Asking(node)
    node.loop.run_for(100)
    asking.link.send(GET)
    client.produce("other", one_batch("x"))
    assert not asking.is_answered, "somebody else was answered before the page was whole"
    assert node.loop.run_until(lambda: asking.is_answered)
    assert asking.seen.count(b"tidelog_high_watermark{") == 1_001
    asking.seen = b""
    asking.link.send(GET)
    assert node.loop.run_until(lambda: asking.is_answered), "the connection goes on"


def test_the_settings_of_many_topics_are_looked_at_while_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """O3: a page of thousands of topics holds nobody up before its first line."""
    node = SimNode()
    client = node.client()
    for number in range(20):
        client.create(f"events-{number}", min_insync_replicas=1 + number % 2)
    looked_at: list[str] = []

    def note(image: Any, settings: Any, topic: str) -> Any:
        looked_at.append(topic)
        return effective_topic_settings(image, settings, topic)

    monkeypatch.setattr(metrics, "effective_topic_settings", note)
    page = lines(node.broker)
    for _ in range(10):
        next(page)
    assert len(looked_at) <= 10 < ROWS_BETWEEN
    assert "tidelog_under_min_isr_partitions 0\n" in "".join(page)
    assert len(looked_at) == 20


def test_a_few_may_ask_and_those_that_do_not_are_sent_away() -> None:
    node = with_page(SimNode())
    asking = [Asking(node) for _ in range(CONNECTIONS_MAX + 1)]
    node.loop.run_for(100)
    assert [one.is_closed for one in asking] == [False] * CONNECTIONS_MAX + [True]
    for _ in range(3):
        asking[0].link.send(GET)
        node.loop.run_for(IDLE_MS_MAX * 2 // 3)
    assert [one.is_closed for one in asking] == [False] + [True] * CONNECTIONS_MAX
    again = Asking(node)
    again.link.send(GET)
    assert node.loop.run_until(lambda: again.is_answered), "there is room again"


def test_who_has_left_leaves_nothing_behind() -> None:
    """O3: a probe that only connects, once a second or thousands of times, costs no memory."""
    node = SimNode()
    pages = MetricsPages(node.broker, node.loop, node.clock)
    made: list[weakref.ref[MetricsPage]] = []

    def accept(link: Connection) -> MetricsPage | None:
        page = pages.accept(link)
        assert page is not None
        made.append(weakref.ref(page))
        return page

    node.network.host("node").listen("node", PORT, accept)
    for _ in range(CONNECTIONS_MAX + 1):
        Asking(node).link.close()
        node.loop.run_for(100)
    assert len(made) == CONNECTIONS_MAX + 1
    assert [page for page in made if page() is not None] == []


def test_a_page_for_somebody_who_has_left_is_not_made_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """O3: others may come in his place meanwhile, and leave as he did."""
    node = SimNode()
    pages = MetricsPages(node.broker, node.loop, node.clock)
    links: list[Connection] = []
    made: list[int] = []

    def accept(link: Connection) -> MetricsPage | None:
        links.append(link)
        return pages.accept(link)

    def many_lines(_broker: Broker) -> Iterator[str]:
        for number in range(100_000):
            made.append(number)
            yield "a line\n"

    monkeypatch.setattr(metrics, "lines", many_lines)
    node.network.host("node").listen("node", PORT, accept)
    Asking(node).link.send(GET)
    assert node.loop.run_until(lambda: bool(made))
    links[0].abort()
    node.loop.run_for(1_000)
    assert len(made) < 50_000
    assert node.broker.slices.is_idle
