"""Cuts what arrives on a connection into frames: an int32 length, then that many bytes.

All connections of a loop receive into one shared buffer. Only while a frame is incomplete has
its connection something of its own: the bytes themselves if the frame is small, else a buffer
into which the rest is received, so that it is copied no more. Buffers grow with the data that
came, never by the length that was declared, and are used again.

A frame is a view. One that lies in the shared buffer is good until the loop asks any connection
for a buffer again; `ReceiveBuffers.lasting` makes one that stays. A large frame has a buffer of
its own, which is used again only when no view on it is left: to keep it, keep the view.
"""

from collections.abc import Sequence
from typing import Final

from tidelog.base.errors import KafkaError
from tidelog.base.limits import RECEIVED_BYTES_MAX
from tidelog.wire.values import INT32, malformed

SHARED_BYTES: Final = RECEIVED_BYTES_MAX
_SMALL_BYTES: Final = 16 * 1024
_GROWTH: Final = 4
_START_BYTES_MAX: Final = 4 * 1024 * 1024 + _SMALL_BYTES
_POOLED_BYTES_MAX: Final = 16 * 1024 * 1024
_POOLED_MAX: Final = 16
_STEP_BYTES: Final = 1024 * 1024
"""What is received at once of a large frame: whoever uses it as it comes is to get its turn."""

Span = tuple[int, int]
"""Where bytes begin, and how many they are."""


