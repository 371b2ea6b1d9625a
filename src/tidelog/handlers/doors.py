"""Who may come in: the connections of a broker, counted, limited, and closed when they idle.

`max.connections` and `max.connections.per.ip` refuse what is too much; what comes faster than
`max.connection.creation.rate` waits. The first and the last may be set for one listener too. One
that would leave logs too few of the files that may be open is refused as well. A connection on
which nothing has come for `connections.max.idle.ms` is closed. When the broker stops, nothing more
is read, and each connection is closed once what was asked on it has been answered.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal

from tidelog.base.ports import Clock, Connection, Loop, Receiver
from tidelog.base.settings import Settings
from tidelog.base.settings.kinds import INT_MAX
from tidelog.handlers import control
from tidelog.handlers.api import Api
from tidelog.handlers.connection import ClientConnection
from tidelog.handlers.door_limits import HELD_MS_MAX, AddressLimits, CreationRate, has_room
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
        self._by_listener: Counter[str] = Counter()
        self._limits = AddressLimits(loop, node.resolve)
        self._rates: dict[str, CreationRate] = defaultdict(lambda: CreationRate(clock))
        """By listener; that of the broker has no name."""
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
        if not self._for_brokers:
            self._limits.refresh(self._settings())
        for connection in list(self.connections):
            connection.begin()
        self._look_for_idlers()

    def accept(self, listener: str, link: Connection) -> Receiver | None:
        wait_ms = self._wait_ms(listener)
        refusal = self._refusal(listener, link, wait_ms)
        if refusal is not None:
            self.counters.connections_refused += 1
            _log.warning("refused peer=%s listener=%s why=%s", link.peer, listener, refusal)
            return None
        frames = FrameReader(self._node.buffers, self._settings().whole("socket.request.max.bytes"))
        connection = ClientConnection(self, self._node, link, listener, frames)
        if self._state == "starting":
            link.pause()
        elif wait_ms:
            link.pause()
            self._loop.call_at(self._clock.monotonic_ms() + wait_ms, connection.begin)
        self._take_turn(listener)
        self.connections[connection] = None
        self.counters.connections_accepted += 1
        self._by_address[_address(link.peer)] += 1
        self._by_listener[listener] += 1
        return connection

    def _wait_ms(self, listener: str) -> int:
        """How long a new connection has to wait for its turn."""
        return max(self._rates[name].wait_ms(rate) for name, rate in self._rates_of(listener))

    def _take_turn(self, listener: str) -> None:
        for name, rate in self._rates_of(listener):
            self._rates[name].take(rate)

    def _rates_of(self, listener: str) -> list[tuple[str, int]]:
        settings = self._settings()
        if self._for_brokers:
            return [("", INT_MAX)]
        own = settings.whole_for_listener(listener, "max.connection.creation.rate")
        return [("", settings.whole("max.connection.creation.rate")), (listener, own)]

    def _refusal(self, listener: str, link: Connection, wait_ms: int) -> str | None:
        settings = self._settings()
        if self._state == "closing":
            return "the broker is stopping"
        if self._for_brokers:
            return None
        if len(self.connections) >= settings.whole("max.connections"):
            return f"max.connections={len(self.connections)} are open"
        limit = settings.whole_for_listener(listener, "max.connections")
        if self._by_listener[listener] >= limit:
            return f"max.connections={limit} of this listener are open"
        opened, most = self._node.descriptors()
        if not has_room(len(self.connections), opened, most):
            return f"logs need the rest of the {most} files that may be open (`ulimit -n`)"
        if wait_ms > HELD_MS_MAX:
            return "more come than max.connection.creation.rate lets in"
        address = _address(link.peer)
        limit = self._limits.limit(settings, address)
        if self._by_address[address] >= limit:
            return f"{address} has {limit} connections, as many as max.connections.per.ip allows"
        return None

    def left(self, connection: ClientConnection) -> None:
        if self.connections.pop(connection, self) is None:
            address = _address(connection.peer)
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]
            self._by_listener[connection.listener] -= 1

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
