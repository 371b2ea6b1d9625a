"""A fetch from its start to its answer: looking at positions, and waiting for more.

A fetch that finds too little is parked until enough has come or its time is over (R3). A
partition that grows makes positions in it ready and wakes their fetch at the end of the turn,
so that everything a turn has appended leaves in one answer; a follower's waits for a turn with
nothing else to do, so that it takes along what a busy leader is about to append. What is not in
the page cache is read beside the loop first (`warming`).
"""

from collections.abc import Callable
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ports import Timer
from tidelog.handlers.api import Node, Request
from tidelog.handlers.found import UNKNOWN, Found, copied, found_at, is_cold, is_news
from tidelog.handlers.found import Answer as Answer
from tidelog.handlers.local_partitions import find_local
from tidelog.handlers.warming import thaw, warm
from tidelog.log.aborted import aborted_in
from tidelog.log.files import Cold, Warmed
from tidelog.log.partition_log import Slice
from tidelog.partition import Partition
from tidelog.serving.fetch_sessions import NO_FOLLOWER, NO_SESSION, FetchSession, Position
from tidelog.serving.waiting import Awaited
from tidelog.wire.fetch import FetchRequest

READ_COMMITTED: Final = 1
_GOOD: Final = int(ErrorCode.none)
_CORRUPT: Final = int(ErrorCode.corrupt_message)
_DAMAGED: Final = int(ErrorCode.kafka_storage_error)
_NOTHING_WARMED: Final = Warmed()


