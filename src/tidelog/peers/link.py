"""One outgoing connection to another broker: requests in order, each answered once or failed.

It opens when there is something to send, and again, after a growing pause, when it was lost.
Answers belong to the connection on which they were asked for: whatever an earlier one still
brings is dropped, so that an answer is never taken for that of a later request (rule D6). An
answer that does not come in time, or is not the one that is next, ends the connection; all that
was under way on it fails, and may or may not have been acted on.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ports import Clock, Connection, Loop, Network, Timer
from tidelog.peers.incoming import Incoming
from tidelog.wire.frames import FrameReader, ReceiveBuffers, Span

Address = tuple[str, int]
Expects = Callable[[memoryview | KafkaError], None]
InParts = Callable[[memoryview], Sequence[Span]]
"""Told again and again what has come so far of a large answer, before it is whole. What it returns
is taken out: neither the next time nor the whole has that."""

PAUSE_MS_MIN: Final = 50
PAUSE_MS_MAX: Final = 1_000
FRAME_BYTES_MAX: Final = 256 << 20
CORRELATION_ID_MAX: Final = (1 << 31) - 1

_REQUEST_START = Struct(">ihhi")
_CORRELATION_ID = Struct(">i")

_log = logging.getLogger("tidelog.link")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """What all links of a broker have in common."""

    network: Network
    loop: Loop
    clock: Clock
    buffers: ReceiveBuffers
    client_id: str
    frame_bytes_max: int = FRAME_BYTES_MAX


class _Asked:
    __slots__ = ("correlation_id", "deadline_ms", "expects", "frame", "in_parts")

    def __init__(
        self,
        frame: Sequence[bytes],
        expects: Expects,
        in_parts: InParts | None,
        deadline_ms: int,
    ) -> None:
        self.frame = frame
        self.expects = expects
        self.in_parts = in_parts
        self.deadline_ms = deadline_ms
        self.correlation_id: int = _REQUEST_START.unpack_from(frame[0])[3]


class Link:
    __slots__ = (
        "_address",
        "_asked",
        "_attempts",
        "_checked_at_ms",
        "_correlation_id",
        "_incoming",
        "_is_answering",
        "_is_closed",
        "_is_connecting",
        "_next_attempt_ms",
        "_pause_ms",
        "_retry",
        "_target",
        "_unsent",
        "_watch",
        "_wiring",
    )

    def __init__(self, wiring: Wiring, address: Callable[[], Address | None]) -> None:
        self._wiring = wiring
        self._address = address
        self._target: Address | None = None
        self._incoming: Incoming | None = None
        self._is_connecting = False
        self._is_answering = False
        """Whether anything came on this connection: only then is the next one opened at once."""
        self._is_closed = False
        self._attempts = 0
        self._pause_ms = 0
        self._next_attempt_ms = 0
        self._retry: Timer | None = None
        self._correlation_id = 0
        self._unsent: deque[_Asked] = deque()
        self._asked: deque[_Asked] = deque()
        self._watch: Timer | None = None
        self._checked_at_ms = 0

    # -- asking

    def next_correlation_id(self) -> int:
        """What the next frame is to carry."""
        now = self._correlation_id
        self._correlation_id = 0 if now == CORRELATION_ID_MAX else now + 1
        return now

    def send(
        self,
        frame: bytes | Sequence[bytes],
        expects: Expects,
        timeout_ms: int,
        in_parts: InParts | None = None,
    ) -> None:
        """Sends a request: a whole frame, in parts if the first holds its header. `expects` is
        called once, later: with the answer's frame, a view that is good during the call only,
        or with why there is none. Before that `in_parts` may see a large one come."""
        parts = (frame,) if isinstance(frame, bytes) else frame
        deadline_ms = self._wiring.clock.monotonic_ms() + timeout_ms
        asked = _Asked(parts, expects, in_parts, deadline_ms)
        if self._is_closed:
            self._fail([asked], "the link was closed")
            return
        self._look_for_another_address()
        if self._incoming is not None:
            self._transmit(self._incoming, asked)
        else:
            self._unsent.append(asked)
            self._open()
        if self._watch is None or deadline_ms < self._checked_at_ms:
            self._check_at(deadline_ms)

    def drop(self, why: str) -> None:
        """Ends the connection, because what came on it makes no sense. The link goes on."""
        if self._incoming is not None:
            _log.warning("dropped peer=%s why=%s", self._name, why)
            self._incoming.abandon()
            self.lost(why)

    def close(self) -> None:
        """Ends the link; all that was asked for fails."""
        self._is_closed = True
        self._forget_attempt()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._incoming is not None:
            self._incoming.abandon()
        self.lost("the link was closed")
        self._fail_unsent("the link was closed")

    def _transmit(self, incoming: Incoming, asked: _Asked) -> None:
        self._asked.append(asked)
        for part in asked.frame:
            incoming.connection.send(part)
        asked.frame = ()

    # -- connecting

    @property
    def _name(self) -> str:
        return "nowhere" if self._target is None else f"{self._target[0]}:{self._target[1]}"

    def _look_for_another_address(self) -> None:
        """A broker that came back elsewhere is not looked for where it was."""
        address = self._address()
        if address is None or address == self._target:
            return
        if self._incoming is not None:
            self.drop("the broker has another address")
        self._forget_attempt()
        self._target = address
        self._pause_ms = self._next_attempt_ms = 0
        if self._unsent:
            self._open()

    def _open(self) -> None:
        if self._is_connecting or self._retry is not None:
            return
        if self._wiring.clock.monotonic_ms() < self._next_attempt_ms:
            self._retry = self._wiring.loop.call_at(self._next_attempt_ms, self._open_again)
        else:
            self._connect()

    def _open_again(self) -> None:
        self._retry = None
        if self._unsent:
            self._target = self._address() or self._target
            self._connect()

    def _connect(self) -> None:
        target = self._target
        if target is None:
            self._fail_to_open("its address is not known")
            return
        self._is_connecting = True
        self._attempts += 1
        self._wiring.network.connect(*target, partial(self._opened, self._attempts))

    def _opened(self, attempt: int, outcome: Connection | OSError) -> Incoming | None:
        if attempt != self._attempts or not self._is_connecting:
            return None
        self._is_connecting = False
        if isinstance(outcome, OSError):
            self._fail_to_open(str(outcome))
            return None
        wiring = self._wiring
        frames = FrameReader(wiring.buffers, wiring.frame_bytes_max)
        self._incoming = Incoming(self, outcome, frames)
        self._is_answering = False
        while self._unsent:
            self._transmit(self._incoming, self._unsent.popleft())
        return self._incoming

    def _fail_to_open(self, why: str) -> None:
        self._pause()
        self._fail_unsent(why)

    def _pause(self) -> None:
        """Doubles the pause before the next attempt."""
        self._pause_ms = min(max(2 * self._pause_ms, PAUSE_MS_MIN), PAUSE_MS_MAX)
        self._next_attempt_ms = self._wiring.clock.monotonic_ms() + self._pause_ms

    def _forget_attempt(self) -> None:
        self._is_connecting = False
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    # -- answers

    def answered(self, frame: memoryview) -> None:
        """What the connection brought; it must be the answer that is next."""
        asked = self._asked
        if not asked or len(frame) < _CORRELATION_ID.size:
            self.drop("an answer to nothing that was asked")
            return
        correlation_id = _CORRELATION_ID.unpack_from(frame)[0]
        if correlation_id != asked[0].correlation_id:
            self.drop(f"answer {correlation_id} where {asked[0].correlation_id} was next")
            return
        self._is_answering = True
        self._pause_ms = 0
        asked.popleft().expects(frame)

    def answering(self, coming: memoryview) -> Sequence[Span]:
        """What has come so far of the answer that is next, if it is that."""
        if not self._asked or len(coming) < _CORRELATION_ID.size:
            return ()
        asked = self._asked[0]
        if asked.in_parts is None or (
            _CORRELATION_ID.unpack_from(coming)[0] != asked.correlation_id
        ):
            return ()
        return asked.in_parts(coming)

    def lost(self, why: str) -> None:
        """The connection is gone, and with it all answers that were still to come on it."""
        if self._incoming is not None:
            self._incoming = None
            if not self._is_answering:
                self._pause()
        under_way, self._asked = self._asked, deque()
        self._fail(under_way, why)

    def _fail_unsent(self, why: str) -> None:
        unsent, self._unsent = self._unsent, deque()
        self._fail(unsent, why)

    def _fail(self, failed: Sequence[_Asked], why: str) -> None:
        """Later, so that nobody is told of a failure while still asking."""
        if failed:
            error = KafkaError(ErrorCode.network_exception, f"{self._name}: {why}")
            for asked in failed:
                self._wiring.loop.call_soon(partial(asked.expects, error))

    # -- timeouts

    def _check_at(self, when_ms: int) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._checked_at_ms = when_ms
        self._watch = self._wiring.loop.call_at(when_ms, self._check)

    def _check(self) -> None:
        """One timer for all: it is set for the earliest deadline, and mostly finds that that
        request was answered long ago."""
        self._watch = None
        now_ms = self._wiring.clock.monotonic_ms()
        late = [asked for asked in (*self._asked, *self._unsent) if asked.deadline_ms <= now_ms]
        if late:
            self._give_up(late)
        left = [asked.deadline_ms for asked in (*self._asked, *self._unsent)]
        if left:
            self._check_at(min(left))

    def _give_up(self, late: list[_Asked]) -> None:
        error = KafkaError(ErrorCode.request_timed_out, f"{self._name}: no answer in time")
        is_under_way = any(asked in self._asked for asked in late)
        self._asked = deque(asked for asked in self._asked if asked not in late)
        self._unsent = deque(asked for asked in self._unsent if asked not in late)
        for asked in late:
            self._wiring.loop.call_soon(partial(asked.expects, error))
        if is_under_way:
            # Its answer, should it still come, would be taken for that of the next request.
            self.drop("no answer in time")
