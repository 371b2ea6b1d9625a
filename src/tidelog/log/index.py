"""The sparse indexes of a segment: pairs of growing numbers, one every few kilobytes of log.

    .index      4 last offset of a batch - base offset    4 position of that batch
    .timeindex  8 largest timestamp so far                4 offset of it - base offset

The active segment's entries are in memory and are written behind the log in small lots:
they can always be made again from it. Of a closed segment only every 128th key, the
fences, stays in memory, and a lookup reads the one block between two fences. So a lookup
costs the same in a small log and in a large one, and nothing is mapped or preallocated.
Blocks that were read stay decoded, as many as the shared `OpenFiles` has room for, and with
them what the log was seen to hold at their entries (`OffsetIndex`). A block is one array, and
decoded without a loop: what a lookup in a large log costs more is memory no cache holds.
Zeros behind the last entry, as Kafka leaves them, are not entries.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise
from operator import lt
from struct import Struct
from typing import ClassVar, Final, TypeAlias

from tidelog.base.errors import BadValue
from tidelog.base.ports import Buffer, Disk, File
from tidelog.log.files import LazyFile, OpenFiles, open_empty

OFFSET_ENTRY: Final = Struct(">iI")
TIME_ENTRY: Final = Struct(">qi")
BLOCK_ENTRIES: Final = 128
OFFSET_PARTS: Final = 3

NOTHING: Final = (-1, -1)

Numbers: TypeAlias = "array[int]"
Block: TypeAlias = Numbers
"""A stretch of an index: the keys of its own entries and of the first of the next block, so that
the entry behind a key is always at hand; then the values of all these, in the same order."""


def entries_of(path: str, data: Buffer, entry: Struct) -> list[tuple[int, int]]:
    """The entries of an index file, without a zero tail; refuses one whose keys do not grow
    from 0 on."""
    return list(zip(*checked_columns(path, data, entry), strict=True))


def checked_columns(path: str, data: Buffer, entry: Struct) -> tuple[Numbers, Numbers]:
    """As `entries_of`: the keys and the values."""
    used = len(bytes(data).rstrip(b"\0"))
    used += -used % entry.size
    if used > len(data):
        raise BadValue(f"{path}: {len(data)} bytes are not a multiple of {entry.size}")
    keys, values = columns(data[:used], entry)
    if keys and (keys[0] < 0 or min(values) < 0):
        raise BadValue(f"{path}: there are negative numbers in it")
    if not all(map(lt, keys, keys[1:])):
        entries = zip(keys, values, strict=True)
        before, after = next(two for two in pairwise(entries) if two[1][0] <= two[0][0])
        raise BadValue(f"{path}: entry {after} does not follow {before}: keys must grow")
    return keys, values


def columns(data: Buffer, entry: Struct) -> tuple[Numbers, Numbers]:
    """The keys and the values of whole entries. A value is a word of 4 bytes, a key one or two."""
    _, key_code, value_code = list(entry.format)
    words = array("I", bytes(data))
    step = entry.size // words.itemsize
    keys = words[::step]
    if step > 2:
        pairs = array("I", bytes(2 * len(keys) * words.itemsize))
        pairs[::2], pairs[1::2] = keys, words[1::step]
        keys = pairs
    found = array(key_code, keys.tobytes()), array(value_code, words[step - 1 :: step].tobytes())
    if sys.byteorder == "little":
        for column in found:
            column.byteswap()
    return found


@dataclass(frozen=True, slots=True)
class Lot:
    """Entries that are in memory and are to be written."""

    index: "SparseIndex"
    file: File
    data: bytes
    position: int
    keys: Numbers
    """Of the index, of which they are a part."""
    count: int
    """How many the index has with them."""

    def run(self) -> None:
        """Does nothing but write, and may run in a thread."""
        self.file.pwrite(self.data, self.position)

    def end(self) -> None:
        self.index.has_written(self)


class SparseIndex:
    """One index of one segment. Keys grow strictly; a value belongs to its key."""

    PARTS: ClassVar[int] = 2
    """How many numbers a block has for an entry."""

    __slots__ = (
        "_count",
        "_entry",
        "_file",
        "_files",
        "_keys",
        "_values",
        "_written",
        "blocks",
        "fences",
    )

    def __init__(self, files: OpenFiles, path: str, entry: Struct) -> None:
        self._files = files
        self._file = LazyFile(files, path)
        self._entry = entry
        self._keys: Numbers | None = None
        self._values = array("q")
        self.fences: Numbers = array("q")
        self.blocks: dict[int, Block] = {}
        self._count = 0
        self._written = 0

    def moved(self, path: str) -> None:
        self._file.moved(path)

    def create(self, disk: Disk) -> None:
        """Begins an empty index, in memory and on disk."""
        open_empty(disk, self._file.path)
        self._use(array("q"), array("q"))

    def load(self) -> None:
        """Takes all entries into memory, to go on writing."""
        self._use(*self._read())

    def append(self, key: int, value: int) -> None:
        assert self._keys is not None
        self._keys.append(key)
        self._values.append(value)
        self._count += 1

    @property
    def _bytes_written(self) -> int:
        return self._written * self._entry.size

    @property
    def values(self) -> Numbers:
        """Of the entries that are in memory."""
        return self._values

    @property
    def unwritten(self) -> int:
        return self._count - self._written

    def begin_write(self) -> list[Lot]:
        """The entries that are in memory only, if there are any."""
        if self._keys is None or self._written == self._count:
            return []
        pack = self._entry.pack
        lot = zip(self._keys[self._written :], self._values[self._written :], strict=True)
        data = b"".join([pack(key, value) for key, value in lot])
        file, position = self._file.get(), self._bytes_written
        return [Lot(self, file, data, position, self._keys, self._count)]

    def write(self) -> None:
        """Writes them at once."""
        for lot in self.begin_write():
            lot.run()
            lot.end()

    def has_written(self, lot: Lot) -> None:
        """If the index was made anew meanwhile, a part of that may be overwritten: all of it is to
        be written again."""
        if lot.keys is self._keys:
            self._written = max(self._written, lot.count)
        elif self._keys is not None:
            self._file.get().truncate(0)
            self._written = 0

    def sync(self) -> None:
        self._file.get().sync()

    def close_for_writing(self) -> None:
        """Keeps only the fences in memory. All entries must have been written."""
        assert self._keys is not None
        assert self._written == self._count
        self.fences = self._keys[::BLOCK_ENTRIES]
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
        if self._keys is None and not self.fences:
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
        data = self._file.pread(size, (count - 1) * size)
        key, value = self._entry.unpack(data)
        return key, value

    def floor(self, key: int) -> tuple[int, int]:
        """The last entry whose key is not above `key`, or (-1, -1)."""
        if self._keys is not None:
            found = bisect_right(self._keys, key)
            return (self._keys[found - 1], self._values[found - 1]) if found else NOTHING
        block = self.block(key + 1)
        count = len(block) // self.PARTS
        found = bisect_right(block, key, 0, count)
        return (block[found - 1], block[count + found - 1]) if found else NOTHING

    def ceiling(self, key: int) -> tuple[int, int]:
        """The first entry whose key is not below `key`, or (-1, -1)."""
        if self._keys is not None:
            found = bisect_left(self._keys, key)
            return (self._keys[found], self._values[found]) if found < self._count else NOTHING
        block = self.block(key)
        count = len(block) // self.PARTS
        found = bisect_left(block, key, 0, count)
        return (block[found], block[count + found]) if found < count else NOTHING

    def block(self, key: int) -> Block:
        """Of a closed segment: entries among which are the last below `key` and the first that is
        not. Whoever cannot wait for this call looks at `blocks` and `fences` in the same way."""
        number = bisect_left(self.fences or self._find_fences(), key, 1) - 1
        try:
            return self.blocks[number]
        except KeyError:
            return self._read_block(number)

    def _read_block(self, number: int) -> Block:
        first, size = number * BLOCK_ENTRIES, self._entry.size
        count = max(0, min(BLOCK_ENTRIES + 1, self._count - first))
        data = self._file.pread(count * size, first * size)
        if len(data) < count * size:
            raise BadValue(f"{self._file.path}: it has become shorter than {self._count} entries")
        keys, values = columns(data, self._entry)
        block = array(keys.typecode.upper(), keys.tobytes())
        block.extend(array(block.typecode, values))
        block.extend(array(block.typecode, bytes((self.PARTS - 2) * count * block.itemsize)))
        self.blocks[number] = block
        self._files.count_block(self.blocks)
        return block

    def entries(self) -> list[tuple[int, int]]:
        keys, values = (self._keys, self._values) if self._keys is not None else self._read()
        return list(zip(keys, values, strict=True))

    def _find_fences(self) -> Numbers:
        keys, _ = self._read()
        self._count = self._written = len(keys)
        self.fences = keys[::BLOCK_ENTRIES]
        return self.fences

    def _read(self) -> tuple[Numbers, Numbers]:
        size = self._file.get().size()
        return checked_columns(self._file.path, self._file.pread(size, 0), self._entry)

    def _use(self, keys: Numbers, values: Numbers) -> None:
        self._keys = array("q", keys)
        self._values = array("q", values)
        self.fences = array("q")
        self.blocks.clear()
        self._count = self._written = len(keys)


class OffsetIndex(SparseIndex):
    """Its blocks have, behind the positions, the size of the batch that was seen there, if every
    offset from behind the entry before is in it; otherwise 0. So have the entries of the active
    segment, if this process has appended the batch."""

    PARTS = OFFSET_PARTS

    __slots__ = ("_sizes",)

    def __init__(self, files: OpenFiles, path: str) -> None:
        super().__init__(files, path, OFFSET_ENTRY)
        self._sizes: Numbers = array("I")

    def append(self, key: int, value: int, size: int = 0) -> None:
        super().append(key, value)
        self._sizes.append(size)

    def truncate(self, count: int) -> None:
        super().truncate(count)
        del self._sizes[count:]

    def close_for_writing(self) -> None:
        super().close_for_writing()
        self._sizes = array("I")

    def _use(self, keys: Numbers, values: Numbers) -> None:
        super()._use(keys, values)
        self._sizes = array("I", bytes(len(keys) * self._sizes.itemsize))

    def batch_at(self, key: int) -> tuple[int, int] | None:
        """Of the active segment: position and size of the batch that reaches a relative offset, if
        they are known."""
        assert self._keys is not None
        found = bisect_left(self._keys, key)
        size = self._sizes[found] if found < self._count else 0
        return (self._values[found], size) if size else None

    def around(self, key: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of the active segment: the last entry below a relative offset and the first that is
        not."""
        keys, values = self._keys, self._values
        assert keys is not None
        found = bisect_left(keys, key)
        return (
            (keys[found - 1], values[found - 1]) if found else NOTHING,
            (keys[found], values[found]) if found < len(keys) else NOTHING,
        )
