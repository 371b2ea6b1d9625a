"""The outside, as the client needs it: connections, and time to give up or to try again.

With `nearby_sockets` the only file here that touches the operating system. System errors come out
as `Unreachable`, with the address and a sentence for people.
"""

import os
import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from tidelog.base.ports import Buffer
from tidelog.client.addresses import Address
from tidelog.client.errors import Unreachable

_PIECES_MAX: Final = 1024
"""As many as the system takes at once."""


def now_ms() -> int:
    """Time that never goes back."""
    return time.monotonic_ns() // 1_000_000


def pause_ms(delay_ms: int) -> None:
    time.sleep(delay_ms / 1000)


class Lying(Protocol):
    """A part of an answer that was not sent: it lies in a file."""

    size: int

    def read_into(self, buffer: memoryview, at: int) -> None:
        """What lies from there on."""

    def close(self) -> None: ...


class Stream:
    """A connection as bytes in and bytes out."""

    def __init__(self, address: Address, connected: socket.socket) -> None:
        self.address = address
        self._socket = connected

    def send(self, data: bytes, deadline_ms: int) -> None:
        try:
            self._socket.settimeout(seconds_until(deadline_ms))
            self._socket.sendall(data)
        except OSError as error:
            raise lost(self.address, error) from error

    def send_pieces(self, pieces: Sequence[Buffer], deadline_ms: int) -> None:
        """One after the other, without putting them together first."""
        left = [memoryview(piece) for piece in pieces]
        try:
            while left:
                self._socket.settimeout(seconds_until(deadline_ms))
                left = _without(left, self._socket.sendmsg(left[:_PIECES_MAX]))
        except OSError as error:
            raise lost(self.address, error) from error

    def receive_into(self, buffer: memoryview, deadline_ms: int) -> int:
        """How many bytes came; 0 if the other side has closed."""
        try:
            self._socket.settimeout(seconds_until(deadline_ms))
            return self._socket.recv_into(buffer)
        except OSError as error:
            raise lost(self.address, error) from error

    def lying(self, _deadline_ms: int) -> Lying | None:
        """What comes next, if it lies in a file: it is taken out of what is received."""
        return None

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()


Opener: TypeAlias = Callable[[Address, int], Stream]
"""Connects to an address until a deadline."""


def readable(streams: Sequence[Stream], wait_ms: int) -> list[Stream]:
    """Those on which something came, or which ended; waits until there is one."""
    poll = select.poll()
    by_number = {stream.fileno(): stream for stream in streams}
    for number in by_number:
        poll.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poll.poll(wait_ms)]


def open_stream(address: Address, deadline_ms: int) -> Stream:
    try:
        connected = socket.create_connection(
            (address.host, address.port), seconds_until(deadline_ms)
        )
    except UnicodeError:
        raise Unreachable(address, f"cannot reach {address}: not the name of a host") from None
    except OSError as error:
        raise Unreachable(address, f"cannot reach {address}: {_advice(error)}") from error
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Stream(address, connected)


def _without(pieces: list[memoryview], size: int) -> list[memoryview]:
    """What is left of them after so many bytes."""
    for number, piece in enumerate(pieces):
        if size < len(piece):
            return [piece[size:], *pieces[number + 1 :]]
        size -= len(piece)
    return []


def seconds_until(deadline_ms: int) -> float:
    left_ms = deadline_ms - now_ms()
    if left_ms <= 0:
        raise TimeoutError
    return left_ms / 1000


def _advice(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused: is the server running? start it with tidelog server"
    if isinstance(error, socket.gaierror):
        return f"{error.strerror}: check the name of the host"
    if isinstance(error, TimeoutError):
        return "no answer in time: check host and port, and what lies between"
    return _reason(error)


def lost(address: Address, error: OSError) -> Unreachable:
    if isinstance(error, TimeoutError):
        why = f"{address} did not answer in time"
    else:
        why = f"lost the connection to {address}: {_reason(error)}"
    return Unreachable(address, why)


def _reason(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else str(error)
