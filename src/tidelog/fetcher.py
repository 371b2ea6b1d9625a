"""Fetches from one leader, over one connection, for many partitions: one fetch at a time.

The leader keeps a session (D6 allows no second fetch beside the one under way): the first fetch
names all partitions, those after it only what has changed, so that a fetch costs as much as has
changed. A partition is asked for again when its last answer was applied; one that is still being
written, that failed a moment ago, or that is throttled is taken out of the session until then.
Of a large answer the batches are taken in as they come, while the leader sends the rest: that is
as if it had sent less, and the leader learns of it with the next fetch, as ever.
A fetch that finds nothing waits at the leader. If a partition comes meanwhile, a request behind
the waiting fetch has it answered at once: another broker asks so for the rest of what it wants.
"""

import logging
from functools import partial
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ports import Timer
from tidelog.fetch_throttle import FetchThrottle
from tidelog.followed import (
    APPLYING,
    BUSY,
    GONE,
    HELD,
    RESTING,
    WANTED,
    FetchLimits,
    Follower,
    Key,
    Tracked,
)
from tidelog.peers.link import Link, Wiring
from tidelog.wire.fetch import FetchPartition
from tidelog.wire.follower_fetch import Answered, Fetched, FetchFrames, read_answer, read_coming
from tidelog.wire.frames import Span
from tidelog.wire.header import API_VERSIONS, request_header
from tidelog.wire.values import INT32

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
EPOCH_MAX: Final = (1 << 31) - 1
PAUSE_MS_MIN: Final = 20
PART_BYTES_MIN: Final = 256 * 1024
"""Less than this is not worth a write of its own, while more is coming."""
_SESSION_ERRORS: Final = frozenset(
    (
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    )
)

_log = logging.getLogger("tidelog.fetcher")


