"""Two brokers on loopback that answer as a test says: for what a client does when coordinators
move, load or go away. Which requests came to whom is noted.
"""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from tidelog.base.errors import ErrorCode
from tidelog.client.building import build
from tidelog.wire import codec
from tidelog.wire.header import read_request_header

API_VERSIONS: Final = 18
METADATA: Final = 3
BROKERS: Final = (1, 2)
_SERVED_MAX: Final = {METADATA: 12, 0: 9, 1: 12, 2: 7, 10: 6, 8: 9, 9: 9, 16: 5, API_VERSIONS: 3}

Answer = Callable[[int, int, Any], Mapping[str, Any]]
"""Who is asked, with which API, and what: the fields of the response."""


class ScriptedBrokers:
    def __init__(self, answer: Answer, topics: Sequence[Mapping[str, Any]]) -> None:
        self._answer = answer
        self._topics = topics
        self._listeners = {number: socket.create_server(("127.0.0.1", 0)) for number in BROKERS}
        self._connections: list[socket.socket] = []
        self.asked: list[tuple[int, int]] = []
        """Broker and API, in order."""
        self.send: Callable[[socket.socket, bytes], None] = socket.socket.sendall
        self.clients: set[str] = set()
        """How those who asked call themselves."""
        self.addresses = {
            number: f"127.0.0.1:{listener.getsockname()[1]}"
            for number, listener in self._listeners.items()
        }
        self._threads = [
            threading.Thread(target=self._accept, args=(number,), daemon=True) for number in BROKERS
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        for one in (*self._listeners.values(), *self._connections):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(10)

    def lose_connections(self) -> None:
        """All there are: what is asked on them is not answered."""
        for one in self._connections:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self, number: int) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listeners[number].accept()
                self._connections.append(connection)
                thread = threading.Thread(target=self._serve, args=(number, connection))
                self._threads.append(thread)
                thread.start()

    def _serve(self, number: int, connection: socket.socket) -> None:
        with suppress(OSError), connection.makefile("rb") as stream:
            while size := stream.read(4):
                frame = memoryview(bytearray(stream.read(int.from_bytes(size))))
                header, at = read_request_header(frame)
                key, version = header.api_key, header.version
                self.clients.add(header.client_id or "")
                body = codec.read_request(key, version, frame, at)
                values = {"throttle_time": 0, **self._values(number, key, body)}
                entity = build(codec.entity_type(key, version, "response"), values)
                answer = codec.write_response(key, version, header.correlation_id, entity)
                self.send(connection, bytes(answer))

    def _values(self, number: int, key: int, body: Any) -> Mapping[str, Any]:
        if key == API_VERSIONS:
            served = [
                {"api_key": api, "min_version": 0, "max_version": last}
                for api, last in _SERVED_MAX.items()
            ]
            return {"error_code": ErrorCode.none, "api_keys": served}
        if key == METADATA:
            brokers = [self._broker(one) for one in BROKERS]
            return {"brokers": brokers, "controller_id": 1, "topics": self._topics}
        self.asked.append((number, key))
        return self._answer(number, key, body)

    def _broker(self, number: int) -> dict[str, Any]:
        host, _, port = self.addresses[number].partition(":")
        return {"node_id": number, "host": host, "port": int(port), "rack": None}


@contextmanager
def scripted(answer: Answer, topics: Sequence[Mapping[str, Any]] = ()) -> Iterator[ScriptedBrokers]:
    """With topics as Metadata has them."""
    brokers = ScriptedBrokers(answer, topics)
    try:
        yield brokers
    finally:
        brokers.close()
