"""A client of a real broker that speaks in bytes over a blocking socket, and what the system
tells of the broker's process: its memory and its descriptors.

It sends what it is told, whole or broken, and waits a bounded time for what comes back.
"""

import contextlib
import os
import socket
import struct
import time
from pathlib import Path
from typing import Any, Final

from tidelog.handlers.building import build
from tidelog.wire import codec

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 19, 20, 32, 44
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class WireClient:
    def __init__(self, address: str, timeout_seconds: float = 60.0) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout_seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._asked: list[tuple[int, int]] = []
        self._sent = 0

    def __enter__(self) -> "WireClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, api_key: int, version: int, **values: Any) -> None:
        self._asked.append((api_key, version))
        self._sent += 1
        self.socket.sendall(request_bytes(api_key, version, self._sent, **values))

    def receive(self) -> Any:
        """The answer to the oldest request that has none yet."""
        api_key, version = self._asked.pop(0)
        _, answer = codec.read_response(api_key, version, self.receive_frame())
        return answer

    def ask(self, api_key: int, version: int, **values: Any) -> Any:
        self.send(api_key, version, **values)
        return self.receive()

    def receive_frame(self) -> bytes:
        """The next frame; `ConnectionError` if the broker has closed the connection."""
        while len(self._received) < 4 or len(self._received) < self._frame_end():
            data = self.socket.recv(1 << 18)
            if not data:
                raise ConnectionError("closed by the broker")
            self._received += data
        end = self._frame_end()
        frame = bytes(self._received[4:end])
        del self._received[:end]
        return frame

    def _frame_end(self) -> int:
        length: int = struct.unpack_from(">i", self._received)[0]
        return 4 + length

    # -- what most tests need

    def create(self, topic: str, partitions: int = 1, **configs: Any) -> None:
        answer = self.ask(CREATE_TOPICS, 7, **creation(topic, partitions, **configs))
        assert answer.topics[0].error_code.name == "none", answer.topics[0].error_message

    def produce(self, topic: str, batch: bytes, *, index: int = 0, acks: int = -1) -> Any:
        """The answer for the one partition."""
        answer = self.ask(PRODUCE, 9, **production(topic, batch, index=index, acks=acks))
        return answer.responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int, *, index: int = 0, **values: Any) -> Any:
        """The answer for the one partition."""
        answer = self.ask(FETCH, 12, **(fetching(topic, offset, index=index) | values))
        return answer.responses[0].partitions[0]


def request_bytes(api_key: int, version: int, correlation_id: int = 1, **values: Any) -> bytes:
    entity = build(codec.entity_type(api_key, version, "request"), values)
    return codec.write_request(api_key, version, correlation_id, "test", entity)


def creation(topic: str, partitions: int = 1, **configs: Any) -> dict[str, Any]:
    return {
        "topics": [
            {
                "name": topic,
                "num_partitions": partitions,
                "replication_factor": 1,
                "assignments": [],
                "configs": [
                    {"name": name.replace("_", "."), "value": str(value)}
                    for name, value in configs.items()
                ],
            }
        ],
        "timeout": 60_000,
        "validate_only": False,
    }


def production(topic: str, batch: bytes, *, index: int = 0, acks: int = -1) -> dict[str, Any]:
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": 60_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": index, "records": batch}]}],
    }


def fetching(
    topic: str, offset: int, *, index: int = 0, max_bytes: int = 1 << 20
) -> dict[str, Any]:
    partition = {
        "partition": index,
        "fetch_offset": offset,
        "partition_max_bytes": max_bytes,
        "current_leader_epoch": -1,
    }
    return {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 50 << 20,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [partition]}],
        "forgotten_topics_data": [],
    }


# -- the broker's process


def memory_bytes(process_id: int) -> int:
    """How much of a process is in memory."""
    return int(Path(f"/proc/{process_id}/statm").read_text().split()[1]) * _PAGE


def peak_memory_bytes(process_id: int) -> int:
    """The most that was ever in memory since `forget_peak`."""
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the system tells no peak")


def forget_peak(process_id: int) -> None:
    Path(f"/proc/{process_id}/clear_refs").write_text("5")


def loop_cpu_seconds(process_id: int) -> float:
    """What the thread that runs a broker's loop has used."""
    thread = Path(f"/proc/{process_id}/task/{process_id}/schedstat")
    return int(thread.read_text().split()[0]) / 1e9


def descriptors(process_id: int) -> int:
    return len(os.listdir(f"/proc/{process_id}/fd"))


def children(process_id: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{process_id}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def wait_until(condition: Any, seconds_max: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
