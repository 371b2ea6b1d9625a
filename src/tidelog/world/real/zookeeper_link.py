# mypy: allow-subclassing-any, disable-error-code="import-untyped"
"""The connection to ZooKeeper: kazoo's client, without its callback threads and its queues.

kazoo looks for a server, begins and keeps the session, pings, and begins anew after an expiry,
all in one thread. Whatever that thread hears, answers, watches and the fate of the session, it
hands on at once and in order, so nothing can overtake anything. Requests leave many at a time,
and each names the connection it is meant for: what was asked in one that is lost, or in a
session that is over, never reaches the next.

kazoo's own watches are not used. It forgets them with every connection; here they are left
again, by `SetWatches`, as ZooKeeper's Java client does.
"""

import logging
import select
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.hosts import collect_hosts
from kazoo.protocol.connection import CLOSE_RESPONSE, ConnectionHandler
from kazoo.protocol.serialization import Watch, int_struct
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

_log = logging.getLogger("tidelog.zookeeper")
_kazoo_log = logging.getLogger("tidelog.zookeeper.kazoo")
# It warns at every attempt to connect; the states of the session are told by the adapter, once.
_kazoo_log.setLevel(logging.ERROR)

_RECEIVED_BYTES: Final = 65_536
_SENT_BYTES: Final = 262_144
_OPEN_SECONDS_MAX: Final = 3.0
_XID_MAX: Final = 2_147_483_647
_RETRY_SECONDS: Final = 0.1
_RETRY_SECONDS_MAX: Final = 1.0


class Request(Protocol):
    """What kazoo must know of a request, and what becomes of it. `set` and `set_exception` are
    kazoo's names for its outcome; both are called in its thread."""

    type: int
    connection: int
    """The number of the connection that it may be sent in."""

    def serialize(self) -> bytes: ...

    def deserialize(self, data: bytes, offset: int) -> Any: ...

    def set(self, answer: Any) -> None: ...

    def set_exception(self, error: Exception) -> None: ...


class Hearing(Protocol):
    """What is told of the session, in kazoo's thread."""

    def connected(self, connection: int, session_id: int, last_zxid: int) -> None: ...

    def suspended(self) -> None: ...

    def expired(self) -> None: ...

    def watched(self, kind: int, path: str) -> None: ...


OnNewSession = Callable[[int, bytes], None]


class Link:
    """What the adapter sees of the connection. Every method is for the loop, none blocks."""

    def __init__(
        self,
        hosts: str,
        session_timeout_ms: int,
        hearing: Hearing,
        on_new_session: OnNewSession | None,
    ) -> None:
        self.outgoing: deque[Request] = deque()
        """What to send; `wake` says that there is something."""
        self._client = _Client(hosts, session_timeout_ms, hearing)
        self._client.pipeline(self.outgoing, on_new_session)
        self._client.start_async()

    def wake(self) -> None:
        self._client.wake()

    def end(self, ended: Callable[[], None]) -> None:
        """Closes the session after all that was sent; `ended` is called in another thread."""
        self._client.handler.spawn(self._end, ended)

    def _end(self, ended: Callable[[], None]) -> None:
        try:
            self._client.stop()
            self._client.close()
        finally:
            ended()

    @property
    def has_closed(self) -> bool:
        """Whether the server has said that the session is over."""
        return self._client.has_closed


def are_hosts(hosts: str) -> bool:
    """Whether kazoo knows where to connect to."""
    try:
        collect_hosts(hosts)
    except ValueError:
        return False
    return True


