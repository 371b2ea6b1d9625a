"""A partition that is led here, as the journal of a coordinator's shard.

Entries are small batches that this broker makes itself, so they are written at once. Whoever
waits for them to be committed waits no longer than a commit may take. Where `flush.messages` asks
for it, nobody is told of entries that are not durable.
"""

from collections.abc import Callable, Sequence
from functools import partial

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.journal import Committed, Entry, Origin
from tidelog.base.ports import Clock
from tidelog.disk_work import DiskWork
from tidelog.log.log_dir import LogDir
from tidelog.log.steps import Steps
from tidelog.partition import Partition
from tidelog.records.entries import encode_entries


class PartitionJournal:
    def __init__(
        self,
        partition: Partition,
        clock: Clock,
        work: DiskWork,
        timeout_ms: Callable[[], int],
    ) -> None:
        self._partition = partition
        self._clock = clock
        self._work = work
        self._timeout_ms = timeout_ms
        self._is_closed = False

    def close(self) -> None:
        """Its shard is stopped. The partition may come to be led here again, with another shard
        that does not hear of what this one would still append."""
        self._is_closed = True

    @property
    def index(self) -> int:
        return self._partition.index

    @property
    def leader_epoch(self) -> int:
        return self._partition.leader_epoch

    def append(
        self,
        entries: Sequence[Entry],
        committed: Committed,
        producer: tuple[int, int] | None = None,
        *,
        must_fit: bool = True,
    ) -> Origin:
        partition, now_ms = self._partition, self._clock.now_ms()
        self._check_writable()
        batch = encode_entries(entries, now_ms, producer)
        if must_fit:
            self._check_fits(len(batch))
        offset = partition.append_own(batch)
        self.settle(committed)
        return Origin(offset, now_ms) if producer is None else Origin(offset, now_ms, *producer)

    def _check_fits(self, size: int) -> None:
        partition, settings = self._partition, self._partition.log.settings
        if size > min(settings.max_message_bytes, settings.segment_bytes):
            raise KafkaError(
                ErrorCode.message_too_large,
                f"{partition.name}: {size} bytes at once, max.message.bytes is "
                f"{settings.max_message_bytes}, segment.bytes is {settings.segment_bytes}",
            )

    def _check_writable(self) -> None:
        partition = self._partition
        if self._is_closed or not partition.is_led:
            raise partition.not_led()
        if partition.is_busy:
            raise KafkaError(
                ErrorCode.coordinator_load_in_progress, f"{partition.name} is being written to"
            )
        partition.check_enough_in_sync()

    def settle(self, committed: Committed) -> None:
        partition = self._partition
        end = partition.log.log_end_offset
        if self._is_closed or not partition.is_led:
            committed(partition.not_led())
        elif partition.high_watermark >= end:
            self._replicated(end, committed, None)
        else:
            waiting = _Waiting(partial(self._replicated, end, committed))
            ends_ms = self._clock.monotonic_ms() + self._timeout_ms()
            timer = self._work.loop.call_at(ends_ms, partial(waiting.end, _late(partition)))
            waiting.on_end = timer.cancel
            partition.acks.wait(end, waiting.end)

    def _replicated(self, end: int, committed: Committed, error: KafkaError | None) -> None:
        log = self._partition.log
        unflushed = log.log_end_offset - log.recovery_point
        if error is not None or unflushed < log.settings.flush_messages:
            committed(error)
            return
        assert isinstance(log.home, LogDir)
        self._work.run(f"flush {self._partition.name}", log.home, self._flushing(end, committed))

    def _flushing(self, end: int, committed: Committed) -> Steps:
        """One flush is for all that were appended before it begins."""
        partition = self._partition
        try:
            if partition.log.recovery_point < end:
                yield from partition.log.flushing(self._clock.now_ms())
        except KafkaError as error:
            committed(error)
            return
        committed(None if partition.is_led and not self._is_closed else partition.not_led())


class _Waiting:
    """Calls back once, whatever comes first."""

    __slots__ = ("_committed", "on_end")

    def __init__(self, committed: Committed) -> None:
        self._committed: Committed | None = committed
        self.on_end: Callable[[], None] | None = None

    def end(self, error: KafkaError | None) -> None:
        committed, self._committed = self._committed, None
        if committed is not None:
            if self.on_end is not None:
                self.on_end()
            committed(error)


def _late(partition: Partition) -> KafkaError:
    return KafkaError(
        ErrorCode.request_timed_out, f"{partition.name}: not all replicas in sync had it in time"
    )
