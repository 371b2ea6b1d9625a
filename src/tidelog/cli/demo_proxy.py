"""A bad network for the demo: a proxy that loses the first answer to a producer.

It stands between one client and the broker, hands everything on, and notes which batches were
sent and what the broker answered. The first answer to a Produce request it does not deliver; it
cuts the connection instead, as a network does, and the client cannot know what became of its
batch.
"""

import socket
from dataclasses import dataclass
from struct import unpack
from threading import Thread
from typing import Final

from tidelog.records.batch import BatchHeader, walk
from tidelog.wire.header import read_request_header
from tidelog.wire.produce import read_produce_request
from tidelog.wire.produce_client import read_produce_response

PRODUCE: Final = 0


@dataclass(slots=True, kw_only=True)
class Sent:
    """A Produce request of one batch, and what came of it."""

    version: int
    batch: BatchHeader
    answered_offset: int | None = None
    is_lost: bool = False


class LosingProxy:
    def __init__(self, address: tuple[str, int], broker: tuple[str, int]) -> None:
        self.sent: list[Sent] = []
        self._broker = broker
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(address)
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for one in (self._listener, *self._open):
            _cut(one)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # It was closed.
            broker = socket.create_connection(self._broker)
            self._open += [client, broker]
            asked: dict[int, Sent] = {}
            Thread(target=self._carry_requests, args=(client, broker, asked), daemon=True).start()
            Thread(target=self._carry_answers, args=(broker, client, asked), daemon=True).start()

    def _carry_requests(
        self, client: socket.socket, broker: socket.socket, asked: dict[int, Sent]
    ) -> None:
        while frame := _frame(client):
            header, at = read_request_header(memoryview(frame)[4:])
            if header.api_key == PRODUCE:
                request = read_produce_request(memoryview(frame)[4:], at, header.version)
                ((_, _, records),) = request.partitions
                ((_, batch),) = walk(records or b"")
                sent = Sent(version=header.version, batch=batch)
                asked[header.correlation_id] = sent
                self.sent.append(sent)
            broker.sendall(frame)
        _cut(broker)

    def _carry_answers(
        self, broker: socket.socket, client: socket.socket, asked: dict[int, Sent]
    ) -> None:
        while frame := _frame(broker):
            (correlation_id,) = unpack(">i", frame[4:8])
            sent = asked.get(correlation_id)
            if sent is not None:
                _, results, _ = read_produce_response(memoryview(frame)[4:], sent.version)
                sent.answered_offset = results[0][2][1]
                if sent is self.sent[0]:
                    sent.is_lost = True
                    break
            client.sendall(frame)
        _cut(client)
        _cut(broker)


def _frame(link: socket.socket) -> bytearray:
    """The next frame with its length; nothing if the connection ends."""
    length = _exactly(link, 4)
    if not length:
        return length
    rest = _exactly(link, int.from_bytes(length, "big"))
    return length + rest if rest else rest


def _exactly(link: socket.socket, size: int) -> bytearray:
    data = bytearray()
    while len(data) < size:
        try:
            part = link.recv(size - len(data))
        except OSError:
            return bytearray()
        if not part:
            return bytearray()
        data += part
    return data


def _cut(link: socket.socket) -> None:
    try:
        link.shutdown(socket.SHUT_RDWR)
    except OSError:
        link.close()  # The other side was quicker.
