"""What an API is to the broker: a number, a range of versions, and a function.

Every file in this folder serves one API and ends with its `API`. A handler gets the node and
a request; it returns the response, or None if it will call `request.answer` later. What a
client did wrong is an error code inside the response; only a request that cannot be read at
all ends the connection. Responses leave in the order in which the requests came.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.base.ports import Clock, Disk, Entropy, Loop, Workers
from tidelog.base.settings import Settings
from tidelog.log.logs import Logs
from tidelog.log.partition_log import Slice
from tidelog.serving.counters import Counters
from tidelog.slices import Slices
from tidelog.wire import codec
from tidelog.wire.frames import ReceiveBuffers

if TYPE_CHECKING:
    from tidelog.cluster.metadata import Metadata
    from tidelog.coordinators import Coordinators
    from tidelog.healing import Healing
    from tidelog.housekeeping import Housekeeping
    from tidelog.partitions import Partitions
    from tidelog.peers.peers import BrokerPeers
    from tidelog.replication_throttles import LeaderThrottle
    from tidelog.serving.fetch_sessions import FetchSessions
    from tidelog.slow_appends import SlowAppends
    from tidelog.verification import Verification

Part = bytes | Slice
"""What a response is sent as: bytes, and ranges of log files between them."""


class Node(Protocol):
    """The broker, as its handlers see it."""

    settings: Settings
    broker_id: int
    cluster_id: str
    inter_broker_listener: str | None
    """The listener over which brokers talk to one another, if there are others."""
    clock: Clock
    entropy: Entropy
    loop: Loop
    disk: Disk
    inspecting: Workers
    """For what has to look into batches."""
    logs: Logs
    metadata: "Metadata"
    peers: "BrokerPeers"
    partitions: "Partitions"
    coordinators: "Coordinators"
    verification: "Verification"
    sessions: "FetchSessions"
    leader_throttle: "LeaderThrottle"
    healing: "Healing"
    fetch_bytes_max: int
    buffers: ReceiveBuffers
    slow_appends: "SlowAppends"
    housekeeping: "Housekeeping"
    counters: Counters
    slices: Slices
    """For requests that name very much."""
    apis: Mapping[int, "Api"]


class Answers(Protocol):
    """Where a request's response goes: its connection."""

    listener: str

    @property
    def peer(self) -> str:
        """The other side's address, as `host:port`."""

    @property
    def is_finishing(self) -> bool:
        """Whether the broker is to stop: what would wait for something is answered at once."""

    def answered(self, request: "Request") -> None: ...

    def go_on(self) -> None:
        """Serves what waited behind a long request."""

    def close(self, why: str) -> None: ...

    def abort(self, why: str) -> None:
        """Closes it without sending what is queued or under way."""


class Request:
    """A request that was read, and its place in the order of its connection's answers. Without
    `parts` it has not been answered; with none in them there is nothing to send."""

    __slots__ = (
        "api",
        "began_us",
        "body",
        "client_id",
        "connection",
        "correlation_id",
        "is_abandoned",
        "is_long",
        "on_close",
        "on_stop",
        "parts",
        "size",
        "version",
    )

    def __init__(
        self,
        connection: Answers,
        api: "Api",
        version: int,
        correlation_id: int,
        client_id: str | None,
        body: Any,
    ) -> None:
        self.connection = connection
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body
        self.began_us = 0
        self.size = 0
        """In bytes, as it came."""
        self.parts: list[Part] | None = None
        self.is_abandoned = False
        """Whether the connection closed before there was an answer."""
        self.is_long = False
        """Whether it is served in slices; what came behind it waits for that."""
        self.on_close: Callable[[], None] | None = None
        """Told if the connection closes before there is an answer."""
        self.on_stop: Callable[[], None] | None = None
        """Told if the broker is to stop: an answer is wanted now, if there can be one."""

    @property
    def api_key(self) -> int:
        return self.api.key

    @property
    def listener(self) -> str:
        """The name of the listener it came through."""
        return self.connection.listener

    @property
    def client_host(self) -> str:
        """Where it came from, as Kafka shows it."""
        return "/" + self.connection.peer.rpartition(":")[0]

    def answer(self, response: Any) -> None:
        """Gives the response, now or later, once."""
        assert self.parts is None, "a request is answered once"
        self.answer_packed(self.api.write(self, response))

    def let_others_in(self) -> None:
        """It waits for something: what came behind it need not."""
        self.is_long = False
        self.connection.go_on()

    def answer_packed(self, parts: list[Part]) -> None:
        """As the bytes that are sent."""
        assert self.parts is None, "a request is answered once"
        self.parts = parts
        self.is_long = False
        self.connection.answered(self)


def read_entity(api_key: int, version: int, frame: memoryview, at: int) -> Any:
    return codec.read_request(api_key, version, frame, at)


def write_entity(request: Request, response: Any) -> list[Part]:
    return [
        codec.write_response(request.api.key, request.version, request.correlation_id, response)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    key: int
    first: int
    last: int
    handle: Callable[[Any, Request], Any]
    """Of a `Node` and a `Request`. A handler may ask for less than a whole node."""
    read: Callable[[int, int, memoryview, int], Any] = read_entity
    write: Callable[[Request, Any], list[Part]] = write_entity
    together: Callable[[Any, Sequence[Request]], Sequence[Any] | None] | None = None
    """Handles requests that came together, one behind the other on one connection, as one; None if
    they are to be handled one by one, and nothing was done."""
    advertised_first: int | None = None
    """Where ApiVersions says that the versions begin, if that is not the truth."""
