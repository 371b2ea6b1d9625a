"""A real broker process among very many connections: idle, busy, slow, half open, refused.

Tests Z5 and Z6, and what one node must carry. Clients are cheap: no thread of their own, and
sockets that do not block.
"""

import errno
import resource
import selectors
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.brokers import one_batch
from support.requirements import all_is_required
from support.servers import PEER, TidelogServer
from support.stopwatch import Stopwatch
from support.wire_client import (
    FETCH,
    METADATA,
    PRODUCE,
    WireClient,
    fetching,
    production,
    request_bytes,
    wait_until,
)
from support.witness import SETTINGS, check_log, many_descriptors, plain_socket, witnessed

SLOW_CONNECTIONS = 2_000
FLOOD_CONNECTIONS = 10_000
FLOOD_SECONDS_MAX = 60.0
SETTLED_SECONDS_MAX = 60.0
CONNECTIONS_MAX = 2_000
CONNECTIONS_PER_ADDRESS_MAX = 100
FLOOD_ADDRESSES = [f"127.0.1.{number}" for number in range(1, 41)]
CONNECTING_AT_ONCE = 250
DESCRIPTORS_SPARE = 400
"""What a process has open besides: files, libraries, other tests' connections."""
SCHEDULING_SECONDS = 0.25
"""What a machine that runs other tests beside this one adds now and then."""

pytestmark = pytest.mark.skipif(PEER != "", reason="looks into tidelog's own process")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TidelogServer]:
    with many_descriptors():
        server = TidelogServer(tmp_path_factory.mktemp("hostile"), SETTINGS)
        server.start()
        try:
            with WireClient(server.address) as client:
                client.create("witness")
                client.create("wide", partitions=100)
            yield server
            check_log(server)
            server.stop()
        finally:
            server.close()


def affordable(wanted: int) -> int:
    """So many connections, or as many as this machine's limit on open files allows; where all is
    required (`.ci/run`) it must."""
    needed = wanted + DESCRIPTORS_SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    allowed = min(wanted, soft - DESCRIPTORS_SPARE)
    if allowed < wanted:
        assert not all_is_required(), f"{wanted} connections need a larger limit on open files"
        print(f"{allowed} connections instead of {wanted}: more files cannot be open here")
    return allowed


def test_a_thousand_idle_and_two_hundred_busy_connections(server: TidelogServer) -> None:
    ask = request_bytes(PRODUCE, 9, **production("witness", one_batch("busy")))
    with witnessed(server) as witness, ExitStack() as links:
        for _ in range(affordable(1_200) - 200):
            links.enter_context(plain_socket(server.address))
        busy = [links.enter_context(WireClient(server.address)) for _ in range(200)]
        rounds = witness.rounds
        for _ in range(10):
            for client in busy:
                client.socket.sendall(ask)
            for client in busy:
                client.receive_frame()
        assert witness.rounds > rounds


def test_connections_that_send_a_byte_a_second_slow_nobody(server: TidelogServer) -> None:
    """Z5: 2,000 of them, for four seconds, spread over each."""
    ask = request_bytes(METADATA, 12, topics=[], include_topic_authorized_operations=False)
    with witnessed(server) as witness, ExitStack() as opened:
        time.sleep(1)
        before = witness.percentile_99(0)
        links = [
            opened.enter_context(plain_socket(server.address))
            for _ in range(affordable(SLOW_CONNECTIONS))
        ]
        rounds = witness.rounds
        for at in range(4):
            for tenth in range(10):
                ends = time.monotonic() + 0.1
                for link in links[tenth::10]:
                    link.sendall(ask[at : at + 1])
                time.sleep(max(0.0, ends - time.monotonic()))
        during = witness.percentile_99(rounds)
        print(
            f"{len(links)} slow connections: p99 {before:.4f} s before, {during:.4f} s beside them"
        )
        assert during < 2 * before + SCHEDULING_SECONDS


