"""Bringing the producer state up to date with batches that are already in the log.

A follower does it batch by batch as it appends; after a start or a truncation the newest
snapshot is loaded and what came behind it is replayed. The transaction index of the segments
that are replayed is written again from the markers met on the way.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.base.ports import Buffer, Disk
from tidelog.log import snapshots, txn_index
from tidelog.log.files import SNAPSHOT, TXN_INDEX, file_name
from tidelog.log.producers import Producers
from tidelog.log.scan import batches
from tidelog.log.segment import Segment
from tidelog.records.batch import BatchHeader
from tidelog.records.control import EndTransaction, read_end_transaction

if TYPE_CHECKING:
    from tidelog.log.partition_log import PartitionLog


def note_batch(
    producers: Producers, header: BatchHeader, data: Buffer
) -> txn_index.AbortedTransaction | None:
    """Takes a batch of any kind into the producer state."""
    if header.producer_id < 0:
        return None
    if not header.is_control:
        producers.append(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            (header.base_offset, header.last_offset),
            header.max_timestamp,
            header.attributes,
        )
        return None
    marker = _marker_in(data)
    if marker is None:
        return None
    return producers.end_transaction(
        header.producer_id,
        header.producer_epoch,
        (header.base_offset, marker.coordinator_epoch, not marker.committed),
        header.max_timestamp,
    )


def _marker_in(data: Buffer) -> EndTransaction | None:
    try:
        return read_end_transaction(data)
    except KafkaError:
        # A control batch that says nothing ends nothing; its transaction stays open.
        return None


def reload_producers(log: "PartitionLog", snapshot_upto: int) -> None:
    """Makes the producer state that belongs to the log's end, from the newest snapshot at or
    below `snapshot_upto` and the batches behind it. Later snapshots are removed."""
    for offset in snapshots.offsets_of(log.disk.list(log.folder)):
        if offset > snapshot_upto:
            log.disk.remove(f"{log.folder}/{file_name(offset, SNAPSHOT)}")
    found = snapshots.read_latest(log.disk, log.folder, snapshot_upto)
    start, log.producers = found if found is not None else (log.log_start_offset, Producers())
    log.snapshot_offset = start
    for segment in log.segments.all[max(0, log.segments.at(start)) :]:
        _cut_aborted(log.disk, segment, start)
        for batch in _batches_from(segment, start):
            aborted = note_batch(log.producers, batch[0], batch[1])
            if aborted is not None:
                segment.append_aborted(log.disk, aborted)


def _batches_from(segment: Segment, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    position = segment.locate(offset)[0] if offset > segment.base_offset else 0
    for _, header, data in batches(segment.open_file(), position, segment.size):
        if header.base_offset >= offset:
            yield header, data


def _cut_aborted(disk: Disk, segment: Segment, upto: int) -> None:
    """Keeps the entries whose marker lies below `upto`; the others are about to be made again."""
    path = segment.path(TXN_INDEX)
    if disk.stat(path) is not None:
        kept = [entry for entry in segment.aborted(disk) if entry.last_offset < upto]
        file = disk.open(path, "write")
        file.truncate(0)
        file.pwrite(txn_index.encode(kept), 0)
