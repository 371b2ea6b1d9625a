"""Connections to brokers of this machine that run as the same user (`base.nearby`): what they have
in files is read from there. Whoever cannot be reached so is reached as everybody is.
"""

import os
import select
import socket
from array import array
from typing import Any, Final

from tidelog.base.nearby import (
    BOTH_KINDS,
    CREDENTIALS,
    HEAD,
    INLINE,
    is_same_user,
    name_beside,
)
from tidelog.client.addresses import Address
from tidelog.client.errors import Unreachable
from tidelog.client.sockets import Lying, Stream, lost, open_stream, seconds_until

SWITCH: Final = "TIDELOG_NEARBY"
"""An environment variable; with `no` all is received through ports, as from another machine."""
_LOOPBACK: Final = "127."
_DESCRIPTORS_MAX: Final = 4
_GIVEN_BYTES: Final = socket.CMSG_SPACE(_DESCRIPTORS_MAX * array("i").itemsize)


def open_nearest(address: Address, deadline_ms: int) -> Stream:
    for name in _names_of(address) if os.environ.get(SWITCH) != "no" else ():
        nearby = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        nearby.setblocking(False)
        # An error here: nobody is there, or too many are waiting. The port is for all of them.
        if nearby.connect_ex(name) == 0 and _is_of_this_user(nearby):
            return NearbyStream(address, nearby)
        nearby.close()
    return open_stream(address, deadline_ms)


def _names_of(address: Address) -> list[bytes]:
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    names = []
    for family, _, _, _, place in found:
        if _is_here(family, place):
            every = "0.0.0.0" if family == socket.AF_INET else "::"
            hosts = (str(place[0]), every, BOTH_KINDS)
            names += [name_beside(host, address.port) for host in hosts]
    return names


def _is_here(family: socket.AddressFamily, place: Any) -> bool:
    """Whether an address is one of this machine: it speaks to itself from there."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        if probe.connect_ex(place):
            return False
        host = str(place[0])
        return host.startswith(_LOOPBACK) or probe.getsockname()[0] == host


def _is_of_this_user(nearby: socket.socket) -> bool:
    """As anybody may take a name that a broker has not taken."""
    packed = nearby.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return is_same_user(packed, os.geteuid())


class FileRange:
    """A part of a broker's file. It is good for as long as the connection that it came on."""

    def __init__(self, address: Address, connected: socket.socket, file: int, at: int) -> None:
        self.size = 0
        self._address = address
        self._file = file
        self._position = at
        self._connected = connected
        self._ending = select.poll()
        self._ending.register(connected, select.POLLRDHUP)

    def read_into(self, buffer: memoryview, at: int) -> None:
        filled = 0
        while filled < len(buffer):
            try:
                size = os.preadv(self._file, (buffer[filled:],), self._position + at + filled)
            except OSError as error:
                raise lost(self._address, error) from error
            if size == 0 or self._connected.fileno() < 0 or self._ending.poll(0):
                # It was cut off meanwhile, or may have been: what is there now may be other bytes.
                why = f"{self._address} closed the connection"
                raise Unreachable(self._address, why)
            filled += size

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class NearbyStream(Stream):
    def __init__(self, address: Address, connected: socket.socket) -> None:
        super().__init__(address, connected)
        self._left = 0
        """Of the piece that is being received."""
        self._done = 0
        self._range: FileRange | None = None

    def receive_into(self, buffer: memoryview, deadline_ms: int) -> int:
        try:
            if not self._left and not self._is_led_in(deadline_ms):
                return 0
            part = buffer[: self._left]
            if self._range is None:
                self._socket.settimeout(seconds_until(deadline_ms))
                size = self._socket.recv_into(part)
            else:
                self._range.read_into(part, self._done)
                size = len(part)
        except Unreachable:
            raise
        except OSError as error:
            raise lost(self.address, error) from error
        self._left -= size
        self._done += size
        if not self._left:
            self._drop_range()
        return size

    def lying(self, deadline_ms: int) -> Lying | None:
        try:
            if not self._left and not self._is_led_in(deadline_ms):
                return None
        except Unreachable:
            raise
        except OSError as error:
            raise lost(self.address, error) from error
        if self._done:
            return None
        taken, self._range = self._range, None
        if taken is not None:
            self._left = 0
        return taken

    def close(self) -> None:
        self._drop_range()
        super().close()

    def _is_led_in(self, deadline_ms: int) -> bool:
        """Receives the head of the next piece; false if the other side has closed."""
        head = b""
        file = -1
        while len(head) < HEAD.size:
            self._socket.settimeout(seconds_until(deadline_ms))
            missing = HEAD.size - len(head)
            more, given, _, _ = self._socket.recvmsg(missing, _GIVEN_BYTES, socket.MSG_CMSG_CLOEXEC)
            if not more:
                return False
            head += more
            if given:
                (file,) = array("i", given[0][2])
        self._left, position = HEAD.unpack(head)
        self._done = 0
        if position != INLINE and file < 0:
            raise Unreachable(self.address, f"{self.address} handed over a file that did not come")
        if position != INLINE:
            self._range = FileRange(self.address, self._socket, file, position)
            self._range.size = self._left
        return True

    def _drop_range(self) -> None:
        if self._range is not None:
            self._range.close()
            self._range = None
