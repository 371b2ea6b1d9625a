"""The step of the demo in which a process is killed in the middle of its work."""

import subprocess
import sys
from time import monotonic, perf_counter
from typing import Final

from tidelog.cli.demo_stage import IDENTITY, PAYMENTS, SETTINGS, Stage, batches
from tidelog.log.log_dir import LogDir

WRITING_SECONDS: Final = 0.3


def kill_a_writer(stage: Stage, folder: str) -> None:
    screen = stage.screen
    screen.step("Crash: a writer is killed with SIGKILL, and its log is opened again")
    acknowledged = _acknowledged_until_killed(folder)
    started = perf_counter()
    log_dir = LogDir(folder, stage.disk, stage.clock)
    log_dir.open(IDENTITY, SETTINGS.__getitem__)
    opening_ms = (perf_counter() - started) * 1000
    assert not log_dir.was_closed, "a killed process leaves no sign of a clean stop"
    log = log_dir.logs[PAYMENTS]
    found = sum(header.record_count for header, _ in batches(log))
    assert found >= acknowledged, f"{acknowledged - found} acknowledged records were lost"
    screen.table(
        ["acknowledged", "found again", "flushed before", "bytes", "opened in"],
        [
            (
                acknowledged,
                found,
                log.durable_recovery_point,
                log.segments.size,
                f"{opening_ms:.0f} ms",
            )
        ],
    )
    screen.notice(
        "No acknowledged record is lost, flushed or not: a process that dies leaves the page "
        "cache behind. Every checksum is right. What was being written when the kill came may "
        "be there too."
    )
    log_dir.close()


def _acknowledged_until_killed(folder: str) -> int:
    """Lets a child write for a while; returns what it had acknowledged when it was killed."""
    command = [sys.executable, "-P", "-m", "tidelog.cli.demo_writer", folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        try:
            last = writer.stdout.readline()
            until = monotonic() + WRITING_SECONDS
            while last and monotonic() < until:
                last = writer.stdout.readline()
        finally:
            writer.kill()
        rest = writer.stdout.read().splitlines(keepends=True)
    whole = [line for line in (last, *rest) if line.endswith(b"\n")]
    assert whole, "the writer never came to write: see its message above"
    return int(whole[-1])
