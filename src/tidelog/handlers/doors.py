"""Who may come in: the connections of a broker, counted, limited, and closed when they idle.

`max.connections` and `max.connections.per.ip` refuse what is too much; a connection on which
nothing has come for `connections.max.idle.ms` is closed. When the broker stops, nothing more
is read, and each connection is closed once what was asked on it has been answered.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal

from tidelog.base.ports import Clock, Connection, Loop, Receiver
from tidelog.base.settings import Settings
from tidelog.handlers import control
from tidelog.handlers.api import Api
from tidelog.handlers.connection import ClientConnection
from tidelog.serving.counters import Counters
from tidelog.wire.frames import FrameReader

IDLE_CHECKS: Final = 4
"""How often in `connections.max.idle.ms` it is looked for connections that idle."""

OWED_BYTES_MAX: Final = 256 << 20
"""Where `queued.max.request.bytes` sets no other limit."""

_log = logging.getLogger("tidelog.connection")


class Doors:
    """Doors for brokers lead to more than those for clients, and are never closed for want of
    room: a broker that is kept out by clients would fall behind."""

    def __init__(
        self,
        node: Any,
        settings: Callable[[], Settings],
        loop: Loop,
        clock: Clock,
        *,
        for_brokers: bool = False,
    ) -> None:
        self._node = node
        self._for_brokers = for_brokers
        self.apis: Mapping[int, Api] = {**node.apis, **control.APIS} if for_brokers else node.apis
        self._settings = settings
        self._loop = loop
        self._clock = clock
        self._by_address: Counter[str] = Counter()
        self.connections: dict[ClientConnection, None] = {}
        self._state: Literal["starting", "open", "closing"] = "starting"
        self.counters: Counters = node.counters
        limited = "socket.request.max.bytes" if for_brokers else "socket.request.other.max.bytes"
        self.request_bytes_max = settings().whole(limited)
        self.owed_bytes = 0
        """Of requests that have no answer yet. With too many, who is owed one waits unread."""
        limit = settings().whole("queued.max.request.bytes")
        self.owed_bytes_max = limit if limit > 0 else OWED_BYTES_MAX

    def open(self) -> None:
        """Those who came early have waited unread."""
        self._state = "open"
        for connection in list(self.connections):
            connection.begin()
        self._look_for_idlers()

    def accept(self, listener: str, link: Connection) -> Receiver | None:
        refusal = self._refusal(link)
        if refusal is not None:
            self.counters.connections_refused += 1
            _log.warning("refused peer=%s listener=%s why=%s", link.peer, listener, refusal)
            return None
        frames = FrameReader(self._node.buffers, self._settings().whole("socket.request.max.bytes"))
        connection = ClientConnection(self, self._node, link, listener, frames)
        if self._state == "starting":
            link.pause()
        self.connections[connection] = None
        self.counters.connections_accepted += 1
        self._by_address[_address(link.peer)] += 1
        return connection

    def _refusal(self, link: Connection) -> str | None:
        settings = self._settings()
        if self._state == "closing":
            return "the broker is stopping"
        if self._for_brokers:
            return None
        if len(self.connections) >= settings.whole("max.connections"):
            return f"max.connections={len(self.connections)} are open"
        address = _address(link.peer)
        limit = _overrides(settings).get(address, settings.whole("max.connections.per.ip"))
        if self._by_address[address] >= limit:
            return f"{address} has {limit} connections, as many as max.connections.per.ip allows"
        return None

    def left(self, connection: ClientConnection) -> None:
        if self.connections.pop(connection, self) is None:
            address = _address(connection.peer)
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def _look_for_idlers(self) -> None:
        idle_ms = self._settings().whole("connections.max.idle.ms")
        if idle_ms >= 0:
            for connection in list(self.connections):
                connection.count_quiet(IDLE_CHECKS)
        delay_ms = max(1, idle_ms // IDLE_CHECKS) if idle_ms >= 0 else 60_000
        if self._state == "open":
            self._loop.call_at(self._clock.monotonic_ms() + delay_ms, self._look_for_idlers)

    def close(self, done: Callable[[], None], deadline_ms: int) -> None:
        """Reads no more; calls `done` when all that was accepted has been answered, or at the
        deadline."""
        self._state = "closing"
        for connection in list(self.connections):
            connection.finish()
        self._wait_for_last(done, deadline_ms)

    def _wait_for_last(self, done: Callable[[], None], deadline_ms: int) -> None:
        now_ms = self._clock.monotonic_ms()
        if not self.connections or now_ms >= deadline_ms:
            for connection in list(self.connections):
                connection.close("the broker stops")
            done()
        else:
            self._loop.call_at(now_ms + 10, partial(self._wait_for_last, done, deadline_ms))


def _address(peer: str) -> str:
    return peer.rpartition(":")[0].strip("[]")


def _overrides(settings: Settings) -> dict[str, int]:
    text = settings.text("max.connections.per.ip.overrides")
    pairs = (item.rpartition(":") for item in text.split(",") if item.strip())
    return {address.strip().strip("[]"): int(limit) for address, _, limit in pairs}
