"""Finding batches in a segment: by offset, by time, at the price of an index lookup and a short
walk over headers.

The batch at an index entry must be the one the entry names, so a damaged index is noticed
when it is used (`DamagedIndex`): the log makes it anew and asks again. In the active segment the
latest batches are known by heart, and a reader at the tail is answered without a system call.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from struct import Struct
from typing import Final

from tidelog.base.errors import BadValue
from tidelog.base.ids import NO_TIMESTAMP
from tidelog.base.ports import File
from tidelog.log.files import LOG, OFFSET_INDEX, TIME_INDEX, LazyFile, OpenFiles, file_name
from tidelog.log.index import OFFSET_PARTS, TIME_ENTRY, Block, OffsetIndex, SparseIndex
from tidelog.log.scan import RELATIVE_OFFSET_MAX, batches
from tidelog.log.unverified import Unverified
from tidelog.records.batch import HEADER_SIZE, LENGTH_OVERHEAD, read_header

_SKIM: Final = Struct(">qi11xi8xq")  # base offset, length, last offset delta, max timestamp
_SKIM_SIZE: Final = _SKIM.size
_SKIM_BYTES: Final = 8192
_SMALL_BATCH_BYTES: Final = 1024
_NOWHERE: Final = 1 << 62  # beyond the end of any file


class SegmentReader:
    """The names and sizes of a segment's files, and what is found in them."""

    __slots__ = (
        "_closed_file",
        "_stem",
        "_tail_next",
        "_tail_positions",
        "_tail_start",
        "base_offset",
        "file",
        "folder",
        "max_timestamp",
        "offset_index",
        "size",
        "suffix",
        "time_index",
        "unverified",
    )

    def __init__(self, folder: str, base_offset: int, files: OpenFiles, suffix: str) -> None:
        self.folder = folder
        self.base_offset = base_offset
        self.suffix = suffix
        self.size = 0
        self.file: File | None = None
        self.unverified: Unverified | None = None
        """What this process has found there; None if it has written all of it."""
        self.max_timestamp: int = NO_TIMESTAMP
        self._stem = f"{folder}/{file_name(base_offset, '')}"
        self._closed_file = LazyFile(files, self.path(LOG))
        self._tail_next: list[int] = []
        self._tail_positions: list[int] = []
        self._tail_start = base_offset
        self.offset_index = OffsetIndex(files, self.path(OFFSET_INDEX))
        self.time_index = SparseIndex(files, self.path(TIME_INDEX), TIME_ENTRY)

    def path(self, kind: str) -> str:
        return f"{self._stem}{kind}{self.suffix}"

    def open_file(self) -> File:
        return self.file or self._closed_file.get()

    def pread(self, size: int, position: int) -> bytes:
        """Of the log. What is being written is in the page cache, as far as one looks there."""
        file = self.file
        return (self._closed_file if file is None else file).pread(size, position)

    def readable_bytes(self, limit: int) -> int:
        """Up to where the batches lead from one to the next, by their lengths and by their offsets,
        which end below `limit`."""
        end, expected = 0, self.base_offset
        for position, header, _ in batches(self.open_file(), 0, self.size):
            if not expected <= header.base_offset <= header.last_offset < limit:
                break
            end, expected = position + header.size, header.next_offset
        return end

    def forget_tail(self, next_offset: int) -> None:
        self._tail_next.clear()
        self._tail_positions.clear()
        self._tail_start = next_offset

    def locate(self, offset: int) -> tuple[int, int]:
        """Position and size of the first batch that reaches `offset` or lies behind it;
        (size of the segment, 0) if there is none."""
        relative = offset - self.base_offset
        if self.file is None:
            index = self.offset_index
            try:
                block = index.blocks[bisect_left(index.fences, relative, 1) - 1]
            except KeyError:
                block = self._block(relative)
            count = len(block) // OFFSET_PARTS
            found = bisect_left(block, relative, 0, count)
            if found < count:
                size = block[count + count + found]
                if size:
                    return block[count + found], size
            return self._search_closed(relative, block, found)
        if offset >= self._tail_start:
            found = bisect_right(self._tail_next, offset)
            positions = self._tail_positions
            if found >= len(positions):
                return self.size, 0
            position = positions[found]
            after = positions[found + 1] if found + 1 < len(positions) else self.size
            return position, after - position
        return self.offset_index.batch_at(relative) or self._search_active(relative)

    def whole(self, offset: int, position: int, size: int) -> int:
        """How many of `size` bytes are whole batches, from the one at `position` on that `locate`
        has found for `offset`. Where nothing at hand says it, `size` itself: it is no promise."""
        end = position + size
        if self.file is None:
            index = self.offset_index
            block = index.blocks.get(bisect_left(index.fences, offset - self.base_offset, 1) - 1)
            if block is None:
                return size
            count = len(block) // OFFSET_PARTS
            after = bisect_right(block, end, count, count + count)
            # Behind the last entry of a block there may be more.
            last = block[after - 1] if count < after < count + count else 0
        else:
            starts: Sequence[int] = self._tail_positions
            if not starts or starts[0] > end:
                starts = self.offset_index.values
            after = bisect_right(starts, end)
            last = starts[after - 1] if after else 0
        return last - position if last > position else size

    def _block(self, relative: int) -> Block:
        """Of the offset index, from its file."""
        try:
            return self.offset_index.block(relative)
        except (BadValue, FileNotFoundError) as error:
            raise DamagedIndex(self, str(error)) from error

    def _search_closed(self, relative: int, block: Block, found: int) -> tuple[int, int]:
        """As `locate`, through the headers of the log, around an entry of a block. If that entry's
        batch alone reaches from the entry before, it need not be looked at again."""
        count = len(block) // OFFSET_PARTS
        last, position = (block[found - 1], block[count + found - 1]) if found else (-1, 0)
        if found < count:
            after = block[count + found]
            if after - position > _SKIM_BYTES:
                # Where batches are larger than the index interval, the entry's own is the one.
                first, size = self._span_at(after, block[found])
                if first <= relative:
                    if found and first == last + 1:
                        block[count + count + found] = size
                    return after, size
        return self._walk_on(relative, last, position)

    def _search_active(self, relative: int) -> tuple[int, int]:
        """As `locate`, through the headers of the log."""
        (last, position), (reaching, after) = self.offset_index.around(relative)
        if after - position > _SKIM_BYTES:
            first, size = self._span_at(after, reaching)
            if first <= relative:
                return after, size
        return self._walk_on(relative, last, max(0, position))

    def _walk_on(self, relative: int, last: int, position: int) -> tuple[int, int]:
        """From the batch that ends at `last`, if there is one."""
        base = self.base_offset
        return self._walk(position, base + relative, NO_TIMESTAMP, base + last if last >= 0 else -1)

    def _span_at(self, position: int, last: int) -> tuple[int, int]:
        """Relative first offset and size of the batch at an index entry, which must end as the
        entry says."""
        data = self.pread(_SKIM_SIZE, position)
        if len(data) == _SKIM_SIZE:
            base, length, delta, _ = _SKIM.unpack(data)
            first, size = base - self.base_offset, LENGTH_OVERHEAD + length
            if first + delta == last and HEADER_SIZE <= size <= self.size - position:
                return first, size
        raise DamagedIndex(self, f"no batch ends at {self.base_offset + last} there")

    def find_timestamp(self, timestamp: int) -> tuple[int, int]:
        """Position and size of the first batch whose largest timestamp is at least this."""
        relative = self._offset_reaching(timestamp)
        before = RELATIVE_OFFSET_MAX if relative < 0 else relative - 1
        try:
            relative, position = self.offset_index.floor(before)
        except (BadValue, FileNotFoundError) as error:
            raise DamagedIndex(self, str(error)) from error
        last = self.base_offset + relative if relative >= 0 else -1
        return self._walk(max(0, position), self.base_offset, timestamp, last)

    def next_with_timestamp(self, position: int, timestamp: int, far: int) -> tuple[int, int]:
        """The same from a batch's position on. Not much behind `far` it gives up: what it returns
        then is where a batch begins, and 0."""
        return self._walk(position, self.base_offset, timestamp, -1, far)

    def _walk(
        self,
        position: int,
        offset: int,
        timestamp: int,
        first_last_offset: int,
        far: int = _NOWHERE,
    ) -> tuple[int, int]:
        """The first batch from `position` on that reaches both the offset and the timestamp.
        The one it begins with must end at `first_last_offset`, unless that is negative. Where
        only the offset is looked for, offsets must grow: whoever passed over one that has rotted
        would not know that something is there."""
        file, end, passed = self.file or self._closed_file, self.size, self.base_offset - 1
        at_any_time = timestamp == NO_TIMESTAMP
        if first_last_offset >= 0 and position >= end:
            raise DamagedIndex(self, f"position {position} is beyond the log's {end} bytes")
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
                    if position + at >= end:
                        return end, 0
                    raise DamagedIndex(self, f"no batch of {size} bytes is at {position + at}")
                if at_any_time and (base <= passed or delta < 0):
                    raise DamagedIndex(self, f"offset {base} is behind {passed}")
                passed = last
                if last >= offset and (at_any_time or max_timestamp >= timestamp):
                    return position + at, size
                at += size
            if at == 0:
                raise DamagedIndex(self, f"the log ends at {position} already, not at {end}")
            position += at
            if position >= far:
                return position, 0
            wanted = need if size > _SMALL_BATCH_BYTES else _SKIM_BYTES
        return end, 0

    def _offset_reaching(self, timestamp: int) -> int:
        """The relative offset in the first time entry at or above a timestamp, or -1. That entry
        and the one before it must be right, or something in between would be missed."""
        try:
            before = self.time_index.floor(timestamp - 1)
            found = self.time_index.ceiling(timestamp)
        except (BadValue, FileNotFoundError) as error:
            raise DamagedIndex(self, str(error)) from error
        for entry in (before, found):
            if entry[1] >= 0:
                self._check_time_entry(*entry)
        return found[1]

    def _check_time_entry(self, timestamp: int, relative: int) -> None:
        position, size = self.locate(self.base_offset + relative)
        data = self.pread(_SKIM.size, position) if size else b""
        if len(data) < _SKIM.size or _SKIM.unpack(data)[3] != timestamp:
            where = self.base_offset + relative
            raise DamagedIndex(self, f"no batch of time {timestamp} at offset {where}")

    def read_first_timestamp(self) -> int:
        """Of the first batch; -1 if there is none, or it has none."""
        data = self.pread(HEADER_SIZE, 0) if self.size else b""
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

    def __init__(self, segment: SegmentReader, why: str) -> None:
        super().__init__(f"{segment.path(OFFSET_INDEX)}: {why}")
        self.base_offset = segment.base_offset
