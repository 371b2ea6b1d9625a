"""The first pass of compaction: the last offset of every key in the dirty part of a log.

The map takes as much memory as it is given and no more. When it is full the pass ends
early, and so does the part of the log that is cleaned this time; whoever asked goes on
from there.
"""

from typing import Final

import numpy as np

from tidelog.base.errors import BadValue
from tidelog.log.chunks import ByteArray, IntArray, Source, bad_records, numbers, walk
from tidelog.log.decided import DecidedTransactions
from tidelog.records.batch import HEADER_SIZE, BatchHeader, read_header
from tidelog.records.compression import decompress
from tidelog.records.key_kernels import (
    LIMIT,
    OFFSETS_MAX,
    SLOT_BYTES,
    USED,
    KeyTable,
    Window,
    new_key_table,
    new_window,
)
from tidelog.records.map_kernels import (
    AT,
    BAD_RECORDS,
    BEYOND,
    MAP_FULL,
    NEXT_OFFSET,
    REASON,
    RECORDS_READ,
    SPECIAL,
    STOP_FIELDS,
    map_batches,
    map_records,
)

_ROOMY: Final = 1.2
"""Slots a key where memory allows: fewer make probes long, more cost time to be zeroed."""
_BITS_SHARE: Final = 16
"""Bits for offsets may take one part in so many, on top of the map."""


def make_table(
    map_bytes: int, load_factor: float, span: tuple[int, int], secret: bytes
) -> KeyTable:
    """An empty map of at most `map_bytes`, smaller if there are not that many offsets in `span`,
    with a bit for each of them if those take little."""
    most = map_bytes // SLOT_BYTES
    limit = min(int(most * load_factor), most - 1)
    if limit < 1:
        raise BadValue(
            f"log.cleaner.dedupe.buffer.size: {map_bytes} bytes hold no key; "
            f"each takes {SLOT_BYTES} bytes"
        )
    first, offsets = span[0], max(1, span[1] - span[0])
    if offsets // 8 > map_bytes // _BITS_SHARE:
        span = (0, 0)
    slots = min(most, int(_ROOMY * offsets) + 1)
    return new_key_table(slots, min(limit, slots - 1), secret, first, span)


def records_of(header: BatchHeader, buffer: ByteArray, at: int, limit: int) -> ByteArray:
    """The records of the batch at `at`, decompressed."""
    records = buffer[at + HEADER_SIZE : at + header.size]
    if not header.compression or not header.record_count:
        return records
    return np.frombuffer(decompress(header.compression, records.data, limit), np.uint8)


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
        self.stop: IntArray = np.zeros(STOP_FIELDS, np.int64)
        self.end = upper
        self._transactions = transactions
        self._bounds = numbers(first_dirty, upper)
        self._max_batch_bytes = max_batch_bytes

    def take(self, source: Source, base: int) -> bool:
        """Takes a whole segment; false if the pass is over."""
        self.stop[NEXT_OFFSET] = max(base, self.stop[NEXT_OFFSET])
        return walk(source, self)

    def run(self, buffer: ByteArray, _position: int) -> None:
        map_batches(buffer, self._bounds, self.table, self.window, self.stop)

    def resume(self, buffer: ByteArray, _position: int) -> bool:
        if self.stop[REASON] == SPECIAL:
            self.stop[REASON] = self._take_special(buffer, int(self.stop[AT]))
        if self.stop[REASON] == MAP_FULL:
            return self._give_up()
        if self.stop[REASON] == BEYOND:
            at = int(self.stop[AT])
            self.end = min(self.end, read_header(buffer.data, at).base_offset)
            return False
        return True

    def _give_up(self) -> bool:
        self.end = int(self.stop[NEXT_OFFSET])
        if self.end <= self._bounds[0]:
            raise BadValue(
                f"log.cleaner.dedupe.buffer.size: the {self.table.tally[LIMIT]} keys it has room "
                f"for are fewer than one batch has, at offset {self.end}; make it larger"
            )
        return False

    def _take_special(self, buffer: ByteArray, at: int) -> int:
        header = read_header(buffer.data, at)
        skip = header.is_control or header.last_offset < self._bounds[0]
        if not skip and not self._transactions.is_aborted(header):
            records = records_of(header, buffer, at, self._max_batch_bytes)
            shape = numbers(header.base_offset, header.last_offset_delta, header.record_count)
            result = map_records(records, shape, int(self._bounds[0]), self.table, self.window)
            if result == BAD_RECORDS:
                raise bad_records()
            if result == MAP_FULL:
                return MAP_FULL
        self.stop[AT] += header.size
        self.stop[NEXT_OFFSET] = header.next_offset
        self.stop[RECORDS_READ] += header.record_count
        return SPECIAL

    @property
    def keys(self) -> int:
        return int(self.table.tally[USED])
