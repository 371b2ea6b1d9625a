"""The first pass of compaction: the last offset of every key in the dirty part of a log.

The map takes as much memory as it is given and no more. When it is full the pass ends
early, and so does the part of the log that is cleaned this time; whoever asked goes on
from there.
"""

from tidelog.base.errors import BadValue
from tidelog.log.chunks import Source, bad_records, walk
from tidelog.log.decided import DecidedTransactions
from tidelog.records.arrays import Int64s, numbers, zeros
from tidelog.records.batch import HEADER_SIZE, BatchHeader, read_header
from tidelog.records.compression import decompress
from tidelog.records.key_table import (
    LIMIT,
    OFFSETS_MAX,
    USED,
    KeyTable,
    Window,
    grown,
    new_window,
)
from tidelog.records.native import Call, map_batches, map_records
from tidelog.records.stops import (
    AT,
    BAD_RECORDS,
    BEYOND,
    MAP_FULL,
    MAP_SMALL,
    NEXT_OFFSET,
    REASON,
    RECORDS_READ,
    SPECIAL,
    STOP_FIELDS,
)


def records_of(header: BatchHeader, buffer: memoryview, at: int, limit: int) -> memoryview:
    """The records of the batch at `at`, decompressed."""
    records = buffer[at + HEADER_SIZE : at + header.size]
    if not header.compression or not header.record_count:
        return records
    return memoryview(decompress(header.compression, records, limit))


class MapPass:
    """Puts the keys of [first dirty, upper) into a map that begins there, until it is full or the
    offsets go too far for it."""

    def __init__(
        self,
        table: KeyTable,
        transactions: DecidedTransactions,
        first_dirty: int,
        upper: int,
        max_batch_bytes: int,
    ) -> None:
        upper = min(upper, first_dirty + OFFSETS_MAX)
        self.table = table
        self.window: Window = new_window()
        self.stop: Int64s = zeros(STOP_FIELDS)
        self.end = upper
        self._transactions = transactions
        self._bounds = numbers(first_dirty, upper)
        self._map = self._prepared()
        self._max_batch_bytes = max_batch_bytes

    def _prepared(self) -> Call:
        return map_batches.prepared(self._bounds, self.table, self.window, self.stop)

    def take(self, source: Source, base: int) -> bool:
        """Takes a whole segment; false if the pass is over."""
        self.stop[NEXT_OFFSET] = max(base, self.stop[NEXT_OFFSET])
        return walk(source, self)

    def run(self, buffer: memoryview, _position: int) -> None:
        self._map(buffer)

    def resume(self, buffer: memoryview, _position: int) -> bool:
        if self.stop[REASON] == SPECIAL:
            self.stop[REASON] = self._take_special(buffer, self.stop[AT])
        if self.stop[REASON] == MAP_SMALL:
            count = read_header(buffer, self.stop[AT]).record_count
            self.table = grown(self.table, count, self.stop[NEXT_OFFSET])
            self._map = self._prepared()
        if self.stop[REASON] == MAP_FULL:
            return self._give_up()
        if self.stop[REASON] == BEYOND:
            at = self.stop[AT]
            self.end = min(self.end, read_header(buffer, at).base_offset)
            return False
        return True

    def _give_up(self) -> bool:
        self.end = self.stop[NEXT_OFFSET]
        if self.end <= self._bounds[0]:
            raise BadValue(
                f"log.cleaner.dedupe.buffer.size: the {self.table.tally[LIMIT]} keys it has room "
                f"for are fewer than one batch has, at offset {self.end}; make it larger"
            )
        return False

    def _take_special(self, buffer: memoryview, at: int) -> int:
        header = read_header(buffer, at)
        skip = header.is_control or header.last_offset < self._bounds[0]
        if not skip and not self._transactions.is_aborted(header):
            records = records_of(header, buffer, at, self._max_batch_bytes)
            shape = numbers(header.base_offset, header.last_offset_delta, header.record_count)
            result = map_records(records, shape, self._bounds[0], self.table, self.window)
            if result == BAD_RECORDS:
                raise bad_records()
            if result in (MAP_FULL, MAP_SMALL):
                return result
        self.stop[AT] += header.size
        self.stop[NEXT_OFFSET] = header.next_offset
        self.stop[RECORDS_READ] += header.record_count
        return SPECIAL

    @property
    def keys(self) -> int:
        return self.table.tally[USED]
