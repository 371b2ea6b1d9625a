"""What has to be made on disk for a snapshot of the producers, and for a new segment.

Making files can wait for the file system's journal as long as a large write waits for the disk.
So each `run` here does nothing else, and may run in a thread, between `LogFiles.begin_...` and
`end_...`.
"""

from contextlib import suppress
from dataclasses import dataclass

from tidelog.base.ports import Disk
from tidelog.log.files import SNAPSHOTTING, TEMPORARY, write_temporary, write_whole
from tidelog.log.index import Lot
from tidelog.log.segment import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The producers as they were when a log ended at an offset."""

    disk: Disk
    offset: int
    position: int
    """Where in the active segment that was."""
    path: str
    data: bytes
    superfluous: str | None
    """An earlier one from the middle of the segment, of no use once there is this one."""

    def run(self, *, durable: bool = False) -> None:
        write_whole(self.disk, self.path, self.data, durable=durable)
        self._remove_superfluous()

    def write_beside(self) -> None:
        """The same in two waits, while a roll at the same offset may write the same file. A
        truncation takes this one away before it gets its name: else it would outlive a process that
        dies then, and pass for that of the log which has grown there since."""
        write_temporary(self.disk, self.path + SNAPSHOTTING, self.data, durable=False)

    @property
    def beside(self) -> str:
        return self.path + SNAPSHOTTING + TEMPORARY

    def put_in_place(self) -> None:
        self.disk.rename(self.beside, self.path)
        self._remove_superfluous()

    def _remove_superfluous(self) -> None:
        if self.superfluous is not None:
            # A roll and a snapshot may be under way at once: the other one may be quicker.
            with suppress(FileNotFoundError):
                self.disk.remove(self.superfluous)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roll:
    ending: Segment
    lots: list[Lot]
    """What its indexes have in memory only."""
    snapshot: Snapshot
    segment: Segment

    def run(self) -> None:
        self.ending.give_back()
        for lot in self.lots:
            lot.run()
        self.snapshot.run()
        self.segment.create(self.snapshot.disk)