class Fetching:
    __slots__ = (
        "_cold",
        "_committed_only",
        "_fetch",
        "_follower",
        "_is_woken",
        "_news",
        "_node",
        "_request",
        "_session",
        "_timer",
        "_unfit",
        "_warmed",
    )

    def __init__(self, node: Node, request: Request, session: FetchSession) -> None:
        self._node = node
        self._request = request
        self._session = session
        self._fetch: FetchRequest = request.body
        self._follower = session.follower
        self._committed_only = (
            self._fetch.isolation_level == READ_COMMITTED and self._follower == NO_FOLLOWER
        )
        self._is_woken = False
        self._timer: Timer | None = None
        self._news: dict[Position, None] = {}
        """Where a consumer that waits does not know yet how things stand."""
        self._cold: list[tuple[Cold, Partition]] | None = None
        """What lookups in closed segments would have to wait for."""
        self._warmed = _NOTHING_WARMED
        self._unfit = 0
        """Bytes that there are but for which an answer had no room, as far as their partition may
        give so many: as in Kafka they count as found."""

    def start(self) -> Answer | None:
        """The answer, if there is one already."""
        found, is_enough = self._look()
        if self._cold is not None:
            self._thaw(found, self._cold, self._start_again)
            return None
        if is_enough or self._fetch.max_wait_ms <= 0:
            return self._finish(found)
        self._wait(found)
        return None

    def _start_again(self) -> None:
        # Another fetch may have taken the session over meanwhile.
        self._session.interrupt()
        answer = self.start()
        if answer is not None:
            self._request.answer(answer)

    def _thaw(
        self, found: list[Found], cold: list[tuple[Cold, Partition]], then: Callable[[], None]
    ) -> None:
        """Reads beside the loop what lookups wait for. What was found until then is not told to
        anybody: it is looked at again."""
        self._session.ready |= {here.position: None for here in found}
        self._cold = None
        self._warmed = self._warmed | {(one.path, one.position) for one, _ in cold}
        thaw(self._node, cold, then)

    def _wait(self, found: list[Found]) -> None:
        node = self._node
        ends_at = node.clock.monotonic_ms() + self._fetch.max_wait_ms
        self._timer = node.loop.call_at(ends_at, self.interrupt)
        self._request.on_close = self._abandon
        self._request.on_stop = self.interrupt
        self._park(found)
        if self._request.is_abandoned:
            self._abandon()
        elif self._request.connection.is_finishing:
            self.interrupt()

    # -- waiting

    def _park(self, found: list[Found]) -> None:
        """Of a high watermark everybody is told with the next answer, be it empty (R2): a follower
        of what it is then, for which it is looked at again."""
        session = self._session
        session.parked = self
        for position in session.ready:
            if position.partition is not None:
                self._wait_for(position.partition, position)
        if session.is_full:
            return
        for here in found:
            if is_news(here) and self._follower != NO_FOLLOWER:
                here.position.note()
            elif is_news(here):
                self._news[here.position] = None

    def _wait_for(self, partition: Awaited, position: Position) -> None:
        if self._follower == NO_FOLLOWER:
            partition.waiters[position] = None
        else:
            partition.end_waiters[position] = None

    def wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            loop, is_follower = self._node.loop, self._follower != NO_FOLLOWER
            # What a round costs a leader and a follower hardly depends on how much it carries.
            (loop.call_when_quiet if is_follower else loop.call_soon)(self._look_again)

    def _look_again(self) -> None:
        self._is_woken = False
        if self._session.parked is self:
            found, is_enough = self._look()
            if is_enough:
                self._answer(found)
                return
            self._park(found)
            if self._cold is not None:
                # What becomes ready meanwhile is looked at then, too.
                self._is_woken = True
                self._thaw(found, self._cold, self._look_again)

    def interrupt(self) -> None:
        """Answers with what there is now."""
        if self._session.parked is self:
            self._answer(self._look()[0])

    def _answer(self, found: list[Found]) -> None:
        self._leave()
        answer = self._finish(found)
        if answer is not None:
            self._request.answer(answer)

    def _abandon(self) -> None:
        if self._session.parked is self:
            self._leave()
            if self._session.id == NO_SESSION:
                self._session.end()

    def _leave(self) -> None:
        """Waits no more, and leaves no circle of references behind."""
        assert self._timer is not None
        self._timer.cancel()
        self._timer = None
        self._session.parked = None
        self._request.on_close = self._request.on_stop = None

    # -- looking

    def _look(self, taken: int = 0) -> tuple[list[Found], bool]:
        """What is at the positions that are ready, and whether that is enough to answer with.
        Those with more to give stay ready, behind those that found no room in this answer. What a
        follower has may commit something, whoever waited for that may write, and others of its
        positions become ready: they are looked at in a moment. `taken` bytes of the answer were
        found before. What waiting would not change is enough, whatever was asked for: an answer
        that can hold no more, also because what is next is too large for it, and records with more
        behind them in a later segment, where a range does not go."""
        session = self._session
        most = min(self._fetch.max_bytes, self._node.fetch_bytes_max)
        wanted = min(self._fetch.min_bytes, max(1, most))
        room = most - taken
        if not taken:
            self._unfit = 0
        found: list[Found] = []
        skipped: dict[Position, None] = {}
        served: dict[Position, None] = {}
        size = taken
        is_enough = not session.positions
        ready, session.ready = session.ready, {}
        for position in ready:
            here = self._look_at(position, room, size == 0)
            if here is None:
                skipped[position] = None
                continue
            found.append(here)
            if here.error or here.diverging is not None:
                is_enough = True
                served[position] = None
            elif here.size:
                assert isinstance(here.records, Slice)
                taken = here.size + here.records.left_out
                size += taken
                room -= taken
                served[position] = None
                is_enough = is_enough or (size < wanted and self._goes_on(position))
            else:
                assert position.partition is not None
                self._wait_for(position.partition, position)
                is_enough = is_enough or self._has_moved_start(here)
        if session.ready:
            self.wake()
        session.ready = skipped | served | session.ready if skipped or session.ready else served
        return found, is_enough or size + self._unfit >= wanted

    def _goes_on(self, position: Position) -> bool:
        """Whether there is something to read in a later segment than where a position is."""
        partition = position.partition
        assert isinstance(partition, Partition)
        segments = partition.log.segments
        if position.fetch_offset >= segments.active.base_offset:
            return False
        upto = partition.last_stable_offset if self._committed_only else partition.high_watermark
        if self._follower != NO_FOLLOWER:
            upto = partition.log.log_end_offset
        return segments.at(position.fetch_offset) < segments.at(upto - 1)

    def _has_moved_start(self, found: Found) -> bool:
        """Whether a follower has to be told that its log should begin later: somebody waits."""
        told = found.position.told_log_start
        return self._follower != NO_FOLLOWER and found.log_start_offset > told != UNKNOWN

    def _look_at(self, position: Position, room: int, is_first: bool) -> Found | None:
        """None if there is something, but no room for it, or it cannot be looked up yet."""
        if room <= 0 and not is_first:
            return None
        try:
            partition = self._partition_of(position)
            if position.leader_epoch != UNKNOWN:
                partition.check_epoch(position.leader_epoch)
            room = min(position.max_bytes, room)
            if self._follower != NO_FOLLOWER:
                return self._look_for_follower(position, partition, room, is_first)
            records = partition.read(
                position.fetch_offset, room, self._committed_only, self._warmed
            )
            aborted = self._aborted(partition, position.fetch_offset, records)
        except Cold as cold:
            assert isinstance(position.partition, Partition)
            self._cold = self._cold or []
            self._cold.append((cold, position.partition))
            return None
        except KafkaError as error:
            code = int(error.code)
            if code == _CORRUPT and isinstance(position.partition, Partition):
                self._node.healing.consider(position.partition)
                code = _DAMAGED
            return Found(position, code)
        if records is not None and not is_first and records.size > room:
            self._unfit += min(records.size, position.max_bytes)
            return None
        found = self._found(position, partition, records)
        if aborted:
            found.aborted = aborted
        return found

    def _aborted(
        self, partition: Partition, offset: int, records: Slice | None
    ) -> list[tuple[int, int]]:
        """The transactions that a reader of committed records must leave out of a range."""
        if records is None or not self._committed_only:
            return []
        return aborted_in(partition.log, records, offset, partition.last_stable_offset)

    def _look_for_follower(
        self, position: Position, partition: Partition, room: int, is_first: bool
    ) -> Found | None:
        """A follower's position says how far it is, which may commit something (R2). One that is
        not a part of this log stays new, however often it is looked at: nothing is sent to it."""
        if position.is_new:
            diverging = partition.replica_fetched(
                self._follower,
                self._fetch.replica_epoch,
                (position.fetch_offset, position.last_epoch, position.follower_start),
                self._node.clock.monotonic_ms(),
            )
            if diverging is not None:
                found = self._found(position, partition, None)
                found.diverging = diverging
                return found
            position.is_new = False
        log = partition.log
        if position.fetch_offset < log.log_start_offset:
            found = self._found(position, partition, None)
            return found.refuse(int(ErrorCode.offset_out_of_range))
        if self._node.leader_throttle.is_over and self._is_held(position, partition):
            return self._found(position, partition, None)
        records = partition.read_as_follower(position.fetch_offset, room, self._warmed)
        if records is not None and not is_first and records.size > room:
            return None
        return self._found(position, partition, records)

    def _is_held(self, position: Position, partition: Partition) -> bool:
        follower, place = self._follower, (partition.topic_id, partition.index)
        if follower in partition.replica.isr.maximal:
            return False
        return self._node.leader_throttle.holds(*place, follower, position)

    def _found(self, position: Position, partition: Partition, records: Slice | None) -> Found:
        found = found_at(position, partition, records)
        found.aborted = [] if self._committed_only else None
        return found

    def _partition_of(self, position: Position) -> Partition:
        partition = position.partition
        if isinstance(partition, Partition) and partition.is_led and not partition.is_deleted:
            return partition
        position.partition = None
        key = (position.topic, position.index)
        found = self._node.partitions.by_key.get(key) or find_local(self._node, *key)
        position.partition = found
        return found

    # -- answering

    def _finish(self, found: list[Found]) -> Answer | None:
        """The answer; None if a file has to be warmed first, which then answers."""
        session = self._session
        if session.is_full:
            found = self._all_of(found)
        else:
            found = [*filter(is_news, found), *self._news_before(found)]
        for here in found:
            here.position.told_high_watermark = here.high_watermark
            here.position.told_log_start = here.log_start_offset
            if here.size and here.partition is not None:
                self._count(here.partition, here.size)
        if session.id == NO_SESSION:
            session.end()
        cold = [here for here in found if is_cold(here)]
        if cold:
            warm(self._node, cold, lambda seen: self._request.answer(self._answer_of(found, seen)))
            return None
        return Answer(session.id, _GOOD, [copied(here) for here in found])

    def _answer_of(self, found: list[Found], seen: dict[int, Found]) -> Answer:
        rows = [copied(seen.get(id(here), here)) for here in found]
        return Answer(self._session.id, _GOOD, rows)

    def _count(self, partition: Partition, size: int) -> None:
        if self._follower == NO_FOLLOWER:
            partition.bytes_out += size
        else:
            partition.readers[self._follower] = self._request.connection
            place = (partition.topic_id, partition.index)
            self._node.leader_throttle.sent(*place, self._follower, size)

    def _news_before(self, found: list[Found]) -> list[Found]:
        """What was found while there was not enough to answer with, as it is now."""
        if not self._news:
            return []
        known = {here.position for here in found}
        news = [self._standing(position) for position in self._news if position not in known]
        return [here for here in news if is_news(here)]

    def _all_of(self, found: list[Found]) -> list[Found]:
        """What was found, and for the rest where it stands; in the order they were asked for."""
        positions = self._session.positions
        if len(found) == len(positions):
            return found
        by_position = {here.position: here for here in found}
        return [
            by_position.get(position) or self._standing(position) for position in positions.values()
        ]

    def _standing(self, position: Position) -> Found:
        try:
            return self._found(position, self._partition_of(position), None)
        except KafkaError as error:
            return Found(position, int(error.code))
