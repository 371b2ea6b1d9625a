"""A leader's batches on their way into a follower's log: checked, fitted into a segment, noted.

Everything is checked before anything is written: whole batches with a good checksum, in order, of
no later epoch than the leader's own. Headers are plain tuples here: a follower does this with
every batch that is written anywhere.
"""

from collections.abc import Sequence
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.log.log_files import LogFiles
from tidelog.log.replay import note_batch
from tidelog.log.segment import Segment
from tidelog.records.batch import (
    COMPRESSION_MASK,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    OFFSET_AND_LENGTH,
    ZSTD,
    BatchHeader,
    RawHeader,
    check_stored,
)
from tidelog.records.checksum import crc32c

_unpack: Final = HEADER.unpack_from


def check_followed(
    log: LogFiles, view: memoryview, leader_epoch: int, watermark: int = 0
) -> list[RawHeader]:
    """The batches of a leader that are whole, each of them checked. Only compaction leaves gaps, so
    a log that is compacted takes them; one that may have been earlier takes them below the leader's
    watermark, above which nothing is ever compacted."""
    if log.home.failure is not None:
        log.check_online()
    headers: list[RawHeader] = []
    at, end, expected = 0, len(view), log.log_end_offset
    while end - at >= HEADER_SIZE:
        raw: RawHeader = _unpack(view, at)
        base, length, epoch, magic, crc, attributes, delta, _, _, _, _, _, count = raw
        after = at + LENGTH_OVERHEAD + length
        if after > end:
            return headers
        if (
            magic != MAGIC
            or length < HEADER_SIZE - LENGTH_OVERHEAD
            or crc32c(view[at + CRC_START : after]) != crc
            or delta < 0
            or not 0 <= count <= delta + 1
            or attributes & COMPRESSION_MASK > ZSTD
            or base != expected
            or epoch > leader_epoch
        ):
            check_stored(view, at)
            _check_order(log, raw, expected, (leader_epoch, watermark))
        headers.append(raw)
        at, expected = after, base + delta + 1
    if end - at >= LENGTH_OVERHEAD:
        length = OFFSET_AND_LENGTH.unpack_from(view, at)[1]
        if LENGTH_OVERHEAD + length <= end - at:
            check_stored(view, at)
    return headers


def _check_order(log: LogFiles, raw: RawHeader, expected: int, leader: tuple[int, int]) -> None:
    base, epoch, last_offset = raw[0], raw[2], raw[0] + raw[6]
    leader_epoch, watermark = leader
    may_have_gaps = log.settings.cleanup_compact or last_offset < watermark
    if base < expected or (base > expected and not may_have_gaps):
        raise KafkaError(
            ErrorCode.corrupt_message,
            f"{log.partition}: a batch at offset {base} where {expected} is next",
        )
    if epoch > leader_epoch:
        raise KafkaError(
            ErrorCode.corrupt_message,
            f"{log.partition}: a batch of epoch {epoch} from a leader in epoch {leader_epoch}",
        )


def run_for(segment: Segment, headers: Sequence[RawHeader]) -> tuple[int, int]:
    """How many of the batches a segment takes that has room for the first, and their size."""
    count = size = 0
    for header in headers:
        grown = size + LENGTH_OVERHEAD + header[1]
        if count and not segment.has_room(grown, header[0] + header[6], header[8]):
            break
        count, size = count + 1, grown
    return count, size


def note_run(
    log: LogFiles, segment: Segment, headers: Sequence[RawHeader], data: memoryview
) -> None:
    """Takes batches that were written at the end of a segment into the log."""
    start, at = segment.size, 0
    note = segment.note
    for header in headers:
        base, length, epoch, _, _, _, delta, _, timestamp, producer_id, _, _, _ = header
        last_offset, size = base + delta, LENGTH_OVERHEAD + length
        note(start + at, size, base, last_offset, timestamp)
        if epoch != log.epochs.latest and epoch >= 0:
            log.assign_epoch(epoch, base)
        log.log_end_offset = last_offset + 1
        if producer_id >= 0:
            batch = data[at : at + size]
            aborted = note_batch(log.producers, BatchHeader._make(header), batch)
            if aborted is not None:
                segment.append_aborted(log.disk, aborted)
        at += size
