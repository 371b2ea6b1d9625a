"""One partition while it follows a leader: what is fetched is appended, or the log is cut first.

A fetcher asks a `Following` where to fetch from and gives it the answers; the machine says what
to do with them. Much at once is written beside the loop where the disk may have to be waited
for, and the next part of a large answer comes in meanwhile; where it need not, the loop itself
is quicker. When the partition is to follow somebody else it gets another `Following`: answers to
the old one's questions are dropped.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.limits import RECEIVED_BYTES_MAX
from tidelog.base.ports import Clock
from tidelog.base.settings.kinds import LONG_MAX
from tidelog.log.partition_log import PartitionLog
from tidelog.log.pending_follow import PendingFollow, begin_follow, end_follow
from tidelog.partition import Partition
from tidelog.records.batch import HEADER_SIZE, read_header
from tidelog.replication.verdicts import APPEND, BACK_OFF, RESTART, TRUNCATE
from tidelog.slow_appends import SlowAppends

_log = logging.getLogger("tidelog.following")

_CUTS: Final = (TRUNCATE, RESTART)

Answer = tuple[int, int, int, int, tuple[int, int] | None, memoryview | None]
"""What `fetched` is given."""


class Asker(Protocol):
    """Who fetches, and can be told to go on."""

    def ready(self, partition: "Following") -> None: ...


SaveStart = Callable[[PartitionLog, Callable[[KafkaError | None], None]], None]
"""Makes the start of a log durable, and says when it is."""


class Following:
    __slots__ = (
        "_asker",
        "_cannot_be_cut",
        "_clock",
        "_has_parts",
        "_is_saving",
        "_rest",
        "_save_start",
        "_slow",
        "index",
        "is_over",
        "leader_epoch",
        "partition",
        "topic_id",
    )

    def __init__(
        self,
        partition: Partition,
        clock: Clock,
        slow: SlowAppends,
        asker: Asker,
        save_start: SaveStart,
        cannot_be_cut: Callable[[Partition], None],
    ) -> None:
        """`cannot_be_cut` is told of a log that is damaged where it is to end, and ends this."""
        self.partition = partition
        self.topic_id = partition.topic_id
        self.index = partition.index
        self.leader_epoch = partition.leader_epoch
        self.is_over = False
        self._clock = clock
        self._slow = slow
        self._asker = asker
        self._save_start = save_start
        self._cannot_be_cut = cannot_be_cut
        self._is_saving = False
        self._has_parts = False
        """Whether parts were written of an answer whose end has not been taken in."""
        self._rest: Answer | None = None
        """The end of an answer, which has come while a part of it was being written."""

    def fetch_position(self) -> tuple[int, int, int]:
        """With a log start that no crash takes back: whoever hears of it says that what lies below
        is gone (S5)."""
        offset, last_epoch, start = self.partition.replica.fetch_position()
        return offset, last_epoch, min(start, self.partition.log.durable_log_start)

    def fetched(
        self,
        leader_epoch: int,
        error: int,
        high_watermark: int,
        log_start_offset: int,
        diverging: tuple[int, int] | None,
        records: memoryview | None,
    ) -> bool | None:
        """Takes in what the leader answered. False: it should not be asked again at once; None:
        not before this is written."""
        if self.is_over:
            return True
        partition = self.partition
        if partition.is_busy:
            kept = None if records is None else _lasting(records)
            self._rest = leader_epoch, error, high_watermark, log_start_offset, diverging, kept
            return None
        verdict = partition.replica.answered(leader_epoch, error, diverging, log_start_offset)
        try:
            if verdict is APPEND:
                return self._append(records, (high_watermark, log_start_offset))
            if verdict in _CUTS:
                self._cut(is_restart=verdict is RESTART)
        except KafkaError as wrong:
            _log.error("not replicated partition=%s why=%s", partition.name, wrong.message)
            return False
        return verdict is not BACK_OFF

    def fetched_in_part(
        self,
        leader_epoch: int,
        high_watermark: int,
        log_start_offset: int,
        records: memoryview,
    ) -> int | None:
        """Writes the batches that have come so far, or begins to, as if the leader had sent no
        more; returns their size, 0 while an earlier part is being written. None: it failed."""
        partition, leader = self.partition, (high_watermark, log_start_offset)
        if self.is_over or partition.is_busy:
            return 0
        if partition.log.settings.flush_messages < LONG_MAX:
            # A leader that is lost before the rest comes must not hear of what is not durable.
            return 0
        if partition.replica.answered(leader_epoch, 0, None, log_start_offset) is not APPEND:
            return 0
        try:
            if partition.log.log_start_offset == partition.log.log_end_offset:
                self._begin_with(records)
            known = self._known_bytes(records)
            records = records[known:]
            if not self._slow.must_not_wait_for(partition.log, len(records)):
                self._has_parts = True
                size = self._slow.follow_at_once(
                    partition.log, records, self.leader_epoch, high_watermark
                )
                self._has_followed(size, leader)
                return known + size
            lasting = memoryview(bytes(records))
            pending = begin_follow(partition.log, lasting, self.leader_epoch, high_watermark)
        except KafkaError as wrong:
            _log.error("not replicated partition=%s why=%s", partition.name, wrong.message)
            return None
        if pending is None:
            return known
        self._has_parts = True
        self._write(pending, leader, self._go_on)
        return known + len(pending.data)

    def _has_followed(self, size: int, leader: tuple[int, int]) -> None:
        partition = self.partition
        partition.has_followed(size, *leader)
        log = partition.log
        if log.log_start_offset > log.durable_log_start and not self._is_saving:
            self._is_saving = True
            self._save_start(log, self._start_is_saved)

    def _start_is_saved(self, error: KafkaError | None) -> None:
        """The leader is to hear of it. Whoever writes asks again by himself when that is done."""
        self._is_saving = False
        if error is None and not self.is_over and not self.partition.is_busy:
            self._asker.ready(self)

    def _known_bytes(self, records: memoryview) -> int:
        """How much of it is in the log already: what was being written when a connection was lost
        is asked for once more."""
        at, log = 0, self.partition.log
        while len(records) - at >= HEADER_SIZE:
            header = read_header(records[at:])
            if header.next_offset > log.log_end_offset or header.size < HEADER_SIZE:
                break
            at += header.size
        return min(at, len(records))

    def _go_on(self) -> None:
        """A part is written: if the answer has ended meanwhile, its end is taken in now."""
        rest, self._rest = self._rest, None
        if rest is not None and self.fetched(*rest) is not None:
            self._asker.ready(self)

    def _append(self, records: memoryview | None, leader: tuple[int, int]) -> bool | None:
        partition, size = self.partition, 0
        if records:
            log = partition.log
            if log.log_start_offset == log.log_end_offset:
                self._begin_with(records)
            if self._has_parts:
                self._has_parts = False
                records = records[self._known_bytes(records) :]
            size = len(records)
            if self._slow.must_not_wait_for(log, size):
                return self._append_slowly(_lasting(records), leader)
            log.append_as_follower(records, self.leader_epoch, leader[0])
        self._has_followed(size, leader)
        if not self._slow.must_be_flushed(partition.log):
            return True
        self._settle(partial(self._asker.ready, self))
        return None

    def _begin_with(self, records: memoryview) -> None:
        """A leader's log may start in the middle of a batch, which it sends as a whole: an empty
        log then begins with that batch, and starts in the middle of it once it is there."""
        log = self.partition.log
        if len(records) >= HEADER_SIZE:
            first = read_header(records)
            if first.base_offset < log.log_end_offset < first.next_offset:
                self.partition.cut(first.base_offset, self._clock.now_ms(), is_restart=True)

    def _append_slowly(self, records: memoryview, leader: tuple[int, int]) -> bool | None:
        partition = self.partition
        pending = begin_follow(partition.log, records, self.leader_epoch, leader[0])
        if pending is None:
            self._has_followed(0, leader)
            return True
        self._write(pending, leader, partial(self._asker.ready, self))
        return None

    def _write(
        self, pending: PendingFollow, leader: tuple[int, int], then: Callable[[], None]
    ) -> None:
        log = self.partition.log
        self.partition.is_busy = True
        done = partial(self._written, pending, leader, then)
        self._slow.write_batches(log, pending, len(pending.data), done)

    def _written(
        self,
        pending: PendingFollow,
        leader: tuple[int, int],
        then: Callable[[], None],
        end: Exception | None,
    ) -> None:
        """What is in the file is the leader's, also if somebody else leads by now: whatever is
        wrong with it will be found out before anything else is appended."""
        partition = self.partition
        try:
            if not partition.log.is_gone:
                end_follow(partition.log, pending, end)
                self._has_followed(len(pending.data), leader)
        except KafkaError as wrong:
            _log.error("not replicated partition=%s why=%s", partition.name, wrong.message)
        self._settle(then)

    def _settle(self, then: Callable[[], None]) -> None:
        """Goes on when what was appended is durable, where `flush.messages` asks for that: the next
        fetch tells the leader of it, and the leader tells producers."""
        log = self.partition.log
        if log.is_gone or log.home.failure is not None or not self._slow.must_be_flushed(log):
            self._become_idle(then)
        else:
            self.partition.is_busy = True
            self._slow.flush(log, partial(self._become_idle, then))

    def _become_idle(self, then: Callable[[], None]) -> None:
        self.partition.is_busy = False
        self.partition.became_idle()
        then()

    def _cut(self, *, is_restart: bool) -> None:
        partition = self.partition
        _log.info(
            "cutting partition=%s epoch=%d end=%d to=%d high_watermark=%d",
            partition.name,
            self.leader_epoch,
            partition.log.log_end_offset,
            partition.replica.cut_offset,
            partition.high_watermark,
        )
        try:
            partition.cut(partition.replica.cut_offset, self._clock.now_ms(), is_restart=is_restart)
        except KafkaError as error:
            if error.code == ErrorCode.corrupt_message:
                self._cannot_be_cut(partition)
            raise


def _lasting(records: memoryview) -> memoryview:
    """The same, for longer than a call. What is larger than the buffer that connections share has
    one of its own, which is not used again while there is a view on it."""
    return records if len(records) > RECEIVED_BYTES_MAX else memoryview(bytes(records))
