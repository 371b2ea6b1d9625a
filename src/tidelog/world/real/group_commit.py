"""A journal that is written and synced beside the loop, many records at a time.

What is appended while nothing is under way is written at the end of the turn; what is appended
while the disk works waits, and goes with the next sync, all of it. One frame holds all records
of one sync. After the first error nothing is written any more: of a sync that failed, nobody
can say what is on the disk.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from tidelog.base.ports import File, Loop
from tidelog.world.znode_files import OpenJournal
from tidelog.world.znode_frames import frame

LANE: Final = "journal"


class GroupCommit:
    def __init__(self, loop: Loop, journal: OpenJournal, progress: Callable[[], None]) -> None:
        self._loop = loop
        self._file = journal.file
        self._progress = progress
        self._waiting: list[bytes] = []
        self._is_scheduled = False
        self._is_writing = False
        self.size = journal.size
        self.appended = 0
        """How many records there are, and how many of them nobody can lose any more."""
        self.durable = 0
        self.failure: Exception | None = None

    @property
    def is_idle(self) -> bool:
        return self.appended == self.durable or self.failure is not None

    def append(self, record: bytes) -> None:
        """Takes a record; `progress` is called when more are durable, or never will be."""
        assert self.failure is None, "nothing is written after an error"
        self._waiting.append(record)
        self.appended += 1
        if not self._is_scheduled and not self._is_writing:
            self._is_scheduled = True
            self._loop.call_soon(self._write)

    def go_on_in(self, journal: OpenJournal) -> None:
        """All that was appended is durable and in a snapshot: the next record begins a file."""
        assert self.is_idle
        self._file.close()
        self._file, self.size = journal

    def fail(self, failure: Exception) -> None:
        self.failure = failure
        self._progress()

    def close(self) -> None:
        self._file.close()

    def _write(self) -> None:
        self._is_scheduled = False
        self._is_writing = True
        count = len(self._waiting)
        data = frame(b"".join(self._waiting), self.size)
        self._waiting.clear()
        work = partial(_write_and_sync, self._file, data, self.size)
        self._loop.offload(LANE, work, partial(self._written, count, len(data)))

    def _written(self, count: int, size: int, result: Exception | None) -> None:
        self._is_writing = False
        if result is not None:
            self.fail(result)
            return
        self.size += size
        self.durable += count
        if self._waiting:
            self._write()
        self._progress()


def _write_and_sync(file: File, data: bytes, position: int) -> None:
    file.pwrite(data, position)
    file.sync()
