"""Bringing the producer state up to date with batches that are already in the log.

A follower does it batch by batch as it appends; after a start or a truncation the newest
snapshot is loaded and what came behind it is replayed. The transaction index of the segments
that are replayed is written again from the markers met on the way.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.base.errors import BadValue, KafkaError
from tidelog.base.ports import Buffer, Disk
from tidelog.log import snapshots, txn_index
from tidelog.log.files import (
    SNAPSHOT,
    SNAPSHOTTING,
    TEMPORARY,
    TXN_INDEX,
    file_name,
    read_whole,
    write_whole,
)
from tidelog.log.producers import Producers
from tidelog.log.scan import batches
from tidelog.log.segment import Segment
from tidelog.log.segment_reader import DamagedIndex
from tidelog.records.batch import BatchHeader
from tidelog.records.control import ControlType, EndTransaction, read_end_transaction

if TYPE_CHECKING:
    from tidelog.log.log_files import LogFiles


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
    ended = (header.base_offset, marker.coordinator_epoch, not marker.committed)
    return producers.end_transaction(
        header.producer_id, header.producer_epoch, ended, header.max_timestamp
    )


def note_picked(producers: Producers, row: list[int]) -> txn_index.AbortedTransaction | None:
    """As `note_batch`, for a batch as the child's scan describes it: the numbers of its header,
    and if it is a marker, its type and the epoch of its coordinator."""
    _, base, delta, attributes, timestamp, producer_id, epoch, sequence, *marker = row
    if marker:
        ended = (base, marker[1], marker[0] == ControlType.ABORT)
        return producers.end_transaction(producer_id, epoch, ended, timestamp)
    offsets = (base, base + delta)
    producers.append(producer_id, epoch, sequence, offsets, timestamp, attributes)
    return None


def _marker_in(data: Buffer) -> EndTransaction | None:
    try:
        return read_end_transaction(data)
    except KafkaError:
        # A control batch that says nothing ends nothing; its transaction stays open.
        return None


def reload_producers(
    log: "LogFiles", snapshot_upto: int, picked: Mapping[int, list[list[int]]] | None = None
) -> None:
    """Makes the producer state that belongs to the log's end, from the newest snapshot at or
    below `snapshot_upto` and the batches behind it. Later snapshots are removed. `picked` has
    the batches that count of segments which a child has been through, by base offset."""
    _remove_snapshots(log, snapshot_upto)
    found = snapshots.read_latest(log.disk, log.folder, snapshot_upto)
    start, producers = found if found is not None else (log.log_start_offset, Producers())
    replayed = log.segments.all[max(0, log.segments.at(start)) :]
    if replayed and replayed[0].base_offset < start and not _is_readable(log.disk, replayed[0]):
        if found is not None:
            reload_producers(log, replayed[0].base_offset, picked)
            return
        start = replayed[0].base_offset
    log.producers, log.snapshot_offset = producers, start
    for segment in replayed:
        aborted = _aborted_before(log.disk, segment, start)
        rows = (picked or {}).get(segment.base_offset)
        aborted += _replay(log.producers, segment, start, rows)
        _write_aborted(log.disk, segment, aborted)


def forget_producers(log: "LogFiles") -> None:
    """Durably, before a log begins anew elsewhere: a snapshot of the old one would pass for what
    the new one knows."""
    if _remove_snapshots(log, -1):
        log.disk.sync_folder(log.folder)


def _remove_snapshots(log: "LogFiles", upto: int) -> bool:
    """Those of an offset above `upto`, and what was to become one; whether there was one."""
    was_one = False
    for name in log.disk.list(log.folder):
        if name.endswith(SNAPSHOTTING + TEMPORARY):
            # Whoever writes it down beside this may rename it first: then it is among the others.
            with suppress(FileNotFoundError):
                log.disk.remove(f"{log.folder}/{name}")
    for offset in snapshots.offsets_of(log.disk.list(log.folder)):
        if offset > upto:
            was_one = True
            # Whoever writes another one down beside this may remove it first.
            with suppress(FileNotFoundError):
                log.disk.remove(f"{log.folder}/{file_name(offset, SNAPSHOT)}")
    return was_one


def _replay(
    producers: Producers, segment: Segment, start: int, rows: list[list[int]] | None
) -> Iterator[txn_index.AbortedTransaction]:
    """Takes a segment's batches from `start` on; yields the transactions that were aborted. A log
    may start in the middle of a batch, whose transaction may be open: that one counts too."""
    if rows is not None and start <= segment.base_offset:
        noted = (note_picked(producers, row) for row in rows)
    else:
        position = _position_of(segment, start)
        noted = (
            note_batch(producers, header, data)
            for _, header, data in batches(segment.open_file(), position, segment.size)
            if header.last_offset >= start
        )
    yield from (aborted for aborted in noted if aborted is not None)


def _position_of(segment: Segment, offset: int) -> int:
    """Where to begin for an offset. An index that has rotted is made anew when somebody reads by
    it; until then its segment is gone through from the start."""
    try:
        return segment.locate(offset)[0] if offset > segment.base_offset else 0
    except DamagedIndex:
        return 0


def _is_readable(disk: Disk, segment: Segment) -> bool:
    try:
        segment.aborted(disk)
    except BadValue:
        return False
    return True


def _aborted_before(
    disk: Disk, segment: Segment, offset: int
) -> list[txn_index.AbortedTransaction]:
    """The entries whose marker lies below `offset`; the others are about to be made again."""
    if segment.base_offset >= offset:
        return []
    return [entry for entry in segment.aborted(disk) if entry.last_offset < offset]


def _write_aborted(
    disk: Disk, segment: Segment, aborted: list[txn_index.AbortedTransaction]
) -> None:
    """Replaces the transaction index if it says something else: a crash finds either one."""
    path = segment.path(TXN_INDEX)
    data = txn_index.encode(aborted)
    there = read_whole(disk, path) if disk.stat(path) is not None else b""
    if there != data:
        write_whole(disk, path, data)
        segment.forget_aborted()
