"""The batches of a fetch answer, seen from outside: where they end, and that they are good."""

from struct import Struct
from typing import Final, NamedTuple

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.records.arrays import numbers
from tidelog.records.batch import (
    CRC_START,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    OFFSET_AND_LENGTH,
    bad_magic,
)
from tidelog.records.checksum import crc32c
from tidelog.records.native import walk_good

_UP_TO_DELTA: Final = Struct(">qiibIhi")


class Walked(NamedTuple):
    size: int
    """Of the whole batches that begin before the end that was given."""
    next_offset: int
    """Behind the last of them; the end itself if a batch behind it was seen."""
    cut_bytes: int
    """The size of a batch that is cut off; 0 if none is, or it is not known."""


def walk_batches(data: memoryview, next_offset: int, end: int) -> Walked:
    """Checks the batches of `data` one by one, as far as they are whole and begin before `end`.
    The first must reach `next_offset`; they may leave gaps, but never go back."""
    following = numbers(next_offset)
    # What is left is the batch that ends the walk, and why it does.
    at, total = walk_good(data, end, following), len(data)
    next_offset = following[0]
    unpack = _UP_TO_DELTA.unpack_from
    while total - at >= HEADER_SIZE:
        base, length, _, magic, crc, _, delta = unpack(data, at)
        stop = at + LENGTH_OVERHEAD + length
        if magic != MAGIC:
            raise bad_magic(magic)
        reached = base if at else base + delta
        if stop - at < HEADER_SIZE or delta < 0 or reached < next_offset:
            raise _corrupt(f"a batch of {stop - at} bytes at offset {base} after {next_offset}")
        if base >= end:
            return Walked(at, end, 0)
        if stop > total:
            return Walked(at, next_offset, stop - at)
        if crc32c(data[at + CRC_START : stop]) != crc:
            raise _corrupt(f"the CRC-32C of the batch at offset {base} does not match its content")
        next_offset = base + delta + 1
        at = stop
    return Walked(at, next_offset, _size_at(data, at))


def _size_at(data: memoryview, at: int) -> int:
    """As far as it can be seen from the beginning of a header."""
    if len(data) - at < OFFSET_AND_LENGTH.size:
        return 0
    _, length = OFFSET_AND_LENGTH.unpack_from(data, at)
    return LENGTH_OVERHEAD + int(length)


def _corrupt(message: str) -> KafkaError:
    return KafkaError(ErrorCode.corrupt_message, message)
