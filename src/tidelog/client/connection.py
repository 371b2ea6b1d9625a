"""One connection to a broker: what versions it serves, then one request and its answer at a time.

Who has a connection of his own may also send several requests before he takes the answers, which
come in the same order: with `begin`, `send` and `receive`, which know nothing of what is in them.

A connection that raised `Unreachable` is of no more use: an answer may still be under way on it.
"""

import struct
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version as version_of_package
from typing import Any, Final

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.base.ports import Buffer
from tidelog.client.addresses import Address
from tidelog.client.apis import API_VERSIONS, Api, choose_version
from tidelog.client.building import Values, build
from tidelog.client.errors import Unreachable
from tidelog.client.sockets import Lying, Opener, Stream, now_ms, open_stream
from tidelog.records.arrays import mapped
from tidelog.wire import codec
from tidelog.wire.frames import FrameReader, ReceiveBuffers
from tidelog.wire.header import request_header
from tidelog.wire.values import INT32

ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024


class Room:
    """Memory to receive into, over and over; it grows with what it must hold. What is not received
    into takes none."""

    def __init__(self, size: int = 0) -> None:
        self._memory = mapped(size)

    def view(self, size: int) -> memoryview:
        if size > len(self._memory):
            # Another one, since views on the first may be in use.
            self._memory = mapped(size)
        return self._memory[:size]


class Connection:
    def __init__(self, stream: Stream, client_id: str, buffers: ReceiveBuffers) -> None:
        self.address = stream.address
        self._stream = stream
        self._client_id = client_id
        self._reader = FrameReader(buffers, ANSWER_BYTES_MAX)
        self._correlation_id = 0
        self.versions: dict[int, tuple[int, int]] = {}
        """The first and the last version the broker serves, by API key."""

    @classmethod
    def open(
        cls,
        address: Address,
        client_id: str,
        buffers: ReceiveBuffers,
        deadline_ms: int,
        opener: Opener = open_stream,
    ) -> "Connection":
        """Connected, and the versions agreed on."""
        connection = cls(opener(address, deadline_ms), client_id, buffers)
        try:
            connection._negotiate(deadline_ms)
        except Unreachable as error:
            connection.close()
            raise Unreachable(address, f"{error}; {_NO_BROKER}") from error
        except BaseException:
            connection.close()
            raise
        return connection

    def ask(self, api: Api, values: Values, deadline_ms: int) -> Any:
        """The response to a request."""
        return self._exchange(api.key, choose_version(api, self.versions), values, deadline_ms)

    def begin(self, api: Api, version: int) -> tuple[int, bytes]:
        """The correlation id of the next request, and the header it begins with."""
        self._correlation_id += 1
        head = request_header(api.key, version, self._correlation_id, self._client_id)
        return self._correlation_id, head

    def send(self, pieces: Sequence[Buffer], deadline_ms: int) -> None:
        """A whole frame."""
        self._stream.send_pieces(pieces, deadline_ms)

    def receive(self, room: Room, deadline_ms: int, stall_ms: int | None = None) -> memoryview:
        """The next answer frame, without its length; good until the next one is received. With
        `stall_ms`, one that has begun to come may take longer, as long as it does not stop for
        that long: a large one comes slowly where many share a network."""
        return self._fill(room.view(self._size(room, deadline_ms)), deadline_ms, stall_ms)

    def receive_around(
        self, room: Room, deadline_ms: int, stall_ms: int
    ) -> tuple[memoryview, Lying | None]:
        """The same, but the first part that lies in a file is left out: its place in the answer is
        there, and has anything in it."""
        view = room.view(self._size(room, deadline_ms))
        filled = 0
        while filled < len(view):
            lying = self._stream.lying(now_ms() + stall_ms)
            if lying is None:
                filled += self._receive_some(view[filled:], now_ms() + stall_ms)
            else:
                try:
                    self._fill(view[filled + lying.size :], deadline_ms, stall_ms)
                except BaseException:
                    lying.close()
                    raise
                return view, lying
        return view, None

    def _size(self, room: Room, deadline_ms: int) -> int:
        size: int = INT32.unpack_from(self._fill(room.view(INT32.size), deadline_ms))[0]
        if not 0 <= size <= ANSWER_BYTES_MAX:
            raise self.not_understood(f"a frame of {size} bytes")
        return size

    def _fill(self, view: memoryview, deadline_ms: int, stall_ms: int | None = None) -> memoryview:
        filled = 0
        while filled < len(view):
            if stall_ms is not None:
                deadline_ms = now_ms() + stall_ms
            filled += self._receive_some(view[filled:], deadline_ms)
        return view

    def _receive_some(self, view: memoryview, deadline_ms: int) -> int:
        size = self._stream.receive_into(view, deadline_ms)
        if size == 0:
            raise Unreachable(self.address, f"{self.address} closed the connection")
        return size

    @property
    def stream(self) -> Stream:
        """To be waited for."""
        return self._stream

    def close(self) -> None:
        self._stream.close()

    def _negotiate(self, deadline_ms: int) -> None:
        us = {
            "client_software_name": "tidelog",
            "client_software_version": _our_version(),
        }
        answer = self._exchange(API_VERSIONS.key, API_VERSIONS.last, us, deadline_ms)
        if answer.error_code is ErrorCode.unsupported_version:
            answer = self._exchange(API_VERSIONS.key, 0, {}, deadline_ms)
        if answer.error_code is not ErrorCode.none:
            raise KafkaError(answer.error_code, f"{self.address} does not tell what it serves")
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def _exchange(self, api_key: int, version: int, values: Values, deadline_ms: int) -> Any:
        self._correlation_id += 1
        request = build(codec.entity_type(api_key, version, "request"), values)
        try:
            frame = codec.write_request(
                api_key, version, self._correlation_id, self._client_id, request
            )
        except struct.error as error:
            raise BadValue(f"a number is too large for Kafka's protocol: {error}") from None
        self._stream.send(frame, deadline_ms)
        try:
            return self._read(api_key, version, self._receive(deadline_ms))
        except KafkaError as error:
            raise self.not_understood(error.message) from error

    def _read(self, api_key: int, version: int, frame: memoryview) -> Any:
        if api_key == API_VERSIONS.key and int.from_bytes(frame[4:6]) == _UNSUPPORTED:
            # Whoever does not know the version that was asked for answers in version 0.
            version = 0
        correlation_id, entity = codec.read_response(api_key, version, frame)
        if correlation_id != self._correlation_id:
            raise self.not_understood(
                f"the answer to {correlation_id} where {self._correlation_id} was asked"
            )
        return entity

    def _receive(self, deadline_ms: int) -> memoryview:
        while True:
            size = self._stream.receive_into(self._reader.buffer(), deadline_ms)
            if size == 0:
                raise Unreachable(self.address, f"{self.address} closed the connection")
            frames = self._reader.received(size)
            if frames:
                return frames[0]

    def not_understood(self, why: str) -> Unreachable:
        return Unreachable(self.address, f"cannot understand what {self.address} answers: {why}")


@cache
def _our_version() -> str:
    """It is looked up in files, which takes longer than the rest of connecting."""
    return version_of_package("tidelog")


_UNSUPPORTED: Final = ErrorCode.unsupported_version.value
_NO_BROKER: Final = "is it a Kafka broker's port, and without TLS?"
