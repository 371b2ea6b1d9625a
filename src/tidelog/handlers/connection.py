"""A client's connection: bytes to requests, requests to handlers, responses back in order.

Requests are taken up as they come, several at a time if they come that way; a response
waits until those before it are sent. With too many unanswered, or too large ones, nothing more
is read until some are; and what came in one go is answered in shares, each when the last has
left, so that nobody else waits and nothing piles up for a client that does not read. Whatever
cannot be read ends the connection, and only this one, with a line in the log that says who sent
what.
"""

import logging
from collections import deque
from typing import Any, Final

from tidelog.base.errors import KafkaError
from tidelog.base.ports import Connection
from tidelog.handlers import api_versions
from tidelog.handlers.api import Part, Request
from tidelog.handlers.gathering import Gathering, is_wide
from tidelog.handlers.owner import Owner
from tidelog.handlers.share import IN_FLIGHT_MAX, REQUEST_BYTES, Share
from tidelog.handlers.together import PRODUCE, read_together, runs_of
from tidelog.handlers.unsupported import answer_to_unsupported
from tidelog.log.partition_log import Slice
from tidelog.wire.frames import FrameReader
from tidelog.wire.header import RequestHeader, read_request_header

OWED_BYTES_MAX: Final = 16 << 20
"""Larger requests than this together wait unread for an answer to the first of them."""
RETRY_MS_MAX: Final = 64

_log = logging.getLogger("tidelog.connection")


