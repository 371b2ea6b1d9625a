"""One segment of a log: a `.log` file of batches, with an offset index and a time index.

The last segment is active: its file stays open, its index entries are in memory and written
behind the log in lots, and where its latest batches begin is remembered. A closed segment is
read through the shared `OpenFiles`. How batches are found is in `segment_reader`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final

from tidelog.base.errors import BadValue
from tidelog.base.ids import NO_TIMESTAMP
from tidelog.base.log_settings import LogSettings
from tidelog.base.ports import Disk
from tidelog.log import txn_index
from tidelog.log.files import (
    LOG,
    OFFSET_INDEX,
    REBUILT,
    SEGMENT_KINDS,
    TIME_INDEX,
    TXN_INDEX,
    OpenFiles,
    open_empty,
)
from tidelog.log.index import OFFSET_ENTRY, TIME_ENTRY, Lot
from tidelog.log.scan import (
    EVERYTHING,
    RELATIVE_OFFSET_MAX,
    Place,
    StoredBatch,
    good_batches,
)
from tidelog.log.segment_reader import DamagedIndex, SegmentReader
from tidelog.records.checksum import crc32c

NEVER_MS: Final = 1 << 62
TAIL_BATCHES: Final = 4096
INDEX_LOT: Final = 64
ROOM_BYTES: Final = 256 * 1024
"""What is reserved at a time."""
UNKNOWN_END: Final = -1


class Segment(SegmentReader):
    __slots__ = (
        "_index_above",
        "_index_lot",
        "_indexed_end",
        "_indexed_position",
        "_indexed_timestamp",
        "_reserved_upto",
        "_txn_index",
        "_txn_suffix",
        "first_timestamp",
        "is_written_beside",
        "max_timestamp_offset",
        "roll_bytes",
        "roll_ms",
        "settings",
    )

    def __init__(
        self,
        folder: str,
        base_offset: int,
        settings: LogSettings,
        files: OpenFiles,
        suffix: str = "",
    ) -> None:
        super().__init__(folder, base_offset, files, suffix)
        self._txn_suffix = suffix
        self.first_timestamp = NEVER_MS
        self.max_timestamp_offset = base_offset
        self._indexed_position = 0
        self._indexed_end = UNKNOWN_END
        self._indexed_timestamp: int = NO_TIMESTAMP
        self._index_lot = 1
        self._reserved_upto = 0
        self.is_written_beside = False
        """Whether what is noted was written beside the loop, and entries of the indexes are too."""
        self._txn_index: txn_index.TxnIndex | None = None
        self.configure(settings)

    def configure(self, settings: LogSettings) -> None:
        """Lets other settings count from the next batch on."""
        self.settings = settings
        self._index_above = self._indexed_position + settings.index_interval_bytes
        self.roll_bytes = settings.segment_bytes
        self.roll_ms = settings.segment_ms - self._jitter_ms()
        if settings.cleanup_compact:
            self.roll_ms = min(self.roll_ms, settings.max_compaction_lag_ms)
        if self.file is not None:
            self._end_lot()

    def _jitter_ms(self) -> int:
        """Spreads the rolls of many partitions, the same way at every start."""
        jitter_ms = min(self.settings.segment_jitter_ms, self.settings.segment_ms)
        name = f"{self.folder}/{self.base_offset}".encode()
        return crc32c(name) % jitter_ms if jitter_ms > 0 else 0

    # -- writing: the active segment only

    def create(self, disk: Disk) -> None:
        """Makes the files of a new, empty, active segment."""
        self.file = open_empty(disk, self.path(LOG))
        self.offset_index.create(disk)
        self.time_index.create(disk)

    def reserve(self, size: int) -> None:
        """Has the disk find room for what is written next, and for some of what comes then."""
        end = self.size + size
        if end > self._reserved_upto and self.file is not None:
            self._reserved_upto = end + ROOM_BYTES
            self.file.reserve(size + ROOM_BYTES, self.size)

    def give_back(self) -> None:
        """Room that will not be used. Nothing may be on its way into the file."""
        if self._reserved_upto > self.size and self.file is not None:
            self.file.truncate(self.size)
        self._reserved_upto = 0

    def note(
        self, position: int, size: int, first_offset: int, last_offset: int, timestamp: int
    ) -> None:
        """Takes a batch that is in the file into the indexes and the tail."""
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = last_offset
        if position > self._index_above:
            self._index(last_offset, position, size)
        elif not position:
            self.first_timestamp = timestamp if timestamp >= 0 else NEVER_MS
        self.size = position + size
        tail = self._tail_next
        if not tail:
            self._tail_start = first_offset
        tail.append(last_offset + 1)
        self._tail_positions.append(position)

    def is_noted_singly(self, position: int) -> bool:
        """Whether each of several batches, the last of which begins there, has to be noted by
        itself. Mostly all of them are between two entries of the index."""
        return position > self._index_above or not self._tail_next

    def note_each(
        self, first_offset: int, batches: tuple[list[int], list[int], list[int]], size: int
    ) -> None:
        """Takes batches one behind the other in: where each begins, which offset follows it, its
        timestamp; and the size of all."""
        positions, next_offsets, timestamps = batches
        ends = [*positions[1:], positions[0] + size]
        for at, position in enumerate(positions):
            next_offset = next_offsets[at]
            length = ends[at] - position
            self.note(position, length, first_offset, next_offset - 1, timestamps[at])
            first_offset = next_offset

    def note_run(
        self, positions: list[int], next_offsets: list[int], youngest: tuple[int, int], size: int
    ) -> None:
        """The same at once; `youngest` is the largest timestamp, and the last offset of the first
        batch that has it."""
        timestamp, offset = youngest
        if timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = timestamp, offset
        self.size = positions[0] + size
        self._tail_next += next_offsets
        self._tail_positions += positions

    def _index(self, last_offset: int, position: int, size: int) -> None:
        is_next = position == self._indexed_end
        relative = last_offset - self.base_offset
        self.offset_index.append(relative, position, size if is_next else 0)
        self._indexed_end = position + size
        if self.max_timestamp > self._indexed_timestamp:
            self._index_time()
        self._indexed_position = position
        self._index_above = position + self.settings.index_interval_bytes
        if len(self._tail_next) > TAIL_BATCHES:
            self._cut_tail(TAIL_BATCHES // 2)
        self._index_lot -= 1
        if self._index_lot <= 0:
            self._end_lot()

    def _cut_tail(self, count: int) -> None:
        """Forgets the oldest of the batches that are known by heart."""
        self._tail_start = self._tail_next[count - 1]
        del self._tail_next[:count]
        del self._tail_positions[:count]

    def _index_time(self) -> None:
        """Zero counts as no timestamp: an entry of zeros is none."""
        if self.max_timestamp > max(0, self._indexed_timestamp):
            offset = self.max_timestamp_offset - self.base_offset
            self.time_index.append(self.max_timestamp, offset)
            self._indexed_timestamp = self.max_timestamp

    def _end_lot(self) -> None:
        """Writes the entries that have come together, and sees how many more there may be."""
        bytes_max = self.settings.index_bytes_max
        room = min(
            bytes_max // OFFSET_ENTRY.size - self.offset_index.count,
            bytes_max // TIME_ENTRY.size - 1 - self.time_index.count,
        )
        if room <= 0:
            self.roll_bytes = 0
        self._index_lot = min(INDEX_LOT, max(1, room))
        if self.offset_index.unwritten >= INDEX_LOT and not self.is_written_beside:
            self._write_indexes()

    def has_room(self, size: int, last_offset: int, timestamp: int) -> bool:
        return (
            self.size + size <= self.roll_bytes
            and timestamp - self.first_timestamp <= self.roll_ms
            and last_offset - self.base_offset <= RELATIVE_OFFSET_MAX
        )

    def begin_lots(self) -> list[Lot]:
        """What is to be written beside the loop together with a batch: entries that the loop would
        write otherwise. Until the batch has been noted it writes none."""
        self.is_written_beside = True
        return self._unwritten() if self.offset_index.unwritten >= INDEX_LOT else []

    def begin_close(self) -> list[Lot]:
        """All that the indexes have in memory only; with it they cover the largest timestamp."""
        self._index_time()
        return self._unwritten()

    def write_indexes(self) -> None:
        """The same, written at once."""
        self._index_time()
        self._write_indexes()

    def _write_indexes(self) -> None:
        for lot in self._unwritten():
            lot.run()
            lot.end()

    def _unwritten(self) -> list[Lot]:
        """The time index first: entries that are ahead of the other are dropped at a start,
        entries that are missing would never be noticed."""
        return self.time_index.begin_write() + self.offset_index.begin_write()

    @property
    def next_offset(self) -> int:
        """The one behind its last batch, as long as it is active."""
        return self._tail_next[-1] if self._tail_next else self.base_offset

    def close_for_writing(self) -> None:
        """Makes it a closed segment."""
        self.write_indexes()
        self.time_index.close_for_writing()
        self.offset_index.close_for_writing()
        self.forget_tail(self.base_offset)
        self.file = None

    def sync(self) -> None:
        """Makes the log durable, not the indexes: those can be made again from it."""
        self.open_file().sync()

    def sync_all(self) -> None:
        """Makes all files durable, as a clean stop wants it."""
        self.give_back()
        self.sync()
        self.offset_index.sync()
        self.time_index.sync()

    def aborted_index(self, disk: Disk) -> txn_index.TxnIndex:
        """Its aborted transactions, read when they are first asked for."""
        index = self._txn_index
        if index is None:
            index = self._txn_index = txn_index.TxnIndex.load(disk, self.path(TXN_INDEX))
        return index

    def append_aborted(self, disk: Disk, transaction: txn_index.AbortedTransaction) -> None:
        position = self.aborted_index(disk).append(transaction)
        disk.open(self.path(TXN_INDEX), "create").pwrite(txn_index.encode([transaction]), position)

    def aborted(self, disk: Disk) -> list[txn_index.AbortedTransaction]:
        return list(self.aborted_index(disk))

    def forget_aborted(self) -> None:
        """The file of its aborted transactions is another one now."""
        self._txn_index = None

    # -- opening, truncating, moving

    def resume(self, disk: Disk, end: int) -> int:
        """Makes it the active segment, with `end` bytes of log: cuts the indexes to that and
        walks the batches behind the last entry. Returns the offset that comes next. Where the
        walk ends before `end`, the rest is not batches; `size` tells."""
        self.file = disk.open(self.path(LOG), "write")
        self.size = end
        if self.unverified is not None:
            self.unverified.cut(end)
        try:
            self._load_indexes(end)
        except (BadValue, FileNotFoundError, DamagedIndex):
            self.rebuild_indexes(disk)
        first_timestamp = self.read_first_timestamp()
        self.first_timestamp = first_timestamp if first_timestamp >= 0 else NEVER_MS
        return self.next_offset

    def _load_indexes(self, end: int) -> None:
        positions = [position for _, position in self.offset_index.entries()]
        self.offset_index.truncate(bisect_left(positions, end))
        last, position = self.offset_index.last
        offsets = [offset for _, offset in self.time_index.entries()]
        self.time_index.truncate(bisect_right(offsets, last))
        timestamp, offset = self.time_index.last
        self.max_timestamp = timestamp if offset >= 0 else NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset + max(0, offset)
        self._indexed_timestamp = self.max_timestamp
        self.forget_tail(EVERYTHING)
        if last >= 0:
            self._walk(position, self.base_offset + last, NO_TIMESTAMP, self.base_offset + last)
            self._check_last_time((timestamp, offset))
        self._note_from(max(0, position), end)

    def _note_from(self, position: int, end: int) -> None:
        self.size = position
        self._indexed_position = position
        self._indexed_end = UNKNOWN_END
        self._index_above = position + self.settings.index_interval_bytes
        self._index_lot = 1
        self.roll_bytes = self.settings.segment_bytes
        self.forget_tail(self.base_offset)
        place = Place(segment_base=self.base_offset, trusted_upto=EVERYTHING)
        self.note_all(good_batches(self.open_file(), position, end, place))

    def note_all(self, stored: Iterable[StoredBatch]) -> None:
        for at, header, _ in stored:
            self.note(at, header.size, header.base_offset, header.last_offset, header.max_timestamp)

    def rebuild_indexes(self, disk: Disk, stored: Iterable[StoredBatch] | None = None) -> None:
        """Makes both indexes anew from the batches, all of them unless some are given. If the
        segment is closed, durably and beside the old ones, because no flush will come that does it,
        and nobody would notice that a time index ends too early."""
        was_active = self.file is not None
        end = self.size
        suffix = "" if was_active else REBUILT
        for index, kind in ((self.offset_index, OFFSET_INDEX), (self.time_index, TIME_INDEX)):
            index.moved(self.path(kind) + suffix)
            index.create(disk)
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self._indexed_timestamp = NO_TIMESTAMP
        if stored is None:
            self._note_from(0, end)
        else:
            self._note_from(0, 0)
            self.note_all(stored)
        self.write_indexes()
        if not was_active:
            self.close_for_writing()
            self._put_in_place(disk)

    def _put_in_place(self, disk: Disk) -> None:
        """The time index first: the other one may be what somebody notices."""
        for index, kind in ((self.time_index, TIME_INDEX), (self.offset_index, OFFSET_INDEX)):
            index.sync()
            disk.rename(self.path(kind) + REBUILT, self.path(kind))
            index.moved(self.path(kind))
        disk.sync_folder(self.folder)

    def forget(self) -> None:
        """Lets go of open files whose names are about to mean something else."""
        self._closed_file.moved(self.path(LOG))
        self.offset_index.moved(self.path(OFFSET_INDEX))
        self.time_index.moved(self.path(TIME_INDEX))
        self.forget_aborted()

    def path(self, kind: str) -> str:
        if kind == TXN_INDEX:
            return f"{self._stem}{kind}{self._txn_suffix}"
        return super().path(kind)

    def move_aborted(self, disk: Disk, suffix: str) -> bool:
        """Renames the file of its aborted transactions before all others; whether there is one."""
        is_there = self._rename(disk, TXN_INDEX, suffix)
        self._txn_suffix = suffix
        return is_there

    def move(self, disk: Disk, suffix: str) -> None:
        """Renames the segment's files, the log last: its name says whether the move is done."""
        for kind in reversed(SEGMENT_KINDS):
            self._rename(disk, kind, suffix)
        self.suffix = self._txn_suffix = suffix
        self.forget()

    def _rename(self, disk: Disk, kind: str, suffix: str) -> bool:
        source, target = self.path(kind), f"{self._stem}{kind}{suffix}"
        if source == target or disk.stat(source) is None:
            return False
        disk.rename(source, target)
        return True
