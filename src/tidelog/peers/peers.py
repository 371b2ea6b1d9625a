"""All the other brokers as one reaches them: requests of the controller, and forwarded ones.

What the controller tells a broker goes over a connection of its own, one request at a time and
in order: the next leaves when the last was answered or has failed. What is forwarded, such as
the creation of a topic, has another connection, so that it does not hold up the first. A broker
that writes to itself is served in this process, in a later turn.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tidelog.base.control import (
    REQUESTS,
    VERSIONS,
    ControlledShutdownRequest,
    ControlRequest,
)
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.peers.link import Address, Link, Wiring
from tidelog.wire.codec import read_response, write_request

Done = Callable[[Any | KafkaError], None]
Local = Callable[[ControlRequest, Callable[[Any], None]], None]

_API_KEYS: Final = {request: api_key for api_key, request in REQUESTS.items()}

_log = logging.getLogger("tidelog.peers")


class BrokerPeers:
    def __init__(
        self,
        wiring: Wiring,
        broker_id: int,
        address_of: Callable[[int], Address | None],
        local: Local,
        timeout_ms: int,
    ) -> None:
        self._wiring = wiring
        self._broker_id = broker_id
        self._address_of = address_of
        self._local = local
        self._timeout_ms = timeout_ms
        self._lanes: dict[int, _Lane] = {}
        self._epochs: dict[int, int] = {}
        self._told: dict[int, Link] = {}
        self._forwarded: dict[int, Link] = {}

    def send(self, broker_id: int, request: ControlRequest, done: Done) -> None:
        """The port `cluster.peers.Peers`."""
        is_here = broker_id == self._broker_id
        deliver = self._serve_here if is_here else partial(self._tell, broker_id)
        if isinstance(request, ControlledShutdownRequest):
            # It is answered when others were told, and among them may be who asks.
            deliver(request, done)
            return
        if self._epochs.get(broker_id, request.broker_epoch) != request.broker_epoch:
            # What was meant for an earlier incarnation must not hold up this one.
            self.forget(broker_id)
        self._epochs[broker_id] = request.broker_epoch
        lane = self._lanes.get(broker_id)
        if lane is None:
            lane = self._lanes[broker_id] = _Lane(deliver)
        lane.put(request, done)

    def forward(self, broker_id: int, api_key: int, version: int, entity: Any, done: Done) -> None:
        """Sends an ordinary request to another broker; `done` once, later, with its answer, or a
        KafkaError if there is none."""
        link = self._link(self._forwarded, broker_id)
        self._ask(link, (api_key, version), entity, done)

    def forget(self, broker_id: int) -> None:
        """A broker is gone: what waits for it fails."""
        error = KafkaError(ErrorCode.network_exception, f"broker {broker_id} is gone")
        lane = self._lanes.get(broker_id)
        if lane is not None:
            for done in lane.clear():
                self._wiring.loop.call_soon(partial(done, error))
        for links in (self._told, self._forwarded):
            link = links.pop(broker_id, None)
            if link is not None:
                link.close()

    def close(self) -> None:
        for broker_id in sorted({*self._lanes, *self._forwarded}):
            self.forget(broker_id)

    # -- delivery

    def _tell(self, broker_id: int, request: ControlRequest, done: Done) -> None:
        api_key = _API_KEYS[type(request)]
        link = self._link(self._told, broker_id)
        self._ask(link, (api_key, VERSIONS[api_key]), request, done)

    def _serve_here(self, request: ControlRequest, done: Done) -> None:
        def serve() -> None:
            once = _Once(done)
            try:
                self._local(request, once)
            except Exception:
                _log.exception("bug request=%s", type(request).__name__)
                once(KafkaError(ErrorCode.unknown_server_error, "the broker failed to act on it"))

        wiring = self._wiring
        wiring.loop.call_at(wiring.clock.monotonic_ms(), serve)

    def _link(self, links: dict[int, Link], broker_id: int) -> Link:
        link = links.get(broker_id)
        if link is None:
            link = links[broker_id] = Link(self._wiring, partial(self._address_of, broker_id))
        return link

    def _ask(self, link: Link, api: tuple[int, int], entity: Any, done: Done) -> None:
        correlation_id = link.next_correlation_id()

        def expects(answer: memoryview | KafkaError) -> None:
            if isinstance(answer, KafkaError):
                done(answer)
                return
            try:
                _, response = read_response(*api, answer)
            except KafkaError as error:
                link.drop(f"an answer that cannot be read: {error.message}")
                done(error)
                return
            done(response)

        try:
            frame = write_request(*api, correlation_id, self._wiring.client_id, entity)
        except KafkaError as error:
            self._wiring.loop.call_soon(partial(done, error))
            return
        link.send(frame, expects, self._timeout_ms)


class _Lane:
    """What goes to one broker, one after the other."""

    __slots__ = ("_deliver", "_is_busy", "_waiting")

    def __init__(self, deliver: Callable[[ControlRequest, Done], None]) -> None:
        self._deliver = deliver
        self._is_busy = False
        self._waiting: deque[tuple[ControlRequest, Done]] = deque()

    def put(self, request: ControlRequest, done: Done) -> None:
        self._waiting.append((request, done))
        if not self._is_busy:
            self._next()

    def clear(self) -> list[Done]:
        """Gives up what has not left; what has is answered or fails."""
        waiting, self._waiting = self._waiting, deque()
        return [done for _, done in waiting]

    def _next(self) -> None:
        self._is_busy = bool(self._waiting)
        if self._waiting:
            request, done = self._waiting.popleft()
            self._deliver(request, partial(self._answered, done))

    def _answered(self, done: Done, outcome: Any) -> None:
        try:
            done(outcome)
        finally:
            self._next()


class _Once:
    """Passes on the first of two answers: a handler may answer and fail afterwards."""

    __slots__ = ("_done",)

    def __init__(self, done: Done) -> None:
        self._done: Done | None = done

    def __call__(self, outcome: Any) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(outcome)
