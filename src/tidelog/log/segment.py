"""One segment of a log: a `.log` file of batches, with an offset index and a time index.

The last segment is active: its file stays open, its index entries are in memory, and it
remembers where its latest batches begin, so that a reader at the tail is answered without
a system call. A closed segment is read through the shared `OpenFiles`. Positions come from
the index and a short walk over batch headers; the batch at an index entry must be the one
the entry names, so a damaged index is noticed when it is used, and made anew.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from struct import Struct
from typing import Final

from crc32c import crc32c

from tidelog.base.errors import BadValue
from tidelog.base.ids import NO_TIMESTAMP
from tidelog.base.log_settings import LogSettings
from tidelog.base.ports import Buffer, Disk, File
from tidelog.log import txn_index
from tidelog.log.files import (
    LOG,
    OFFSET_INDEX,
    SEGMENT_KINDS,
    TIME_INDEX,
    TXN_INDEX,
    OpenFiles,
    file_name,
    read_whole,
)
from tidelog.log.index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex
from tidelog.log.scan import (
    EVERYTHING,
    RELATIVE_OFFSET_MAX,
    Place,
    StoredBatch,
    good_batches,
)
from tidelog.records.batch import HEADER_SIZE, LENGTH_OVERHEAD, read_header

NEVER_MS: Final = 1 << 62
TAIL_BATCHES: Final = 4096
INDEX_LOT: Final = 64
_SKIM: Final = Struct(">qi11xi8xq")  # base offset, length, last offset delta, max timestamp
_SKIM_BYTES: Final = 8192
_SMALL_BATCH_BYTES: Final = 1024


class Segment:
    __slots__ = (
        "_files",
        "_index_lot",
        "_indexed_timestamp",
        "_log_path",
        "_stem",
        "_tail_next",
        "_tail_positions",
        "_tail_start",
        "base_offset",
        "file",
        "first_timestamp",
        "folder",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "roll_bytes",
        "roll_ms",
        "settings",
        "size",
        "suffix",
        "time_index",
        "unindexed_bytes",
    )

    def __init__(
        self,
        folder: str,
        base_offset: int,
        settings: LogSettings,
        files: OpenFiles,
        suffix: str = "",
    ) -> None:
        self.folder = folder
        self.base_offset = base_offset
        self.settings = settings
        self.suffix = suffix
        self.size = 0
        self.file: File | None = None
        self.first_timestamp = NEVER_MS
        self.max_timestamp: int = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.unindexed_bytes = 0
        self.roll_bytes = settings.segment_bytes
        self.roll_ms = settings.segment_ms - self._jitter_ms()
        if settings.cleanup_compact:
            self.roll_ms = min(self.roll_ms, settings.max_compaction_lag_ms)
        self._files = files
        self._stem = f"{folder}/{file_name(base_offset, '')}"
        self._log_path = self.path(LOG)
        self._tail_next: list[int] = []
        self._tail_positions: list[int] = []
        self._tail_start = base_offset
        self._indexed_timestamp: int = NO_TIMESTAMP
        self._index_lot = 1
        self.offset_index = SparseIndex(files, self.path(OFFSET_INDEX), OFFSET_ENTRY)
        self.time_index = SparseIndex(files, self.path(TIME_INDEX), TIME_ENTRY)

    def path(self, kind: str) -> str:
        return f"{self._stem}{kind}{self.suffix}"

    def _jitter_ms(self) -> int:
        """Spreads the rolls of many partitions, the same way at every start."""
        jitter_ms = min(self.settings.segment_jitter_ms, self.settings.segment_ms)
        name = f"{self.folder}/{self.base_offset}".encode()
        return crc32c(name) % jitter_ms if jitter_ms > 0 else 0

    # -- writing: the active segment only

    def create(self, disk: Disk) -> None:
        """Makes the files of a new, empty, active segment."""
        self.file = disk.open(self.path(LOG), "create")
        self.file.truncate(0)
        self.offset_index.create(disk)
        self.time_index.create(disk)

    def append(
        self, data: Buffer, size: int, first_offset: int, last_offset: int, timestamp: int
    ) -> None:
        """Writes a batch behind the last one. If it fails, the segment is as it was."""
        position = self.size
        assert self.file is not None
        self.file.pwrite(data, position)
        self.note(position, size, first_offset, last_offset, timestamp)

    def note(
        self, position: int, size: int, first_offset: int, last_offset: int, timestamp: int
    ) -> None:
        """Takes a batch that is in the file into the indexes and the tail."""
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = timestamp if timestamp >= 0 else NEVER_MS
        elif self.unindexed_bytes > self.settings.index_interval_bytes:
            self._index(last_offset, position)
        self.unindexed_bytes += size
        self.size = position + size
        tail = self._tail_next
        if not tail:
            self._tail_start = first_offset
        tail.append(last_offset + 1)
        self._tail_positions.append(position)
        if len(tail) > TAIL_BATCHES:
            half = TAIL_BATCHES // 2
            self._tail_start = tail[half - 1]
            del tail[:half]
            del self._tail_positions[:half]

    def _index(self, last_offset: int, position: int) -> None:
        self.offset_index.append(last_offset - self.base_offset, position)
        if self.max_timestamp > self._indexed_timestamp:
            self._index_time()
        self.unindexed_bytes = 0
        self._index_lot -= 1
        if self._index_lot <= 0:
            self._end_lot()

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
        if self.offset_index.unwritten >= INDEX_LOT:
            self._write_indexes()

    def has_room(self, size: int, last_offset: int, timestamp: int) -> bool:
        return (
            self.size + size <= self.roll_bytes
            and timestamp - self.first_timestamp <= self.roll_ms
            and last_offset - self.base_offset <= RELATIVE_OFFSET_MAX
        )

    def write_indexes(self) -> None:
        """Writes what the indexes hold in memory; afterwards they cover the largest timestamp."""
        self._index_time()
        self._write_indexes()

    def _write_indexes(self) -> None:
        """The time index first: entries that are ahead of the other are dropped at a start,
        entries that are missing would never be noticed."""
        self.time_index.write()
        self.offset_index.write()

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
        self.sync()
        self.offset_index.sync()
        self.time_index.sync()

    def append_aborted(self, disk: Disk, transaction: txn_index.AbortedTransaction) -> None:
        file = disk.open(self.path(TXN_INDEX), "create")
        whole = file.size() - file.size() % txn_index.ENTRY.size
        file.pwrite(txn_index.encode([transaction]), whole)

    def aborted(self, disk: Disk) -> list[txn_index.AbortedTransaction]:
        path = self.path(TXN_INDEX)
        if disk.stat(path) is None:
            return []
        return list(txn_index.decode(path, read_whole(disk, path)))

    # -- opening, truncating, moving

    def open_file(self) -> File:
        return self.file if self.file is not None else self._files.get(self._log_path)

    def resume(self, disk: Disk, end: int) -> int:
        """Makes it the active segment, with `end` bytes of log: cuts the indexes to that and
        walks the batches behind the last entry. Returns the offset that comes next. Where the
        walk ends before `end`, the rest is not batches; `size` tells."""
        self.file = disk.open(self.path(LOG), "write")
        self.size = end
        try:
            self._load_indexes(end)
        except (BadValue, FileNotFoundError, DamagedIndex):
            self.rebuild_indexes(disk)
        first_timestamp = self.read_first_timestamp()
        self.first_timestamp = first_timestamp if first_timestamp >= 0 else NEVER_MS
        return self._tail_next[-1] if self._tail_next else self.base_offset

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
        self.unindexed_bytes = 0
        self._index_lot = 1
        self.roll_bytes = self.settings.segment_bytes
        self.forget_tail(self.base_offset)
        place = Place(segment_base=self.base_offset, trusted_upto=EVERYTHING)
        self.note_all(good_batches(self.open_file(), position, end, place))

    def note_all(self, stored: Iterable[StoredBatch]) -> None:
        for at, header, _ in stored:
            self.note(at, header.size, header.base_offset, header.last_offset, header.max_timestamp)

    def rebuild_indexes(self, disk: Disk, stored: Iterable[StoredBatch] | None = None) -> None:
        """Makes both indexes anew from the batches, all of them unless some are given; durably if
        the segment is closed, because no flush will come that does it."""
        was_active = self.file is not None
        end = self.size
        for index in (self.offset_index, self.time_index):
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
            self.offset_index.sync()
            self.time_index.sync()

    def forget_tail(self, next_offset: int) -> None:
        self._tail_next.clear()
        self._tail_positions.clear()
        self._tail_start = next_offset

    def forget(self) -> None:
        """Lets go of open files whose names are about to mean something else."""
        for kind in SEGMENT_KINDS:
            self._files.forget(self.path(kind))

    def move(self, disk: Disk, suffix: str) -> None:
        """Renames the segment's files, the log last: its name says whether the move is done."""
        self.forget()
        for kind in reversed(SEGMENT_KINDS):
            source = self.path(kind)
            if disk.stat(source) is not None:
                disk.rename(source, source.removesuffix(self.suffix) + suffix)
        self.suffix = suffix
        self._log_path = self.path(LOG)
        self.offset_index.moved(self.path(OFFSET_INDEX))
        self.time_index.moved(self.path(TIME_INDEX))

    # -- reading

    def locate(self, offset: int, file: File | None = None) -> tuple[int, int]:
        """Position and size of the first batch that reaches `offset` or lies behind it;
        (size of the segment, 0) if there is none. Whoever has the segment's file open at hand
        may give it."""
        if offset >= self._tail_start and self.file is not None:
            found = bisect_right(self._tail_next, offset)
            positions = self._tail_positions
            if found >= len(positions):
                return self.size, 0
            position = positions[found]
            after = positions[found + 1] if found + 1 < len(positions) else self.size
            return position, after - position
        position, last, after = self._start_for(offset)
        if after - position > _SKIM_BYTES:
            data = (file or self.open_file()).pread(_SKIM.size, after)
            if len(data) == _SKIM.size:
                base, length, delta, _ = _SKIM.unpack(data)
                if last < base <= offset <= base + delta:
                    return after, LENGTH_OVERHEAD + length
        return self._walk(position, offset, NO_TIMESTAMP, last)

    def find_timestamp(self, timestamp: int) -> tuple[int, int]:
        """Position and size of the first batch whose largest timestamp is at least this."""
        relative = self._offset_reaching(timestamp)
        before = RELATIVE_OFFSET_MAX if relative < 0 else relative - 1
        position, last, _ = self._start_for(self.base_offset + before)
        return self._walk(position, self.base_offset, timestamp, last)

    def next_with_timestamp(self, position: int, timestamp: int) -> tuple[int, int]:
        return self._walk(position, self.base_offset, timestamp, -1)

    def _walk(
        self, position: int, offset: int, timestamp: int, first_last_offset: int
    ) -> tuple[int, int]:
        """The first batch from `position` on that reaches both the offset and the timestamp.
        The one it begins with must end at `first_last_offset`, unless that is negative."""
        file, end = self.open_file(), self.size
        unpack, need = _SKIM.unpack_from, _SKIM.size
        wanted = need
        while position + HEADER_SIZE <= end:
            data = file.pread(wanted, position)
            at, stop, size = 0, len(data) - need, 0
            while at <= stop:
                base, length, delta, max_timestamp = unpack(data, at)
                last = base + delta
                if first_last_offset >= 0:
                    if last != first_last_offset:
                        raise DamagedIndex(self, f"no batch ends at {first_last_offset} there")
                    first_last_offset = -1
                size = LENGTH_OVERHEAD + length
                if size < HEADER_SIZE or position + at + size > end:
                    return end, 0
                if last >= offset and max_timestamp >= timestamp:
                    return position + at, size
                at += size
            if at == 0:
                break
            position += at
            wanted = need if size > _SMALL_BATCH_BYTES else _SKIM_BYTES
        return end, 0

    def _start_for(self, offset: int) -> tuple[int, int, int]:
        """Where to begin walking for an offset: at the batch of the index entry below it, with
        the last offset that this batch must have, and the position of the next entry's batch,
        or -1. Where batches are larger than the index interval, that is the one."""
        try:
            relative, position, after = self.offset_index.floor(offset - self.base_offset)
        except (BadValue, FileNotFoundError) as error:
            raise DamagedIndex(self, str(error)) from error
        if relative < 0:
            return 0, -1, -1
        if position >= self.size:
            raise DamagedIndex(self, f"position {position} is beyond the log's {self.size} bytes")
        return position, self.base_offset + relative, after

    def _offset_reaching(self, timestamp: int) -> int:
        """The relative offset in the first time entry at or above a timestamp, or -1. That entry
        and the one before it must be right, or something in between would be missed."""
        try:
            before = self.time_index.floor(timestamp - 1)[:2]
            found = self.time_index.ceiling(timestamp)
        except (BadValue, FileNotFoundError) as error:
            raise DamagedIndex(self, str(error)) from error
        for entry in (before, found):
            if entry[1] >= 0:
                self._check_time_entry(*entry)
        return found[1]

    def _check_time_entry(self, timestamp: int, relative: int) -> None:
        position, size = self.locate(self.base_offset + relative)
        data = self.open_file().pread(_SKIM.size, position) if size else b""
        if len(data) < _SKIM.size or _SKIM.unpack(data)[3] != timestamp:
            where = self.base_offset + relative
            raise DamagedIndex(self, f"no batch of time {timestamp} at offset {where}")

    def read_first_timestamp(self) -> int:
        """Of the first batch; -1 if there is none, or it has none."""
        data = self.open_file().pread(HEADER_SIZE, 0) if self.size else b""
        return read_header(data).max_timestamp if len(data) == HEADER_SIZE else NO_TIMESTAMP

    def largest_timestamp(self) -> int:
        """From the time index; -1 if no record of this segment has one."""
        if self.file is None and self.max_timestamp == NO_TIMESTAMP:
            try:
                last = self.time_index.last
            except (BadValue, FileNotFoundError) as error:
                raise DamagedIndex(self, str(error)) from error
            self._check_last_time(last)
            self.max_timestamp = max(NO_TIMESTAMP, last[0])
        return self.max_timestamp

    def _check_last_time(self, last: tuple[int, int]) -> None:
        if last[1] >= 0:
            self._check_time_entry(*last)
        elif self.read_first_timestamp() > 0:
            raise DamagedIndex(self, "the time index is empty, but the records have times")


class DamagedIndex(Exception):
    """An index that does not agree with its log. The log makes it anew and asks again."""

    def __init__(self, segment: Segment, why: str) -> None:
        super().__init__(f"{segment.path(OFFSET_INDEX)}: {why}")
        self.segment = segment
