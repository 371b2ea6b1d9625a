"""The segment that compaction writes: `.cleaned` files beside those they are to replace.

Batches gather in a buffer that kernels and plain code both append to, with their index
entries, and go to the file when it is full. `finish` makes all files durable; taking their
places is the broker's business.
"""

from typing import Final

from tidelog.base.errors import BadValue
from tidelog.base.ports import Buffer, Disk, File
from tidelog.log import txn_index
from tidelog.log.files import (
    CLEANED,
    LOG,
    OFFSET_INDEX,
    SEGMENT_KINDS,
    TIME_INDEX,
    TXN_INDEX,
    file_name,
    remove_if_there,
)
from tidelog.records.arrays import mapped
from tidelog.records.batch import BatchHeader
from tidelog.records.indexer import (
    OFFSET_PENDING,
    POSITION,
    Indexer,
    new_indexer,
    take_offset_entries,
    take_time_entries,
)
from tidelog.records.native import close_indexer, note_one_batch
from tidelog.records.rules import Output
from tidelog.records.stops import OFFSET_SPAN

INDEX_ROOM: Final = 1 << 12


class CleanedSegment:
    def __init__(
        self, disk: Disk, folder: str, base: int, output: Output, index_limits: tuple[int, int]
    ) -> None:
        interval_bytes, max_index_bytes = index_limits
        self.base = base
        self.output = output
        self.indexer: Indexer = new_indexer(base, interval_bytes, max_index_bytes, INDEX_ROOM)
        self._disk = disk
        self._folder = folder
        self._written = 0
        self._offset_entries = bytearray()
        self._time_entries = bytearray()
        self._aborted: list[txn_index.AbortedTransaction] = []
        remove_if_there(disk, self._path(TXN_INDEX))
        self._file = self._create(LOG)

    @property
    def size(self) -> int:
        return self.indexer.state[POSITION]

    def append(self, batch: Buffer, header: BatchHeader) -> None:
        """Appends a batch that no kernel has written."""
        size = len(batch)
        if header.last_offset - self.base > OFFSET_SPAN:
            raise self.too_far()
        self.make_room(size)
        used = self.output.used[0]
        self.output.data[used : used + size] = batch
        self.output.used[0] = used + size
        note_one_batch(self.indexer, header.last_offset, header.max_timestamp, size)

    def append_aborted(self, transaction: txn_index.AbortedTransaction) -> None:
        self._aborted.append(transaction)

    def make_room(self, size: int) -> None:
        """Writes out what is in the buffer, and makes it larger if it is too small for `size`."""
        if self.output.used[0] + size > len(self.output.data) or self._is_index_full():
            self.flush()
        if size > len(self.output.data):
            self.output = self.output._replace(data=mapped(size))

    def need_verdicts(self, count: int) -> None:
        self.output = self.output._replace(verdicts=mapped(count))

    def flush(self) -> None:
        used = self.output.used[0]
        if used:
            self._file.pwrite(self.output.data[:used], self._written)
        self._written += used
        self.output.used[0] = 0
        self._offset_entries += take_offset_entries(self.indexer)
        self._time_entries += take_time_entries(self.indexer)

    def finish(self) -> None:
        """Completes the indexes and makes everything durable."""
        close_indexer(self.indexer)
        self.flush()
        self._file.sync()
        self._file.close()
        self._write(OFFSET_INDEX, self._offset_entries)
        self._write(TIME_INDEX, self._time_entries)
        if self._aborted:
            self._write(TXN_INDEX, txn_index.encode(self._aborted))

    def discard(self) -> None:
        """Removes the files: nobody is going to use them."""
        for kind in SEGMENT_KINDS:
            remove_if_there(self._disk, self._path(kind))

    def too_far(self) -> BadValue:
        return BadValue(
            f"{self._path(LOG)}: an offset is more than {OFFSET_SPAN} from the segment's base"
        )

    def _is_index_full(self) -> bool:
        return self.indexer.state[OFFSET_PENDING] + 1 >= INDEX_ROOM

    def _path(self, kind: str) -> str:
        return f"{self._folder}/{file_name(self.base, kind)}{CLEANED}"

    def _create(self, kind: str) -> File:
        file = self._disk.open(self._path(kind), "create")
        file.truncate(0)
        return file

    def _write(self, kind: str, data: Buffer) -> None:
        file = self._create(kind)
        file.pwrite(data, 0)
        file.sync()
        file.close()
