"""Opening one connection: its addresses are tried one after another until one answers.

`localhost` is two addresses on most machines, and a broker often listens on one of them.
Each attempt has a time limit of its own, far below the minutes the system would take.
"""

import errno
import os
import select
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from tidelog.base.ports import Timer
from tidelog.world.real.loop import EpollLoop
from tidelog.world.real.sockets import SocketOptions, make_socket


class Opening:
    def __init__(
        self,
        loop: EpollLoop,
        addresses: Iterable[tuple[socket.AddressFamily, Any]],
        options: SocketOptions,
        ended: Callable[[socket.socket | OSError], None],
    ) -> None:
        self._loop = loop
        self._addresses = deque(addresses)
        self._options = options
        self._ended = ended
        self._socket: socket.socket | None = None
        self._timer: Timer | None = None

    def start(self) -> None:
        family, address = self._addresses.popleft()
        try:
            self._socket = make_socket(family, self._options)
            number = self._socket.connect_ex(address)
        except OSError as error:
            self._give_up(error.errno or errno.EIO)
            return
        if number in (0, errno.EINPROGRESS):
            self._timer = self._loop.call_later(self._options.connect_timeout_ms, self._expire)
            self._loop.watch(self._socket.fileno(), select.EPOLLOUT, self._answered)
        else:
            self._give_up(number)

    def _answered(self, _events: int) -> None:
        assert self._socket is not None
        number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._give_up(number)
            return
        connected = self._release()
        assert connected is not None
        self._ended(connected)

    def _expire(self) -> None:
        self._give_up(errno.ETIMEDOUT)

    def _give_up(self, number: int) -> None:
        failed = self._release()
        if failed is not None:
            failed.close()
        if self._addresses:
            self.start()
        else:
            self._ended(OSError(number, os.strerror(number)))

    def _release(self) -> socket.socket | None:
        """The socket, of which the loop knows nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        released, self._socket = self._socket, None
        if released is not None:
            self._loop.unwatch(released.fileno())
        return released
