"""The sparse indexes of a segment: pairs of growing numbers, one every few kilobytes of log.

    .index      4 last offset of a batch - base offset    4 position of that batch
    .timeindex  8 largest timestamp so far                4 offset of it - base offset

The active segment's entries are in memory and are written behind the log in small lots:
they can always be made again from it. Of a closed segment only every 128th key, the
fences, stays in memory, and a lookup reads the one block between two fences. So a lookup
costs the same in a small log and in a large one, and nothing is mapped or preallocated.
Blocks that were read stay decoded, as many as the shared `OpenFiles` has room for, and with
them what the log was seen to hold at their entries (`OffsetIndex`).
Zeros behind the last entry, as Kafka leaves them, are not entries.
"""

from array import array
from bisect import bisect_left, bisect_right
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from tidelog.base.errors import BadValue
from tidelog.base.ports import Buffer, Disk
from tidelog.log.files import LazyFile, OpenFiles

OFFSET_ENTRY: Final = Struct(">iI")
TIME_ENTRY: Final = Struct(">qi")
BLOCK_ENTRIES: Final = 128

VALUE_BITS: Final = 32
VALUE_MASK: Final = (1 << VALUE_BITS) - 1

NOTHING: Final = (-1, -1)


def entries_of(path: str, data: Buffer, entry: Struct) -> list[tuple[int, int]]:
    """The entries of an index file, without a zero tail; refuses one whose keys do not grow
    from 0 on."""
    used = len(bytes(data).rstrip(b"\0"))
    used += -used % entry.size
    if used > len(data):
        raise BadValue(f"{path}: {len(data)} bytes are not a multiple of {entry.size}")
    entries: list[tuple[int, int]] = list(entry.iter_unpack(memoryview(data)[:used]))
    if entries and (entries[0][0] < 0 or min(value for _, value in entries) < 0):
        raise BadValue(f"{path}: there are negative numbers in it")
    for before, after in pairwise(entries):
        if after[0] <= before[0]:
            raise BadValue(f"{path}: entry {after} does not follow {before}: keys must grow")
    return entries


class Block(NamedTuple):
    """A stretch of an index, decoded: its own entries and the first of the next block, so that
    the entry behind a key is always at hand."""

    keys: "array[int]"
    values: "array[int]"


