"""Keeps the page cache at its dirty limit, where the kernel makes writers wait for the disk.

`at_the_limit(folder)` starts a process that overwrites a large file again and again, waits until
the system has as many dirty pages as it allows, and ends it and removes the file afterwards.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_WAIT_SECONDS_MAX = 60
_SHARE_OF_LIMIT = 0.75
"""The kernel slows writers down from half way between the background limit and the limit."""
_SPARE_BYTES = 12 << 30


def pages(name: str) -> int:
    for line in Path("/proc/vmstat").read_text().splitlines():
        key, value = line.split()
        if key == name:
            return int(value)
    raise KeyError(name)


def limit_bytes() -> int:
    return pages("nr_dirty_threshold") * os.sysconf("SC_PAGE_SIZE")


def dirty_bytes() -> int:
    return (pages("nr_dirty") + pages("nr_writeback")) * os.sysconf("SC_PAGE_SIZE")


def has_room(folder: Path) -> bool:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize > 2 * limit_bytes() + _SPARE_BYTES


@contextmanager
def at_the_limit(folder: Path) -> Iterator[bool]:
    """Whether it was reached: a quick disk may write faster than anyone can dirty pages."""
    path = folder / "dirty"
    command = [sys.executable, "-m", "bench.load.dirty_pages", str(path), str(2 * limit_bytes())]
    process = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + _WAIT_SECONDS_MAX
        while dirty_bytes() < _SHARE_OF_LIMIT * limit_bytes() and time.monotonic() < deadline:
            time.sleep(0.1)
        yield time.monotonic() < deadline
    finally:
        process.kill()
        process.wait()
        path.unlink(missing_ok=True)


def main(path: str, size: str) -> None:
    # It is here for the pages, and must not take the cores from those who are measured.
    os.nice(19)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    data = bytes(1 << 20)
    while True:
        for position in range(0, int(size), len(data)):
            os.pwrite(descriptor, data, position)


if __name__ == "__main__":
    main(*sys.argv[1:])
