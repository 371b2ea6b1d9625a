"""Ports on this machine that nobody listens on, for what a command starts.

They are not among those that the system gives to whoever connects somewhere: such a one might be
given away before it is listened on, or while the server that has it is down.
"""

import socket
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom
from typing import Final

HOST: Final = "127.0.0.1"
_FIRST: Final = 10_000
_END: Final = 32_768
_GIVEN_AWAY: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """They differ."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_row(1))
    return sorted(found)


def free_row(count: int) -> int:
    """The first of so many that follow one another."""
    chance = SystemRandom()
    while True:
        first = chance.randrange(_FIRST, _end() - count)
        with ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server((HOST, port)))
            except OSError:
                continue
        return first


def _end() -> int:
    """Where those begin that are given away, unless that leaves too few."""
    try:
        begin = int(_GIVEN_AWAY.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        return _END
    return begin if begin > 2 * _FIRST else _END
