"""What clients of this machine were handed of files: they read it themselves, whenever they want,
so that their connections have to end before it is cut off. Files are cut in any thread.
"""

import os
import socket
from contextlib import suppress

_open: "set[Handed]" = set()


class Handed:
    """To one connection: by file, where it ends."""

    __slots__ = ("_connected", "_ends")

    def __init__(self, connected: socket.socket) -> None:
        self._connected = connected
        self._ends: dict[tuple[int, int], int] = {}

    def add(self, descriptor: int, end: int) -> None:
        file = _identity(descriptor)
        self._ends[file] = max(end, self._ends.get(file, 0))

    def end_if_beyond(self, file: tuple[int, int], size: int) -> None:
        """The other side sees it at once; this one, when it looks."""
        if self._ends.get(file, 0) > size:
            with suppress(OSError):
                self._connected.shutdown(socket.SHUT_RDWR)


def note(handed: Handed) -> Handed:
    _open.add(handed)
    return handed


def forget(handed: Handed) -> None:
    _open.discard(handed)


def before_cutting(descriptor: int, size: int) -> None:
    """Called before a file is cut to a size."""
    if _open:
        file = _identity(descriptor)
        for handed in list(_open):
            handed.end_if_beyond(file, size)


def _identity(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino
