"""Writing the checkpoints of a log dir in steps, so that the loop never waits for a disk.

The new files are written beside the old ones and renamed in the loop, unless somebody has
written checkpoints meanwhile, as the deletion of a topic does: what was collected before that
must not replace it.
"""

from typing import Final

from tidelog.base.ids import TopicPartition
from tidelog.log.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    format_offsets,
)
from tidelog.log.files import TEMPORARY, write_temporary
from tidelog.log.log_dir import LogDir
from tidelog.log.steps import Steps

Offsets = dict[TopicPartition, int]

CHECKPOINTING: Final = ".checkpointing"
"""Keeps these temporary files apart from those of somebody who does not go in steps."""


def checkpointing(log_dir: LogDir, written: dict[str, bytes]) -> Steps:
    """Writes those checkpoints that differ from `written`, which is what the files hold."""
    if log_dir.failure is not None:
        return
    before = log_dir.checkpoints_written
    starts = {partition: log.log_start_offset for partition, log in log_dir.logs.items()}
    points = {partition: log.recovery_point for partition, log in log_dir.logs.items()}
    contents = _contents(log_dir, starts, points)
    changed = {name: data for name, data in contents.items() if written.get(name) != data}
    if not changed:
        return
    try:
        yield lambda: _write_temporary(log_dir, changed)
        if log_dir.checkpoints_written != before:
            written.clear()
            return
        for name in changed:
            path = f"{log_dir.path}/{name}"
            log_dir.disk.rename(path + CHECKPOINTING + TEMPORARY, path)
        yield lambda: log_dir.disk.sync_folder(log_dir.path)
    except OSError as error:
        raise log_dir.fail(error) from error
    if log_dir.checkpoints_written != before:
        written.clear()
        return
    written.update(changed)
    for partition, log in log_dir.logs.items():
        if partition in points:
            log.durable_recovery_point = points[partition]
            log.durable_log_start = starts[partition]


def _contents(log_dir: LogDir, starts: Offsets, points: Offsets) -> dict[str, bytes]:
    log_dir.log_starts.update(starts)
    log_dir.recovery_points.update(points)
    return {
        RECOVERY_POINTS: format_offsets(log_dir.recovery_points),
        LOG_STARTS: format_offsets({p: start for p, start in log_dir.log_starts.items() if start}),
        HIGH_WATERMARKS: format_offsets(log_dir.high_watermarks),
        CLEANER_OFFSETS: format_offsets(log_dir.cleaner_offsets),
    }


def _write_temporary(log_dir: LogDir, contents: dict[str, bytes]) -> None:
    for name, data in contents.items():
        write_temporary(log_dir.disk, f"{log_dir.path}/{name}{CHECKPOINTING}", data)
