"""Reading a segment file from front to back in bounded memory, and saying why it ends.

`LogWalk` yields the batches of a `.log` file and trusts nothing: not their lengths, not that
the file is a log at all. When it is through, `problem` says where and why it had to stop, and
`zero_bytes` how many never-written bytes it found at the end, which is no problem: files that
were preallocated, or that were being written when the machine went down, look like that.
"""

from collections.abc import Iterator
from typing import Final

from tidelog.base.limits import DECOMPRESSED_BYTES_MAX
from tidelog.base.ports import File
from tidelog.records.batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    bad_magic,
)
from tidelog.records.checksum import crc32c

CHUNK_BYTES: Final = 1 << 20
BATCH_BYTES_MAX: Final = DECOMPRESSED_BYTES_MAX
"""A larger batch is still checked, in pieces, but its records are not looked at."""


class LogWalk:
    """`bodies=False` looks at headers only and leaps over what does not fit into a chunk."""

    def __init__(self, file: File, *, end: int | None = None, bodies: bool = True) -> None:
        self._file = file
        self._end = file.size() if end is None else min(end, file.size())
        self._bodies = bodies
        self.position = 0
        self.zero_bytes = 0
        self.problem: str | None = None

    @property
    def left_bytes(self) -> int:
        return self._end - self.position

    def __iter__(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Headers with the bytes of the whole batch; `position` is where it starts. The bytes
        are empty for a batch above BATCH_BYTES_MAX, and where only headers are wanted."""
        chunk, chunk_start, end = memoryview(b""), 0, self._end
        unpack, make = HEADER.unpack_from, BatchHeader._make
        position = self.position
        while position < end:
            at = position - chunk_start
            if at + HEADER_SIZE > len(chunk):
                chunk_start, at, chunk = position, 0, self._read(CHUNK_BYTES)
            if len(chunk) - at < HEADER_SIZE:
                return self._stop(None)
            header = make(unpack(chunk, at))
            size = LENGTH_OVERHEAD + header.length
            if header.magic != MAGIC or size < HEADER_SIZE or position + size > end:
                return self._stop(header)
            if not self._bodies or size > BATCH_BYTES_MAX:
                yield header, chunk[:0]
            else:
                if at + size > len(chunk):
                    chunk_start, at, chunk = position, 0, self._read(max(CHUNK_BYTES, size))
                yield header, chunk[at : at + size]
            self.position = position = position + size
        return None

    def _read(self, size: int) -> memoryview:
        return memoryview(self._file.pread(min(size, self.left_bytes), self.position))

    def _stop(self, header: BatchHeader | None) -> None:
        if only_zeros(self._file, self.position, self._end):
            self.zero_bytes = self.left_bytes
            return
        self.problem = f"{self._why(header)} at position {self.position}"
        if self.position == 0 and (header is None or not 0 <= header.magic <= MAGIC):
            self.problem += ": this is not a log of record batches"

    def _why(self, header: BatchHeader | None) -> str:
        if header is None:
            return f"{self.left_bytes} bytes are too few for a batch header of {HEADER_SIZE}"
        if header.magic != MAGIC:
            return bad_magic(header.magic).message
        if header.size < HEADER_SIZE:
            return f"a batch claims {header.size} bytes, fewer than its header of {HEADER_SIZE},"
        return (
            f"the batch of offsets {header.base_offset} to {header.last_offset} has "
            f"{header.size} bytes, of which {self.left_bytes} are there,"
        )


def crc_in_pieces(file: File, position: int, size: int) -> int:
    """The CRC-32C of a batch too large to be held in memory."""
    crc = 0
    at, end = position + CRC_START, position + size
    while at < end:
        piece = file.pread(min(CHUNK_BYTES, end - at), at)
        if not piece:
            break
        crc = crc32c(piece, crc)
        at += len(piece)
    return crc


def only_zeros(file: File, position: int, end: int) -> bool:
    while position < end:
        piece = file.pread(min(CHUNK_BYTES, end - position), position)
        if not piece or piece.count(0) != len(piece):
            return False
        position += len(piece)
    return True


def header_at(file: File, position: int) -> BatchHeader | None:
    """The header of the batch that starts at `position`, if one can."""
    data = file.pread(HEADER_SIZE, position)
    if len(data) < HEADER_SIZE:
        return None
    header = BatchHeader._make(HEADER.unpack(data))
    return header if header.magic == MAGIC and header.size >= HEADER_SIZE else None
