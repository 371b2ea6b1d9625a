"""Fetch sessions: what a consumer reads, remembered from one fetch to the next.

A consumer of many partitions names them once and from then on only what has changed, and is
told only what has changed. A session keeps a position for each partition, and among them
those that are *ready*: their partition has grown since they were last looked at, or the
consumer has moved. Only those are ever looked at, so a fetch costs as much as what has changed
and not as much as what is watched. A fetch without a session is one with a session that ends
with its answer.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.serving.waiting import Awaited

NO_SESSION: Final = 0
NO_FOLLOWER: Final = -1
FIRST_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = (1 << 31) - 1
POSITIONS_MAX: Final = 500_000
"""Of all sessions together: each takes some 300 bytes for as long as its session lives."""


class Parked(Protocol):
    """A fetch that waits for positions of its session."""

    def wake(self) -> None:
        """One of them has become ready."""

    def interrupt(self) -> None:
        """The session is used by another fetch, or ends: this one is answered now."""


Key = tuple[str | bytes, int]
"""A topic's name or id, as the consumer names it, and a partition."""


class Position:
    """Where a consumer is in one partition, and what it was last told of it."""

    __slots__ = (
        "fetch_offset",
        "follower_start",
        "index",
        "is_new",
        "last_epoch",
        "leader_epoch",
        "max_bytes",
        "partition",
        "session",
        "told_high_watermark",
        "told_log_start",
        "topic",
    )

    def __init__(self, session: "FetchSession", topic: str | bytes, index: int) -> None:
        self.session = session
        self.topic = topic
        self.index = index
        self.partition: Awaited | None = None
        self.fetch_offset = 0
        self.leader_epoch = -1
        self.last_epoch = -1
        self.follower_start = -1
        self.is_new = False
        """Whether the leader has not taken note of this position of its follower yet."""
        self.max_bytes = 0
        self.told_high_watermark = -1
        self.told_log_start = -1

    @property
    def follower(self) -> int:
        return self.session.follower

    @property
    def asked_ms(self) -> int:
        """When whoever fetches last asked: for this position too, if it did not move."""
        return self.session.used_ms

    def wake(self) -> None:
        self.session.woken(self)

    def note(self) -> None:
        """Is looked at for the next answer, without one being given for it."""
        self.session.ready[self] = None


class FetchSession:
    __slots__ = (
        "counted",
        "epoch",
        "follower",
        "id",
        "is_full",
        "parked",
        "positions",
        "ready",
        "used_ms",
    )

    def __init__(self, session_id: int) -> None:
        self.id = session_id
        self.epoch = 1
        self.follower = NO_FOLLOWER
        """The broker that fetches, if it is one that replicates."""
        self.is_full = True
        self.used_ms = 0
        self.counted = 0
        """How many of its positions are counted among all that are remembered."""
        self.positions: dict[Key, Position] = {}
        self.ready: dict[Position, None] = {}
        self.parked: Parked | None = None

    def place(self, wanted: Iterable[tuple[str | bytes, int, int, int, int, int, int]]) -> None:
        """Adds or moves positions: topic, partition, current leader epoch, fetch offset, last
        fetched epoch, log start offset, largest number of bytes."""
        for topic, index, leader_epoch, fetch_offset, last_epoch, start, max_bytes in wanted:
            position = self.positions.get((topic, index))
            if position is None:
                position = self.positions[topic, index] = Position(self, topic, index)
            position.leader_epoch = leader_epoch
            position.fetch_offset = fetch_offset
            position.last_epoch = last_epoch
            position.follower_start = start
            position.is_new = True
            position.max_bytes = max_bytes
            self.ready[position] = None

    def forget(self, keys: Iterable[Key]) -> None:
        for key in keys:
            position = self.positions.pop(key, None)
            if position is not None:
                self.ready.pop(position, None)
                self._let_go(position)

    def woken(self, position: Position) -> None:
        self.ready[position] = None
        if self.parked is not None:
            self.parked.wake()

    def interrupt(self) -> None:
        if self.parked is not None:
            self.parked.interrupt()

    def end(self) -> None:
        self.interrupt()
        for position in self.positions.values():
            self._let_go(position)
        # Positions know their session: without this only the garbage collector would end it.
        self.positions.clear()
        self.ready.clear()

    @staticmethod
    def _let_go(position: Position) -> None:
        partition = position.partition
        if partition is None:
            return
        partition.waiters.pop(position, None)
        if position in partition.end_waiters:
            del partition.end_waiters[position]
            # Whoever appends next finds nobody that had everything.
            partition.replica.was_caught_up(position.follower, position.asked_ms)


class FetchSessions:
    """The sessions of a broker, at most `slots`. A new one may push out one that has not been
    used for `eviction_ms`; if none is that old, the consumer goes on without a session."""

    def __init__(self, slots: int, eviction_ms: int, new_id: Callable[[], int]) -> None:
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._new_id = new_id
        self._positions = 0
        self._by_id: dict[int, FetchSession] = {}
        """The one that was used longest ago comes first."""

    def __len__(self) -> int:
        return len(self._by_id)

    def open(self, session_id: int, epoch: int, now_ms: int) -> FetchSession:
        """The session a fetch belongs to: a new one, a former one, or one for this fetch only."""
        if epoch in (FINAL_EPOCH, FIRST_EPOCH):
            if session_id != NO_SESSION:
                self._end(session_id)
            return self._begin(now_ms) if epoch == FIRST_EPOCH else FetchSession(NO_SESSION)
        session = self._by_id.get(session_id)
        if session is None:
            raise KafkaError(
                ErrorCode.fetch_session_id_not_found, f"there is no fetch session {session_id}"
            )
        if epoch != session.epoch:
            raise KafkaError(
                ErrorCode.invalid_fetch_session_epoch,
                f"fetch session {session_id} is at epoch {session.epoch}, not {epoch}",
            )
        session.interrupt()
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        session.is_full = False
        self._use(session, now_ms)
        return session

    def remember(self, session: FetchSession) -> bool:
        """Whether there is room for what a session has grown by. If not, it is no more: its
        consumer may begin anew, or go on without one. One that has ended meanwhile takes none."""
        if session.id not in self._by_id:
            return True
        self._positions += len(session.positions) - session.counted
        session.counted = len(session.positions)
        if self._positions <= POSITIONS_MAX:
            return True
        self._end(session.id)
        return False

    def _begin(self, now_ms: int) -> FetchSession:
        if len(self._by_id) >= self._slots:
            oldest = next(iter(self._by_id.values()), None)
            if oldest is None or now_ms - oldest.used_ms < self._eviction_ms:
                return FetchSession(NO_SESSION)
            self._end(oldest.id)
        session_id = self._new_id()
        while session_id in self._by_id or session_id <= NO_SESSION:
            session_id = self._new_id()
        session = FetchSession(session_id)
        self._use(session, now_ms)
        return session

    def _use(self, session: FetchSession, now_ms: int) -> None:
        session.used_ms = now_ms
        self._by_id.pop(session.id, None)
        self._by_id[session.id] = session

    def _end(self, session_id: int) -> None:
        session = self._by_id.pop(session_id, None)
        if session is not None:
            self._positions -= session.counted
            session.counted = 0
            session.end()
