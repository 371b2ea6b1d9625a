"""The client: finds brokers, keeps a connection to each, and asks the one that can answer.

What is asked of a broker that went away is asked again, of the same or another one, until the
time for it is over. Two cases are told at once instead: no bootstrap server can be reached at
the beginning, and a change whose answer was lost, since it may have been made.
"""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.client import apis
from tidelog.client.addresses import Address, parse_addresses
from tidelog.client.apis import Api
from tidelog.client.building import Values
from tidelog.client.closing import Closing
from tidelog.client.cluster import Cluster, Leaderships, Topic, read_cluster
from tidelog.client.connection import Connection
from tidelog.client.errors import Unreachable
from tidelog.client.sockets import Opener, now_ms, open_stream, pause_ms
from tidelog.wire.frames import ReceiveBuffers

TIMEOUT_MS: Final = 30_000
_PAUSE_MS: Final = 100
_HEARING_MS: Final = 1_000
_BEING_MADE: Final = (ErrorCode.unknown_topic_or_partition, ErrorCode.leader_not_available)


class Client(Closing):
    """Not for several threads at once."""

    def __init__(
        self, bootstrap_servers: str, *, client_id: str = "tidelog", timeout_ms: int = TIMEOUT_MS
    ) -> None:
        self._bootstrap = parse_addresses(bootstrap_servers)
        self._client_id = client_id
        self.timeout_ms = timeout_ms
        self._buffers = ReceiveBuffers()
        self._connections: dict[Address, Connection] = {}
        self._lent: list[Connection] = []
        self._cluster: Cluster | None = None
        self._leaderships = Leaderships()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        for connection in self._lent:
            connection.close()
        self._lent.clear()

    @contextmanager
    def within(self, timeout_ms: int) -> Generator[None]:
        """For what is asked meanwhile there is no more time than this."""
        before = self.timeout_ms
        self.timeout_ms = min(before, timeout_ms)
        try:
            yield
        finally:
            self.timeout_ms = before

    def cluster(
        self, topics: Iterable[str] | None = None, *, create_topics: bool = False
    ) -> Cluster:
        """What the cluster looks like now, with all topics or only those named; these can be
        made on the way, if the brokers' settings allow it."""
        values = {
            "topics": None if topics is None else [{"name": name} for name in topics],
            "allow_auto_topic_creation": create_topics,
        }
        self._cluster = self._heard(self.ask(apis.METADATA, values))
        return self._cluster

    def hear_all(self, topics: Iterable[str]) -> list[Cluster]:
        """Asks every broker who leads, as far as it is there: the newest of what they say counts
        from now on. What each says of topics that were made again is theirs."""
        names = [{"name": name} for name in topics]
        values = {"topics": names, "allow_auto_topic_creation": False}
        return [self._heard(answer) for answer in self.ask_each(apis.METADATA, values)]

    def turn_away(self) -> None:
        """What any broker may answer is asked of another one from now on."""
        for address in list(self._connections)[:1]:
            self._forget(address)

    def ask_each(self, api: Api, values: Values) -> list[Any]:
        """What every broker answers, as far as it is there."""
        answers: list[Any] = []
        for broker_id in self._cluster.brokers if self._cluster is not None else ():
            with suppress(Unreachable, KafkaError):
                deadline_ms = now_ms() + min(_HEARING_MS, self.timeout_ms)
                answers.append(self._ask(api, values, broker_id, deadline_ms))
        return answers

    def _heard(self, answer: Any) -> Cluster:
        return self._leaderships.corrected(read_cluster(answer))

    def topic_soon(self, name: str, patience_ms: int) -> Topic:
        """A topic that is made if it is not there and the brokers' settings allow it; that takes
        a while, in which they say that there is no such topic, or none who leads it."""
        deadline_ms = now_ms() + patience_ms
        while True:
            cluster = self.cluster([name], create_topics=True)
            refusal = cluster.refused.get(name)
            is_pending = refusal is not None and refusal.code in _BEING_MADE
            if not is_pending or now_ms() + _PAUSE_MS > deadline_ms:
                return cluster.topic(name)
            pause_ms(_PAUSE_MS)

    def ask(self, api: Api, values: Values, broker_id: int | None = None) -> Any:
        """The response of one broker, or of any."""
        deadline_ms = now_ms() + self.timeout_ms
        return self._ask(api, values, broker_id, deadline_ms)

    def ask_controller(
        self, api: Api, values: Values, codes: Callable[[Any], Iterable[ErrorCode]]
    ) -> Any:
        """The response of the controller; `codes` says which errors are in a response. While
        another broker is becoming the controller, it is waited for."""
        deadline_ms = now_ms() + self.timeout_ms
        while True:
            is_late = now_ms() + _PAUSE_MS > deadline_ms
            try:
                answer = self._ask(api, values, self._controller(deadline_ms), deadline_ms)
                if is_late or ErrorCode.not_controller not in codes(answer):
                    return answer
            except KafkaError as error:
                if is_late or error.code is not ErrorCode.broker_not_available:
                    raise
            self._cluster = None
            pause_ms(_PAUSE_MS)

    def connect(self, broker_id: int, deadline_ms: int, opener: Opener = open_stream) -> Connection:
        """A connection of the caller's own, closed with the client unless it is given back."""
        address = self._address(broker_id, deadline_ms)
        connection = Connection.open(address, self._client_id, self._buffers, deadline_ms, opener)
        self._lent.append(connection)
        return connection

    def disconnect(self, connection: Connection) -> None:
        connection.close()
        if connection in self._lent:
            self._lent.remove(connection)

    def _controller(self, deadline_ms: int) -> int | None:
        """None if it is not known: then any broker may know better."""
        cluster = self._known_cluster(deadline_ms)
        return cluster.controller_id if cluster.controller_id in cluster.brokers else None

    def _known_cluster(self, deadline_ms: int) -> Cluster:
        if self._cluster is None:
            values = {"topics": [], "allow_auto_topic_creation": False}
            self._cluster = read_cluster(self._ask(apis.METADATA, values, None, deadline_ms))
        return self._cluster

    def _ask(self, api: Api, values: Values, broker_id: int | None, deadline_ms: int) -> Any:
        is_first = not self._connections and self._cluster is None
        while True:
            was_asked = False
            try:
                connection = self._connection(broker_id, deadline_ms)
                was_asked = True
                return connection.ask(api, values, deadline_ms)
            except Unreachable as error:
                self._forget(error.address)
                if broker_id is not None:
                    # It may be gone for good, or have another address: the others know.
                    self._cluster = None
                if was_asked and api.is_change:
                    why = f"{error}: what was asked for may have been done, or not"
                    raise Unreachable(error.address, why) from error
                # Where nobody was reached yet the addresses may be wrong: that is told at once.
                if (is_first and not was_asked) or now_ms() + _PAUSE_MS > deadline_ms:
                    raise
                pause_ms(_PAUSE_MS)

    def _connection(self, broker_id: int | None, deadline_ms: int) -> Connection:
        if broker_id is not None:
            return self._open(self._address(broker_id, deadline_ms), deadline_ms)
        for connection in self._connections.values():
            return connection
        known = self._cluster.brokers.values() if self._cluster is not None else ()
        return self._open_first(
            [*self._bootstrap, *(broker.address for broker in known)], deadline_ms
        )

    def _address(self, broker_id: int, deadline_ms: int) -> Address:
        broker = self._known_cluster(deadline_ms).brokers.get(broker_id)
        if broker is None:
            self._cluster = None
            broker = self._known_cluster(deadline_ms).brokers.get(broker_id)
        if broker is None:
            raise KafkaError(
                ErrorCode.broker_not_available, f"there is no broker {broker_id} in the cluster"
            )
        return broker.address

    def _open_first(self, addresses: list[Address], deadline_ms: int) -> Connection:
        """To whoever answers; each has its share of the time, the last one all that is left."""
        troubles: list[Unreachable] = []
        for number, address in enumerate(addresses):
            share_ms = (deadline_ms - now_ms()) // (len(addresses) - number)
            try:
                return self._open(address, now_ms() + share_ms)
            except Unreachable as error:
                troubles.append(error)
        raise troubles[0]

    def _open(self, address: Address, deadline_ms: int) -> Connection:
        connection = self._connections.get(address)
        if connection is None:
            connection = Connection.open(address, self._client_id, self._buffers, deadline_ms)
            self._connections[address] = connection
        return connection

    def _forget(self, address: Address) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()
