"""Compaction against reading, checksumming and writing the same bytes; and its memory.

The bare loop reads each segment once in pieces of 1 MiB, makes their CRC-32C, writes them
to another file and syncs it. Compaction of a log that is wholly dirty reads it twice. Memory is
the most that a child process took beyond what it has loaded, for a small log and for one eight
times as large. It is read from /proc: `ru_maxrss` begins with what the parent had.
"""

import json
import os
import subprocess
import sys
from functools import partial
from typing import Any

from crc32c import crc32c

from bench.keyed_logs import KeyedLog, Row, keyed_log, ratio, row
from tidelog.log.cleaning import clean
from tidelog.world.real.disk import RealDisk

MEGABYTES = 256
ROUNDS = 9
MAP_BYTES = 128 << 20
PIECE = 1 << 20

CHILD = """
import json, re, sys
from tidelog.log.cleaning import clean
from tidelog.world.real.disk import RealDisk
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
before = peak()
clean(RealDisk(), json.loads(sys.stdin.read()))
print(peak() - before)
"""


def argument(log: KeyedLog, map_bytes: int) -> dict[str, Any]:
    return {
        "folder": str(log.folder),
        "segments": log.segments,
        "first_dirty": 0,
        "upper": log.end,
        "map_bytes": map_bytes,
        "load_factor": 0.9,
        "seed": os.urandom(16).hex(),
        "max_segment_bytes": 1 << 30,
        "max_index_bytes": 10 << 20,
        "index_interval_bytes": 4096,
        "delete_retention_ms": 86_400_000,
        "now_ms": 1_700_000_000_000,
        "active_producers": [log.end - 1],
        "raised_epochs": [],
        "max_batch_bytes": 1 << 20,
    }


def compact(log: KeyedLog) -> None:
    result = clean(RealDisk(), argument(log, MAP_BYTES))
    assert result["end"] == log.end
    _remove_cleaned(log)


def _remove_cleaned(log: KeyedLog) -> None:
    for path in log.folder.glob("*.cleaned"):
        path.unlink()


def bare(log: KeyedLog) -> None:
    target = log.folder / "copy"
    for segment in log.segments:
        with open(log.path(segment["base"]), "rb") as source, open(target, "wb") as copy:
            while piece := source.read(PIECE):
                crc32c(piece)
                copy.write(piece)
            copy.flush()
            os.fsync(copy.fileno())
    target.unlink()


def added_megabytes(log: KeyedLog, map_bytes: int) -> float:
    request = json.dumps(argument(log, map_bytes))
    command = [sys.executable, "-c", CHILD]
    answer = subprocess.run(command, input=request, capture_output=True, text=True, check=True)
    _remove_cleaned(log)
    return int(answer.stdout) / 1024


def speed(name: str, records_in_batch: int, records_a_key: int) -> list[Row]:
    name = f"{name}, {records_a_key} record(s) a key"
    with keyed_log("cleaning", MEGABYTES, records_in_batch, records_a_key) as log:
        times, took = ratio(partial(compact, log), partial(bare, log), ROUNDS)
        return [
            row(f"compaction, {name}", times, "x read, crc, write", "<= 2"),
            row(f"compaction, {name}", log.size / took / 1e6, "MB/s"),
        ]


def memory() -> list[Row]:
    """A map too small for all keys of either log, so that it is full both times."""
    measured = []
    for megabytes in (64, 512):
        with keyed_log("cleaning", megabytes, 1) as log:
            added = added_megabytes(log, 4 << 20)
            measured.append(row(f"memory to compact {megabytes} MB, map of 4 MB", added, "MB"))
    return measured


def run() -> list[Row]:
    rows: list[Row] = []
    for records_a_key in (10, 1):
        rows += speed("170-byte batches", 1, records_a_key)
        rows += speed("16 KB batches", 150, records_a_key)
    return [*rows, *memory()]


if __name__ == "__main__":
    for measured in run():
        print("{name:45} {value:8} {unit:20} {target}".format(**measured))
