"""Writing to one broker: several requests under way, each with batches of several partitions.

Answers come in the order of the requests. When the connection is lost, what became of the
requests under way is not known; their batches are given back to be sent again.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.client import apis
from tidelog.client.client import Client
from tidelog.client.connection import Room
from tidelog.client.sockets import Stream, now_ms
from tidelog.client.write_queue import Batch, WriteQueue
from tidelog.wire.produce import TOPIC_IDS
from tidelog.wire.produce_answer import ProduceResult
from tidelog.wire.produce_client import read_produce_response, write_produce_request
from tidelog.wire.topics import Topic

_UNKNOWN: Final = -1
_ADDED_BEFORE: Final = 11
"""From the next version on a partition becomes part of a transaction by being written to."""


class Parcel(NamedTuple):
    """A batch to be sent, and the id of its topic, if it is known."""

    queue: WriteQueue
    batch: Batch
    topic_id: bytes | None


class Outcome(NamedTuple):
    parcel: Parcel
    code: ErrorCode
    base_offset: int
    message: str


class _Request(NamedTuple):
    correlation_id: int
    version: int
    parcels: dict[tuple[Topic, int], Parcel]
    deadline_ms: int
    first_late: Parcel
    """Of those in it, the one that must be written soonest."""


class ProduceLink:
    def __init__(
        self, client: Client, broker_id: int, acks: int, transactional_id: str | None
    ) -> None:
        self._client = client
        self._acks = acks
        self._transactional_id = transactional_id
        self._connection = client.connect(broker_id, now_ms() + client.timeout_ms)
        self._requests: deque[_Request] = deque()
        self._room = Room()

    @property
    def stream(self) -> Stream:
        return self._connection.stream

    @property
    def requests_under_way(self) -> int:
        return len(self._requests)

    @property
    def is_late(self) -> bool:
        """An answer should have come by now."""
        return bool(self._requests) and now_ms() > self._requests[0].deadline_ms

    def put_off(self, by_ms: int) -> None:
        """Gives all answers more time."""
        self._requests = deque(
            one._replace(deadline_ms=one.deadline_ms + by_ms) for one in self._requests
        )

    def late(self, now: int) -> Parcel | None:
        """One that is under way and should have been written by now, whether or not the broker
        still answers."""
        for request in self._requests:
            if now > request.first_late.batch.deadline_ms:
                return request.first_late
        return None

    def send(self, parcels: Sequence[Parcel]) -> list[Outcome]:
        """What is sent is under way from now on, also if the connection is lost on the way. Only
        if no answer was asked for, it is settled at once."""
        has_ids = all(parcel.topic_id for parcel in parcels)
        api = apis.PRODUCE if has_ids else apis.limited(apis.PRODUCE, TOPIC_IDS - 1)
        if self._transactional_id is not None:
            api = apis.limited(api, _ADDED_BEFORE)
        version = apis.choose_version(api, self._connection.versions)
        named: dict[tuple[Topic, int], Parcel] = {}
        for parcel in sorted(parcels, key=lambda one: one.queue.topic):
            by_id = parcel.topic_id if version >= TOPIC_IDS else None
            named[by_id or parcel.queue.topic, parcel.queue.partition] = parcel
        correlation_id, head = self._connection.begin(apis.PRODUCE, version)
        contents = [(*place, parcel.batch.data) for place, parcel in named.items()]
        timeout_ms = self._client.timeout_ms
        pieces = write_produce_request(
            head, version, self._acks, timeout_ms, contents, self._transactional_id
        )
        deadline_ms = now_ms() + 2 * timeout_ms
        first_late = min(parcels, key=lambda one: one.batch.deadline_ms)
        self._requests.append(_Request(correlation_id, version, named, deadline_ms, first_late))
        self._connection.send(pieces, deadline_ms)
        if self._acks != 0:
            return []
        self._requests.pop()
        return [Outcome(parcel, ErrorCode.none, _UNKNOWN, "") for parcel in parcels]

    def receive(self) -> list[Outcome]:
        """What became of the oldest request."""
        request = self._requests[0]
        frame = self._connection.receive(self._room, request.deadline_ms)
        try:
            asked, results, _ = read_produce_response(frame, request.version)
        except KafkaError as error:
            raise self._connection.not_understood(error.message) from error
        answered = {(topic, index): result for topic, index, result in results}
        if asked != request.correlation_id or answered.keys() != request.parcels.keys():
            raise self._connection.not_understood("the answer to another request")
        self._requests.popleft()
        return [_outcome(parcel, answered[place]) for place, parcel in request.parcels.items()]

    def close(self) -> list[Parcel]:
        """What was under way."""
        self._client.disconnect(self._connection)
        left = [parcel for request in self._requests for parcel in request.parcels.values()]
        self._requests.clear()
        return left


def _outcome(parcel: Parcel, result: ProduceResult) -> Outcome:
    number, base_offset, _, _, message = result
    code = ErrorCode(number)
    return Outcome(parcel, code, base_offset, message or code.name.replace("_", " "))
