"""Appends that must not hold the loop: large ones, those whose records are looked into, those
that must be durable before anybody is told, and all while the page cache is at its limit.

They queue, partition by partition, and what comes behind one of them queues too, so that a
partition's batches keep their order. A batch is written by the writer threads of its log dir, one
for large ones and one for small, while the loop goes on; only when it is in the file does the log
know of it.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from tidelog.base.errors import ChildDied, ErrorCode, KafkaError, NotStarted
from tidelog.base.ids import NO_TIMESTAMP, TopicPartition
from tidelog.base.ports import Clock, Pressure, Workers
from tidelog.disk_work import DiskWork
from tidelog.log.log_dir import LogDir
from tidelog.log.partition_log import PartitionLog
from tidelog.log.pending_append import PendingAppend, begin_append, end_append
from tidelog.log.pending_follow import PendingFollow
from tidelog.log.steps import Steps
from tidelog.records import inspection
from tidelog.records.batch import MAX_TIMESTAMP, NEGATIVE, check_produced
from tidelog.replication.replica import NOWHERE, Replica
from tidelog.write_gauge import WriteGauge

SMALL_BYTES_MAX: Final = 256 * 1024
"""A batch up to this size is written in the loop unless nothing is."""
INLINE_BYTES_MAX: Final = 2 << 20
"""A larger one never is, even while the disk keeps up."""

_LARGE: Final = "write"
_LITTLE: Final = "write little"
"""For what shall not wait for large batches, and makes no files."""

Appended = Callable[[int | KafkaError, int], None]
"""Told the first offset of the batch, or why it was refused; and the time its records were given
if that is the broker's, or -1."""


class Own(NamedTuple):
    """A small batch that the broker makes itself, when its turn has come."""

    append: Callable[[], int]
    size: int


class _Queued:
    __slots__ = ("batch", "done", "leader_epoch", "time_ms")

    def __init__(
        self, batch: bytearray | memoryview | Own, done: Appended, leader_epoch: int
    ) -> None:
        self.batch = batch
        self.done = done
        self.leader_epoch = leader_epoch
        """In which it came."""
        self.time_ms = NO_TIMESTAMP


class Target(Protocol):
    """A partition, as far as appends go."""

    name: TopicPartition
    log: PartitionLog
    replica: Replica
    leader_epoch: int
    needs_inspection: bool
    is_led: bool
    is_busy: bool

    def appended(self, size: int) -> None: ...

    def became_idle(self) -> None: ...

    def not_led(self) -> KafkaError: ...


