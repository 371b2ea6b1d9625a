"""One partition that this broker leads: its log, its high watermark, and who waits for it.

An append moves the log end; the high watermark follows (R5), and with it whoever waits for
records is woken. Readers get what lies below the high watermark, or, if they want committed
transactions only, below the last stable offset. Waiting is cheap: a partition wakes only those
who asked to be woken, once, at the end of the turn.
"""

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.base.log_settings import LogSettings
from tidelog.base.settings.kinds import LONG_MAX
from tidelog.log import retention
from tidelog.log.partition_log import PartitionLog, Slice
from tidelog.serving.waiting import Waiter
from tidelog.slow_appends import SMALL_BYTES_MAX, Appended, SlowAppends

NO_CHECK = -1


class Partition:
    __slots__ = (
        "_slow",
        "bytes_in",
        "bytes_out",
        "high_watermark",
        "index",
        "is_busy",
        "is_deleted",
        "leader_epoch",
        "log",
        "name",
        "needs_care",
        "needs_inspection",
        "topic",
        "topic_id",
        "waiters",
    )

    def __init__(
        self, log: PartitionLog, topic_id: bytes, leader_epoch: int, slow: SlowAppends
    ) -> None:
        self.log = log
        self.name: TopicPartition = log.partition
        self.topic = log.partition.topic
        self.index = log.partition.partition
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.high_watermark = log.log_end_offset
        self.is_deleted = False
        self.is_busy = False
        """Whether something is being written to its log beside the loop: it must not be rolled."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.waiters: dict[Waiter, None] = {}
        self._slow = slow
        self.configure(log.settings)

    @property
    def last_stable_offset(self) -> int:
        unstable = self.log.producers.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    # -- writing

    def is_slow(self, batch: memoryview) -> bool:
        """Whether a batch must be appended beside the loop, and so later: it is large, begins a
        new segment, has to be looked into or flushed, or others that were slow come before it."""
        size = len(batch)
        segment = self.log.segments.active
        return (
            self.needs_care
            or self.is_busy
            or (
                (size > SMALL_BYTES_MAX or segment.size + size > segment.roll_bytes)
                and self._slow.must_not_wait_for(self.log, size)
            )
        )

    def append(self, batch: bytearray | memoryview, now_ms: int) -> int:
        """Appends a produced batch at once; returns its first offset."""
        size, log = len(batch), self.log
        if size <= SMALL_BYTES_MAX:
            offset = log.append_as_leader(batch, self.leader_epoch, now_ms)
        else:
            offset = self._slow.append_at_once(self, batch, now_ms)
        if log.log_end_offset > self.high_watermark:
            self.appended(size)
        return offset

    def append_slowly(self, batch: bytearray | memoryview, done: Appended) -> None:
        self._slow.append(self, batch, done)

    def appended(self, size: int) -> None:
        """The log has grown by so many bytes, unless it had them before. As long as this broker
        is the only replica in sync, all of it is committed."""
        log = self.log
        end = log.log_end_offset
        if end > self.high_watermark:
            self.high_watermark = end
            self.bytes_in += size
            if log.producers.undecided:
                log.producers.committed_up_to(end)
            if self.waiters:
                self.wake()

    def configure(self, settings: LogSettings) -> None:
        """Lets other settings count from the next batch on."""
        self.log.configure(settings)
        self.needs_inspection = settings.cleanup_compact or settings.compression_type != "producer"
        self.needs_care = self.needs_inspection or settings.flush_messages < LONG_MAX

    # -- reading

    def read(self, offset: int, max_bytes: int, *, committed_only: bool) -> Slice | None:
        """The range from an offset on that readers may see; None if there is nothing yet."""
        upto = self.last_stable_offset if committed_only else self.high_watermark
        log = self.log
        if log.home.failure is not None:
            log.check_online()
        if upto <= offset <= log.log_end_offset and offset >= log.log_start_offset:
            return None
        found = log.read(offset, max_bytes, upto)
        return found if found.size else None

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuses a request that knows an older leader, or a newer one (L6)."""
        if current_leader_epoch not in (NO_CHECK, self.leader_epoch):
            older = current_leader_epoch < self.leader_epoch
            raise KafkaError(
                ErrorCode.fenced_leader_epoch if older else ErrorCode.unknown_leader_epoch,
                f"{self.name}: leader epoch {current_leader_epoch} in the request, "
                f"{self.leader_epoch} here",
            )

    # -- ageing and ending

    def delete_records(self, to: int) -> int:
        """Moves the log start up to an offset, or to the high watermark if asked for -1;
        returns it. It is durable after the next checkpoint."""
        start = retention.delete_records(self.log, to, self.high_watermark)
        self.wake()
        return start

    def delete(self) -> None:
        """The partition is gone: whoever waits for it finds that out now."""
        self.is_deleted = True
        self.wake()

    def wake(self) -> None:
        waiters, self.waiters = self.waiters, {}
        for waiter in waiters:
            waiter.wake()
