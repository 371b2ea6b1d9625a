"""Several produced batches, appended to one log by one write.

A client that sends ahead has requests waiting together, each with a batch for the same partitions.
Where all the batches for a log are ordinary they are written behind one another at once. What is
not ordinary is left to be appended on its own, which tells what is wrong with it, or does what more
there is to be done. If the write fails the log knows of none of them.
"""

from collections.abc import Sequence
from typing import Final

from tidelog.log.partition_log import PartitionLog
from tidelog.log.producers import NO_TRANSACTION, SEQUENCE_MAX
from tidelog.records.batch import LENGTH_OVERHEAD, OFFSET_LENGTH_EPOCH, TRANSACTIONAL, RawHeader

_stamp: Final = OFFSET_LENGTH_EPOCH.pack_into


def append_together(
    log: PartitionLog, batches: Sequence[memoryview], leader_epoch: int, now_ms: int
) -> list[int] | None:
    """Appends batches that are next in their producers' order and outside of transactions, and for
    which the active segment has room; returns their first offsets. None if they are not all so,
    and an error if one of them is not good: then nothing has changed."""
    if log.home.failure is not None:
        log.check_online()
    segment = log.segments.active
    is_first = not segment.size or leader_epoch != log.epochs.latest
    if is_first or log.settings.timestamp_type_log_append:
        return None
    headers = log.checked(batches, now_ms)
    offset, position, timestamp_max = log.log_end_offset, segment.size, -1
    has_producers = False
    offsets, positions = [offset], [position]
    for header in headers:
        if header[9] >= 0 or header[5] & TRANSACTIONAL:
            has_producers = True
        if header[8] > timestamp_max:
            timestamp_max = header[8]
        offset += header[6] + 1
        offsets.append(offset)
        position += LENGTH_OVERHEAD + header[1]
        positions.append(position)
    if (has_producers and not _are_next(log, headers)) or not segment.has_room(
        position - segment.size, offset - 1, timestamp_max
    ):
        return None
    for batch, first_offset, header in zip(batches, offsets, headers, strict=False):
        _stamp(batch, 0, first_offset, header[1], leader_epoch)
    assert segment.file is not None
    try:
        segment.file.pwrite(b"".join(batches), segment.size)
        segment.note_run(positions, offsets, [header[8] for header in headers])
    except OSError as error:
        raise log.failed(error) from error
    log.log_end_offset = offset
    if has_producers:
        _remember(log, offsets, headers)
    offsets.pop()
    return offsets


def _are_next(log: PartitionLog, headers: Sequence[RawHeader]) -> bool:
    """Whether each comes next after what its producer has in the log, and before it here."""
    next_sequences: dict[int, int] = {}
    for header in headers:
        _, _, _, _, _, attributes, delta, _, _, producer_id, epoch, sequence, _ = header
        if attributes & TRANSACTIONAL:
            return False
        if producer_id >= 0:
            producer = log.producers.by_id.get(producer_id)
            if (
                producer is None
                or sequence != next_sequences.get(producer_id, producer.next_sequence)
                or not 0 <= epoch == producer.epoch
                or producer.txn_first_offset != NO_TRANSACTION
            ):
                return False
            next_sequences[producer_id] = (sequence + delta + 1) & SEQUENCE_MAX
    return True


def _remember(log: PartitionLog, offsets: Sequence[int], headers: Sequence[RawHeader]) -> None:
    for offset, header in zip(offsets, headers, strict=False):
        _, _, _, _, _, _, delta, _, timestamp, producer_id, _, sequence, _ = header
        if producer_id >= 0:
            producer = log.producers.by_id[producer_id]
            producer.remember((sequence + delta) & SEQUENCE_MAX, offset, offset + delta, timestamp)
