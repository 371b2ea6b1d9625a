"""Ports on this machine for servers that tests start, never the same for two of them.

Whoever looks for a free port and listens on it later may find it taken by then: several processes
run tests at once, and servers are down while they are started again. So each process of tests has
rows of ports to itself, for as long as it runs, and goes through them. They are none that the
system gives to whoever connects somewhere, and none that commands of tidelog find by themselves.
"""

import socket
from collections.abc import Iterator
from itertools import cycle
from random import SystemRandom
from typing import Final

from tidelog.cli.free_ports import HOST

_FIRST: Final = 3_000
_END: Final = 9_000
_ROW: Final = 50
_claims: Final[list[socket.socket]] = []
"""On rows: sockets with a name that the system gives to one process at a time."""


def free_ports(count: int) -> list[int]:
    return [free_row(1) for _ in range(count)]


def free_row(count: int) -> int:
    """The first of so many that follow one another."""
    first, found = 0, 0
    while found < count:
        port = next(_ports)
        if not _is_free(port):
            found = 0
        elif found and port == first + found:
            found += 1
        else:
            first, found = port, 1
    return first


def _is_free(port: int) -> bool:
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True


def _own_ports() -> Iterator[int]:
    """Those of one row after the other; when all rows are somebody's, those of its own again."""
    rows = list(range(_FIRST, _END, _ROW))
    SystemRandom().shuffle(rows)
    own = []
    for first in rows:
        if _is_claimed(first):
            own.append(first)
            yield from range(first, first + _ROW)
    for first in cycle(own):
        yield from range(first, first + _ROW)


def _is_claimed(row: int) -> bool:
    """Whether it is this process's from now on."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0tidelog-tests-{row}")
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    return True


_ports: Final = _own_ports()
