"""One partition on this broker: its log, its replica machine, and who waits for it.

The machine decides, the partition does: an append or a follower's fetch may lift the high
watermark, and then producers are answered and readers woken. Readers get what lies below it,
or, if they want committed transactions only, below the last stable offset; followers get all
there is (R4). Waiting is cheap: a partition wakes only those who asked to be woken, once, at the
end of the turn.
"""

from collections.abc import Callable
from typing import Protocol

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition, is_internal
from tidelog.base.log_settings import LogSettings
from tidelog.base.settings.kinds import LONG_MAX
from tidelog.cluster.image import PartitionInfo
from tidelog.log import retention
from tidelog.log.emptied import past_emptied
from tidelog.log.files import Warmed
from tidelog.log.partition_log import PartitionLog, Slice
from tidelog.log.segment import Segment
from tidelog.log.truncation import restart_at, truncate_suffix
from tidelog.records.batch import MAX_TIMESTAMP, NEGATIVE
from tidelog.replication.isr import Committed
from tidelog.replication.replica import Replica
from tidelog.serving.acks import Acks
from tidelog.serving.guards import Guards
from tidelog.serving.low_waiters import LowWaiters, Reached
from tidelog.serving.waiting import Reader, Waiter, WaitingFollower
from tidelog.slow_appends import SMALL_BYTES_MAX, Appended, Own, SlowAppends

NO_CHECK = -1


class Keeper(Protocol):
    """Whoever writes in-sync sets down."""

    def proposed(self, partition: "Partition") -> None:
        """The machine wants its in-sync set to be another one."""


