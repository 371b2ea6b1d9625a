"""The second pass of compaction: writing what is left of each batch of a segment.

Plain batches are the kernels' work. Those that are compressed, transactional or markers are
dealt with here one by one, by the same rules: a record stays if no later one has its key, a
tombstone until its batch's delete horizon has passed, a marker until its transaction has no
data left and then until its own horizon has, or for as long as nothing else has the epoch of an
active producer. A batch that is left empty goes, unless it holds the last offset of an active
producer or of the whole segment.
"""

from dataclasses import dataclass

from tidelog.base.ids import NO_TIMESTAMP
from tidelog.log.chunks import Source, bad_records, walk
from tidelog.log.cleaned_segment import CleanedSegment
from tidelog.log.decided import DecidedTransactions
from tidelog.log.key_map import records_of
from tidelog.records.arrays import Int64s, numbers, zeros
from tidelog.records.batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON,
    BatchHeader,
    read_header,
    seal,
)
from tidelog.records.compression import compress
from tidelog.records.control import ControlType, control_type
from tidelog.records.key_table import KeyTable, Window
from tidelog.records.native import clean_batches, copy_kept, judge_records
from tidelog.records.reference import RECORD_SIZE_MIN, read_records
from tidelog.records.rules import (
    DROP,
    GROWTH,
    KEEP,
    KEEP_TOMBSTONE,
    LAST_POSITION,
    Rules,
    new_rules,
)
from tidelog.records.stops import (
    AT,
    BAD_RECORDS,
    BEYOND,
    MORE_VERDICTS,
    NEXT_OFFSET,
    OUTPUT_FULL,
    REASON,
    RECORDS_KEPT,
    RECORDS_READ,
    SPECIAL,
    STOP_FIELDS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What decides over records: everything at or above `end` stays as it is."""

    end: int
    now_ms: int
    delete_retention_ms: int
    active_producers: frozenset[int]
    raised_epochs: frozenset[tuple[int, int]]
    max_batch_bytes: int

    @property
    def new_horizon_ms(self) -> int:
        return self.now_ms + self.delete_retention_ms

    def has_expired(self, batch: BatchHeader) -> bool:
        horizon_ms = batch.delete_horizon_ms
        return horizon_ms is not None and horizon_ms <= self.now_ms

    def is_obsolete(self, marker: BatchHeader) -> bool:
        """Of one whose transaction has no data left."""
        epoch = (marker.producer_id, marker.producer_epoch)
        return self.has_expired(marker) and epoch not in self.raised_epochs

    def rules(self) -> Rules:
        return new_rules(self.end, self.now_ms, self.new_horizon_ms, self.active_producers)


class FilterPass:
    """Goes through the segments of one group, into one cleaned segment."""

    def __init__(
        self,
        retention: Retention,
        table: KeyTable,
        window: Window,
        transactions: DecidedTransactions,
    ) -> None:
        self.stop: Int64s = zeros(STOP_FIELDS)
        self._retention = retention
        self._rules = retention.rules()
        self._table = table
        self._window = window
        self._transactions = transactions
        self._end_of_last = -1
        self._is_last = False

    def take(self, source: Source, base: int, target: CleanedSegment, is_last: bool) -> None:
        """Takes a whole segment. `is_last`: no batch of the group follows."""
        self.target = target
        self._prepare()
        self.stop[NEXT_OFFSET] = max(base, self.stop[NEXT_OFFSET])
        self._end_of_last = source.size if is_last else -1
        walk(source, self)

    def run(self, buffer: memoryview, position: int) -> None:
        self._rules.numbers[LAST_POSITION] = self._end_of_last - position
        if self._output is not self.target.output:
            self._prepare()
        self._clean(buffer)

    def _prepare(self) -> None:
        """Anew wherever the output goes to other memory."""
        target = self.target
        self._output = target.output
        self._clean = clean_batches.prepared(
            self._rules, self._table, self._window, target.output, target.indexer, self.stop
        )

    def resume(self, buffer: memoryview, position: int) -> bool:
        reason, at = self.stop[REASON], self.stop[AT]
        if reason == BEYOND:
            raise self.target.too_far()
        header = read_header(buffer, at)
        if reason == SPECIAL:
            self._take_special(header, buffer, at, position)
        elif reason == OUTPUT_FULL:
            self.target.flush()
            self.target.make_room(header.size + GROWTH * header.record_count)
        else:
            assert reason == MORE_VERDICTS, reason
            self.target.need_verdicts(header.record_count)
        return True

    def _take_special(
        self, header: BatchHeader, buffer: memoryview, at: int, position: int
    ) -> None:
        batch = buffer[at : at + header.size]
        self._is_last = position + at + header.size == self._end_of_last
        if header.is_control:
            self._filter_marker(header, batch)
        else:
            self._filter_data(header, batch)
        self.stop[AT] = at + header.size
        self.stop[NEXT_OFFSET] = header.next_offset
        self.stop[RECORDS_READ] += header.record_count

    def _filter_marker(self, header: BatchHeader, batch: memoryview) -> None:
        retention, kind = self._retention, self._control_type(batch)
        ends_transaction = kind in (ControlType.ABORT, ControlType.COMMIT)
        has_data = ends_transaction and self._transactions.saw_marker(header)
        may_go = kind is None or (ends_transaction and not has_data)
        if not may_go or header.base_offset >= retention.end:
            self._keep(header, batch)
        elif kind is None or retention.is_obsolete(header):
            self._leave_empty(header)
            return
        elif header.delete_horizon_ms is None:
            self._rewrite(header, records_of(header, batch, 0, len(batch)), None)
        else:
            self._keep(header, batch)
        aborted = self._transactions.aborted_by(header) if kind is ControlType.ABORT else None
        if aborted is not None:
            self.target.append_aborted(aborted)

    def _control_type(self, batch: memoryview) -> ControlType | None:
        record = next(read_records(batch, self._retention.max_batch_bytes), None)
        return control_type(record.key) if record is not None else None

    def _filter_data(self, header: BatchHeader, batch: memoryview) -> None:
        self._transactions.saw_data(header)
        if header.base_offset >= self._retention.end:
            self._keep(header, batch)
            return
        if not header.record_count or self._transactions.is_aborted(header):
            self._leave_empty(header)
            return
        records = records_of(header, batch, 0, self._retention.max_batch_bytes)
        verdicts = self._judge(header, records)
        needs_horizon = header.delete_horizon_ms is None and KEEP_TOMBSTONE in verdicts
        kept = len(verdicts) - verdicts.count(DROP)
        if not kept:
            self._leave_empty(header)
        elif kept == header.record_count and not needs_horizon:
            self._keep(header, batch)
        else:
            self._rewrite(header, records, verdicts, needs_horizon=needs_horizon)

    def _judge(self, header: BatchHeader, records: memoryview) -> bytearray:
        if header.record_count * RECORD_SIZE_MIN > len(records):
            raise bad_records()
        verdicts = bytearray(header.record_count)
        shape = numbers(header.base_offset, header.last_offset_delta, header.record_count)
        has_expired = self._retention.has_expired(header)
        result = judge_records(records, shape, has_expired, self._table, self._window, verdicts)
        if result == BAD_RECORDS:
            raise bad_records()
        return verdicts

    def _keep(self, header: BatchHeader, batch: memoryview) -> None:
        self.target.append(batch, header)
        self.stop[RECORDS_KEPT] += header.record_count

    def _leave_empty(self, header: BatchHeader) -> None:
        is_active = header.last_offset in self._retention.active_producers
        if self._is_last or (header.producer_id >= 0 and is_active):
            attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON)
            empty = header._replace(
                attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0
            )
            self.target.append(seal(empty, b""), empty)

    def _rewrite(
        self,
        header: BatchHeader,
        records: memoryview,
        verdicts: bytearray | None,
        *,
        needs_horizon: bool = True,
    ) -> None:
        """Writes the batch with the records that stay, all of them without verdicts."""
        if verdicts is None:
            verdicts = bytearray([KEEP]) * header.record_count
        base_timestamp = header.base_timestamp
        if needs_horizon:
            base_timestamp = self._retention.new_horizon_ms
        change = header.base_timestamp - base_timestamp
        kept = bytearray(len(records) + GROWTH * header.record_count)
        shift = numbers(change, header.base_timestamp, NO_TIMESTAMP)
        size = copy_kept(records, verdicts, shift, kept)
        header = header._replace(
            attributes=header.attributes | (DELETE_HORIZON if needs_horizon else 0),
            base_timestamp=base_timestamp,
            max_timestamp=header.max_timestamp if header.is_log_append_time else shift[2],
            record_count=len(verdicts) - verdicts.count(DROP),
        )
        self.target.append(
            seal(header, compress(header.compression, memoryview(kept)[:size])), header
        )
        self.stop[RECORDS_KEPT] += header.record_count
