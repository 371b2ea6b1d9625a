"""Signals as callbacks of the loop, so that they come between other callbacks, not into them.

The wakeup descriptor is needed besides the handlers: a signal that arrives just before the
loop begins to wait would otherwise be noticed only when something else ends the wait.
"""

import select
import signal
import socket
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType
from typing import Any

from tidelog.world.real.loop import EpollLoop


class Signals:
    """For the main thread, which is the only one Python gives signals to."""

    def __init__(self, loop: EpollLoop, callbacks: Mapping[int, Callable[[], None]]) -> None:
        self._loop = loop
        self._wakes, self._woken = socket.socketpair()
        self._wakes.setblocking(False)
        self._woken.setblocking(False)
        loop.watch(self._wakes.fileno(), select.EPOLLIN, self._drain)
        self._wakeup_before = signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)
        self._before: dict[int, Any] = {}
        for number, callback in callbacks.items():
            self._before[number] = signal.signal(number, partial(_post, loop, callback))

    def close(self) -> None:
        """Gives the signals back to whoever had them."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        self._loop.unwatch(self._wakes.fileno())
        self._wakes.close()
        self._woken.close()

    def _drain(self, _events: int) -> None:
        self._wakes.recv(4096)


def _post(
    loop: EpollLoop, callback: Callable[[], None], _number: int, _frame: FrameType | None
) -> None:
    loop.post(callback)
