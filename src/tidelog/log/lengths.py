"""Lengths of batches that have rotted in what was durable, found again by checksum (F12).

A batch's length lies outside its checksum, and without it what comes behind cannot be found: a
start would have to cut all of that off. But the checksum is that of the bytes up to the end of the
batch and no further, and there the next one begins. So the end is looked for, and the length is
written back as it was. Somebody may have made up records that look like the end of their batch with
another behind it: where two places fit, neither is believed.
"""

import re
from collections.abc import Iterator
from struct import Struct
from typing import Final

from tidelog.base.errors import KafkaError
from tidelog.base.ports import File
from tidelog.log.scan import CHUNK_BYTES, Place
from tidelog.records.batch import (
    CRC_START,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    check_stored,
    read_header,
)
from tidelog.records.checksum import crc32c

BATCH_BYTES_MAX: Final = 128 << 20
"""The end of a batch is looked for within these."""

_OFFSET: Final = Struct(">q")
_LENGTH: Final = Struct(">i")
_LENGTH_POSITION: Final = 8


def restore_lengths(file: File, position: int, end: int, place: Place) -> int:
    """Goes from batch to batch, as far as they were durable; how many lengths were wrong and are
    right again, durably. Where one cannot be found it stops."""
    restored, expected = 0, place.expected_offset
    while expected < place.trusted_upto and position + HEADER_SIZE <= end:
        header = read_header(file.pread(HEADER_SIZE, position))
        size = header.size
        if not _leads_on(file, position, size, end):
            size = _size_by_checksum(file, position, end, header, place, expected)
            if not size:
                break
            file.pwrite(_LENGTH.pack(size - LENGTH_OVERHEAD), position + _LENGTH_POSITION)
            restored += 1
        position += size
        expected = max(expected, header.next_offset)
    if restored:
        file.sync()
    return restored


def _leads_on(file: File, position: int, size: int, end: int) -> bool:
    """Whether a length is right: the batch is good, or one is where it says that the next begins;
    then it is something else that has rotted."""
    if not HEADER_SIZE <= size <= min(end - position, BATCH_BYTES_MAX):
        return False
    if _is_good(file.pread(size, position)):
        return True
    return position + size < end and _begins_at(file, position + size, end)


def _begins_at(file: File, position: int, end: int) -> bool:
    """Whether a good batch begins there, or nothing at all."""
    if position == end:
        return True
    start = file.pread(HEADER_SIZE, position)
    if len(start) < HEADER_SIZE:
        return False
    size = read_header(start).size
    is_possible = HEADER_SIZE <= size <= min(end - position, BATCH_BYTES_MAX)
    return is_possible and _is_good(file.pread(size, position))


def _is_good(data: bytes) -> bool:
    try:
        check_stored(data)
    except KafkaError:
        return False
    return True


def _size_by_checksum(
    file: File, position: int, end: int, header: BatchHeader, place: Place, expected: int
) -> int:
    """The only one with which a batch fits its checksum and another follows; 0 if there is none."""
    if header.magic != MAGIC or not place.takes(header, expected):
        return 0
    found, crc, done = 0, 0, position + CRC_START
    offsets = header.next_offset, place.trusted_upto
    for at in _ends(file, position + HEADER_SIZE, min(end, position + BATCH_BYTES_MAX), offsets):
        crc, done = _checksum(file, done, at, crc), at
        if crc == header.crc and _begins_at(file, at, end):
            if found:
                return 0
            found = at - position
    return found


def _ends(file: File, position: int, end: int, offsets: tuple[int, int]) -> Iterator[int]:
    """Where a batch may begin whose first offset is one of these; and the end itself."""
    first, last = offsets
    changing = ((first ^ last).bit_length() + 7) // 8
    known = _OFFSET.pack(first)[: _OFFSET.size - changing]
    rest = MAGIC_POSITION - len(known)
    start = re.compile(b"(?=%b.{%d}%c)" % (re.escape(known), rest, MAGIC), re.DOTALL)
    while position < end:
        data = file.pread(min(CHUNK_BYTES + MAGIC_POSITION, end - position), position)
        for match in start.finditer(data):
            if first <= _OFFSET.unpack_from(data, match.start())[0] <= last:
                yield position + match.start()
        position += CHUNK_BYTES
    yield end


def _checksum(file: File, position: int, end: int, crc: int) -> int:
    while position < end:
        piece = file.pread(min(CHUNK_BYTES, end - position), position)
        if not piece:
            return crc
        crc = crc32c(piece, crc)
        position += len(piece)
    return crc