def test_half_open_connections_slow_nobody(server: TidelogServer) -> None:
    """They have said all they will, and wait; or they went without a word."""
    park = request_bytes(FETCH, 12, **(fetching("wide", 0) | {"max_wait": 60_000}))
    with witnessed(server), ExitStack() as opened:
        for number in range(100):
            link = opened.enter_context(plain_socket(server.address))
            link.sendall(park)
            if number % 2:
                link.shutdown(socket.SHUT_WR)
        time.sleep(0.5)


def test_a_flood_of_connections_is_refused_and_leaves_no_descriptors(tmp_path: Path) -> None:
    """Z6: 10,000 within a minute; an address may have 100, all together 2,000."""
    with many_descriptors():
        limit = affordable(CONNECTIONS_MAX + CONNECTING_AT_ONCE) - CONNECTING_AT_ONCE
        settings = {
            **SETTINGS,
            "max.connections": str(limit),
            "max.connections.per.ip": str(CONNECTIONS_PER_ADDRESS_MAX),
        }
        server = TidelogServer(tmp_path, settings)
        server.start()
        try:
            with WireClient(server.address) as client:
                client.create("witness")
            with witnessed(server), Flood(server.address, limit) as flood:
                stopwatch = Stopwatch([server.process_id])
                began = stopwatch.seconds()
                flood.run()
                assert stopwatch.seconds() - began < FLOOD_SECONDS_MAX
                assert limit - 10 <= len(flood.accepted) < limit
                counts = Counter(flood.accepted.values())
                assert max(counts.values()) == CONNECTIONS_PER_ADDRESS_MAX
            check_log(server)
            assert wait_until(lambda: sum(_refusals(server, limit)) == flood.refused)
            assert min(_refusals(server, limit)) > 100
        finally:
            server.close()


def _refusals(server: TidelogServer, limit: int) -> tuple[int, int]:
    """Those that the log tells of: by what one address may have, and by what all may."""
    text = server.output.read_text()
    by_address = text.count(f" has {CONNECTIONS_PER_ADDRESS_MAX} connections")
    return by_address, text.count(f"max.connections={limit} are open")


class Flood:
    """Connects again and again, and keeps every connection that the broker does not close."""

    def __init__(self, address: str, limit: int) -> None:
        host, _, port = address.rpartition(":")
        self._target = host, int(port)
        self._limit = limit
        self._selector = selectors.DefaultSelector()
        self.accepted: dict[socket.socket, str] = {}
        """With the address that each comes from."""

    def __enter__(self) -> "Flood":
        return self

    def __exit__(self, *_: object) -> None:
        for link in self.accepted:
            link.close()
        self._selector.close()

    def run(self) -> None:
        """One address after the other, so that each meets its own limit, then all in turn."""
        half = FLOOD_CONNECTIONS // 2
        each = half // len(FLOOD_ADDRESSES)
        for number in range(FLOOD_CONNECTIONS):
            at = number // each if number < half else number
            self._connect(FLOOD_ADDRESSES[at % len(FLOOD_ADDRESSES)])
            if number % CONNECTING_AT_ONCE == CONNECTING_AT_ONCE - 1:
                self._settle(0.05)
        deadline = time.monotonic() + SETTLED_SECONDS_MAX
        while len(self.accepted) >= self._limit and time.monotonic() < deadline:
            self._settle(0.05)
        self._settle(1.0)

    @property
    def refused(self) -> int:
        return FLOOD_CONNECTIONS - len(self.accepted)

    def _connect(self, source: str) -> None:
        link = socket.socket()
        link.setblocking(False)
        link.bind((source, 0))
        assert link.connect_ex(self._target) in (0, errno.EINPROGRESS)
        self.accepted[link] = source
        self._selector.register(link, selectors.EVENT_READ)

    def _settle(self, quiet_seconds: float) -> None:
        """Until the broker closes no more of them."""
        while events := self._selector.select(quiet_seconds):
            for key, _ in events:
                link = key.fileobj
                assert isinstance(link, socket.socket)
                self._selector.unregister(link)
                del self.accepted[link]
                link.close()
