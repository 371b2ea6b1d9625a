"""What has to be synced to make a log durable up to an offset.

It goes in two waits, between which the loop sees whether the log was cut: `sync_files`, then
`put_in_place`, which gives the leader epochs their name. A truncation writes epochs at once; it
takes away the file that is about to be renamed, so that older ones cannot come after its own. What
lies below the recovery point is durable, the leader epochs it was written in too. A log has
one flush under way at a time.

Files are opened one after the other: many segments may have been closed since the last time. One
that is gone by then has left the log, or compaction has put a durable one in its place.
"""

from contextlib import suppress
from dataclasses import dataclass, field

from tidelog.base.ports import Disk, File
from tidelog.log.checkpoints import LEADER_EPOCHS
from tidelog.log.files import (
    FLUSHING,
    SEGMENT_KINDS,
    SNAPSHOT,
    TEMPORARY,
    TXN_INDEX,
    file_name,
    write_temporary,
)
from tidelog.log.segment import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    disk: Disk
    folder: str
    upto: int
    truncations: int
    active: File
    paths: list[str] = field(default_factory=list)
    """Of what there may be besides: closed segments, and what belongs to them."""
    names_changed: bool = False
    epochs: bytes | None = None

    @property
    def _epochs_path(self) -> str:
        return f"{self.folder}/{LEADER_EPOCHS}"

    def sync_files(self) -> None:
        self.active.sync()
        for path in self.paths:
            with suppress(FileNotFoundError):
                file = self.disk.open(path, "write")
                file.sync()
                file.close()
        if self.epochs is not None:
            write_temporary(self.disk, self._epochs_path + FLUSHING, self.epochs)

    @property
    def has_new_names(self) -> bool:
        return self.names_changed or self.epochs is not None

    def put_in_place(self) -> None:
        if self.epochs is not None:
            self.disk.rename(self._epochs_path + FLUSHING + TEMPORARY, self._epochs_path)
        self.disk.sync_folder(self.folder)


def paths_to_sync(segment: Segment) -> list[str]:
    """A closed segment's indexes too: nobody makes them again after the next crash."""
    kinds = SEGMENT_KINDS if segment.file is None else (TXN_INDEX,)
    snapshot = f"{segment.folder}/{file_name(segment.base_offset, SNAPSHOT)}"
    return [*(segment.path(kind) for kind in kinds), snapshot]
