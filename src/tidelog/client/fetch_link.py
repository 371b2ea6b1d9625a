"""Fetching one partition from one leader: a question may be sent long before its answer is taken.

Between the two the answer arrives in the system's receive buffer, so that network and whatever
the caller does meanwhile overlap without a thread.
"""

from dataclasses import dataclass
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.client import apis
from tidelog.client.client import Client
from tidelog.client.connection import Room
from tidelog.client.leaders import Led
from tidelog.client.sockets import Lying, Opener, now_ms
from tidelog.wire.fetch import TOPIC_IDS, FetchRequest
from tidelog.wire.fetch_client import FetchedPartition, read_fetch_response, write_fetch_request

_TOTAL_BYTES_MAX: Final = 0x7FFF_FFFF
_NO_EPOCH: Final = -1
_FROM_CONSUMER: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    wait_ms_max: int
    isolation_level: int


class Records:
    """Those of an answer, which may lie in a file until they are wanted."""

    def __init__(self, data: memoryview, lying: Lying | None) -> None:
        self.size = len(data)
        self._data = data
        self._lying = lying

    def piece(self, at: int, bytes_max: int) -> memoryview:
        """What follows a position: of a file no more than so much, over and over into the same
        memory; otherwise all of it."""
        if self._lying is None:
            return self._data[at:]
        left = self.size - at
        # A little more than that is no piece of its own.
        read = self._data[: left if left < bytes_max * 3 // 2 else bytes_max]
        self._lying.read_into(read, at)
        return read

    def close(self) -> None:
        if self._lying is not None:
            self._lying.close()


class FetchLink:
    """A connection of its own to one broker; one question at a time."""

    def __init__(self, client: Client, led: Led, options: FetchOptions, opener: Opener) -> None:
        self.leader = led.leader
        self._client = client
        self._options = options
        self._connection = client.connect(led.leader, now_ms() + client.timeout_ms, opener)
        self._asked = 0
        self._version = 0
        self.records: Records | None = None
        """Of the last answer, until the next question."""

    @property
    def is_asked(self) -> bool:
        """Whether an answer is still to come."""
        return bool(self._asked)

    def ask(self, place: tuple[str, int], led: Led, offset: int, bytes_max: int) -> None:
        assert not self._asked, "one question at a time"
        self._forget_records()
        topic, partition = place
        api = apis.FETCH if led.topic_id else apis.limited(apis.FETCH, TOPIC_IDS - 1)
        version = apis.choose_version(api, self._connection.versions)
        named = led.topic_id if led.topic_id and version >= TOPIC_IDS else topic
        request = FetchRequest()
        request.max_wait_ms = self._options.wait_ms_max
        request.min_bytes = 1
        request.max_bytes = _TOTAL_BYTES_MAX
        request.isolation_level = self._options.isolation_level
        request.partitions.append(
            (named, partition, led.leader_epoch, offset, _NO_EPOCH, _FROM_CONSUMER, bytes_max)
        )
        asked, head = self._connection.begin(apis.FETCH, version)
        frame = write_fetch_request(head, version, request)
        self._connection.send([frame], now_ms() + self._client.timeout_ms)
        self._asked, self._version = asked, version

    def answer(self, room: Room) -> FetchedPartition | None:
        """What was asked for, with its records in `self.records`, and those in `room`; None if the
        broker, because it is asked too much, says nothing."""
        timeout_ms = self._client.timeout_ms
        deadline_ms = now_ms() + timeout_ms + self._options.wait_ms_max
        frame, lying = self._connection.receive_around(room, deadline_ms, timeout_ms)
        asked, self._asked = self._asked, 0
        try:
            fetched = self._read(frame, asked)
            records = None if fetched is None else fetched.records
            if lying is not None and (records is None or len(records) != lying.size):
                raise self._connection.not_understood(f"{lying.size} bytes of a file")
        except BaseException:
            if lying is not None:
                lying.close()
            raise
        if records:
            self.records = Records(records, lying)
        return fetched

    def _read(self, frame: memoryview, asked: int) -> FetchedPartition | None:
        try:
            response = read_fetch_response(frame, self._version)
        except KafkaError as error:
            raise self._connection.not_understood(error.message) from error
        if response.correlation_id != asked:
            why = f"the answer to {response.correlation_id} where {asked} was asked"
            raise self._connection.not_understood(why)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), "the fetch was refused as a whole")
        return response.partitions[0] if response.partitions else None

    def close(self) -> None:
        self._forget_records()
        self._client.disconnect(self._connection)

    def _forget_records(self) -> None:
        if self.records is not None:
            self.records.close()
            self.records = None