class ClientConnection:
    __slots__ = (
        "_apis",
        "_frames",
        "_gathering",
        "_held",
        "_is_catching_up",
        "_is_closed",
        "_is_finishing",
        "_is_paused",
        "_is_waiting",
        "_link",
        "_node",
        "_owed_bytes",
        "_owner",
        "_pending",
        "_queued_before",
        "_quiet_checks",
        "_refused",
        "_share",
        "buffer",
        "client_id",
        "listener",
    )

    def __init__(
        self, owner: Owner, node: Any, link: Connection, listener: str, frames: FrameReader
    ) -> None:
        self._owner = owner
        self._node = node
        self._link = link
        self._frames = frames
        self.buffer = frames.buffer
        self._apis = owner.apis
        self._gathering: Gathering | None = None
        self._pending: deque[Request] = deque()
        self._held: deque[bytearray] = deque()
        self._is_catching_up = False
        self._is_closed = self._is_finishing = False
        self._is_paused = self._is_waiting = False
        self._refused: str | None = None
        """Why nothing more can be read, while there is still something from before."""
        self._owed_bytes = 0
        self._share = Share(node.clock, owner.counters)
        self.listener = listener
        self.client_id: str | None = None
        self._quiet_checks = self._queued_before = 0

    @property
    def peer(self) -> str:
        return self._link.peer

    @property
    def is_finishing(self) -> bool:
        return self._is_finishing

    def begin(self) -> None:
        """Reads what has come, if it was not read so far."""
        self._link.resume()

    # -- what the network calls

    def received(self, size: int) -> None:
        self._quiet_checks = 0
        try:
            frames = self._frames.received(size)
        except KafkaError as error:
            self._refuse(error.message)
            return
        if self._gathering:
            self._gathering.add(frames)
        else:
            self._serve_all(frames, may_wait=True)
        if self._frames.refused is not None:
            self._refuse(self._frames.refused.message)

    def _refuse(self, why: str) -> None:
        """Closes, once all that came before was taken up."""
        self._end_gathering()
        self._refused = why
        if not self._held:
            self.close(why)

    def _serve_all(self, frames: list[memoryview], may_wait: bool = False) -> None:
        self._share.begin()
        for run in [frames] if len(frames) == 1 else runs_of(frames):
            if self._is_closed:
                return
            if self._held or self._share.room <= 0 or (self._pending and self._is_crowded()):
                self._held.extend(map(bytearray, run))
            elif len(run) == 1:
                self._serve(run[0], may_wait and len(frames) == 1)
            else:
                self._serve_together(run)
        self._share.end()
        if self._held or (self._pending and self._is_crowded()):
            self._is_paused = True
            self._link.pause()
            self._go_on_later()

    def closed(self, why: str) -> None:
        if self._gathering:
            self._serve_last(self._gathering)
        self._is_closed, self._gathering = True, None
        self._frames.close()
        self._held.clear()
        for request in self._pending:
            request.is_abandoned = True
            if request.on_close is not None:
                request.on_close()
        self._pending.clear()
        self._owner.owed_bytes -= self._owed_bytes
        self._owed_bytes = 0
        self._owner.left(self)
        _log.debug("closed peer=%s client=%s why=%s", self._link.peer, self.client_id, why)

    # -- requests

    def _serve(self, frame: memoryview, may_wait: bool = False) -> None:
        header: RequestHeader | None = None
        try:
            header, at = read_request_header(frame)
            api = self._apis.get(header.api_key)
            if api is None or not api.first <= header.version <= api.last:
                self._answer_unsupported(header, frame, at)
                return
            if len(frame) > self._owner.request_bytes_max and api.key != PRODUCE:
                most = f"socket.request.other.max.bytes={self._owner.request_bytes_max}"
                self._owner.counters.requests_refused += 1
                self.close(f"{_named(header)}: {len(frame)} bytes are more than {most}")
                return
            body = api.read(api.key, header.version, frame, at)
            if may_wait and api.key == PRODUCE and is_wide(body):
                self._gather(frame)
                return
        except KafkaError as error:
            what = "a frame" if header is None else _named(header)
            self._owner.counters.requests_refused += 1
            self.close(f"{what} cannot be read: {error.message}")
            return
        self.client_id = header.client_id
        request = Request(self, api, header.version, header.correlation_id, header.client_id, body)
        node, pending = self._node, self._pending
        if pending and self.listener == node.inter_broker_listener:
            self._interrupt()
        pending.append(request)
        try:
            self._respond(request, api.handle(node, request), len(frame))
        except Exception:
            self._failed(request)

    def _gather(self, frame: memoryview) -> None:
        self._gathering = self._gathering or Gathering(self._node.loop, self._serve_all)
        self._gathering.add([frame])

    def _end_gathering(self) -> None:
        if self._gathering:
            self._gathering.end()

    def _serve_last(self, gathering: Gathering) -> None:
        """Who wants no answers closes when he has sent everything: all of it, not only a share."""
        gathering.end()
        while self._held and not self._is_crowded() and not self._is_closed:
            self._serve(memoryview(self._held.popleft()))
        self._share.end()

    def _serve_together(self, frames: list[memoryview]) -> None:
        requests = read_together(self, self._apis, frames)
        if requests:
            self._handle_together(requests, frames)
        for frame in frames[len(requests) :]:
            if self._held or (self._pending and self._is_crowded()):
                self._held.append(bytearray(frame))
            elif not self._is_closed:
                self._serve(frame)

    def _handle_together(self, requests: list[Request], frames: list[memoryview]) -> None:
        """As one, if that can be; otherwise one by one, until one of them ends the connection."""
        request, node = requests[0], self._node
        api = request.api
        self.client_id = requests[-1].client_id
        if self._pending and self.listener == node.inter_broker_listener:
            self._interrupt()
        self._pending.extend(requests)
        try:
            responses = None if api.together is None else api.together(node, requests)
            for at, request in enumerate(requests):
                if self._is_closed:
                    return
                response = api.handle(node, request) if responses is None else responses[at]
                self._respond(request, response, len(frames[at]))
        except Exception:
            self._failed(request)

    def _respond(self, request: Request, response: Any, size: int) -> None:
        pending, api = self._pending, request.api
        if response is None:
            self._owe(request, size)
        elif pending and pending[0] is request:
            pending.popleft()
            self._send(api.write(request, response))
            self._share.count(api.key)
        else:
            self._owe(request, size)
            request.answer(response)

    def _failed(self, request: Request) -> None:
        _log.exception("bug peer=%s request=%s", self._link.peer, _named(request))
        self.close("the broker failed to answer it")

    def _owe(self, request: Request, size: int) -> None:
        """Notes a request whose answer is still to come, or waits behind another one."""
        if request.parts is None:
            request.began_us = self._share.began_us
            request.size = size
            self._owed_bytes += size
            self._owner.owed_bytes += size

    def _answer_unsupported(self, header: RequestHeader, frame: memoryview, at: int) -> None:
        answer = answer_to_unsupported(header, frame, at)
        self._owner.counters.requests_refused += 1
        if answer is None:
            self.close(f"{_named(header)} is not served here")
            return
        asked = (header.version, header.correlation_id, header.client_id)
        request = Request(self, api_versions.API, *asked, None)
        self._pending.append(request)
        request.began_us = self._share.began_us
        request.parts = [answer] if answer else []
        self.answered(request)

    # -- answers

    def answered(self, request: Request) -> None:
        """A request that waited has its answer; those that come next in order leave now."""
        if request.began_us:
            took_us = self._node.clock.monotonic_us() - request.began_us
            self._owner.counters.answered(request.api.key, took_us)
        else:
            self._share.count(request.api.key)
        pending = self._pending
        while pending and (parts := pending[0].parts) is not None:
            size = pending.popleft().size
            self._owed_bytes -= size
            self._owner.owed_bytes -= size
            self._send(parts)
        if self._is_paused:
            self._serve_held()
        if self._is_finishing:
            self._close_if_finished()

    def go_on(self) -> None:
        if self._is_paused:
            self._serve_held()

    def _send(self, parts: list[Part]) -> None:
        room = self._share.room - REQUEST_BYTES
        for part in parts:
            if type(part) is bytes:
                self._link.send(part)
                room -= len(part)
            else:
                assert isinstance(part, Slice)
                self._link.send_file(part.file, part.position, part.size)
        self._share.room = room

    # -- what has to wait

    def _is_crowded(self) -> bool:
        """Whether what comes next has to wait until something was answered."""
        owed_bytes, owner = self._owed_bytes, self._owner
        return (
            len(self._pending) >= IN_FLIGHT_MAX
            or (len(self._pending) > 0 and self._pending[-1].is_long)
            or owed_bytes > OWED_BYTES_MAX
            or (owed_bytes > 0 and owner.owed_bytes > owner.owed_bytes_max)
        )

    def _serve_held(self) -> None:
        """Takes up what was held; what is answered meanwhile comes back here, but only once.
        Then more can be read."""
        if self._is_catching_up:
            return
        self._is_catching_up = True
        held = self._held
        while held and self._share.room > 0 and not self._is_crowded() and not self._is_closed:
            self._serve(memoryview(held.popleft()))
        self._is_catching_up = False
        self._share.end()
        if held:
            self._go_on_later()
        elif self._is_finishing:
            self._close_if_finished()
        elif self._refused is not None:
            self.close(self._refused)
        elif not self._is_crowded():
            self._is_paused = False
            self._link.resume()

    def _go_on_later(self, delay_ms: int = 0) -> None:
        """In another turn, when what was answered has left."""
        is_due = self._share.room <= 0 if self._held else self._is_finishing
        if is_due and not self._is_waiting and not self._is_closed:
            self._is_waiting = True
            node = self._node
            at_ms = node.clock.monotonic_ms() + delay_ms
            node.loop.call_at(at_ms, lambda: self._go_on(delay_ms))

    def _go_on(self, waited_ms: int) -> None:
        self._is_waiting = False
        if self._link.queued_bytes:
            self._go_on_later(min(2 * waited_ms + 1, RETRY_MS_MAX))
        elif not self._is_closed:
            self._share.begin()
            self._serve_held()

    def count_quiet(self, checks_max: int) -> None:
        """Called now and then; closes the connection if nothing has come or left for so many
        times and nothing is owed."""
        before, self._queued_before = self._queued_before, self._link.queued_bytes
        self._quiet_checks = self._quiet_checks + 1 if self._queued_before == before else 0
        if self._quiet_checks > checks_max and not self._pending:
            self.close("nothing came for connections.max.idle.ms")

    def finish(self) -> None:
        """Reads no more, answers what was accepted, and closes then."""
        self._end_gathering()
        self._link.pause()
        self._is_finishing = True
        self._interrupt()
        self._close_if_finished()

    def _interrupt(self) -> None:
        """Has answered at once what waits; also where another broker asks for something behind
        a fetch that waits: it has more to fetch than it said."""
        for request in list(self._pending):
            if request.on_stop is not None:
                request.on_stop()

    def _close_if_finished(self) -> None:
        """Of what was held, the last answers may be more than the peer takes at once."""
        if self._is_finishing and not self._pending and not self._held:
            if self._is_paused and self._link.queued_bytes:
                self._go_on_later()
            else:
                self.close("the broker stops")

    def abort(self, why: str) -> None:
        _log.info("aborting peer=%s client=%s why=%s", self._link.peer, self.client_id, why)
        self._is_closed = True
        self._link.abort()

    def close(self, why: str) -> None:
        if not self._is_closed:
            self._is_closed = True
            level = logging.INFO if self._is_finishing else logging.WARNING
            _log.log(level, "closing peer=%s client=%s why=%s", self.peer, self.client_id, why)
            self._link.close()


def _named(header: RequestHeader | Request) -> str:
    return f"request api_key={header.api_key} version={header.version} client={header.client_id}"
