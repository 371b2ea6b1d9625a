"""A server that is overheard: what it is asked is noted, and what it answers to a Produce may be
held back. Its clients know no other address than the one here.
"""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from support.servers import Server, new_server
from tidelog.wire import codec
from tidelog.wire.header import read_request_header

PRODUCE: Final = 0
FETCH: Final = 1
INIT_PRODUCER_ID: Final = 22
_SECONDS_MAX: Final = 60.0
_LOOK_S: Final = 0.01


class Overheard:
    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked: list[tuple[int, Any]] = []
        """APIs and requests, in order."""
        self.under_way = 0
        """Requests to Produce that are not answered."""
        self.under_way_max = 0
        self._lock = threading.Lock()
        self._may_answer = threading.Event()
        self._may_answer.set()
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def serve(self, target: str) -> None:
        self._start(self._accept, target)

    def requests(self, api: int) -> list[Any]:
        with self._lock:
            return [request for key, request in self.asked if key == api]

    def forget(self) -> None:
        with self._lock:
            self.asked.clear()
            self.under_way = self.under_way_max = 0

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Nobody is told meanwhile that he has produced."""
        self._may_answer.clear()
        try:
            yield
        finally:
            self._may_answer.set()

    def await_under_way(self, count: int) -> None:
        deadline = time.monotonic() + _SECONDS_MAX
        while self.under_way < count:
            assert time.monotonic() < deadline, f"{self.under_way} requests, and not {count}"
            time.sleep(_LOOK_S)

    def close(self) -> None:
        self._may_answer.set()
        for one in (self._listener, *self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(_SECONDS_MAX)
        for one in (self._listener, *self._sockets):
            one.close()

    def _start(self, *what: Any) -> None:
        self._threads.append(threading.Thread(target=what[0], args=what[1:]))
        self._threads[-1].start()

    def _accept(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((host, int(port)))
                self._sockets += [near, far]
                produced: set[bytes] = set()
                self._start(self._carry_requests, near, far, produced)
                self._start(self._carry_answers, far, near, produced)

    def _carry_requests(
        self, near: socket.socket, far: socket.socket, produced: set[bytes]
    ) -> None:
        with _until_closed(near, far) as stream:
            for frame in _frames(stream):
                header, at = read_request_header(memoryview(frame))
                body = codec.read_request(header.api_key, header.version, memoryview(frame), at)
                with self._lock:
                    self.asked.append((header.api_key, body))
                    if header.api_key == PRODUCE:
                        produced.add(header.correlation_id.to_bytes(4))
                        self.under_way += 1
                        self.under_way_max = max(self.under_way, self.under_way_max)
                far.sendall(len(frame).to_bytes(4) + frame)

    def _carry_answers(self, far: socket.socket, near: socket.socket, produced: set[bytes]) -> None:
        with _until_closed(far, near) as stream:
            for frame in _frames(stream):
                if bytes(frame[:4]) in produced:
                    self._may_answer.wait(_SECONDS_MAX)
                    with self._lock:
                        self.under_way -= 1
                near.sendall(len(frame).to_bytes(4) + frame)


@contextmanager
def _until_closed(source: socket.socket, sink: socket.socket) -> Iterator[BinaryIO]:
    """Whichever side ends, the other does."""
    with suppress(OSError), source.makefile("rb") as stream:
        yield stream
    for one in (source, sink):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def _frames(stream: BinaryIO) -> Iterator[bytearray]:
    while size := stream.read(4):
        yield bytearray(stream.read(int.from_bytes(size)))


@contextmanager
def overheard(folder: Path) -> Iterator[tuple[Overheard, Server]]:
    listener = Overheard()
    told = {"advertised.listeners": f"PLAINTEXT://{listener.address}"}
    server = new_server(folder, told)
    try:
        server.start()
        listener.serve(server.address)
        yield listener, server
    finally:
        listener.close()
        server.close()
