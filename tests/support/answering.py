"""A broker as links see it: it takes requests, and answers as the test wants it to."""

from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct

from tidelog.base.ports import Connection, Listener, Network
from tidelog.wire.frames import FrameReader, ReceiveBuffers
from tidelog.wire.header import RequestHeader, read_request_header

_FRAME = Struct(">ii")


@dataclass(kw_only=True)
class Asked:
    """One request, and the connection it came on."""

    connection: Connection
    header: RequestHeader
    frame: bytes
    body_at: int

    def answer(self, body: bytes = b"", *, correlation_id: int | None = None) -> None:
        """An answer with a header of version 0; another correlation id makes it a wrong one."""
        number = self.header.correlation_id if correlation_id is None else correlation_id
        self.connection.send(_FRAME.pack(4 + len(body), number) + body)


class _Incoming:
    def __init__(self, broker: "AnsweringBroker", connection: Connection) -> None:
        self._broker = broker
        self._connection = connection
        self._frames = FrameReader(broker.buffers, 1 << 24)

    def buffer(self) -> memoryview:
        return self._frames.buffer()

    def received(self, size: int) -> None:
        for view in self._frames.received(size):
            frame = bytes(view)
            header, at = read_request_header(memoryview(frame))
            self._broker.take(
                Asked(connection=self._connection, header=header, frame=frame, body_at=at)
            )

    def closed(self, why: str) -> None:
        self._broker.closings.append(why)


def echo(asked: Asked) -> None:
    asked.answer(asked.frame[asked.body_at :])


@dataclass(kw_only=True)
class AnsweringBroker:
    """`on_request` is what it does with a request; if nothing else is said it is an echo."""

    network: Network
    host: str = ""
    on_request: Callable[[Asked], None] = echo
    requests: list[Asked] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    closings: list[str] = field(default_factory=list)
    buffers: ReceiveBuffers = field(default_factory=ReceiveBuffers)
    listener: Listener | None = None

    def listen(self, port: int = 0) -> int:
        self.listener = self.network.listen(self.host, port, self._accept)
        return self.listener.port

    def stop_listening(self) -> None:
        assert self.listener is not None, "it listens"
        self.listener.close()

    def take(self, asked: Asked) -> None:
        self.requests.append(asked)
        self.on_request(asked)

    def _accept(self, connection: Connection) -> _Incoming:
        self.connections.append(connection)
        return _Incoming(self, connection)
