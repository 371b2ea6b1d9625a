"""What has to be synced to make a log durable up to an offset.

It goes in two waits, between which the loop sees whether the log was cut: `sync_files`, then
`put_in_place`, which gives the leader epochs their name. A truncation writes epochs at once; it
takes away the file that is about to be renamed, so that older ones cannot come after its own. What
lies below the recovery point is durable, the leader epochs it was written in too. A log has
one flush under way at a time.
"""

from dataclasses import dataclass, field

from tidelog.base.ports import Disk, File
from tidelog.log.checkpoints import LEADER_EPOCHS
from tidelog.log.files import FLUSHING, TEMPORARY, write_temporary


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    disk: Disk
    folder: str
    upto: int
    truncations: int
    files: list[File] = field(default_factory=list)
    names_changed: bool = False
    epochs: bytes | None = None

    @property
    def _epochs_path(self) -> str:
        return f"{self.folder}/{LEADER_EPOCHS}"

    def sync_files(self) -> None:
        for file in self.files:
            file.sync()
        if self.epochs is not None:
            write_temporary(self.disk, self._epochs_path + FLUSHING, self.epochs)

    @property
    def has_new_names(self) -> bool:
        return self.names_changed or self.epochs is not None

    def put_in_place(self) -> None:
        if self.epochs is not None:
            self.disk.rename(self._epochs_path + FLUSHING + TEMPORARY, self._epochs_path)
        self.disk.sync_folder(self.folder)
