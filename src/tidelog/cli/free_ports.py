"""Ports on this machine that nobody listens on, for what a command starts."""

import socket
from contextlib import ExitStack
from typing import Final

HOST: Final = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Held together until all are known, so that they differ."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


def free_row(count: int) -> int:
    """The first of so many that follow one another."""
    while True:
        (first,) = free_ports(1)
        with ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server((HOST, port)))
            except (OSError, OverflowError):
                continue
        return first
