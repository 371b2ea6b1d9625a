"""A network of named hosts in one process, with all that can happen to one.

`SimNetwork.host(name)` is what one process uses: the port. Tests `cut` and `mend` the links
between hosts, `reset` connections, and let a host's process `die` (its connections end) or
its machine `vanish` (they go silent, and are half open for the others).
"""

import errno
from collections.abc import Callable
from functools import partial
from os import strerror

from tidelog.base.ports import Connection, Receiver
from tidelog.world.sim.connection import SimConnection
from tidelog.world.sim.loop import SimLoop
from tidelog.world.sim.pipe import Link, Pipe

Accept = Callable[[Connection], Receiver | None]
Opened = Callable[[Connection | OSError], Receiver | None]

CAPACITIES = (16_384, 65_536, 262_144)
"""What may be on its way in one direction; no less than systems give, for two ends that both
wait for the other to read are stuck."""
CONNECT_TIMEOUT_MS = 10_000
FIRST_FREE_PORT = 32_768
LOOPBACK = frozenset(("", "localhost", "127.0.0.1", "::1", "0.0.0.0", "::"))


class SimListener:
    def __init__(self, host: "SimHost", port: int, accept: Accept) -> None:
        self.port = port
        self.accept = accept
        self._host = host

    def close(self) -> None:
        self._host.forget_listener(self)


class SimHost:
    """One process on one machine; after its end a new one is asked for by the same name."""

    def __init__(self, network: "SimNetwork", name: str) -> None:
        self.name = name
        self.is_alive = True
        self.is_silent = False
        self._network = network
        self._listeners: dict[int, SimListener] = {}
        self.connections: list[SimConnection] = []

    # The port.

    def listen(self, host: str, port: int, accept: Accept) -> SimListener:
        assert self.is_alive, f"{self.name} is not running"
        if host not in LOOPBACK and host != self.name:
            raise _error(errno.EADDRNOTAVAIL, f"cannot listen on {host}:{port}")
        if port in self._listeners:
            raise _error(errno.EADDRINUSE, f"cannot listen on {host}:{port}")
        listener = SimListener(self, port or self._network.free_port(), accept)
        self._listeners[listener.port] = listener
        return listener

    def connect(self, host: str, port: int, opened: Opened) -> None:
        assert self.is_alive, f"{self.name} is not running"
        target = self.name if host in LOOPBACK else host
        _Opening(self._network, self, (target, port), opened).start()

    # What tests use.

    def die(self) -> None:
        """The process ends; its system closes what it had open."""
        for connection in self._end():
            connection.die()

    def vanish(self) -> None:
        """The machine ends; nobody is told."""
        self.is_silent = True
        for connection in self._end():
            connection.vanish()

    def reset(self) -> None:
        """Every connection of this host breaks, on both sides."""
        for connection in self.connections:
            connection.reset()
        self.connections.clear()

    # What the network uses.

    def find_listener(self, port: int) -> SimListener | None:
        return self._listeners.get(port)

    def forget_listener(self, listener: SimListener) -> None:
        if self._listeners.get(listener.port) is listener:
            del self._listeners[listener.port]

    def add(self, connection: SimConnection) -> None:
        self.connections = [old for old in self.connections if not old.is_closed]
        self.connections.append(connection)

    def return_to_life(self) -> None:
        """The machine is up again, and answers what it no longer knows with resets."""
        self.is_silent = False
        for connection in self.connections:
            connection.is_silent = False

    def _end(self) -> list[SimConnection]:
        self.is_alive = False
        self._listeners.clear()
        return self.connections


class SimNetwork:
    def __init__(self, loop: SimLoop, *, delay_ms_max: int = 3) -> None:
        self.loop = loop
        self.delay_ms_max = delay_ms_max
        self._draws = loop.choices.stream("network")
        self._hosts: dict[str, SimHost] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._next_port = FIRST_FREE_PORT

    def host(self, name: str = "localhost") -> SimHost:
        """The process that runs there, or a new one if the last has ended."""
        found = self._hosts.get(name)
        if found is None or not found.is_alive:
            if found is not None:
                found.return_to_life()
            found = self._hosts[name] = SimHost(self, name)
        return found

    def cut(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Nothing gets through until `mend`; nobody is told."""
        self.link(source, target).is_cut = True
        if not one_way:
            self.link(target, source).is_cut = True

    def mend(self) -> None:
        """All links work again, and what waited on them arrives."""
        for link in self._links.values():
            link.mend()

    def link(self, source: str, target: str) -> Link:
        key = source, target
        found = self._links.get(key)
        if found is None:
            name = f"{source} to {target}"
            found = self._links[key] = Link(self.loop, name, self.delay_ms_max)
        return found

    def find_host(self, name: str) -> SimHost | None:
        return self._hosts.get(name)

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def pipe(self, source: str, target: str) -> Pipe:
        return Pipe(self.link(source, target), self._draws.choice(CAPACITIES))


class _Opening:
    """One attempt to connect: a knock, an answer, or neither in time."""

    def __init__(
        self, network: SimNetwork, source: SimHost, target: tuple[str, int], opened: Opened
    ) -> None:
        self._network = network
        self._source = source
        self._target, self._port = target
        self._opened: Opened | None = opened
        self._way_there = network.link(source.name, self._target)
        self._way_back = network.link(self._target, source.name)

    def start(self) -> None:
        if self._network.find_host(self._target) is None:
            self._network.loop.post(partial(self._fail, errno.EHOSTUNREACH))
            return
        self._way_there.carry(self._knock)
        self._network.loop.after(CONNECT_TIMEOUT_MS, partial(self._fail, errno.ETIMEDOUT))

    def _knock(self) -> None:
        host = self._network.find_host(self._target)
        if host is None or host.is_silent:
            return
        listener = host.find_listener(self._port)
        if listener is None:
            self._way_back.carry(partial(self._fail, errno.ECONNREFUSED))
            return
        there = self._network.pipe(self._source.name, self._target)
        back = self._network.pipe(self._target, self._source.name)
        loop = self._network.loop
        ours = SimConnection(loop, back, there, f"{self._target}:{self._port}")
        theirs_peer = f"{self._source.name}:{self._network.free_port()}"
        theirs = SimConnection(loop, there, back, theirs_peer)
        self._way_back.carry(partial(self._succeed, ours))
        _begin(loop, host, theirs, listener.accept)

    def _succeed(self, connection: SimConnection) -> None:
        opened, self._opened = self._opened, None
        if opened is None or not self._source.is_alive:
            connection.reset()
        else:
            _begin(self._network.loop, self._source, connection, opened)

    def _fail(self, number: int) -> None:
        opened, self._opened = self._opened, None
        if opened is not None and self._source.is_alive:
            opened(_error(number, f"cannot connect to {self._target}:{self._port}"))


def _begin(loop: SimLoop, host: SimHost, connection: SimConnection, accept: Accept) -> None:
    host.add(connection)
    try:
        receiver = accept(connection)
    except Exception as error:
        loop.on_error(f"{connection.peer}: refused, its connection could not be handled", error)
        receiver = None
    connection.open(receiver)


def _error(number: int, what: str) -> OSError:
    return OSError(number, f"{what}: {strerror(number)}")
