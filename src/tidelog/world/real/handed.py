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
        found = os.fstat(descriptor)
        file = found.st_dev, found.st_ino
        self._ends[file] = max(end, self._ends.get(file, 0))

    def reaches(self, file: tuple[int, int], size: int) -> bool:
        return self._ends.get(file, 0) > size

    def end(self) -> None:
        """The other side sees it at once; this one, when it looks."""
        with suppress(OSError):
            self._connected.shutdown(socket.SHUT_RDWR)


def note(handed: Handed) -> Handed:
    _open.add(handed)
    return handed


def forget(handed: Handed) -> None:
    _open.discard(handed)


def readers_beyond(descriptor: int, size: int) -> "list[Handed]":
    """Of a file that is about to be cut to a size. One that is no larger may have the number of
    another that was removed."""
    if not _open:
        return []
    found = os.fstat(descriptor)
    if found.st_size <= size:
        return []
    file = found.st_dev, found.st_ino
    return [handed for handed in list(_open) if handed.reaches(file, size)]
