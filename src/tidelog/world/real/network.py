"""Connections of this machine: listening, accepting and opening them on an `EpollLoop`.

What happens on a connection afterwards is in `connection.py`. Nothing here blocks: a name is
looked up in a lane beside the loop, and a connection is opened while the loop goes on.
"""

import errno
import os
import select
import socket
from collections.abc import Callable

from tidelog.base.ports import Connection, Receiver
from tidelog.world.real.connection import RealConnection
from tidelog.world.real.loop import EpollLoop
from tidelog.world.real.nearby import (
    NearbyConnection,
    is_of_this_user,
    listen_beside,
    peer_beside,
)
from tidelog.world.real.opening import Opening
from tidelog.world.real.sockets import (
    SYSTEM,
    Address,
    SocketOptions,
    describe_address,
    is_numeric,
    look_up,
    open_listening,
    prepare_connected,
)

Accept = Callable[[Connection], Receiver | None]
Opened = Callable[[Connection | OSError], Receiver | None]

_ACCEPTED_MAX = 64
"""Connections taken in one turn; the rest wait for the next one."""
_EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
_EXHAUSTED_PAUSE_MS = 1_000


class RealListener:
    """One socket. `beside` is another one for the same port, that ends with it."""

    def __init__(
        self,
        network: "RealNetwork",
        listening: socket.socket,
        accept: Accept,
        port: int,
        beside: "RealListener | None" = None,
    ) -> None:
        self._network = network
        self._loop = network.loop
        self._socket = listening
        self._accept = accept
        self._is_exhausted = False
        self._is_closed = False
        self._beside = beside
        self._is_nearby = listening.family == socket.AF_UNIX
        self.port = port
        self._listen()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._loop.unwatch(self._socket.fileno())
            self._socket.close()
        if self._beside is not None:
            self._beside.close()

    def _listen(self) -> None:
        if not self._is_closed:
            self._loop.watch(self._socket.fileno(), select.EPOLLIN, self._acceptable)

    def _acceptable(self, _events: int) -> None:
        for _ in range(_ACCEPTED_MAX):
            if self._is_closed:
                return
            try:
                accepted, address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._rest(error)
                    return
                # The peer was gone before it was its turn; the next may be fine.
                continue
            self._is_exhausted = False
            if not self._is_nearby:
                self._network.begin(accepted, describe_address(address), self._accept)
            elif is_of_this_user(accepted):
                self._network.begin(accepted, peer_beside(accepted), self._accept)
            else:
                accepted.close()

    def _rest(self, error: OSError) -> None:
        """Out of descriptors or memory: whoever waits goes on waiting, for a moment at a time,
        and the reason is told once."""
        if not self._is_exhausted:
            self._is_exhausted = True
            self._loop.on_error(f"port {self.port}: cannot accept connections", error)
        self._loop.unwatch(self._socket.fileno())
        self._loop.call_later(_EXHAUSTED_PAUSE_MS, self._listen)


class RealNetwork:
    def __init__(
        self,
        loop: EpollLoop,
        *,
        backlog: int = 50,
        send_buffer_bytes: int = SYSTEM,
        receive_buffer_bytes: int = SYSTEM,
        connect_timeout_ms: int = 10_000,
    ) -> None:
        self.loop = loop
        self.connections: set[RealConnection] = set()
        """All that are open, whoever opened them."""
        self._options = SocketOptions(
            backlog=backlog,
            send_buffer_bytes=send_buffer_bytes,
            receive_buffer_bytes=receive_buffer_bytes,
            connect_timeout_ms=connect_timeout_ms,
        )

    # The port.

    def listen(self, host: str, port: int, accept: Accept) -> RealListener:
        listening = open_listening(host, port, self._options)
        taken = listening.getsockname()[1]
        beside = self._beside(listening, taken, accept)
        return RealListener(self, listening, accept, taken, beside)

    def _beside(self, listening: socket.socket, port: int, accept: Accept) -> RealListener | None:
        """Clients can do without, if somebody has taken the name."""
        try:
            beside = listen_beside(listening, self._options.backlog)
        except OSError as error:
            self.loop.on_error(f"port {port}: clients of this machine come through it", error)
            return None
        return RealListener(self, beside, accept, port)

    def connect(self, host: str, port: int, opened: Opened) -> None:
        def found(addresses: list[Address] | Exception) -> None:
            if isinstance(addresses, Exception):
                opened(_as_os_error(addresses, f"cannot find {host}"))
            else:
                Opening(self.loop, addresses, self._options, ended).start()

        def ended(outcome: socket.socket | OSError) -> None:
            if isinstance(outcome, OSError):
                opened(_as_os_error(outcome, f"cannot connect to {host}:{port}"))
            else:
                self.begin(outcome, describe_address((host, port)), opened)

        if is_numeric(host):
            self.loop.post(lambda: found(_addresses(host, port)))
        else:
            self.loop.offload("names", lambda: look_up(host, port), found)

    # What adapters and the wiring use.

    def begin(self, connected: socket.socket, peer: str, accept: Accept) -> None:
        """Makes a connection of a socket, if somebody wants it."""
        prepare_connected(connected)
        kind = NearbyConnection if connected.family == socket.AF_UNIX else RealConnection
        connection = kind(self.loop, connected, peer, self.connections)
        try:
            receiver = accept(connection)
        except Exception as error:
            self.loop.on_error(f"{peer}: refused, its connection could not be handled", error)
            receiver = None
        connection.open(receiver)

    def close(self) -> None:
        """Ends every connection where it stands; their receivers are told."""
        for connection in list(self.connections):
            connection.abandon("the network was closed")


def _addresses(host: str, port: int) -> list[Address] | OSError:
    try:
        return look_up(host, port)
    except OSError as error:
        return error


def _as_os_error(error: Exception, what: str) -> OSError:
    if isinstance(error, OSError) and error.errno is not None:
        text = error.strerror or os.strerror(error.errno)
        return type(error)(error.errno, f"{what}: {text}")
    return OSError(errno.EIO, f"{what}: {error}")