class Partition:
    __slots__ = (
        "_end",
        "_idle",
        "_keeper",
        "_low",
        "_slow",
        "acks",
        "bytes_in",
        "bytes_out",
        "damaged",
        "end_waiters",
        "guards",
        "index",
        "is_busy",
        "is_deleted",
        "is_led",
        "leader_epoch",
        "log",
        "name",
        "needs_care",
        "needs_inspection",
        "readers",
        "replica",
        "state",
        "topic",
        "topic_id",
        "waiters",
    )

    def __init__(
        self,
        log: PartitionLog,
        topic_id: bytes,
        replica: Replica,
        slow: SlowAppends,
        keeper: Keeper,
    ) -> None:
        self.log = log
        self.replica = replica
        self.name: TopicPartition = log.partition
        self.topic = log.partition.topic
        self.index = log.partition.partition
        self.topic_id = topic_id
        self.state: PartitionInfo | None = None
        """What the controller said last, or this leader has written since."""
        self.leader_epoch = replica.leader_epoch
        self.is_led = False
        self.is_deleted = False
        self.is_busy = False
        """Whether something is being written to its log beside the loop: it must not be rolled,
        cut, or begin to follow."""
        self.damaged: Segment | None = None
        """A segment with a bad batch, or without those before it, that another is to give again."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.waiters: dict[Waiter, None] = {}
        """Those who wait for the high watermark."""
        self.end_waiters: dict[WaitingFollower, None] = {}
        """Followers, who wait for the log end."""
        self.acks = Acks()
        self.readers: dict[int, Reader] = {}
        """Followers, by the connection on which ranges of the log may still be under way."""
        self._end = log.log_end_offset
        self._low = LowWaiters()
        self._idle: Callable[[], None] | None = None
        self._slow = slow
        self._keeper = keeper
        self.guards = Guards()
        log.producers.committed_up_to(replica.high_watermark)
        self.configure(log.settings)

    @property
    def high_watermark(self) -> int:
        return self.replica.high_watermark

    @property
    def last_stable_offset(self) -> int:
        unstable, upto = self.log.producers.first_unstable_offset, self.replica.high_watermark
        return upto if unstable is None else min(max(unstable, self.log.log_start_offset), upto)

    # -- who leads

    def lead(self, state: PartitionInfo, now_ms: int) -> None:
        """This broker leads it now, or goes on to with another in-sync set or assignment, maybe
        in another epoch: producers wait on, readers see whether they asked in an earlier one."""
        if self.is_led and state.leader_epoch != self.leader_epoch:
            self.wake()
            self.wake_followers()
        self.state = state
        replica = self.replica
        replica.min_isr = self._min_isr(len(state.replicas))
        before = replica.high_watermark
        replica.elr = state.elr
        epochs = (state.leader_epoch, state.state_version)
        replica.become_leader(epochs, state.replicas, state.isr, now_ms)
        self.leader_epoch = state.leader_epoch
        # Who goes on may be flushing a batch, of which followers are told when that is done.
        self._end = self._end if self.is_led else self.log.log_end_offset
        self.is_led = True
        if replica.high_watermark > before:
            self._committed()
        self.refuse_if_too_few()
        self.check_in_sync()

    def follow(self, state: PartitionInfo) -> None:
        """Another broker leads it now, or none does."""
        self.state = state
        self.stop_leading()
        self.replica.become_follower(state.leader, (state.leader_epoch, state.state_version))
        self.leader_epoch = state.leader_epoch

    def resign(self) -> None:
        """Leads and follows nothing until it is told again, whatever it was told before."""
        self._idle = None
        self.stop_leading()
        self.replica.resign()

    def stop_leading(self) -> None:
        """Whoever waits here finds out that it is led elsewhere. A transaction that is being
        verified may end there: it is to be asked for again, should it be led here again."""
        if self.is_led:
            self.is_led = False
            self.guards.clear()
            self.acks.refuse(self.not_led())
            self._low.refuse(self.not_led())
            self.wake()
            self.wake_followers()

    def not_led(self) -> KafkaError:
        """What those are told who waited here for something."""
        if self.is_deleted:
            return KafkaError(ErrorCode.unknown_topic_or_partition, f"{self.name} is deleted")
        return KafkaError(ErrorCode.not_leader_or_follower, f"{self.name} is led elsewhere now")

    def when_idle(self, then: Callable[[], None]) -> None:
        """Runs `then` now, or when nothing is being written beside the loop any more."""
        if self.is_busy:
            self._idle = then
        else:
            then()

    def became_idle(self) -> None:
        then, self._idle = self._idle, None
        if then is not None:
            then()

    # -- writing

    def is_slow(self, batch: memoryview) -> bool:
        """Whether a batch must be appended beside the loop, and so later: it is large, begins a
        new segment, has to be looked into or flushed, others that were slow come before it, or the
        page cache is at its limit."""
        if self.needs_care or self.is_busy or batch[MAX_TIMESTAMP] & NEGATIVE:
            return True
        return self._slow.must_not_wait_for(self.log, len(batch))

    def append(self, batch: bytearray | memoryview, now_ms: int) -> int:
        """Appends a produced batch at once; returns its first offset."""
        size, log = len(batch), self.log
        if size <= SMALL_BYTES_MAX:
            offset = log.append_as_leader(batch, self.leader_epoch, now_ms)
        else:
            offset = self._slow.append_at_once(self, batch, now_ms)
        if log.log_end_offset != self._end:
            self.appended(size)
        return offset

    def append_own(self, batch: bytearray) -> int:
        """Appends at once what this broker made itself. Nothing may be under way beside it."""
        offset = self.log.append_own(batch, self.leader_epoch)
        self.appended(len(batch))
        return offset

    def append_slowly(self, batch: bytearray | memoryview | Own, done: Appended) -> None:
        self._slow.append(self, batch, done)

    def appended(self, size: int) -> None:
        """The log has grown by so many bytes, unless it had them before."""
        end = self.log.log_end_offset
        if end != self._end:
            self._end = end
            self.bytes_in += size
            if self.end_waiters:
                self.wake_followers()
        if self.replica.advance():
            self._committed()

    def check_enough_in_sync(self) -> None:
        """Refuses a record that could not be committed now (A2)."""
        replica = self.replica
        if len(replica.isr.isr) < replica.min_isr:
            raise KafkaError(
                ErrorCode.not_enough_replicas,
                f"{self.name}: {len(replica.isr.isr)} replicas are in sync, "
                f"min.insync.replicas asks for {replica.min_isr}",
            )

    def _committed(self) -> None:
        """The high watermark has moved."""
        watermark = self.replica.high_watermark
        if self.log.producers.undecided:
            self.log.producers.committed_up_to(watermark)
        if self.acks:
            self.acks.reached(watermark)
        if self.waiters:
            self.wake()
        for follower in self.end_waiters:
            follower.note()

    def configure(self, settings: LogSettings) -> None:
        """Lets other settings count from the next batch on."""
        self.log.configure(settings)
        self.needs_inspection = settings.cleanup_compact or settings.compression_type != "producer"
        is_special = settings.flush_messages < LONG_MAX or is_internal(self.topic)
        self.needs_care = self.needs_inspection or is_special
        if self.state is not None:
            replica = self.replica
            before, replica.min_isr = replica.min_isr, self._min_isr(len(self.state.replicas))
            if replica.min_isr > before:
                self.refuse_if_too_few()
            elif replica.advance():
                self._committed()

    def _min_isr(self, replicas: int) -> int:
        return min(self.log.settings.min_insync_replicas, replicas)

    # -- the in-sync set

    def check_in_sync(self) -> None:
        """Has a set written that the machine proposes. Who has died is waited for no more (S5)."""
        if not isinstance(self.replica.isr, Committed):
            self._keeper.proposed(self)
        if self._low:
            self._low.reached(self.replica.low_watermark())

    def isr_written(self, state: PartitionInfo) -> None:
        """The in-sync set is as `state` says; producers may wait for nothing any more (A2)."""
        self.state = state
        replica = self.replica
        before = replica.high_watermark
        replica.elr = state.elr
        replica.isr_written(state.isr, state.state_version)
        if replica.high_watermark > before:
            self._committed()
        self.refuse_if_too_few()

    def refuse_if_too_few(self) -> None:
        if self.acks and self.replica.is_frozen():
            what = f"{self.name}: {len(self.replica.isr.isr)} replicas are left in sync"
            self.acks.refuse(KafkaError(ErrorCode.not_enough_replicas_after_append, what))

    def replica_fetched(
        self, follower: int, broker_epoch: int, position: tuple[int, int, int], now_ms: int
    ) -> tuple[int, int] | None:
        """A follower asks from its log end on; where its log leaves this one, if it does."""
        replica = self.replica
        before = replica.high_watermark
        diverging = replica.fetched(follower, broker_epoch, position, now_ms)
        if replica.high_watermark != before:
            self._committed()
        if not isinstance(replica.isr, Committed):
            self._keeper.proposed(self)
        if self._low:
            self._low.reached(replica.low_watermark())
        return diverging

    # -- following

    def has_followed(self, size: int, leader_watermark: int, leader_start: int) -> None:
        """So many bytes of the leader's were appended, and this is where it stands."""
        log = self.log
        self._end = log.log_end_offset
        self.bytes_in += size
        if self.replica.followed(leader_watermark):
            self._committed()
        start = min(leader_start, self.replica.high_watermark)
        if start > log.log_start_offset:
            retention.advance_log_start(log, start)

    def cut(self, to: int, now_ms: int, *, is_restart: bool) -> None:
        """Cuts the log where it leaves the leader's, or begins it anew where the leader's begins.
        Pages that are still being sent must not change under way (D12): their connections go."""
        readers, self.readers = self.readers, {}
        for reader in readers.values():
            reader.abort("a part of what was sent is cut off")
        if is_restart:
            restart_at(self.log, to, now_ms)
        else:
            truncate_suffix(self.log, to, now_ms)
        self.was_cut()

    def was_cut(self) -> None:
        self._end = self.log.log_end_offset
        self.replica.was_cut()
        self.log.producers.committed_up_to(self.replica.high_watermark)

    # -- reading

    def read(self, offset: int, max_bytes: int, committed: bool, warmed: Warmed) -> Slice | None:
        """The range from an offset on that readers may see; None if there is nothing yet. Raises
        `Cold` where something has to be read for that, and nobody has."""
        upto = self.last_stable_offset if committed else self.replica.high_watermark
        return past_emptied(self.log, self._read(offset, max_bytes, upto, warmed), max_bytes, upto)

    def read_as_follower(self, offset: int, max_bytes: int, warmed: Warmed) -> Slice | None:
        return self._read(offset, max_bytes, self.log.log_end_offset, warmed)

    def _read(self, offset: int, max_bytes: int, upto: int, warmed: Warmed) -> Slice | None:
        log = self.log
        if log.home.failure is not None:
            log.check_online()
        if upto <= offset <= log.log_end_offset and offset >= log.log_start_offset:
            return None
        found = log.read(offset, max_bytes, upto, warmed)
        return found if found.size else None

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuses a request that knows an older leader, or a newer one (L6)."""
        if current_leader_epoch not in (NO_CHECK, self.leader_epoch):
            self.replica.check_leads(current_leader_epoch)

    # -- ageing and ending

    def delete_records(self, to: int) -> int:
        """Moves the log start up to an offset, or to the high watermark if asked for -1;
        returns it. It is durable after the next checkpoint."""
        start = retention.delete_records(self.log, to, self.high_watermark)
        self.wake()
        self.wake_followers()
        return start

    def when_low(self, offset: int, then: Reached) -> None:
        """Runs `then` once the replicas that live all begin at `offset` or later (S5), or when
        that cannot be known here any more."""
        self._low.wait(offset, then)
        if self.is_led:
            self._low.reached(self.replica.low_watermark())
        else:
            self._low.refuse(self.not_led())

    def delete(self) -> None:
        """Whoever waits for it finds out now that it is gone."""
        self.is_deleted = True
        self.resign()
        self.wake()

    def wake(self) -> None:
        waiters, self.waiters = self.waiters, {}
        for waiter in waiters:
            waiter.wake()

    def wake_followers(self) -> None:
        """There is more for those who had everything up to now."""
        waiters, self.end_waiters = self.end_waiters, {}
        for waiter in waiters:
            self.replica.was_caught_up(waiter.follower, waiter.asked_ms)
            waiter.wake()
