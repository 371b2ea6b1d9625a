"""One direction of a simulated connection: bytes on their way, and bytes that wait unread.

A pipe holds as many bytes as its two ends' buffers would: who wants to send more has to wait
until the other side has read. Parts arrive in order, after seeded delays; while the link is
cut they stay on the way. A file range is read when it arrives, for until then a real system
has sent nothing but references to pages.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal

from tidelog.base.ports import File
from tidelog.world.sim.loop import SimLoop


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """A range of a file, as `sendfile` sends it."""

    file: File
    position: int
    size: int

    def read(self) -> bytes:
        """What was cut off meanwhile reads as zeros."""
        return self.file.pread(self.size, self.position).ljust(self.size, b"\0")


Part = bytes | Pages | Literal["end", "reset"]


class Link:
    """The way from one host to another: how long it takes, and whether it is cut."""

    def __init__(self, loop: SimLoop, name: str, delay_ms_max: int) -> None:
        self.loop = loop
        self.delay_ms_max = delay_ms_max
        self.is_cut = False
        self._draws: Random = loop.choices.stream(f"link {name}")
        self._held: deque[Callable[[], None]] = deque()

    def delay_ms(self) -> int:
        """Mostly next to nothing, as within one room."""
        if self._draws.random() < 0.5:
            return 0
        return self._draws.randint(0, self.delay_ms_max)

    def carry(self, arrive: Callable[[], None], not_before_ms: int = 0) -> int:
        """Plans an arrival, and says for when."""
        now_ms = self.loop.clock.monotonic_ms()
        at_ms = max(now_ms + self.delay_ms(), not_before_ms)
        self.loop.after(at_ms - now_ms, lambda: self._arrive(arrive))
        return at_ms

    def mend(self) -> None:
        self.is_cut = False
        while self._held:
            self.loop.after(0, self._held.popleft())

    def _arrive(self, arrive: Callable[[], None]) -> None:
        if self.is_cut:
            self._held.append(lambda: self._arrive(arrive))
        else:
            arrive()


class Pipe:
    def __init__(self, link: Link, capacity: int) -> None:
        self.link = link
        self.unread = bytearray()
        self.has_ended = False
        self.arrived: Callable[[Part], None] | None = None
        """Told of each part that arrives, while somebody is there to be told."""
        self.wanted: Callable[[], None] | None = None
        """Who waits for room; told once."""
        self._capacity = capacity
        self._parts: deque[Part] = deque()
        self._on_the_way = 0
        self._last_arrival_ms = 0

    @property
    def room(self) -> int:
        return max(0, self._capacity - self._on_the_way - len(self.unread))

    def put(self, part: Part) -> None:
        self._parts.append(part)
        self._on_the_way += _size(part)
        self._last_arrival_ms = self.link.carry(self._arrive, self._last_arrival_ms)

    def make_room(self, way_back: Link) -> None:
        """Something was read: whoever waits for room hears of it."""
        if self.wanted is not None:
            way_back.carry(self.wanted)
            self.wanted = None

    def detach(self) -> None:
        """Whoever sent is gone: the system keeps the pages that are on their way, as they are."""
        for at, part in enumerate(self._parts):
            if isinstance(part, Pages):
                self._parts[at] = part.read()

    def drop(self) -> None:
        """Forgets everything in it, as a reset does."""
        self._parts.clear()
        self.unread.clear()
        self._on_the_way = 0

    def _arrive(self) -> None:
        if not self._parts:
            return
        part = self._parts.popleft()
        self._on_the_way -= _size(part)
        if self.arrived is not None:
            self.arrived(part)


def _size(part: Part) -> int:
    if isinstance(part, Pages):
        return part.size
    return len(part) if isinstance(part, bytes) else 0
