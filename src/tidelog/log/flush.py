"""What has to be synced to make a log durable up to an offset.

Waiting and renaming are apart, so that only the loop ever changes names: `sync_files` and
`sync_folder` do nothing but wait, `rename` is quick. What lies below the recovery point is
durable, the leader epochs it was written in too. A log has one flush under way at a time.
"""

from dataclasses import dataclass, field

from tidelog.base.ports import Disk, File
from tidelog.log.checkpoints import LEADER_EPOCHS
from tidelog.log.files import TEMPORARY, write_temporary


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
            write_temporary(self.disk, self._epochs_path, self.epochs)

    def rename(self) -> None:
        if self.epochs is not None:
            self.disk.rename(self._epochs_path + TEMPORARY, self._epochs_path)

    @property
    def has_new_names(self) -> bool:
        return self.names_changed or self.epochs is not None

    def sync_folder(self) -> None:
        self.disk.sync_folder(self.folder)
