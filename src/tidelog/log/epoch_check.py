"""Whether the leader epochs of a log, as a file tells them, are those of its batches (L1, F12).

The file has no checksum, and a digit that has rotted is still a digit. With wrong epochs a leader
would have its followers drop what is committed, over and over; a follower would keep what its
leader does not have. Every batch has its epoch in its header: so a start looks at the batches
around each place where an epoch is said to begin, and if they say something else, at all of them.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, pairwise

from tidelog.base.ids import NO_EPOCH
from tidelog.base.settings.kinds import INT_MAX
from tidelog.log.epochs import LeaderEpochs
from tidelog.log.log_files import LogFiles
from tidelog.log.scan import batches
from tidelog.log.segment import Segment
from tidelog.log.segment_reader import DamagedIndex
from tidelog.records.batch import HEADER_SIZE, BatchHeader, read_header


def check_epochs(log: LogFiles) -> None:
    """Makes the epochs anew if they are wrong, once the log's end is known."""
    log.epochs.truncate_suffix(log.log_end_offset)
    segments, latest = log.segments.all, log.epochs.latest
    if _all_agree(log, _around_beginnings(log)) or _all_agree(log, _sound(segments, latest)):
        return
    log.epochs = LeaderEpochs(epochs_of(segments, latest))
    log.epochs.changed = True


def epochs_of(segments: Iterable[Segment], latest_known: int = INT_MAX) -> list[tuple[int, int]]:
    """As the batches tell them."""
    epochs: list[tuple[int, int]] = []
    for header in _sound(segments, latest_known):
        epoch = header.partition_leader_epoch
        if not epochs or epochs[-1][0] < epoch:
            epochs.append((epoch, header.base_offset))
    return epochs


def _sound(segments: Iterable[Segment], latest_known: int) -> Iterator[BatchHeader]:
    """All batches that have an epoch, but for those where it has rotted: it lies outside a batch's
    CRC, and is wrong if it is below one before it, or above that of the next batch. The last one
    by itself proves no epoch that is not known: one that never was would tell followers a wrong
    end of the epochs before it, without one that was the batch is only fetched again."""
    headers = (b.header for s in segments for b in batches(s.open_file(), 0, s.size))
    latest = 0
    for header, after in pairwise(chain(headers, [None])):
        epoch = header.partition_leader_epoch if header is not None else NO_EPOCH
        if header is None or epoch < latest:
            continue
        bound = max(latest, latest_known) if after is None else after.partition_leader_epoch
        if epoch <= bound:
            latest = epoch
            yield header


def _all_agree(log: LogFiles, headers: Iterable[BatchHeader]) -> bool:
    """Whether all of each batch is in its epoch, from the log start on."""
    at, log_start = log.epochs.at, log.log_start_offset
    return all(
        at(max(header.base_offset, log_start)) == header.partition_leader_epoch
        and at(header.last_offset) == header.partition_leader_epoch
        for header in headers
        if header.last_offset >= log_start and header.partition_leader_epoch >= 0
    )


def _around_beginnings(log: LogFiles) -> Iterator[BatchHeader]:
    """The batches on both sides of each, and the first and the last of all."""
    first, end = log.log_start_offset, log.log_end_offset
    places = [first, *(start for _, start in log.epochs.entries), end]
    for offset in sorted({offset for place in places for offset in (place - 1, place)}):
        if first <= offset < end:
            header = _batch_at(log, offset)
            if header is not None:
                yield header


def _batch_at(log: LogFiles, offset: int) -> BatchHeader | None:
    """The first that reaches an offset; None if there is none, or it cannot be found."""
    index = max(0, log.segments.at(offset))
    for segment in log.segments.all[index : index + 2]:
        try:
            position, size = segment.locate(offset)
        except DamagedIndex:
            # It is made anew when it is needed. Two files that are damaged at once are too many.
            return None
        if size:
            data = segment.open_file().pread(HEADER_SIZE, position)
            return read_header(data) if len(data) == HEADER_SIZE else None
    return None
