"""Sockets made and described: addresses to and from text, and the options all of them have."""

import errno
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

SYSTEM = -1
"""A buffer's size that is left to the system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketOptions:
    backlog: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    connect_timeout_ms: int


Address = tuple[socket.AddressFamily, Any]

_PLAIN = b"reno"
"""The congestion control that every Linux has, and lets everybody use."""
_OLD_FORM = "::ffff:"
"""How an IPv4 peer looks on a socket that serves both kinds."""


def describe_address(address: Any) -> str:
    """`host:port`, the host in brackets if it has colons itself."""
    host, port = address[0], address[1]
    if host.startswith(_OLD_FORM) and "." in host:
        host = host.removeprefix(_OLD_FORM)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def describe_error(error: OSError) -> str:
    return error.strerror or str(error)


def is_numeric(host: str) -> bool:
    """Whether a host is an address already, so that nobody has to be asked for it."""
    try:
        socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (socket.gaierror, UnicodeError):
        return False
    return True


def look_up(host: str, port: int) -> list[Address]:
    if not 0 <= port < 65_536:
        raise OSError(errno.EINVAL, "no such port")
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]


def addresses_of(host: str) -> tuple[str, ...]:
    """As peers are shown."""
    try:
        return tuple(dict.fromkeys(address[0] for _, address in look_up(host, 0)))
    except UnicodeError as error:
        raise OSError(errno.EINVAL, f"no name of a host: {error}") from error


def make_socket(family: socket.AddressFamily, options: SocketOptions) -> socket.socket:
    """Its buffers are set before it listens or connects: later is too late for the peer to
    hear of them. What a listening socket accepts inherits them."""
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setblocking(False)
    if options.send_buffer_bytes != SYSTEM:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_bytes)
    if options.receive_buffer_bytes != SYSTEM:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)
    return made


def prepare_connected(connected: socket.socket) -> None:
    """Answers leave at once: what belongs together is put together before it is sent. Inside one
    machine nothing is to be found out about a network, and a congestion control that paces, as
    BBR does, only costs timers. A connection that is broken already says so when it is first
    read."""
    connected.setblocking(False)
    with suppress(OSError):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if connected.getpeername()[0] == connected.getsockname()[0]:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _PLAIN)


def open_listening(host: str, port: int, options: SocketOptions) -> socket.socket:
    """An empty host means every interface, of both kinds of address where both exist."""
    family, address = _listening_address(host, port)
    listening = make_socket(family, options)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != ""))
        listening.bind(address)
        listening.listen(options.backlog)
    except OSError as error:
        listening.close()
        number = error.errno or errno.EINVAL
        raise OSError(number, f"{os.strerror(number)}: cannot listen on {host}:{port}") from None
    return listening


def _listening_address(host: str, port: int) -> Address:
    if host:
        return look_up(host, port)[0]
    if socket.has_dualstack_ipv6():
        return socket.AF_INET6, ("::", port)
    return socket.AF_INET, ("0.0.0.0", port)
