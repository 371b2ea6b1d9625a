"""Captures record batches as librdkafka writes them, by being the broker it talks to.

    .venv/bin/python tests/records/captured/capture.py

answers just enough of the protocol for one producer per codec, and writes what it was sent to
`<codec>.bin`, and what went in to `sent.json`, beside this file.
"""

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from struct import pack, unpack_from
from typing import Any

from confluent_kafka import Producer

HERE = Path(__file__).parent
TOPIC = "captured"
PRODUCE, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 3, 18, 22
# (lowest, highest); Fetch and FindCoordinator are only named, as a sign of what a broker can do.
VERSIONS = {
    PRODUCE: (0, 7),
    1: (0, 11),
    METADATA: (0, 4),
    10: (0, 2),
    API_VERSIONS: (0, 3),
    INIT_PRODUCER_ID: (0, 1),
}
SENT: list[dict[str, Any]] = [
    {
        "timestamp": 1_700_000_000_000 + index * (37 if index % 2 else -11),
        "key": None if index % 3 == 0 else f"key-{index}",
        "value": None if index % 5 == 0 else f"value {index} " * index,
        "headers": [("trace", f"{index}"), ("empty", ""), ("none", None)] if index % 4 == 0 else [],
    }
    for index in range(40)
]


class Broker:
    """One connection at a time is enough for one producer; each has a thread."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.batches: list[bytes] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        answers: dict[int, Callable[[bytes], bytes]] = {
            PRODUCE: self._produce,
            METADATA: self._metadata,
            API_VERSIONS: _api_versions,
            INIT_PRODUCER_ID: lambda _: pack(">ihqh", 0, 0, 4242, 3),
        }
        with connection, connection.makefile("rb") as requests:
            while head := requests.read(4):
                request = requests.read(*unpack_from(">i", head))
                api, _, correlation, client_size = unpack_from(">hhih", request)
                body = request[10 + client_size :]
                answer = pack(">i", correlation) + answers[api](body)
                connection.sendall(pack(">i", len(answer)) + answer)

    def _metadata(self, _: bytes) -> bytes:
        broker = pack(">i", 1) + _text("127.0.0.1") + pack(">ih", self.port, -1)
        partition = pack(">hiiiiii", 0, 0, 1, 1, 1, 1, 1)
        topic = pack(">h", 0) + _text(TOPIC) + pack(">bi", 0, 1) + partition
        return pack(">ii", 0, 1) + broker + pack(">hii", -1, 1, 1) + topic

    def _produce(self, body: bytes) -> bytes:
        # transactional id (null), acks, timeout, one topic, its name, one partition, its index
        position = 2 + 2 + 4 + 4 + 2 + len(TOPIC) + 4 + 4
        (size,) = unpack_from(">i", body, position)
        self.batches.append(body[position + 4 : position + 4 + size])
        partition = pack(">iihqqq", 1, 0, 0, 0, -1, 0)
        return pack(">i", 1) + _text(TOPIC) + partition + pack(">i", 0)


def _api_versions(_: bytes) -> bytes:
    ranges = b"".join(pack(">hhhb", api, *versions, 0) for api, versions in VERSIONS.items())
    return pack(">hb", 0, len(VERSIONS) + 1) + ranges + pack(">ib", 0, 0)


def _text(text: str) -> bytes:
    return pack(">h", len(text)) + text.encode()


def capture(name: str, settings: dict[str, Any]) -> None:
    broker = Broker()
    producer = Producer(
        {"bootstrap.servers": f"127.0.0.1:{broker.port}", "linger.ms": 300, **settings}
    )
    for record in SENT:
        producer.produce(TOPIC, partition=0, **record)
    assert producer.flush(60) == 0
    (HERE / f"{name}.bin").write_bytes(b"".join(broker.batches))
    print(name, [len(batch) for batch in broker.batches])


if __name__ == "__main__":
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        capture(codec, {"compression.type": codec})
    capture("idempotent", {"compression.type": "lz4", "enable.idempotence": True})
    (HERE / "sent.json").write_text(json.dumps(SENT, indent=1) + "\n")
