"""Feeding a segment file to kernels, a large piece at a time.

A kernel works through the batches that are whole in its buffer and leaves in `stop` where
and why it stopped. `walk` reads the next piece from there, a larger one for a batch that does
not fit, and raises for damage, naming file and position; everything else a kernel stops
for is the business of the pass it belongs to.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.base.ports import File
from tidelog.records.arrays import Int64s
from tidelog.records.batch import HEADER_SIZE, LENGTH_OVERHEAD, OFFSET_AND_LENGTH
from tidelog.records.stops import AT, BAD_RECORDS, DONE, INCOMPLETE, PROBLEMS, REASON

CHUNK_BYTES: Final = 1 << 20
NOT_AS_SAID: Final = "the records are not what the batch header says"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A segment file, up to the size that is known to belong to it."""

    path: str
    file: File
    size: int

    def read(self, position: int, wanted: int) -> memoryview:
        size = min(wanted, self.size - position)
        data = self.file.pread(size, position)
        if len(data) < size:
            raise damaged(self.path, position + len(data), "the file ends here, too early")
        return memoryview(data)


class Pass(Protocol):
    """One way of going through a segment."""

    stop: Int64s

    def run(self, buffer: memoryview, position: int) -> None:
        """Calls the kernel. `position` is where in the file the buffer begins."""

    def resume(self, buffer: memoryview, position: int) -> bool:
        """Deals with what the kernel stopped for; false to go no further. A `KafkaError` says
        what is wrong with the batch at `stop[AT]`."""


def damaged(path: str, position: int, problem: str) -> BadValue:
    return BadValue(f"{path}: at position {position}: {problem}")


def bad_records() -> KafkaError:
    return KafkaError(ErrorCode.invalid_record, NOT_AS_SAID)


def walk(source: Source, passing: Pass) -> bool:
    """Goes through a whole segment; false if the pass wanted no more."""
    position = 0
    wanted = CHUNK_BYTES
    stop = passing.stop
    while position < source.size:
        buffer = source.read(position, wanted)
        stop[AT] = 0
        if not _work_through(source, passing, buffer, position):
            return False
        position += stop[AT]
        wanted = _wanted(source, buffer, stop[AT], position)
        # Before the next one is read, which then goes to the same memory.
        del buffer
    return True


def _work_through(source: Source, passing: Pass, buffer: memoryview, position: int) -> bool:
    """Runs the kernel until the buffer has no whole batch left; false to go no further."""
    while True:
        passing.run(buffer, position)
        reason = passing.stop[REASON]
        if reason in (DONE, INCOMPLETE):
            return True
        at = position + passing.stop[AT]
        if reason in PROBLEMS:
            raise damaged(source.path, at, PROBLEMS[reason])
        if reason == BAD_RECORDS:
            raise damaged(source.path, at, NOT_AS_SAID)
        try:
            if not passing.resume(buffer, position):
                return False
        except KafkaError as error:
            raise damaged(source.path, at, error.message) from error


def _wanted(source: Source, buffer: memoryview, at: int, position: int) -> int:
    """How much to read next: enough for the batch that did not fit."""
    left = source.size - position
    if left == 0 or at + HEADER_SIZE > len(buffer):
        if left and left <= len(buffer) - at:
            raise damaged(source.path, position, PROBLEMS[INCOMPLETE])
        return CHUNK_BYTES
    size: int = LENGTH_OVERHEAD + OFFSET_AND_LENGTH.unpack_from(buffer, at)[1]
    if size > left:
        raise damaged(source.path, position, PROBLEMS[INCOMPLETE])
    return max(CHUNK_BYTES, size)