class _Handler(SequentialThreadingHandler):
    """No threads but the connection's: what kazoo would queue for others is not made at all."""

    wait_seconds_max = 1.0

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def create_socket_pair(self) -> Any:
        """Nobody may wait for the other end: a full one has enough in it to wake who reads."""
        pair = super().create_socket_pair()
        for end in pair:
            end.setblocking(False)
        return pair

    def create_connection(self, *arguments: Any, timeout: float, **options: Any) -> Any:
        seconds = min(timeout, _OPEN_SECONDS_MAX)
        return super().create_connection(*arguments, timeout=seconds, **options)

    def select(
        self,
        readable: Sequence[Any],
        writable: Sequence[Any],
        _exceptional: Sequence[Any],
        timeout: float,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """`poll`, which has nothing to set up and to take down as kazoo's selectors have."""
        poll = select.poll()
        found = {each.fileno(): each for each in (*readable, *writable)}
        for each in readable:
            poll.register(each, select.POLLIN)
        for each in writable:
            poll.register(each, select.POLLOUT)
        # Only the wait for either end, for which there is no deadline, may be cut short.
        seconds = min(timeout, self.wait_seconds_max) if len(readable) > 1 else timeout
        ready = [found[descriptor] for descriptor, _ in poll.poll(seconds * 1_000)]
        return (ready, [], []) if readable else ([], ready, [])


class _Client(KazooClient):
    def __init__(self, hosts: str, session_timeout_ms: int, hearing: Hearing) -> None:
        retry = KazooRetry(
            max_tries=-1, delay=_RETRY_SECONDS, backoff=1.5, max_delay=_RETRY_SECONDS_MAX
        )
        super().__init__(
            hosts=hosts,
            timeout=session_timeout_ms / 1_000,
            handler=_Handler(),
            connection_retry=retry,
            logger=_kazoo_log,
        )
        self.hearing = hearing

    def pipeline(self, outgoing: deque[Request], on_new_session: OnNewSession | None) -> None:
        self._connection = _Connection(self, outgoing, on_new_session)

    @property
    def has_closed(self) -> bool:
        return self._connection.has_closed

    def wake(self) -> None:
        self._connection.wake()

    def _session_callback(self, state: Any) -> None:
        """The state is told before kazoo gives up what is under way."""
        if not self._stopped.is_set():
            if state == KeeperState.EXPIRED_SESSION:
                self.hearing.expired()
            elif state == KeeperState.CONNECTING and self._state == KeeperState.CONNECTED:
                self.hearing.suspended()
        super()._session_callback(state)


class _Patience:
    """In the place of kazoo's flag that a ping is unanswered: it takes a ping for lost at the
    next look, which may be ten milliseconds later."""

    def __init__(self) -> None:
        self.seconds = 1.0
        self._since: float | None = None

    def set(self) -> None:
        if self._since is None:
            self._since = monotonic()

    def clear(self) -> None:
        self._since = None

    def is_set(self) -> bool:
        return self._since is not None and monotonic() - self._since > self.seconds


class _Connection(ConnectionHandler):
    def __init__(
        self, client: _Client, outgoing: deque[Request], on_new_session: OnNewSession | None
    ) -> None:
        super().__init__(client, client._conn_retry.copy(), logger=_kazoo_log)
        self.ping_outstanding = _Patience()
        self._outgoing = outgoing
        self._on_new_session = on_new_session
        self.has_closed = False
        self._known_session = 0
        self._number = 0
        self._received = b""
        self._position = 0
        self._xid: int = 0

    def wake(self) -> None:
        """For the loop. If there is no room, the thread has not woken from the last times."""
        waker = self._write_sock
        if waker is not None:
            try:
                waker.send(b"\0")
            except BlockingIOError:
                return

    # Connecting.

    def _connect_attempt(self, *where: Any) -> Any:
        """An error that kazoo does not know would end its thread, and with it the session."""
        try:
            return super()._connect_attempt(*where)
        except Exception as error:
            _log.error("the connection to ZooKeeper failed: %s", error, exc_info=error)
            self.client._session_callback(KeeperState.CONNECTING)
            return None

    def _connect(self, *where: Any) -> Any:
        self._received, self._position = b"", 0
        read_timeout_ms, connect_timeout_ms = super()._connect(*where)
        self.ping_outstanding.seconds = read_timeout_ms / 2_000
        self.handler.wait_seconds_max = read_timeout_ms / 4_000
        session_id, password = self.client.client_id
        if session_id != self._known_session:
            self._make_known(session_id, password)
        self._number += 1
        self.client.hearing.connected(self._number, session_id, self.client.last_zxid)
        return read_timeout_ms, connect_timeout_ms

    def _make_known(self, session_id: int, password: bytes) -> None:
        if self._on_new_session is not None:
            try:
                self._on_new_session(session_id, password)
            except Exception as error:
                _log.error("session 0x%x cannot be used: %s", session_id, error, exc_info=error)
                raise ConnectionDropped("nobody knows the new session") from error
        self._known_session = session_id

    # Reading: many answers in one system call.

    def _read(self, length: int, timeout: float) -> bytes:
        while len(self._received) - self._position < length:
            rest = self._received[self._position :]
            self._received, self._position = rest + self._receive(timeout), 0
        start = self._position
        self._position = end = start + length
        return self._received[start:end]

    def _receive(self, timeout: float) -> bytes:
        with self._socket_error_handling():
            while True:
                try:
                    chunk: bytes = self._socket.recv(_RECEIVED_BYTES)
                except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    if not self.handler.select([self._socket], [], [], timeout)[0]:
                        raise self.handler.timeout_exception("no answer in time") from None
                    continue
                if not chunk:
                    raise ConnectionDropped("closed by the server")
                return chunk

    def _read_socket(self, read_timeout: float) -> Any:
        """All that has come, so that nothing is left where a wait for the socket would not see
        it."""
        response = super()._read_socket(read_timeout)
        while response != CLOSE_RESPONSE and self._position < len(self._received):
            response = super()._read_socket(read_timeout)
        self.has_closed |= response == CLOSE_RESPONSE
        return response

    def _read_watch_event(self, data: bytes, offset: int) -> None:
        watch, _ = Watch.deserialize(data, offset)
        self.client.hearing.watched(watch.type, watch.path)

    # Writing: many requests in one system call.

    def _send_request(self, _read_timeout: float, connect_timeout: float) -> None:
        # Emptied before the queues are looked at: who adds to them later wakes the thread again.
        self._read_sock.recv(_RECEIVED_BYTES)
        frames = bytearray()
        while (request := self._next_request()) is not None:
            frames += self._frame(request, request)
            if len(frames) > _SENT_BYTES:
                self._write(frames, connect_timeout)
                frames = bytearray()
        while self.client._queue:
            closing, outcome = self.client._queue.popleft()
            frames += self._frame(closing, outcome)
        if frames:
            self._write(frames, connect_timeout)

    def _next_request(self) -> Request | None:
        """The loop may empty the queue at any time; it never adds what is not for the newest
        connection it knows of."""
        try:
            is_meant = self._outgoing[0].connection == self._number
            return self._outgoing.popleft() if is_meant else None
        except IndexError:
            return None

    def _frame(self, request: Any, outcome: Any) -> bytes:
        self._xid = xid = self._xid % _XID_MAX + 1
        self.client._pending.append((request, outcome, xid))
        body = int_struct.pack(xid) + int_struct.pack(request.type) + request.serialize()
        return bytes(int_struct.pack(len(body)) + body)
