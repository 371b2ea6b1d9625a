"""What comes on one connection of a link: the receiving side of it, for as long as it lasts.

Each connection has its own, so what an abandoned one still brings finds nobody.
"""

from collections.abc import Sequence
from typing import Protocol

from tidelog.base.errors import KafkaError
from tidelog.base.ports import Connection
from tidelog.wire.frames import FrameReader, Span


class Asking(Protocol):
    """Whose connection it is."""

    def answered(self, frame: memoryview) -> None: ...

    def answering(self, coming: memoryview) -> Sequence[Span]:
        """So much has come of a large frame that is not whole yet. What it returns is used, and is
        not kept."""

    def drop(self, why: str) -> None: ...

    def lost(self, why: str) -> None: ...


class Incoming:
    __slots__ = ("_asking", "_frames", "connection")

    def __init__(self, asking: Asking, connection: Connection, frames: FrameReader) -> None:
        self._asking: Asking | None = asking
        self._frames = frames
        self.connection = connection

    def abandon(self) -> None:
        """Ends the connection: what has not reached the other side yet is not to, and nothing that
        it still sends is heard."""
        self._asking = None
        self.connection.abort()

    def buffer(self) -> memoryview:
        return self._frames.buffer()

    def received(self, size: int) -> None:
        asking = self._asking
        if asking is None:
            return
        try:
            frames = self._frames.received(size)
        except KafkaError as error:
            asking.drop(error.message)
            return
        for frame in frames:
            asking.answered(frame)
            if self._is_abandoned():
                return
        if self._frames.refused is not None:
            asking.drop(self._frames.refused.message)
            return
        coming = self._frames.coming()
        if coming is not None:
            used = asking.answering(coming)
            if used and not self._is_abandoned():
                self._frames.take_out(used)

    def _is_abandoned(self) -> bool:
        return self._asking is None

    def closed(self, why: str) -> None:
        self._frames.close()
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.lost(why)
