"""The steps of the demo that look at a log: its files, and finding things in it."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

from tidelog.cli.demo_stage import ORDERS, READ_BYTES, Stage
from tidelog.cli.demo_writing import DAY_MS
from tidelog.log.dump import DumpOptions, dump
from tidelog.log.files import LOG, OFFSET_INDEX, TIME_INDEX
from tidelog.log.partition_log import PartitionLog
from tidelog.records.batch import walk

LOOKUPS: Final = 500
QUOTED: Final = 4


def show_segments(stage: Stage) -> None:
    """Rolls once more by hand, and lists what is in the folder."""
    screen = stage.screen
    screen.step("Segments: the log rolls to a new file when one is full")
    log = stage.logs.get(ORDERS)
    log.roll()
    rows = []
    for index, segment in enumerate(log.segments.all):
        end = log.segments.end_of(index, log.log_end_offset)
        sizes = [
            Path(segment.path(kind)).stat().st_size for kind in (LOG, OFFSET_INDEX, TIME_INDEX)
        ]
        rows.append((Path(segment.path(LOG)).name, end - segment.base_offset, *sizes))
    screen.table(["file", "offsets", ".log bytes", ".index", ".timeindex"], rows)
    screen.notice(
        f"Rolled at segment.bytes={log.settings.segment_bytes:,}, the last time by hand. The "
        f"indexes are sparse: at most an entry for every {log.settings.index_interval_bytes:,} "
        f"bytes of log. The last segment is empty and takes the next append."
    )


def find_records(stage: Stage) -> None:
    """Looks up an offset and a time, then many of each."""
    screen = stage.screen
    screen.step("Read: any offset or moment is found without searching the log")
    log = stage.logs.get(ORDERS)
    offset = log.log_end_offset // 2
    piece = log.read(offset, READ_BYTES, log.log_end_offset)
    _, header = next(walk(piece.file.pread(piece.size, piece.position)))
    moment_ms = stage.clock.now_ms() - 3 * DAY_MS
    found = log.offset_for_timestamp(moment_ms)
    assert found is not None, "the log has orders of the last three days"
    screen.table(
        ["asked for", "found"],
        [
            (
                f"offset {offset:,}",
                f"in the batch of offsets {header.base_offset:,} to {header.last_offset:,}, "
                f"at byte {piece.position:,} of its segment",
            ),
            (_time(moment_ms), f"offset {found[0]:,}, of {_time(found[1])}"),
        ],
    )
    screen.notice(_timings(log, moment_ms))


def _timings(log: PartitionLog, moment_ms: int) -> str:
    end = log.log_end_offset
    by_offset = _median_us(lambda at: log.read(at * 7_919 % end, 1, end))
    by_time = _median_us(lambda at: log.offset_for_timestamp(moment_ms - at * DAY_MS // 100))
    return (
        f"{LOOKUPS} lookups each, median: {by_offset:.0f} microseconds by offset, {by_time:.0f} "
        f"by time (which opens the batch to find the record)."
    )


def _median_us(lookup: Callable[[int], object]) -> float:
    seconds = []
    for at in range(LOOKUPS):
        started = perf_counter()
        lookup(at)
        seconds.append(perf_counter() - started)
    return median(seconds) * 1e6


def _time(timestamp_ms: int) -> str:
    return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def dump_a_segment(stage: Stage) -> None:
    """The last closed segment, as `tidelog dump-log` prints it."""
    screen = stage.screen
    screen.step("Dump: every file can be looked into, with the flags of Kafka's own tool")
    path = stage.logs.get(ORDERS).segments.closed[-1].path(LOG)
    lines = list(dump(stage.disk, path, DumpOptions(print_data_log=True)))
    screen.command(f"$ tidelog dump-log --print-data-log --files {path}")
    screen.quote("...", *lines[-QUOTED:])
    screen.notice(
        f"These are the last {QUOTED} of {len(lines):,} lines: how the transactions ended."
    )