class ReceiveBuffers:
    """The buffers of one loop: the shared one, and a few large ones to be used again."""

    __slots__ = ("_pool", "_pooled_bytes", "shared", "shared_view")

    def __init__(self, shared_bytes: int = SHARED_BYTES) -> None:
        assert shared_bytes > _SMALL_BYTES, "a small frame must fit into the shared buffer"
        self.shared = bytearray(shared_bytes)
        self.shared_view = memoryview(self.shared)
        self._pool: list[bytearray] = []
        self._pooled_bytes = 0

    def lasting(self, view: memoryview) -> memoryview:
        """The same bytes, good for as long as the result is kept."""
        return memoryview(bytearray(view)) if view.obj is self.shared else view

    def take(self, size: int) -> bytearray:
        """A buffer of at least that size, with anything in it: the one that was used last, of
        which most is still in the core's caches."""
        for place in range(len(self._pool) - 1, -1, -1):
            buffer = self._pool[place]
            if size <= len(buffer) <= size * _GROWTH + _SMALL_BYTES and _is_unused(buffer):
                self._pooled_bytes -= len(buffer)
                return self._pool.pop(place)
        return bytearray(-(-size // _SMALL_BYTES) * _SMALL_BYTES)

    def give_back(self, buffer: bytearray) -> None:
        """Views on it may live on: it is used again when they are gone."""
        if len(buffer) > _POOLED_BYTES_MAX // 2:
            return
        self._pool.append(buffer)
        self._pooled_bytes += len(buffer)
        while self._pooled_bytes > _POOLED_BYTES_MAX or len(self._pool) > _POOLED_MAX:
            self._pooled_bytes -= len(self._pool.pop(0))


def _is_unused(buffer: bytearray) -> bool:
    """A bytearray refuses to change its size while there are views on it."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True


class FrameReader:
    """The incoming side of one connection."""

    __slots__ = (
        "_buffers",
        "_filled",
        "_frame_bytes_max",
        "_kept",
        "_own",
        "_steady_bytes",
        "_total",
        "_used_bytes",
        "_view",
        "refused",
    )

    def __init__(self, buffers: ReceiveBuffers, frame_bytes_max: int) -> None:
        self._buffers = buffers
        self._frame_bytes_max = frame_bytes_max
        self._kept = b""
        self._own: bytearray | None = None
        self._view = buffers.shared_view
        self._filled = 0
        self._total = 0
        self._steady_bytes = 0
        self._used_bytes = 0
        """The most that was there of the frame that is coming, before something was taken out."""
        self.refused: KafkaError | None = None

    def buffer(self) -> memoryview:
        """Where to receive next; never empty."""
        if self._own is not None:
            if self._filled == len(self._own):
                self._grow(self._own)
            end = min(self._total, len(self._own), self._filled + _STEP_BYTES)
            return self._view[self._filled : end]
        kept = self._kept
        if kept:
            self._buffers.shared_view[: len(kept)] = kept
            return self._buffers.shared_view[len(kept) :]
        if self._steady_bytes > SHARED_BYTES:
            # Another large frame begins, most likely: what comes of it now will be copied.
            return self._buffers.shared_view[:_SMALL_BYTES]
        return self._buffers.shared_view

    def received(self, size: int) -> list[memoryview]:
        """The frames that are whole now, without their lengths. A length that cannot be raises;
        if whole frames came before it they are returned first, `refused` is set, and the next
        call raises."""
        if self.refused is not None:
            raise self.refused
        if self._own is not None:
            return self._received_own(size)
        frames: list[memoryview] = []
        view = self._buffers.shared_view
        at, end = 0, len(self._kept) + size
        while end - at >= 4:
            length = INT32.unpack_from(view, at)[0]
            if length < 0 or length > self._frame_bytes_max:
                return self._refuse(length, frames)
            frame_end = at + 4 + length
            if frame_end > end:
                break
            frames.append(view[at + 4 : frame_end])
            at = frame_end
        if frames:
            self._steady_bytes = 0
        if at < end:
            self._keep(view[at:end])
        elif self._kept:
            self._kept = b""
        return frames

    def coming(self) -> memoryview | None:
        """What has come of a large frame that is not whole yet, without its length. It is good
        until the next bytes are received."""
        return None if self._own is None else self._view[4 : self._filled]

    def take_out(self, spans: Sequence[Span]) -> None:
        """Forgets bytes of what `coming` has shown, in its order: those behind them move up, and
        the frame is as if it had been sent without them. So its buffer need not grow, and is in
        the core's caches when the next bytes come."""
        assert self._own is not None, "nothing is coming"
        self._used_bytes = max(self._used_bytes, self._filled)
        for at, size in reversed(spans):
            left = self._filled - size
            self._view[4 + at : left] = self._view[4 + at + size : self._filled]
            self._filled = left
            self._total -= size

    def _refuse(self, length: int, frames: list[memoryview]) -> list[memoryview]:
        self._kept = b""
        self.refused = malformed(
            f"a frame of {length} bytes, where at most {self._frame_bytes_max} are allowed"
        )
        if not frames:
            raise self.refused
        return frames

    def _keep(self, rest: memoryview) -> None:
        """Keeps the beginning of a frame."""
        held = len(rest)
        total = 4 + INT32.unpack_from(rest)[0] if held >= 4 else 0
        if total <= _SMALL_BYTES:
            self._kept = bytes(rest)
            return
        self._kept = b""
        self._total = total
        start = max(_SMALL_BYTES, held * _GROWTH, self._steady_bytes)
        self._own = self._buffers.take(min(total, start))
        self._view = memoryview(self._own)
        self._view[:held] = rest
        self._filled = held

    def _received_own(self, size: int) -> list[memoryview]:
        own = self._own
        assert own is not None
        self._filled += size
        if self._filled == self._total:
            frame = self._view[4 : self._total]
            self._steady_bytes = min(max(self._total, self._used_bytes), _START_BYTES_MAX)
            self._let_go(own)
            return [frame]
        return []

    def _grow(self, full: bytearray) -> None:
        filled = self._view
        self._own = self._buffers.take(min(self._total, len(full) * _GROWTH))
        self._view = memoryview(self._own)
        self._view[: self._filled] = filled
        self._buffers.give_back(full)

    def _let_go(self, own: bytearray) -> None:
        self._buffers.give_back(own)
        self._own = None
        self._view = self._buffers.shared_view
        self._filled = self._total = self._used_bytes = 0

    def close(self) -> None:
        """Gives back what an incomplete frame held; nothing may be received any more."""
        if self._own is not None:
            self._let_go(self._own)
        self._kept = b""
        self.refused = None
