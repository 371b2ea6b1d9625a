"""Noting in files, in steps, that leader epochs have begun in the logs of a dir.

Nobody waits for it and nothing is synced: it spares a start after a crash of the process alone
from looking at everything since the last flush. The files are written beside the old ones and then
renamed. A truncation writes epochs at once, and takes away what is about to be renamed: so older
ones cannot come after its own.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.base.errors import BadValue
from tidelog.base.ports import Disk
from tidelog.log.checkpoints import (
    LEADER_EPOCHS,
    LEADER_EPOCHS_UNSYNCED,
    format_epochs,
    parse_epochs,
)
from tidelog.log.epochs import LeaderEpochs
from tidelog.log.files import FLUSHING, TEMPORARY, read_whole, write_temporary
from tidelog.log.log_files import LogFiles
from tidelog.log.steps import Steps

if TYPE_CHECKING:
    from tidelog.log.log_dir import LogDir


def noting_epochs(log_dir: "LogDir") -> Steps:
    """For the logs in `new_epochs`. Between the two waits, those that were cut drop out."""
    logs, log_dir.new_epochs = list(log_dir.new_epochs), {}
    begun = {log: log.truncations for log in logs if not log.is_gone}
    data = {log: format_epochs(log.epochs.entries) for log in begun}
    if log_dir.failure is not None or not begun:
        return

    def write() -> None:
        for log in begun:
            write_temporary(log_dir.disk, _path(log), data[log], durable=False)

    def put_in_place() -> None:
        for log in whole:
            with suppress(FileNotFoundError):
                log_dir.disk.rename(_path(log) + TEMPORARY, _path(log))

    try:
        yield write
        whole = [log for log, truncations in begun.items() if log.truncations == truncations]
        yield put_in_place
    except OSError as error:
        raise log_dir.fail(error) from error


def latest_noted(disk: Disk, folder: str, names: Iterable[str]) -> LeaderEpochs | None:
    """What the file says that was written last; None if none of them can be read. A flush may have
    known of an epoch whose note was still to be written: it is later where the latest epoch is."""
    noted: list[LeaderEpochs] = []
    for name in names:
        path = f"{folder}/{name}"
        with suppress(BadValue, FileNotFoundError):
            epochs = LeaderEpochs(parse_epochs(path, read_whole(disk, path)))
            epochs.changed = name == LEADER_EPOCHS_UNSYNCED
            noted.append(epochs)
    return max(noted, key=lambda epochs: epochs.latest, default=None)


def forget_pending(log: LogFiles) -> None:
    """Whatever is about to become the epochs of a log does not, wherever it is written."""
    for name in (LEADER_EPOCHS_UNSYNCED, LEADER_EPOCHS + FLUSHING):
        with suppress(FileNotFoundError):
            log.disk.remove(f"{log.folder}/{name}{TEMPORARY}")


def _path(log: LogFiles) -> str:
    return f"{log.folder}/{LEADER_EPOCHS_UNSYNCED}"
