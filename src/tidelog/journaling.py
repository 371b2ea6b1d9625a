"""A partition that is led here, as the journal of a coordinator's shard, and its loading.

Entries are small batches that this broker makes itself, so they are written at once. Whoever
waits for them to be committed waits no longer than a commit may take. A journal is loaded once,
when its partition begins to be led here: it is read beside the loop, a buffer at a time, and
replayed in slices. Where `flush.messages` asks for it, nobody is told of entries that are not
durable.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.journal import Committed, Entry, Origin, Shard
from tidelog.base.ports import Clock, Loop
from tidelog.disk_work import DiskWork
from tidelog.log.log_dir import LogDir
from tidelog.log.steps import Steps
from tidelog.partition import Partition
from tidelog.records.batch import BatchHeader, walk
from tidelog.records.control import read_end_transaction
from tidelog.records.entries import encode_entries
from tidelog.records.reference import read_records
from tidelog.slices import Sliced

_LANE: Final = "load journals"


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
        if must_fit and len(batch) > partition.log.settings.max_message_bytes:
            raise KafkaError(
                ErrorCode.message_too_large,
                f"{partition.name}: {len(batch)} bytes at once, max.message.bytes is "
                f"{partition.log.settings.max_message_bytes}",
            )
        offset = partition.append_own(batch)
        self.settle(committed)
        return Origin(offset, now_ms) if producer is None else Origin(offset, now_ms, *producer)

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


def loading(
    partition: Partition, shard: Shard, loop: Loop, buffer_bytes: int, is_over: Callable[[], bool]
) -> Sliced:
    """Replays all that is in the partition's log into the shard, unless it is over before that."""
    log = partition.log
    offset, end = log.log_start_offset, log.log_end_offset
    while offset < end and not is_over():
        found = log.read(offset, buffer_bytes, end)
        reading = _Reading(loop, partial(found.file.pread, found.size, found.position))
        yield reading.ask
        before = offset
        for position, header in walk(reading.result()):
            yield None
            if is_over():
                return
            replay_batch(shard, header, reading.result()[position : position + header.size], offset)
            offset = max(offset, header.next_offset)
        if offset == before:
            raise KafkaError(
                ErrorCode.corrupt_message, f"{partition.name}: nothing can be read at {offset}"
            )


def replay_batch(shard: Shard, header: BatchHeader, batch: memoryview, offset: int) -> None:
    """Replays the records of a batch from an offset on."""
    if header.is_control:
        marker = read_end_transaction(batch)
        if marker is not None:
            shard.replay_marker(
                marker.producer_id, marker.producer_epoch, is_commit=marker.committed
            )
        return
    producer = (header.producer_id, header.producer_epoch) if header.is_transactional else ()
    for record in read_records(batch, verify_crc=True):
        if record.offset >= offset and record.key is not None:
            origin = Origin(record.offset, record.timestamp, *producer)
            shard.replay(Entry(record.key, record.value), origin)


class _Reading:
    """A read beside the loop, for work in slices."""

    def __init__(self, loop: Loop, read: Callable[[], bytes]) -> None:
        self._loop = loop
        self._read = read
        self._end: bytes | Exception = b""

    def ask(self, then: Callable[[], None]) -> None:
        def end(found: bytes | Exception) -> None:
            self._end = found
            then()

        self._loop.offload(_LANE, self._read, end)

    def result(self) -> memoryview:
        if isinstance(self._end, Exception):
            raise self._end
        return memoryview(self._end)