class SparseIndex:
    """One index of one segment. Keys grow strictly; a value belongs to its key."""

    __slots__ = (
        "_blocks",
        "_count",
        "_entry",
        "_fences",
        "_file",
        "_files",
        "_keys",
        "_value_code",
        "_values",
        "_written",
    )

    def __init__(self, files: OpenFiles, path: str, entry: Struct) -> None:
        self._files = files
        self._file = LazyFile(files, path)
        self._entry = entry
        self._keys: array[int] | None = None
        self._values = array("q")
        self._fences: array[int] | None = None
        self._blocks: dict[int, Block] = {}
        self._value_code = "I"
        self._count = 0
        self._written = 0

    def moved(self, path: str) -> None:
        self._file.moved(path)

    def create(self, disk: Disk) -> None:
        """Begins an empty index, in memory and on disk."""
        disk.open(self._file.path, "create").truncate(0)
        self._use([])

    def load(self) -> None:
        """Takes all entries into memory, to go on writing."""
        self._use(self._read())

    def append(self, key: int, value: int) -> None:
        assert self._keys is not None
        self._keys.append(key)
        self._values.append(value)
        self._count += 1

    @property
    def _bytes_written(self) -> int:
        return self._written * self._entry.size

    @property
    def unwritten(self) -> int:
        return self._count - self._written

    def write(self) -> None:
        """Writes the entries that are in memory only."""
        if self._keys is None or self._written == self._count:
            return
        pack = self._entry.pack
        lot = zip(self._keys[self._written :], self._values[self._written :], strict=True)
        data = b"".join([pack(key, value) for key, value in lot])
        self._file.get().pwrite(data, self._bytes_written)
        self._written = self._count

    def sync(self) -> None:
        self._file.get().sync()

    def close_for_writing(self) -> None:
        """Keeps only the fences in memory. All entries must have been written."""
        assert self._keys is not None
        assert self._written == self._count
        self._fences = self._keys[::BLOCK_ENTRIES]
        self._keys = None
        self._values = array("q")

    def truncate(self, count: int) -> None:
        """Keeps the first `count` entries. The index is in memory afterwards."""
        if self._keys is None:
            self.load()
        assert self._keys is not None
        if count >= self._count and self._file.get().size() == self._bytes_written:
            return
        del self._keys[count:]
        del self._values[count:]
        self._count = min(self._count, count)
        self._written = min(self._written, self._count)
        self._file.get().truncate(self._bytes_written)

    @property
    def count(self) -> int:
        if self._keys is None and self._fences is None:
            self._find_fences()
        return self._count

    @property
    def last(self) -> tuple[int, int]:
        """The last entry, or (-1, -1)."""
        if self._keys is not None:
            return (self._keys[-1], self._values[-1]) if self._keys else NOTHING
        count = self.count
        if not count:
            return NOTHING
        size = self._entry.size
        data = self._file.get().pread(size, (count - 1) * size)
        key, value = self._entry.unpack(data)
        return key, value

    def floor(self, key: int) -> tuple[int, int]:
        """The last entry whose key is not above `key`, or (-1, -1)."""
        keys, values = self.block(key + 1)
        found = bisect_right(keys, key)
        return (keys[found - 1], values[found - 1] & VALUE_MASK) if found else NOTHING

    def ceiling(self, key: int) -> tuple[int, int]:
        """The first entry whose key is not below `key`, or (-1, -1)."""
        keys, values = self.block(key)
        found = bisect_left(keys, key)
        return (keys[found], values[found] & VALUE_MASK) if found < len(keys) else NOTHING

    def block(self, key: int) -> Block:
        """Entries among which are the last below `key` and the first that is not."""
        if self._keys is not None:
            return Block(self._keys, self._values)
        number = bisect_left(self._fences or self._find_fences(), key, 1) - 1
        return self._blocks.get(number) or self._read_block(number)

    def _read_block(self, number: int) -> Block:
        first, size = number * BLOCK_ENTRIES, self._entry.size
        count = max(0, min(BLOCK_ENTRIES + 1, self._count - first))
        data = self._file.get().pread(count * size, first * size)
        keys, values = array(self._entry.format[1]), array(self._value_code)
        for key, value in self._entry.iter_unpack(data):
            keys.append(key)
            values.append(value)
        block = self._blocks[number] = Block(keys, values)
        self._files.count_block(self._blocks)
        return block

    def entries(self) -> list[tuple[int, int]]:
        if self._keys is not None:
            return list(zip(self._keys, self._values, strict=True))
        return self._read()

    def _find_fences(self) -> "array[int]":
        entries = self._read()
        self._count = self._written = len(entries)
        self._fences = array("q", [key for key, _ in entries[::BLOCK_ENTRIES]])
        return self._fences

    def _read(self) -> list[tuple[int, int]]:
        file = self._file.get()
        return entries_of(self._file.path, file.pread(file.size(), 0), self._entry)

    def _use(self, entries: list[tuple[int, int]]) -> None:
        self._keys = array("q", [key for key, _ in entries])
        self._values = array("q", [value for _, value in entries])
        self._fences = None
        self._blocks.clear()
        self._count = self._written = len(entries)


class OffsetIndex(SparseIndex):
    """In the blocks of a closed segment a value may have, above the position, the size of the
    batch that was seen there, if every offset from behind the entry before is in it."""

    __slots__ = ()

    def __init__(self, files: OpenFiles, path: str) -> None:
        super().__init__(files, path, OFFSET_ENTRY)
        self._value_code = "Q"

    def known(self, key: int) -> int:
        """The value at the first entry that reaches a relative offset; 0 if it is not at hand. Only
        one above `VALUE_MASK` tells where the batch is that holds the offset."""
        fences = self._fences
        if fences is None:
            return 0
        block = self._blocks.get(bisect_left(fences, key, 1) - 1)
        if block is None:
            return 0
        keys, values = block
        found = bisect_left(keys, key)
        return values[found] if found < len(keys) else 0