class Fetcher:
    __slots__ = (
        "_changed",
        "_follower",
        "_forgotten",
        "_frames",
        "_in_session",
        "_is_closed",
        "_is_nudged",
        "_is_planned",
        "_is_under_way",
        "_link",
        "_pause",
        "_seen_bytes",
        "_seen_episodes",
        "_session_epoch",
        "_session_id",
        "_throttle",
        "_told_broker_epoch",
        "_tracked",
        "_wiring",
        "leader_id",
        "limits",
    )

    def __init__(
        self,
        leader_id: int,
        link: Link,
        wiring: Wiring,
        follower: Follower,
        throttle: FetchThrottle,
        limits: FetchLimits,
    ) -> None:
        self.leader_id = leader_id
        self.limits = limits
        self._link = link
        self._wiring = wiring
        self._follower = follower
        self._frames = FetchFrames(follower.broker_id, wiring.client_id)
        self._throttle = throttle
        self._tracked: dict[Key, Tracked] = {}
        self._changed: dict[Tracked, None] = {}
        """Those whose leader may have to be told where they are."""
        self._in_session: dict[Key, Tracked] = {}
        self._forgotten: dict[Key, None] = {}
        """What the leader's session has too much. What is named again is forgotten first, so
        that the leader tells all it knows of it."""
        self._session_id = NO_SESSION
        """It is named also where a new one is wanted: the leader then ends it."""
        self._session_epoch = FIRST_EPOCH
        self._told_broker_epoch = -1
        self._seen_episodes = 0
        self._seen_bytes = 0
        """How much had come of the answer when it was last looked through."""
        self._is_under_way = False
        self._is_nudged = False
        self._is_planned = False
        self._is_closed = False
        self._pause: Timer | None = None

    @property
    def is_empty(self) -> bool:
        return not self._tracked

    # -- which partitions

    def add(self, tracked: Tracked) -> None:
        self._tracked[tracked.key] = tracked
        self.look_at(tracked)

    def remove(self, tracked: Tracked) -> None:
        tracked.condition = GONE
        del self._tracked[tracked.key]
        self._leave(tracked)

    def ready(self, tracked: Tracked) -> None:
        """Asks for it again, if it was written, or looks where it is now."""
        if tracked.condition in (APPLYING, BUSY, HELD):
            tracked.condition = WANTED
        self.look_at(tracked)

    def look_at(self, tracked: Tracked) -> None:
        if tracked.condition == WANTED:
            self._changed[tracked] = None
            self._plan()

    def release(self) -> None:
        """Throttled partitions may be fetched again."""
        for tracked in self._tracked.values():
            if tracked.condition == HELD:
                tracked.condition = WANTED
                self.look_at(tracked)

    def close(self) -> None:
        self._is_closed = True
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        for tracked in self._tracked.values():
            tracked.condition = GONE
        self._tracked.clear()
        self._link.close()

    def _leave(self, tracked: Tracked) -> None:
        self._changed.pop(tracked, None)
        if self._in_session.get(tracked.key) is tracked:
            del self._in_session[tracked.key]
            self._forgotten[tracked.key] = None

    # -- asking

    def _plan(self) -> None:
        """At the end of the turn, when all is known that comes together."""
        if not self._is_planned:
            self._is_planned = True
            self._wiring.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_planned = False
        if self._is_closed or not self._changed:
            return
        if not self._is_under_way:
            self._ask()
        elif not self._is_nudged:
            self._nudge()

    def _ask(self) -> None:
        if self._is_under_way or self._is_closed or self._pause is not None:
            return
        frame = self._request()
        if frame is not None:
            self._is_under_way = True
            self._seen_bytes = 0
            self._link.send(frame, self._answered, self.limits.timeout_ms, self._answering)

    def _nudge(self) -> None:
        """Has the fetch that may be waiting at the leader answered now."""
        self._is_nudged = True
        correlation_id = self._link.next_correlation_id()
        header = request_header(API_VERSIONS, 0, correlation_id, self._wiring.client_id)
        self._link.send(INT32.pack(len(header)) + header, _ignore, self.limits.timeout_ms)

    def _request(self) -> bytes | None:
        """The next fetch; None if no partition is to be asked for now."""
        broker_epoch = self._follower.broker_epoch()
        if broker_epoch != self._told_broker_epoch:
            # Leaders take note of it with positions, which they must all be told again.
            self._session_epoch = FIRST_EPOCH
        if self._throttle.episodes != self._seen_episodes:
            self._hold_throttled()
        is_full = self._session_epoch == FIRST_EPOCH
        if is_full:
            self._in_session.clear()
            self._forgotten.clear()
        rows = self._rows(list(self._tracked.values()) if is_full else list(self._changed))
        self._changed.clear()
        if not self._in_session:
            return None
        self._told_broker_epoch = broker_epoch
        limits = self.limits
        frame = self._frames.write(
            self._link.next_correlation_id(),
            broker_epoch,
            (limits.wait_ms_max, limits.bytes_min, limits.bytes_max),
            (self._session_id, self._session_epoch),
            rows,
            self._forgotten,
        )
        self._forgotten.clear()
        return frame

    def _rows(self, looked_at: list[Tracked]) -> list[FetchPartition]:
        rows: list[FetchPartition] = []
        in_session = self._in_session
        for tracked in looked_at:
            if tracked.condition != WANTED:
                continue
            topic_id, index = key = tracked.key
            if self._throttle.is_over and self._throttle.holds(topic_id, index):
                self._hold(tracked)
                continue
            offset, last_epoch, start = tracked.partition.fetch_position()
            limits = self.limits
            is_behind = tracked.is_behind
            bytes_max = limits.behind_bytes_max if is_behind else limits.partition_bytes_max
            row = (topic_id, index, tracked.epoch, offset, last_epoch, start, bytes_max)
            if row != tracked.told or in_session.get(key) is not tracked:
                tracked.told = row
                tracked.taken = 0
                in_session[key] = tracked
                rows.append(row)
        return rows

    def _hold_throttled(self) -> None:
        """Once in every episode: those that nothing came of would not be looked at."""
        self._seen_episodes = self._throttle.episodes
        for tracked in list(self._in_session.values()):
            if self._throttle.holds(*tracked.key):
                self._hold(tracked)

    def _hold(self, tracked: Tracked) -> None:
        tracked.condition = HELD
        self._leave(tracked)

    # -- answers

    def _answering(self, coming: memoryview) -> list[Span]:
        """Looks through what has come so far of an answer; returns what was taken in. If the
        connection is lost before the rest comes, the next fetch begins behind that."""
        taken: list[Span] = []
        if self._is_closed or len(coming) < self._seen_bytes + PART_BYTES_MIN:
            return taken
        for found in read_coming(coming):
            tracked = self._in_session.get((found.fetched.topic_id, found.fetched.partition))
            if tracked is not None and len(found.records) >= PART_BYTES_MIN:
                size = self._take_part(tracked, found.fetched, found.records)
                if size:
                    taken.append(found.shorten(coming, size))
        self._seen_bytes = len(coming) - sum(size for _, size in taken)
        return taken

    def _take_part(self, tracked: Tracked, fetched: Fetched, records: memoryview) -> int:
        assert tracked.told is not None
        taken = tracked.partition.fetched_in_part(
            tracked.told[2], fetched.high_watermark, fetched.log_start_offset, records
        )
        if taken is None:
            self._leave(tracked)
            self._rest_from(tracked)
            return 0
        if taken:
            tracked.taken += taken
            self._throttle.took(*tracked.key, taken)
        return taken

    def _answered(self, answer: memoryview | KafkaError) -> None:
        self._is_under_way = self._is_nudged = False
        if self._is_closed:
            return
        if isinstance(answer, KafkaError):
            _log.info("no answer leader=%d why=%s", self.leader_id, answer.message)
            self._session_epoch = FIRST_EPOCH
        else:
            try:
                self._take(read_answer(answer))
            except KafkaError as error:
                self._link.drop(f"a fetch's answer that cannot be read: {error.message}")
                self._session_epoch = FIRST_EPOCH
                self._rest()
        self._ask()

    def _take(self, response: Answered) -> None:
        was_full = self._session_epoch == FIRST_EPOCH
        if response.error:
            code = ErrorCode(response.error)
            _log.info("refused leader=%d session=%d: %s", self.leader_id, self._session_id, code)
            self._session_epoch = FIRST_EPOCH
            if was_full or code not in _SESSION_ERRORS:
                self._rest()
            return
        self._session_id = response.session_id
        if response.session_id == NO_SESSION:
            self._session_epoch = FIRST_EPOCH
        else:
            self._session_epoch = self._session_epoch % EPOCH_MAX + 1
        for fetched in response.partitions:
            tracked = self._in_session.get((fetched.topic_id, fetched.partition))
            if tracked is not None:
                self._apply(tracked, fetched)

    def _apply(self, tracked: Tracked, fetched: Fetched) -> None:
        told, records = tracked.told, fetched.records
        assert told is not None
        size = tracked.taken + len(records or b"")
        tracked.is_behind = size * 2 > self.limits.partition_bytes_max
        tracked.taken = 0
        if records:
            self._throttle.took(*tracked.key, len(records))
        tracked.condition = APPLYING
        try:
            outcome = tracked.partition.fetched(
                told[2],
                fetched.error,
                fetched.high_watermark,
                fetched.log_start_offset,
                fetched.diverging,
                records,
            )
        except Exception:
            _log.exception("bug partition=%s-%d", tracked.key[0].hex(), tracked.key[1])
            outcome = False
        if tracked.condition != APPLYING:
            return
        if outcome:
            tracked.condition = WANTED
            tracked.pause_ms = 0
            self._changed[tracked] = None
        else:
            tracked.condition = BUSY
            self._leave(tracked)
            if outcome is False:
                self._rest_from(tracked)

    # -- pauses

    def _rest_from(self, tracked: Tracked) -> None:
        """Shortly at first: a leader often does not know yet that it leads."""
        tracked.condition = RESTING
        tracked.pause_ms = min(max(2 * tracked.pause_ms, PAUSE_MS_MIN), self.limits.pause_ms)
        due_ms = self._wiring.clock.monotonic_ms() + tracked.pause_ms
        self._wiring.loop.call_at(due_ms, partial(self._rested_from, tracked))

    def _rested_from(self, tracked: Tracked) -> None:
        if tracked.condition == RESTING:
            tracked.condition = WANTED
            self.look_at(tracked)

    def _rest(self) -> None:
        """The leader makes no sense, or refuses all: it is not asked again at once."""
        due_ms = self._wiring.clock.monotonic_ms() + self.limits.pause_ms
        self._pause = self._wiring.loop.call_at(due_ms, self._rested)

    def _rested(self) -> None:
        self._pause = None
        self._ask()


def _ignore(_answer: memoryview | KafkaError) -> None:
    """A nudge has done what it was for when it arrives; if it does not, the fetch fails too."""
