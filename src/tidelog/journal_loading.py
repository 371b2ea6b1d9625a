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
    log = partition.log
    offset, end = log.log_start_offset, log.log_end_offset
    while offset < end and not is_over():
        offset = max(offset, log.log_start_offset)
        found = log.read(offset, buffer_bytes, end)
        reading = _Reading(loop, found)
        yield reading.ask
        if is_over():
            return
        data, seen = reading.result(log)
        if seen is not None and found.unverified is not None:
            noted(partition, found.unverified, seen)
            if seen.bad != SOUND:
                raise _rotten(partition, offset)
        behind = 0
        for position, header in walk(data):
            yield None
            if is_over():
                return
            batch = data[position : position + header.size]
            may_begin_before = offset == log.log_start_offset
            if not _is_sound(batch, header, offset, end, may_begin_before=may_begin_before):
                break
            replay_batch(shard, header, batch, offset)
            offset, behind = header.next_offset, position + header.size
        else:
            if behind:
                continue
        _note_rotten(partition, offset, found, behind, noted)
        raise _rotten(partition, offset)


def _is_sound(
    batch: memoryview, header: BatchHeader, offset: int, end: int, *, may_begin_before: bool
) -> bool:
    """Whether a batch is whole, and can be the next one in a log that ends at `end`."""
    try:
        check_stored(batch)
    except KafkaError:
        return False
    is_next = header.base_offset >= offset or may_begin_before
    return is_next and offset < header.next_offset <= end


def _rotten(partition: Partition, offset: int) -> KafkaError:
    what = f"{partition.name}: a batch from {offset} on has rotted"
    return KafkaError(ErrorCode.corrupt_message, what)


def _note_rotten(
    partition: Partition, offset: int, found: Slice, behind: int, noted: Noted
) -> None:
    """So many bytes behind the start of a range something is that was not written there."""
    log = partition.log
    try:
        for segment in log.segments.all[log.segments.at(offset) :]:
            if segment.open_file() is found.file:
                noted(partition, *log.doubt(segment, found.position + behind))
                break
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
