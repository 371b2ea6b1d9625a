"""The socket beside a port, for clients of this machine (`base.nearby`): ranges of files are handed
over by their descriptors, so that none of their bytes goes through a socket.

Whoever was handed a range may read it at any time, as long as his connection lasts. So before a
file is cut, the connections end that were handed what is cut off; and a client believes what it
has read only if its connection is still there afterwards.
"""

import os
import socket
from array import array
from errno import EADDRINUSE
from typing import Any

from tidelog.base.nearby import ANY_HOST, CREDENTIALS, HEAD, INLINE, name_beside
from tidelog.base.ports import Buffer
from tidelog.world.real.connection import FileRange, RealConnection
from tidelog.world.real.handed import Handed, forget, note

_EVERY_INTERFACE = ("::", "0.0.0.0")


def listen_beside(listening: socket.socket, backlog: int) -> socket.socket:
    host, port = listening.getsockname()[:2]
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.setblocking(False)
    try:
        made.bind(name_beside(ANY_HOST if host in _EVERY_INTERFACE else host, port))
        made.listen(backlog)
    except OSError as error:
        made.close()
        number = error.errno or EADDRINUSE
        what = f"cannot listen beside {host}:{port} for clients of this machine"
        raise OSError(number, f"{os.strerror(number)}: {what}") from None
    return made


def is_of_this_user(accepted: socket.socket) -> bool:
    return _credentials(accepted)[1] == os.geteuid()


def peer_beside(accepted: socket.socket) -> str:
    """As if it had come over loopback, with its process for a port."""
    return f"127.0.0.1:{_credentials(accepted)[0]}"


def _credentials(accepted: socket.socket) -> tuple[int, int, int]:
    packed = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    process, user, group = CREDENTIALS.unpack(packed)
    return process, user, group


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

    def abandon(self, why: str) -> None:
        forget(self._handed)
        super().abandon(why)

    def _send_range(self, head: FileRange) -> int:
        descriptor = head.file.fileno()
        # Before it is handed over: it may be cut right after.
        self._handed.add(descriptor, head.position + head.size)
        given = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", (descriptor,)))
        self._socket.sendmsg((HEAD.pack(head.size, head.position),), (given,))
        self._queue.popleft()
        self._range_count -= 1
        self.queued_bytes -= head.size
        return head.size
