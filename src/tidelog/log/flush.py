"""Making a log durable, in three steps, so that the loop never waits for a disk.

`PartitionLog.begin_flush` collects what is to be synced, `Flush.run` does nothing but wait in
system calls and may run in a thread, `PartitionLog.end_flush` moves the recovery point. What
lies below the recovery point is durable, the leader epochs it was written in too. A log has one
flush under way at a time, and none while it is truncated.
"""

from dataclasses import dataclass, field

from tidelog.base.ports import Disk, File
from tidelog.log.checkpoints import LEADER_EPOCHS
from tidelog.log.files import write_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    disk: Disk
    folder: str
    upto: int
    truncations: int
    files: list[File] = field(default_factory=list)
    names_changed: bool = False
    epochs: bytes | None = None

    def run(self) -> None:
        for file in self.files:
            file.sync()
        if self.names_changed:
            self.disk.sync_folder(self.folder)
        if self.epochs is not None:
            write_whole(self.disk, f"{self.folder}/{LEADER_EPOCHS}", self.epochs)
