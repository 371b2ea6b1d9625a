"""Reading the checkpoints of a log dir, and writing them in steps, so that the loop never waits for
a disk.

The new files are written beside the old ones and then renamed, unless somebody who does not go in
steps has written checkpoints meanwhile, as a truncation does: what was collected before that must
not replace it. Whoever writes at once takes the file away that is about to be renamed; so
nothing older can come after it, whichever is first.

A file that has rotted counts as lost, and what is in the log counts then. Without recovery points
more is checked, without offsets of the cleaner more is compacted again. A high watermark that is
not known is the log start: nothing is served as committed that may not be. Only where a log starts
is not in the log, if somebody had records deleted from the middle of a segment: they would be back.
So that is written down twice.
"""

import logging
from typing import TYPE_CHECKING

from tidelog.base.errors import BadValue
from tidelog.base.ids import TopicPartition
from tidelog.log.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    LOG_STARTS_COPY,
    RECOVERY_POINTS,
    format_offsets,
    read_offsets,
)
from tidelog.log.files import CHECKPOINTING, TEMPORARY, write_temporary
from tidelog.log.partition_log import PartitionLog
from tidelog.log.steps import Steps

if TYPE_CHECKING:
    from tidelog.log.log_dir import LogDir

Offsets = dict[TopicPartition, int]

_log = logging.getLogger(__name__)


def read_checkpoints(log_dir: "LogDir") -> None:
    """Takes over what the files say. Those that cannot be believed are named."""
    for name, offsets in log_dir.all_offsets().items():
        found = _read(log_dir, name)
        if found is None and name == LOG_STARTS:
            found = _read(log_dir, LOG_STARTS_COPY)
        offsets.update(found or {})


def _read(log_dir: "LogDir", name: str) -> Offsets | None:
    try:
        return read_offsets(log_dir.disk, f"{log_dir.path}/{name}")
    except BadValue as error:
        _log.error("lost checkpoint=%s why=%s", name, error)
        log_dir.unreadable.append(name)
        return None


def noted_start(log: PartitionLog) -> int:
    """Where a log is said to start. What has been lost at its front is not said to be deleted:
    whoever looks at the files later, the next start or an audit, shall see it too."""
    return log.log_start_offset if log.lost_from is None else log.lost_from


def checkpointing(log_dir: "LogDir") -> Steps:
    """Writes those checkpoints that differ from what the files hold, and settles the names of
    replicas that were deleted."""
    if log_dir.failure is not None:
        return
    before = log_dir.checkpoints_written
    starts = {partition: log.log_start_offset for partition, log in log_dir.logs.items()}
    noted = {partition: noted_start(log) for partition, log in log_dir.logs.items()}
    points = {partition: log.recovery_point for partition, log in log_dir.logs.items()}
    renamed = [partition for partition, is_done in log_dir.unsettled.items() if is_done]
    contents = _contents(log_dir, noted, points)
    changed = {name: data for name, data in contents.items() if log_dir.written.get(name) != data}
    if not changed and not renamed:
        return
    try:
        yield lambda: _write_temporary(log_dir, changed, sync_names=bool(renamed))
        if log_dir.checkpoints_written == before:
            yield lambda: _put_in_place(log_dir, changed)
    except OSError as error:
        is_expected = isinstance(error, FileNotFoundError) and log_dir.checkpoints_written != before
        if not is_expected:
            raise log_dir.fail(error) from error
    if log_dir.checkpoints_written != before:
        log_dir.written.clear()
        return
    log_dir.written.update(changed)
    for partition in renamed:
        log_dir.unsettled.pop(partition, None)
    for partition, log in log_dir.logs.items():
        if partition in points:
            log.durable_recovery_point = points[partition]
            log.log_start_is_durable(starts[partition])


def lower_offsets(log_dir: "LogDir", partition: TopicPartition, to: int) -> None:
    """A log is about to be cut: what is appended there afterwards is neither compacted nor
    committed, also if this process dies before the next checkpoint."""
    if log_dir.cleaner_offsets.get(partition, 0) > to:
        log_dir.cleaner_offsets[partition] = to
        log_dir.persist_cleaner_offsets()
    if log_dir.high_watermarks.get(partition, 0) > to:
        log_dir.high_watermarks[partition] = to
        log_dir.persist_high_watermarks()


def lower_to_ends(log_dir: "LogDir") -> None:
    """The same for the logs of a dir that was just opened, whose ends may have been lost; and what
    is appended there is not durable either."""
    if any(log.recovery_point < log.durable_recovery_point for log in log_dir.logs.values()):
        log_dir.persist_recovery_points()
    for offsets, persist in (
        (log_dir.cleaner_offsets, log_dir.persist_cleaner_offsets),
        (log_dir.high_watermarks, log_dir.persist_high_watermarks),
    ):
        lost = {
            partition: log.log_end_offset
            for partition, log in log_dir.logs.items()
            if offsets.get(partition, 0) > log.log_end_offset
        }
        if lost:
            offsets.update(lost)
            persist()


def _contents(log_dir: "LogDir", starts: Offsets, points: Offsets) -> dict[str, bytes]:
    log_dir.log_starts.update(starts)
    log_dir.recovery_points.update(points)
    log_starts = format_offsets({p: start for p, start in log_dir.log_starts.items() if start})
    return {
        RECOVERY_POINTS: format_offsets(log_dir.recovery_points),
        LOG_STARTS: log_starts,
        LOG_STARTS_COPY: log_starts,
        HIGH_WATERMARKS: format_offsets(log_dir.high_watermarks),
        CLEANER_OFFSETS: format_offsets(log_dir.cleaner_offsets),
    }


def _write_temporary(log_dir: "LogDir", contents: dict[str, bytes], *, sync_names: bool) -> None:
    """A replica that comes back because its other name was lost must not do so without what the
    checkpoints said of it."""
    if sync_names:
        log_dir.disk.sync_folder(log_dir.path)
    for name, data in contents.items():
        write_temporary(log_dir.disk, f"{log_dir.path}/{name}{CHECKPOINTING}", data)


def _put_in_place(log_dir: "LogDir", names: dict[str, bytes]) -> None:
    for name in names:
        path = f"{log_dir.path}/{name}"
        log_dir.disk.rename(path + CHECKPOINTING + TEMPORARY, path)
    log_dir.disk.sync_folder(log_dir.path)
