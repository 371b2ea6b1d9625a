"""Loading a coordinator's shard: what is in the log of its partition is replayed into it.

That is done once, when the partition begins to be led here. The log is read beside the loop, a
buffer at a time, and replayed in slices. A shard that lacked something would deny what was
acknowledged, so nothing is taken for a batch that may have rotted (F12): what was on the disk when
the broker started is looked through as it is for consumers, offsets too, and every batch is checked
before it counts. What is damaged is noted, so that others may lead who have it.
"""

from collections.abc import Callable
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.journal import Entry, Origin, Shard
from tidelog.base.ports import Loop
from tidelog.log.partition_log import PartitionLog, Slice
from tidelog.log.segment import Segment
from tidelog.log.unverified import SOUND, Stretch, Unverified
from tidelog.partition import Partition
from tidelog.records.batch import BatchHeader, check_stored, walk
from tidelog.records.control import read_end_transaction
from tidelog.records.reference import read_records
from tidelog.slices import Sliced

_LANE: Final = "load journals"

Noted = Callable[[Partition, Unverified, Stretch | None], None]
"""Told what was found in a part of a log."""


def loading(
    partition: Partition,
    shard: Shard,
    loop: Loop,
    buffer_bytes: int,
    is_over: Callable[[], bool],
    noted: Noted,
) -> Sliced:
    """Replays all that is in the partition's log into the shard, unless it is over before that."""
    place = _Place(partition, noted)
    while not (is_over() or place.is_at_end()):
        found = place.look(buffer_bytes)
        reading = _Reading(loop, found)
        yield reading.ask
        if is_over():
            return
        data, seen = reading.result(partition.log)
        place.judge(found, seen)
        before = place.offset
        for position, header in walk(data):
            yield None
            if is_over():
                return
            batch = data[position : position + header.size]
            place.check(batch, header)
            replay_batch(shard, header, batch, place.offset)
            place.passed(header)
        if place.offset == before:
            raise place.rotten()
    if not is_over():
        place.check_whole()


class _Place:
    """How far a log has been replayed."""

    def __init__(self, partition: Partition, noted: Noted) -> None:
        self._partition = partition
        self._log = partition.log
        self._noted = noted
        self.offset = partition.log.log_start_offset
        self._end = self._limit = partition.log.log_end_offset
        self._active = partition.log.segments.active
        self._active_size = self._active.size
        self._segment: Segment | None = None
        self._last = self._position = 0
        """Where in it the last batch begins, and the next."""

    def is_at_end(self) -> bool:
        """What has aged meanwhile is passed over."""
        start = self._log.log_start_offset
        if self.offset < start:
            self.offset, self._segment = start, None
        return self.offset >= self._end

    def look(self, bytes_max: int) -> Slice:
        """The next range."""
        log = self._log
        found = log.read(self.offset, bytes_max, self._end)
        segment = _segment_at(log, self.offset)
        if segment is not self._segment:
            self.check_whole()
        elif found.position != self._position:
            raise self._misled()
        self._segment, self._limit = segment, min(self._end, log.limit_of(segment))
        self._last = self._position = found.position
        return found

    def check_whole(self) -> None:
        """Whether all of a segment was replayed, unless it is another one by now."""
        segment = self._segment
        if segment is not None and segment in self._log.segments.all:
            size = self._active_size if segment is self._active else segment.size
            if self._position != size:
                raise self._misled()

    def judge(self, found: Slice, seen: Stretch | None) -> None:
        """Takes note of what was seen in a range, all of which must be sound."""
        if seen is not None and found.unverified is not None:
            self._noted(self._partition, found.unverified, seen)
            if seen.bad != SOUND:
                raise self._refusal()

    def check(self, batch: memoryview, header: BatchHeader) -> None:
        """Whether a batch is whole, and can be the next one."""
        try:
            check_stored(batch)
        except KafkaError as error:
            raise self.rotten() from error
        # The first of a log may begin before it.
        is_next = header.base_offset >= self.offset or self.offset == self._log.log_start_offset
        if not (is_next and self.offset < header.next_offset <= self._limit):
            raise self.rotten()

    def passed(self, header: BatchHeader) -> None:
        self.offset = header.next_offset
        self._last, self._position = self._position, self._position + header.size

    def _misled(self) -> KafkaError:
        """By the last batch: what comes next in the file is not what comes next by its offset."""
        self._position = self._last
        return self.rotten()

    def rotten(self) -> KafkaError:
        """Notes that what comes next is not what was written."""
        assert self._segment is not None
        self._noted(self._partition, *self._log.doubt(self._segment, self._position))
        return self._refusal()

    def _refusal(self) -> KafkaError:
        what = f"{self._partition.name}: a batch from {self.offset} on has rotted"
        return KafkaError(ErrorCode.corrupt_message, what)


def _segment_at(log: PartitionLog, offset: int) -> Segment:
    """Where the log reads from an offset on."""
    segments = log.segments
    try:
        behind = segments.all[segments.at(offset) :]
        return next((found for found in behind if found.locate(offset)[1]), segments.active)
    except OSError as error:
        raise log.failed(error) from error


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
    for record in read_records(batch):
        if record.offset >= offset and record.key is not None:
            origin = Origin(record.offset, record.timestamp, *producer)
            shard.replay(Entry(record.key, record.value), origin)


class _Reading:
    """A range of a log, read and looked through beside the loop, for work in slices."""

    def __init__(self, loop: Loop, found: Slice) -> None:
        self._loop = loop
        self._found = found
        self._end: tuple[bytes, Stretch | None] | Exception = (b"", None)

    def ask(self, then: Callable[[], None]) -> None:
        def end(read: tuple[bytes, Stretch | None] | Exception) -> None:
            self._end = read
            then()

        self._loop.offload(_LANE, self._read, end)

    def _read(self) -> tuple[bytes, Stretch | None]:
        file, position, size, unverified, _ = self._found
        seen = None
        if unverified is not None and unverified.good_bytes(position, size) < size:
            known_bad = Stretch(position, position, 0, bad=position)
            seen = unverified.check(file, position, size) or known_bad
        return file.pread(size, position), seen

    def result(self, log: PartitionLog) -> tuple[memoryview, Stretch | None]:
        """What was read, and what is new to know of it. A disk that fails takes its dir offline:
        then others are to lead what lies there."""
        if isinstance(self._end, OSError):
            raise log.failed(self._end) from self._end
        if isinstance(self._end, Exception):
            raise self._end
        data, seen = self._end
        return memoryview(data), seen
