"""The broker under load, as far as it must be asked: its versions, and topics made and deleted.

One blocking connection that sends a request and waits for its answer. The versions of Produce and
Fetch are what one of today's clients would agree on with this broker.
"""

import socket
import time
from collections.abc import Iterable, Mapping
from typing import Self

from bench.load.fields import (
    EMPTY_ARRAY,
    NO_TAGS,
    NULL,
    Reader,
    array,
    compact,
    int16,
    int32,
    int64,
)
from bench.load.frames import FETCH, PRODUCE, Frame, Topic, has_ids, request
from bench.load.metadata import METADATA, METADATA_VERSION, Metadata, metadata_body, read_metadata

CLIENTS = {"java": {PRODUCE: 13, FETCH: 18}, "librdkafka": {PRODUCE: 10, FETCH: 16}}
"""Apache Kafka's Java client 4.3.1 and librdkafka 2.16."""

_LIST_OFFSETS, _API_VERSIONS, _CREATE_TOPICS, _DELETE_TOPICS = 2, 18, 19, 20
_INIT_PRODUCER_ID = 22
_LATEST = -1
_READY_SECONDS_MAX = 60
_TIMEOUT_SECONDS = 120


class Target:
    def __init__(
        self, host: str, port: int, client: str = "java", timeout_seconds: float = _TIMEOUT_SECONDS
    ) -> None:
        self.host, self.port = host, port
        self._socket = socket.create_connection((host, port), timeout_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        offered = read_versions(self._ask(api_versions_request(), 4))
        self.versions = {api: min(most, offered[api]) for api, most in CLIENTS[client].items()}

    def create_topic(self, name: str, partitions: int, **configs: str) -> Topic:
        """Returns when every partition has a leader. Underscores in `configs` are dots."""
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        topic = self.request_topic(name, partitions, 1, settings)
        self._await_leaders(name, partitions)
        return topic

    def request_topic(
        self, name: str, partitions: int, replicas: int, configs: Mapping[str, str]
    ) -> Topic:
        """Returns when the controller has answered: its partitions may have no leaders yet."""
        settings = [compact(key) + compact(value) + NO_TAGS for key, value in configs.items()]
        topic = compact(name) + int32(partitions) + int16(replicas) + EMPTY_ARRAY + array(settings)
        body = array([topic + NO_TAGS]) + int32(60_000) + b"\0" + NO_TAGS
        answer = self._reader(_CREATE_TOPICS, 7, body)
        answer.int32(), answer.count(), answer.compact()
        topic_id, error = answer.take(16), answer.int16()
        if error:
            raise RuntimeError(f"topic {name} was not created: error {error}")
        return Topic(name=name, topic_id=topic_id)

    def delete_topic(self, topic: Topic) -> None:
        item = compact(topic.name) + bytes(16) + NO_TAGS
        answer = self._reader(_DELETE_TOPICS, 6, array([item]) + int32(60_000) + NO_TAGS)
        answer.int32(), answer.count(), answer.compact(), answer.take(16)
        if error := answer.int16():
            raise RuntimeError(f"topic {topic.name} was not deleted: error {error}")

    def new_producer_id(self) -> int:
        """Of an idempotent producer; its epoch is 0."""
        body = NULL + int32(60_000) + int64(-1) + int16(-1) + NO_TAGS
        answer = self._reader(_INIT_PRODUCER_ID, 4, body)
        answer.int32()
        if error := answer.int16():
            raise RuntimeError(f"there was no producer id: error {error}")
        return int.from_bytes(answer.take(8))

    def metadata(self, topic: str | None = None) -> Metadata:
        return read_metadata(self._reader(METADATA, METADATA_VERSION, metadata_body(topic)))

    def send(self, frame: Frame) -> None:
        """Its answer is still to be read."""
        self._socket.sendall(frame.data)

    def produce_answer(self) -> dict[int, int]:
        """The error code of each partition that a Produce request was for."""
        answer = Reader(self._receive(int.from_bytes(self._receive(4)))[5:])
        answer.count()
        answer.take(16) if has_ids(PRODUCE, self.versions[PRODUCE]) else answer.compact()
        return dict(_read_produced(answer) for _ in range(answer.count()))

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _await_leaders(self, name: str, partitions: int) -> None:
        """Metadata names a leader some time before that leader has made its logs."""
        deadline = time.monotonic() + _READY_SECONDS_MAX
        while self.ready(name, range(partitions)) < partitions:
            if time.monotonic() > deadline:
                raise RuntimeError(f"topic {name} has no leaders yet")
            time.sleep(0.05)

    def ready(self, name: str, partitions: Iterable[int]) -> int:
        """How many of the partitions tell their latest offset here."""
        items = [int32(n) + int32(-1) + int64(_LATEST) + NO_TAGS for n in partitions]
        topic = compact(name) + array(items) + NO_TAGS
        answer = self._reader(_LIST_OFFSETS, 7, int32(-1) + b"\0" + array([topic]) + NO_TAGS)
        answer.int32(), answer.count(), answer.compact()
        return sum(_is_ready(answer) for _ in range(answer.count()))

    def _reader(self, api: int, version: int, body: bytes) -> Reader:
        return Reader(self._ask(request(api, version, body), 5))

    def _ask(self, frame: bytes, header_bytes: int) -> bytes:
        """The body of the answer."""
        self._socket.sendall(frame)
        size = int.from_bytes(self._receive(4))
        return self._receive(size)[header_bytes:]

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise RuntimeError(f"{self.host}:{self.port} closed the connection")
            data += part
        return bytes(data)


def api_versions_request() -> bytes:
    """Version 0, which every broker answers and whose header has no tagged fields."""
    frame = int16(_API_VERSIONS) + int16(0) + int32(0) + int16(4) + b"load"
    return int32(len(frame)) + frame


def read_versions(body: bytes) -> dict[int, int]:
    """The newest version of each API."""
    answer = Reader(body)
    if error := answer.int16():
        raise RuntimeError(f"ApiVersions failed with error {error}")
    newest = {}
    for _ in range(answer.int32()):
        api, _, newest[api] = answer.int16(), answer.int16(), answer.int16()
    return newest


def _read_produced(answer: Reader) -> tuple[int, int]:
    number, error = answer.int32(), answer.int16()
    answer.take(8 + 8 + 8)
    for _ in range(answer.count()):
        answer.int32(), answer.compact()
        answer.skip_tags()
    answer.compact()
    answer.skip_tags()
    return number, error


def _is_ready(answer: Reader) -> bool:
    _, error = answer.int32(), answer.int16()
    answer.take(8 + 8 + 4)
    answer.skip_tags()
    return error == 0
