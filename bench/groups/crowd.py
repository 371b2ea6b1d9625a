"""Many connections in one thread: requests go out on any of them, and answers call back.

The cores are few, so that a hundred members of a group cannot be a hundred clients with threads of
their own. Here each has a socket of its own and shares everything else. `run_until` takes turns
between sockets and timers; what a member is told that it cannot live with ends the measuring.
"""

import heapq
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from tidelog.client.building import build
from tidelog.wire import codec

Address = tuple[str, int]
Answered = Callable[[Any], None]
_RECEIVE_BYTES = 1 << 18


class Link:
    """One connection; its answers come in the order of its requests."""

    def __init__(self, address: Address, client_id: str) -> None:
        self.socket = socket.create_connection(address, 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._waiting: deque[tuple[int, int, Answered]] = deque()
        self._received = bytearray()
        self._sent = 0

    def send(self, api: int, version: int, values: dict[str, Any], answered: Answered) -> None:
        entity = build(codec.entity_type(api, version, "request"), values)
        self._sent += 1
        self._waiting.append((api, version, answered))
        # Requests are small, and no more than a few of a connection are under way.
        self.socket.sendall(codec.write_request(api, version, self._sent, self._client_id, entity))

    def receive(self) -> None:
        data = self.socket.recv(_RECEIVE_BYTES)
        if not data:
            raise RuntimeError(f"{self._client_id}: the broker closed the connection")
        self._received += data
        while len(self._received) >= 4:
            end = 4 + struct.unpack_from(">i", self._received)[0]
            if len(self._received) < end:
                return
            frame = bytes(self._received[4:end])
            del self._received[:end]
            api, version, answered = self._waiting.popleft()
            answered(codec.read_response(api, version, frame)[1])

    def ask(self, api: int, version: int, values: dict[str, Any]) -> Any:
        """Waits for the answer."""
        answers: list[Any] = []
        self.send(api, version, values, answers.append)
        while not answers:
            self.receive()
        return answers[0]

    def close(self) -> None:
        self.socket.close()


class Crowd:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def connect(self, client_id: str) -> Link:
        link = Link(self._address, client_id)
        self._selector.register(link.socket, selectors.EVENT_READ, link)
        return link

    def disconnect(self, link: Link) -> None:
        self._selector.unregister(link.socket)
        link.close()

    def call_at(self, when: float, action: Callable[[], None]) -> None:
        """At a time of the monotonic clock."""
        heapq.heappush(self._timers, (when, next(self._numbers), action))

    def run_until(self, is_over: Callable[[], bool], seconds_max: float) -> None:
        deadline = time.monotonic() + seconds_max
        while not is_over():
            now = time.monotonic()
            if now > deadline:
                raise RuntimeError(f"what was waited for did not come in {seconds_max} s")
            while self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()
            due = self._timers[0][0] if self._timers else deadline
            for key, _ in self._selector.select(max(0, min(due, deadline) - time.monotonic())):
                key.data.receive()

    def run_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        self.call_at(until, lambda: None)
        self.run_until(lambda: time.monotonic() >= until, seconds + 10)

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            key.data.close()
        self._selector.close()