class SlowAppends:
    def __init__(self, work: DiskWork, clock: Clock, workers: Workers, pressure: Pressure) -> None:
        self._gauge = WriteGauge(pressure, clock, work.loop)
        self._pressure = pressure
        self._work = work
        self._clock = clock
        self._workers = workers
        self._queues: dict[Target, deque[_Queued]] = {}
        self._writing = 0

    def must_not_wait_for(self, log: PartitionLog, size: int) -> bool:
        """Whether a batch must not be written in the loop now: it is too large, or begins a new
        segment, for which files have to be made, or has to wait however small it is."""
        segment = log.segments.active
        if segment.size + size > segment.roll_bytes:
            return True
        if size <= SMALL_BYTES_MAX:
            return self.is_at_limit
        return size > INLINE_BYTES_MAX or self._gauge.is_high()

    @property
    def is_at_limit(self) -> bool:
        """Whether nothing is to be written in the loop."""
        return self._gauge.is_at_limit()

    def append_at_once(self, partition: Target, batch: bytearray | memoryview, now_ms: int) -> int:
        """Writes a large batch in the loop, and sees how long that takes."""
        self._gauge.begins()
        offset = partition.log.append_as_leader(batch, partition.leader_epoch, now_ms)
        self._gauge.ends()
        return offset

    def follow_at_once(
        self, log: PartitionLog, data: memoryview, leader_epoch: int, watermark: int
    ) -> int:
        """The same with a leader's batches; returns how many bytes those are that are whole."""
        self._gauge.begins()
        size = log.append_part(data, leader_epoch, watermark)
        self._gauge.ends()
        return size

    def must_be_flushed(self, log: PartitionLog) -> bool:
        """Whether there is so much in a log that is not durable that nobody may be told of it."""
        return log.log_end_offset - log.recovery_point >= log.settings.flush_messages

    def flush(self, log: PartitionLog, done: Callable[[], None]) -> None:
        """Makes durable what is in a log. If that fails its dir is offline when `done` is told."""
        assert isinstance(log.home, LogDir)
        self._work.run(f"flush {log.partition}", log.home, self._making_durable(log, done))

    def _making_durable(self, log: PartitionLog, done: Callable[[], None]) -> Steps:
        try:
            yield from log.flushing(self._clock.now_ms())
        except KafkaError:
            done()
            raise
        done()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits, and nothing is being written, for followers either."""
        return not (self._queues or self._writing)

    def append(
        self, partition: Target, batch: bytearray | memoryview | Own, done: Appended
    ) -> None:
        """Queues a batch, which nobody may change from here on."""
        queued = _Queued(batch, done, partition.leader_epoch)
        queue = self._queues.get(partition)
        if queue is not None:
            queue.append(queued)
            return
        partition.is_busy = True
        self._queues[partition] = deque([queued])
        self._take_up(partition)

    def _take_up(self, partition: Target) -> None:
        batch = self._queues[partition][0].batch
        try:
            if isinstance(batch, Own):
                self._check_led(partition)
                self._in_the_log(partition, batch.append(), batch.size)
            elif partition.needs_inspection or batch[MAX_TIMESTAMP] & NEGATIVE:
                self._inspect(partition, batch)
            else:
                self._write(partition, batch)
        except KafkaError as error:
            self._finish(partition, error)

    def _check_led(self, partition: Target) -> int:
        """The leader epoch in which what is first in the queue came, and which must go on."""
        epoch = self._queues[partition][0].leader_epoch
        if not partition.is_led or epoch != partition.leader_epoch:
            raise partition.not_led()
        return epoch

    def _inspect(self, partition: Target, batch: bytearray | memoryview) -> None:
        settings = partition.log.settings
        check_produced(batch, settings.max_message_bytes, may_lack_max=True)
        task = inspection.task_for(batch)

        def inspect() -> dict[str, Any]:
            # The worker is far away: handing it a large batch takes as long as it takes.
            argument = inspection.argument_for(
                batch,
                settings.max_message_bytes,
                keys_required=settings.cleanup_compact,
                compression=settings.compression_type,
                level=settings.compression_level,
            )
            return self._workers.start(task, argument).result()

        self._work.loop.offload(task, inspect, lambda end: self._inspected(partition, end))

    def _inspected(self, partition: Target, end: dict[str, Any] | Exception) -> None:
        try:
            if isinstance(end, Exception):
                raise KafkaError(_code_for(end), f"{partition.name}: not inspected: {end}")
            self._write(partition, inspection.stored_batch(end))
        except KafkaError as error:
            self._finish(partition, error)

    def _write(self, partition: Target, batch: bytearray | memoryview) -> None:
        log, epoch, now_ms = partition.log, self._check_led(partition), self._clock.now_ms()
        if log.settings.timestamp_type_log_append:
            self._queues[partition][0].time_ms = now_ms
        if not self.must_not_wait_for(log, len(batch)):
            self._in_the_log(partition, self.append_at_once(partition, batch, now_ms), len(batch))
            return
        pending = begin_append(log, batch, epoch, now_ms)
        if isinstance(pending, int):
            self._finish(partition, pending)
            return
        done = partial(self._written, partition, pending)
        self.write_batches(log, pending, len(batch), done)

    def write_batches(
        self,
        log: PartitionLog,
        pending: PendingAppend | PendingFollow,
        size: int,
        done: Callable[[Exception | None], None],
    ) -> None:
        """Writes beside the loop. What is small waits neither for what is large nor, at the limit,
        for as long as that."""
        if pending.roll is None and size <= SMALL_BYTES_MAX:
            self.write(log, partial(self._write_favoured, pending, size), done, _LITTLE)
        else:
            self.write(log, pending.run, done)

    def _write_favoured(self, pending: PendingAppend | PendingFollow, size: int) -> None:
        self._pressure.favour()
        pending.segment.reserve(size)
        pending.run()

    def write(
        self,
        log: PartitionLog,
        run: Callable[[], None],
        done: Callable[[Exception | None], None],
        lane: str = _LARGE,
    ) -> None:
        """Beside the loop, in each log dir one thing at a time of those in the same lane."""
        self._writing += 1
        self._work.loop.offload(f"{lane} {log.home.path}", run, partial(self._ended, done))

    def _ended(self, done: Callable[[Exception | None], None], end: Exception | None) -> None:
        self._writing -= 1
        done(end)

    def _written(self, partition: Target, pending: PendingAppend, end: Exception | None) -> None:
        """A batch that has been written stays, also if the partition is led elsewhere by now:
        until this one is in its log it follows nobody. The files of a deleted one have other
        names, and must not be touched under the old ones."""
        try:
            if partition.log.is_gone:
                raise partition.not_led()
            offset = end_append(partition.log, pending, end)
        except KafkaError as error:
            self._finish(partition, error)
        else:
            self._in_the_log(partition, offset, len(pending.batch))

    def _in_the_log(self, partition: Target, offset: int, size: int) -> None:
        """Where `flush.messages` asks for it, nobody is told of a batch that is not durable."""
        log = partition.log
        if not self.must_be_flushed(log):
            partition.appended(size)
            self._finish(partition, offset)
        else:
            assert isinstance(log.home, LogDir)
            # A follower that asks meanwhile has the high watermark looked at.
            partition.replica.flushing_from = offset
            steps = self._flushing(partition, offset, size)
            self._work.run(f"flush {partition.name}", log.home, steps)

    def _flushing(self, partition: Target, offset: int, size: int) -> Steps:
        try:
            yield from partition.log.flushing(self._clock.now_ms())
        except KafkaError as error:
            self._finish(partition, error)
            return
        partition.replica.flushing_from = NOWHERE
        partition.appended(size)
        self._finish(partition, offset)

    def _finish(self, partition: Target, end: int | KafkaError) -> None:
        queue = self._queues[partition]
        first = queue.popleft()
        first.done(end, first.time_ms)
        if queue:
            self._work.loop.call_soon(lambda: self._take_up(partition))
        else:
            partition.is_busy = False
            del self._queues[partition]
            partition.became_idle()


def _code_for(end: Exception) -> ErrorCode:
    """Where another child may do it, whoever sent a batch is to come again: nothing was written."""
    if isinstance(end, (ChildDied, NotStarted)):
        return ErrorCode.not_enough_replicas
    return ErrorCode.unknown_server_error
