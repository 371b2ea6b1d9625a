"""The socket beside a port, for clients of this machine (`base.nearby`): ranges of files are handed
over by their descriptors, so that none of their bytes goes through a socket.

Whoever was handed a range may read it at any time, as long as his connection lasts. So before a
file is cut, the connections end that were handed what is cut off; and a client believes what it
has read only if its connection is still there afterwards.
"""

import os
import socket
from array import array
from typing import Any

from tidelog.base.nearby import (
    BOTH_KINDS,
    CREDENTIALS,
    HEAD,
    INLINE,
    is_same_user,
    name_beside,
)
from tidelog.base.ports import Buffer, File
from tidelog.world.real.connection import FileRange, RealConnection
from tidelog.world.real.disk import RealFile
from tidelog.world.real.handed import Handed, forget, note


def listen_beside(listening: socket.socket, backlog: int) -> socket.socket:
    host, port = listening.getsockname()[:2]
    if listening.family == socket.AF_INET6:
        only = listening.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        host = host if only else BOTH_KINDS
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.setblocking(False)
    try:
        made.bind(name_beside(host, port))
        made.listen(backlog)
    except OSError:
        made.close()
        raise
    return made


def is_of_this_user(accepted: socket.socket) -> bool:
    return is_same_user(_credentials(accepted), os.geteuid())


def peer_beside(accepted: socket.socket) -> str:
    """As if it had come over loopback, with its process for a port."""
    process, _, _ = CREDENTIALS.unpack(_credentials(accepted))
    return f"127.0.0.1:{process}"


def _credentials(accepted: socket.socket) -> bytes:
    return accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)


class NearbyConnection(RealConnection):
    """The broker's end."""

    __slots__ = ("_handed",)

    def __init__(
        self, loop: Any, connected: socket.socket, peer: str, open_ones: "set[RealConnection]"
    ) -> None:
        super().__init__(loop, connected, peer, open_ones)
        self._handed = note(Handed(connected))

    def send(self, data: Buffer) -> None:
        size = data.nbytes if type(data) is memoryview else len(data)
        if size:
            super().send(HEAD.pack(size, INLINE))
            super().send(data)

    def send_file(self, file: File, position: int, size: int) -> None:
        assert isinstance(file, RealFile), f"{file!r} is not a file of this machine"
        # It counts from now on, as it may be cut before it is handed over.
        self._handed.add(file.fileno(), position + size)
        super().send_file(file, position, size)

    def abandon(self, why: str) -> None:
        super().abandon(why)
        # Not before: until it was closed the other side believes what it reads.
        forget(self._handed)

    def _send_range(self, head: FileRange) -> int:
        # Another descriptor, as the broker's own may be written to.
        descriptor = os.open(f"/proc/self/fd/{head.file.fileno()}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            given = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", (descriptor,)))
            self._socket.sendmsg((HEAD.pack(head.size, head.position),), (given,))
        finally:
            os.close(descriptor)
        self._queue.popleft()
        self._range_count -= 1
        self.queued_bytes -= head.size
        return head.size
