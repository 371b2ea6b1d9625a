"""Several produced batches, appended to one log by one write.

Clients that send ahead have requests waiting together, each with batches for the same partitions.
Kernels have checked them, stamped them and put them behind one another (`records/joiner`), given
`words_of` the log they are for. Where one is not ordinary all are left to be appended on their own,
which tells what is wrong with it, or does what more there is to be done. If the write fails the log
knows of none of them.
"""

from tidelog.base.settings.kinds import LONG_MAX
from tidelog.log.partition_log import PartitionLog
from tidelog.log.producers import NO_TRANSACTION, SEQUENCE_MAX
from tidelog.records import join_layout as layout
from tidelog.records.joiner import Joined


def words_of(log: PartitionLog, leader_epoch: int, now_ms: int) -> list[int] | None:
    """What kernels have to know of a log, as `join_layout` lays it out; None if what comes next
    there is to be appended by itself."""
    segment, settings = log.segments.active, log.settings
    if (
        log.home.failure is not None
        or not segment.size
        or leader_epoch != log.epochs.latest
        or settings.timestamp_type_log_append
    ):
        return None
    return [
        log.log_end_offset,
        segment.size,
        leader_epoch,
        log.log_start_offset,
        settings.max_message_bytes,
        now_ms - settings.timestamp_before_max_ms,
        min(now_ms + settings.timestamp_after_max_ms, LONG_MAX),
    ]


class Run:
    """Batches for one log, joined: where they are, and what `join_layout` has about them."""

    __slots__ = (
        "end",
        "first",
        "has_producers",
        "next_end",
        "start",
        "upto",
        "youngest",
        "youngest_offset",
    )

    def __init__(self, words: list[int], at: int) -> None:
        self.first = words[at + layout.FIRST]
        self.upto = self.first + words[at + layout.COUNT]
        self.start = words[at + layout.WRITTEN_FROM]
        self.end = words[at + layout.WRITTEN_UPTO]
        self.next_end = words[at + layout.NEXT_END]
        self.youngest = words[at + layout.YOUNGEST]
        self.youngest_offset = words[at + layout.YOUNGEST_OFFSET]
        self.has_producers = words[at + layout.HAS_PRODUCERS] != 0


def can_be_appended(log: PartitionLog, run: Run, joined: Joined) -> bool:
    """Whether they are all ordinary, next in their producers' order, and within the bounds of the
    active segment."""
    return log.segments.active.has_room(run.end - run.start, run.next_end - 1, run.youngest) and (
        not run.has_producers or _are_next(log, run, joined)
    )


def append_run(log: PartitionLog, run: Run, joined: Joined) -> None:
    if log.home.failure is not None:
        # Another log of the same dir could not be written.
        log.check_online()
    segment = log.segments.active
    first, upto, size = run.first, run.upto, run.end - run.start
    assert segment.file is not None
    try:
        segment.file.pwrite(joined.data[run.start : run.end], segment.size)
        positions, next_offsets = joined.positions[first:upto], joined.next_offsets[first:upto]
        if segment.is_noted_singly(positions[-1]):
            timestamps = joined.column(layout.TIMESTAMP)[first:upto]
            segment.note_each(log.log_end_offset, (positions, next_offsets, timestamps), size)
        else:
            youngest = (run.youngest, run.youngest_offset)
            segment.note_run(positions, next_offsets, youngest, size)
    except OSError as error:
        raise log.failed(error) from error
    log.log_end_offset = run.next_end
    if run.has_producers:
        _remember(log, run, joined)


def _are_next(log: PartitionLog, run: Run, joined: Joined) -> bool:
    """Whether each comes next after what its producer has in the log, and before it here."""
    ids, epochs = joined.column(layout.PRODUCER_ID), joined.column(layout.PRODUCER_EPOCH)
    sequences, deltas = joined.column(layout.SEQUENCE), joined.column(layout.DELTA)
    next_sequences: dict[int, int] = {}
    for place in range(run.first, run.upto):
        producer_id, sequence = ids[place], sequences[place]
        if producer_id < 0:
            continue
        producer = log.producers.by_id.get(producer_id)
        if (
            producer is None
            or sequence != next_sequences.get(producer_id, producer.next_sequence)
            or not 0 <= epochs[place] == producer.epoch
            or producer.txn_first_offset != NO_TRANSACTION
        ):
            return False
        next_sequences[producer_id] = (sequence + deltas[place] + 1) & SEQUENCE_MAX
    return True


def _remember(log: PartitionLog, run: Run, joined: Joined) -> None:
    ids, timestamps = joined.column(layout.PRODUCER_ID), joined.column(layout.TIMESTAMP)
    sequences, deltas = joined.column(layout.SEQUENCE), joined.column(layout.DELTA)
    for place in range(run.first, run.upto):
        if ids[place] >= 0:
            delta, last_offset = deltas[place], joined.next_offsets[place] - 1
            last_sequence = (sequences[place] + delta) & SEQUENCE_MAX
            producer = log.producers.by_id[ids[place]]
            producer.remember(last_sequence, last_offset - delta, last_offset, timestamps[place])
